//! What `{:?}` shows of the handles: the names and sizes by which a program tells objects apart. What an engine holds is not part
//! of it: that is megabytes, packets and secrets among them, behind locks that the caller may hold.

use std::fmt;

use crate::cm;
use crate::engine::Engine;
use crate::special_mr::{ImplicitMr, NullMr};
use crate::{CompChannel, Context, Cq, Dm, Mr, Pd, Qp, Srq};

/// Its addresses.
struct Addresses<'a>(&'a Engine);

impl fmt::Debug for Addresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.sockets.addrs()).finish()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&Addresses(self)).finish()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context")
            .field(&Addresses(self.engine()))
            .finish()
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd")
            .field("id", &self.id().0)
            .field("context", self.context())
            .finish()
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("id", &self.id().0)
            .field("capacity", &self.capacity())
            .field("context", self.context())
            .finish()
    }
}

impl fmt::Debug for CompChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompChannel")
            .field("context", self.context())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("qp_num", &self.qp_num())
            .field("qp_type", &self.qp_type())
            .field("pd", self.pd())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("id", &self.id())
            .field("pd", self.pd())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len())
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .field("pd", self.pd())
            .finish()
    }
}

impl fmt::Debug for NullMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NullMr")
            .field("lkey", &self.lkey())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ImplicitMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImplicitMr")
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Dm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dm")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for cm::EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}

impl fmt::Debug for cm::Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("number", &self.number())
            .field("port_space", &self.port_space())
            .field("qp_type", &self.qp_type())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::address;
    use crate::{Access, CompChannel, Context, Cq, Mr, Pd, Qp, Srq, SrqAttr};

    #[test]
    fn handles_are_shown_in_a_line() {
        let context = Context::open(address().into()).expect("opens");
        let pd: Pd = context.alloc_pd().expect("room");
        let channel: CompChannel = context.create_comp_channel().expect("room");
        let cq: Cq = context.create_cq_with_channel(16, &channel).expect("room");
        let qp: Qp = pd.qp(&cq).create().expect("room");
        let srq: Srq = pd.create_srq(&SrqAttr::default()).expect("room");
        let mr: Mr = pd.reg_owned(vec![0; 64], Access::NONE).expect("room");
        let shown = [
            format!("{context:?}"),
            format!("{pd:?}"),
            format!("{channel:?}"),
            format!("{cq:?}"),
            format!("{qp:?}"),
            format!("{srq:?}"),
            format!("{mr:?}"),
        ];
        let here = context.address().to_string();
        for text in &shown {
            assert!(text.contains(&here), "{text}");
            assert!(text.len() < 300, "{} bytes: {text}", text.len());
        }
        assert!(
            shown[4].contains(&format!("{:?}", qp.qp_num())),
            "{}",
            shown[4]
        );
    }
}
