//! One end of a connection, as the programs of tests use it.

#![allow(dead_code, reason = "not every test uses all of it")]

use fabric_sim::program::{ask, host, tell};
use urxe::{Access, CompChannel, ConnectOptions, Context, Cq, Mr, Qp, RecvWr, SendWr, Wc};

pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) memory: Mr,
}

impl End {
    /// Opens a context on the host that the program runs on.
    pub(crate) fn open(channel: bool) -> (End, Option<CompChannel>) {
        let here = host().expect("in a simulation");
        let context = Context::open(fabric_sim::host::address_of(here)).expect("opens");
        End::of(context, channel)
    }

    pub(crate) fn of(context: Context, channel: bool) -> (End, Option<CompChannel>) {
        let pd = context.alloc_pd().expect("a PD");
        let channel = channel.then(|| context.create_comp_channel().expect("a channel"));
        let cq = match &channel {
            Some(channel) => context.create_cq_with_channel(64, channel),
            None => context.create_cq(64),
        };
        let cq = cq.expect("a CQ");
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = pd.reg_owned(vec![0; 1 << 18], access).expect("registers");
        let qp = pd.qp(&cq).create().expect("a QP");
        let end = End {
            context,
            cq,
            qp,
            memory,
        };
        (end, channel)
    }

    /// Connects with the peer, under the two names.
    pub(crate) fn meet(&self, me: &str, peer: &str, options: &ConnectOptions) -> (u64, urxe::Rkey) {
        tell(me, self.qp.endpoint());
        let keys = format!("{} {}", self.memory.addr(), self.memory.rkey().0);
        tell(&format!("{me} memory"), keys);
        let endpoint = ask(peer).parse().expect("an endpoint");
        self.qp.connect(&endpoint, options).expect("connects");
        let keys = ask(&format!("{peer} memory"));
        let (addr, rkey) = keys.split_once(' ').expect("two numbers");
        let rkey = urxe::Rkey(rkey.parse().expect("a number"));
        (addr.parse().expect("a number"), rkey)
    }

    pub(crate) fn post_recv(&self, wr_id: u64, len: usize) {
        let sges = [self.memory.sge(..len)];
        let recv = RecvWr::new(wr_id, &sges);
        self.qp.post_recv(&recv).expect("posts");
    }

    pub(crate) fn post_send(&self, wr_id: u64, len: usize) {
        let sges = [self.memory.sge(..len)];
        let send = SendWr::send(wr_id, &sges).signaled();
        self.qp.post_send(&send).expect("posts");
    }

    pub(crate) fn wait(&self) -> Wc {
        self.cq.poll_one().expect("polls")
    }
}

/// A short local ACK timeout: faults are mended within the time of a test.
pub(crate) fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: 5,
        min_rnr_timer: 1,
        ..ConnectOptions::default()
    }
}
