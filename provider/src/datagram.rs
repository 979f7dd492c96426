//! Datagram QPs: making one ready, its endpoint for senders, and groups.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use urxe_core::multicast::{McastError, group_of};
use urxe_core::qp::attr::{AddressVector, QpAttr};
use urxe_core::qp::ready::bring_to_rts;
use urxe_wire::{Gid, Qkey, Qpn};

use crate::ah::AddressHandle;
use crate::endpoint::{no_endpoint, number24};
use crate::error::Error;
use crate::pd::Pd;
use crate::qp::Qp;

/// Where a datagram QP can be reached.
///
/// As text it is one line without spaces, `address/qpn/qkey`.
///
/// ```
/// let endpoint: urxe::UdEndpoint = "10.0.0.1/0x1a2b3c/0x11111111".parse()?;
/// assert_eq!(endpoint.qkey, urxe::Qkey(0x1111_1111));
/// assert_eq!(endpoint.to_string().parse::<urxe::UdEndpoint>()?, endpoint);
/// # Ok::<(), urxe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct UdEndpoint {
    /// Its address (its GID).
    pub addr: IpAddr,
    /// Its QP's number.
    pub qpn: Qpn,
    /// Its QP's Q_Key.
    pub qkey: Qkey,
}

impl fmt::Display for UdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, qkey) = (self.qpn.get(), self.qkey.0);
        write!(f, "{}/{qpn:#x}/{qkey:#x}", self.addr)
    }
}

impl FromStr for UdEndpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<UdEndpoint, Error> {
        let error = |reason| no_endpoint(text, reason);
        let fields: Vec<&str> = text.trim().split('/').collect();
        let [addr, qpn, qkey] = fields[..] else {
            return Err(error("it is not address/qpn/qkey"));
        };
        let addr = addr.parse();
        let qkey = u32::from_str_radix(qkey.strip_prefix("0x").unwrap_or(qkey), 16);
        Ok(UdEndpoint {
            addr: addr.map_err(|_| error("it does not begin with an IP address"))?,
            qpn: Qpn::new(number24(qpn).ok_or_else(|| error("the QP number is no 24-bit number"))?),
            qkey: Qkey(qkey.map_err(|_| error("the Q_Key is no hexadecimal 32-bit number"))?),
        })
    }
}

impl Pd {
    /// An address handle to where a datagram QP can be reached, from the context's first
    /// address of its IP version.
    ///
    /// # Errors
    /// See [`Pd::create_ah`].
    pub fn create_ah_to(&self, addr: IpAddr) -> Result<AddressHandle, Error> {
        let context = self.context();
        let local = context.address_like(addr);
        self.create_ah(&AddressVector {
            local: local.unwrap_or(context.address()),
            remote: addr,
            traffic_class: 0,
            hop_limit: 64,
        })
    }
}

impl Qp {
    /// Where this QP can be reached by datagrams, at the context's first address.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn ud_endpoint(&self) -> Result<UdEndpoint, Error> {
        Ok(UdEndpoint {
            addr: self.pd().context().address(),
            qpn: self.qp_num(),
            qkey: self.query()?.qkey,
        })
    }

    /// Brings a datagram QP to where it sends and receives: INIT, RTR, RTS. It then takes
    /// datagrams from all senders that know the Q_Key, at all of the context's addresses.
    /// Receives must be 40 bytes longer than the datagrams, and can be posted before.
    ///
    /// # Errors
    /// See [`Qp::modify`].
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.42".parse().unwrap())?;
    /// use urxe::{Access, Qkey, QpType, RecvWr, SendWr};
    ///
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let open = || pd.qp(&cq).qp_type(QpType::Ud).create();
    /// let (alice, bob) = (open()?, open()?);
    /// alice.start_datagrams(Qkey(0x1111_1111))?;
    /// bob.start_datagrams(Qkey(0x2222_2222))?;
    ///
    /// let memory = pd.reg_owned(vec![0; 40 + 64], Access::LOCAL_WRITE)?;
    /// bob.post_recv(&RecvWr::new(7, &[memory.sge(..)]))?;
    ///
    /// // Any address handle to the host will do, and serves for all its QPs.
    /// let to = bob.ud_endpoint()?;
    /// let ah = pd.create_ah_to(to.addr)?;
    /// alice.post_send(&SendWr::send_inline(1, b"hello").ud_addr(&ah, to.qpn, to.qkey))?;
    ///
    /// let wc = cq.poll_one()?;
    /// assert_eq!((wc.wr_id, wc.src_qp), (7, alice.qp_num()));
    /// assert!(wc.grh);
    /// let mut text = [0; 5];
    /// memory.read(40, &mut text);
    /// assert_eq!((&text, wc.byte_len), (b"hello", 45));
    ///
    /// // The first 40 bytes say where to answer.
    /// let mut grh = [0; 40];
    /// memory.read(0, &mut grh);
    /// let back = pd.create_ah_from_wc(&wc, &grh)?;
    /// let answer = SendWr::send_inline(2, b"hello yourself");
    /// bob.post_send(&answer.ud_addr(&back, wc.src_qp, Qkey(0x1111_1111)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_datagrams(&self, qkey: Qkey) -> Result<(), Error> {
        let attr = QpAttr {
            qkey,
            sq_psn: self.first_psn(),
            ..QpAttr::default()
        };
        bring_to_rts(self.qp_type(), self.state()?, &attr, |attr, mask| {
            self.modify(attr, mask)
        })
    }

    /// Attaches a datagram QP to a multicast group: it receives a copy of every datagram
    /// to it, its own too (see [`crate::QpBuilder::block_self_mcast_lb`]). The host joins
    /// the group on the context's interface. To attach again changes nothing.
    ///
    /// IPv4 groups are named by their address as a GID, `::ffff:239.1.2.3`; the older form
    /// `ff0e::ffff:239.1.2.3` is the same group.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Mcast`] if it is no group, or the QP's type not UD; or if the system
    /// cannot join.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.43".parse().unwrap())?;
    /// use core::net::IpAddr;
    /// use urxe::{Access, Qkey, Qpn, QpType, RecvWr, SendWr};
    ///
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let qp = pd.qp(&cq).qp_type(QpType::Ud).create()?;
    /// qp.start_datagrams(Qkey(0x0123_4567))?;
    /// let memory = pd.reg_owned(vec![0; 40 + 64], Access::LOCAL_WRITE)?;
    /// qp.post_recv(&RecvWr::new(7, &[memory.sge(..)]))?;
    ///
    /// let group: IpAddr = "239.81.0.43".parse().unwrap();
    /// qp.attach_mcast(group.into())?;
    /// let ah = pd.create_ah_to(group)?;
    /// let hello = SendWr::send_inline(1, b"hello, all");
    /// qp.post_send(&hello.ud_addr(&ah, Qpn::MULTICAST, Qkey(0x0123_4567)))?;
    /// assert_eq!(cq.poll_one()?.byte_len, 50);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&self, group: Gid) -> Result<(), Error> {
        let group = named(group)?;
        self.engine().attach_mcast(self.shared(), group)
    }

    /// Detaches it again. The host leaves the group with its last member. A QP that is
    /// destroyed is detached from all groups.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Mcast`] if it is not attached.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&self, group: Gid) -> Result<(), Error> {
        let group = named(group)?;
        self.engine().detach_mcast(self.shared(), group)
    }
}

fn named(group: Gid) -> Result<IpAddr, Error> {
    group_of(group).ok_or_else(|| McastError::NotAGroup(group.into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn text_that_is_no_endpoint_is_refused() {
        for text in [
            "",
            "x",
            "10.0.0.1",
            "10.0.0.1/1",
            "10.0.0.1/1/2/3",
            "10.0.0.1/0x1000000/2",
            "10.0.0.1/1/0x100000000",
            "10.0.0.1/1/qkey",
            "host/1/2",
        ] {
            let error = text.parse::<UdEndpoint>().expect_err(text);
            assert!(
                matches!(error.kind(), ErrorKind::Endpoint { .. }),
                "{error}"
            );
        }
        let endpoint: UdEndpoint = "fd00::1/2/1a\n".parse().expect("an endpoint");
        assert_eq!(endpoint.to_string(), "fd00::1/0x2/0x1a");
    }
}
