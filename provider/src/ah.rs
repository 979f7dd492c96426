//! Address handles: the destinations of datagrams.

use core::net::IpAddr;

use urxe_core::ah;
use urxe_core::qp::attr::AddressVector;
use urxe_core::qp::state::ModifyError;
use urxe_wire::{Grh, Qkey, Qpn};

use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::pd::Pd;
use crate::wc::Wc;
use crate::wr::SendWr;

/// An address handle: the path of datagrams to one host, or to a multicast group. Which
/// QP at its end a datagram is for is said with each ([`SendWr::ud_addr`]).
///
/// It belongs to a protection domain, and works with QPs of that alone. A post copies
/// what it needs of it: a handle may be dropped at once after the post.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.40".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// let ah = pd.create_ah(&urxe::AddressVector {
///     local: context.address(),
///     remote: "127.81.0.41".parse().unwrap(),
///     traffic_class: 0,
///     hop_limit: 64,
/// })?;
/// assert_eq!(ah.query().remote.to_string(), "127.81.0.41");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_ah")]
#[doc(alias = "ibv_destroy_ah")]
pub struct AddressHandle {
    pd: Pd,
    core: ah::AddressHandle,
}

impl AddressHandle {
    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The path that it was created for.
    #[doc(alias = "ibv_query_ah")]
    pub fn query(&self) -> AddressVector {
        self.core.path()
    }
}

impl Pd {
    /// An address handle for a path from one of the context's addresses to a host or a
    /// multicast group.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignAddress`] if the path does not begin at one of the context's
    /// addresses, [`ErrorKind::Modify`] if no packet can take it.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, path: &AddressVector) -> Result<AddressHandle, Error> {
        let core = ah::AddressHandle::new(self.id(), path)?;
        self.shards().prepare_path(path)?;
        Ok(AddressHandle {
            pd: self.clone(),
            core,
        })
    }

    /// An address handle back to where a received datagram came from. `grh` are the first
    /// 40 bytes of its receive.
    ///
    /// # Errors
    /// See [`Context::init_ah_from_wc`].
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; 40]) -> Result<AddressHandle, Error> {
        self.create_ah(&self.context().init_ah_from_wc(1, wc, grh)?)
    }
}

impl Context {
    /// The path back to where a received datagram came from: the addresses, traffic class
    /// and hop limit of its packet, turned round. `grh` are the first 40 bytes of its
    /// receive. The answer to a group's datagram leaves from the context's first address
    /// of that IP version.
    ///
    /// # Errors
    /// If the port is not 1, the completion is not one of a datagram, or `grh` does not
    /// hold what its receive began with.
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn init_ah_from_wc(
        &self,
        port: u8,
        wc: &Wc,
        grh: &[u8; 40],
    ) -> Result<AddressVector, Error> {
        self.check_port(port)?;
        if !wc.grh {
            return Err(bad("the completion is not one of a received datagram"));
        }
        let (from, to, traffic_class, hop_limit): (IpAddr, IpAddr, u8, u8) = match Grh::parse(grh) {
            Ok(Grh::V4(h)) if h.checksum == h.computed_checksum() => {
                (h.src.into(), h.dst.into(), h.tos, h.ttl)
            }
            Ok(Grh::V6(h)) => (h.src.into(), h.dst.into(), h.traffic_class, h.hop_limit),
            _ => return Err(bad("the receive does not begin with an IP header")),
        };
        let local = if self.addresses().any(|addr| addr == to) {
            Some(to)
        } else if to.is_multicast() {
            self.address_like(to)
        } else {
            None
        };
        Ok(AddressVector {
            local: local.ok_or(ErrorKind::ForeignAddress(to))?,
            remote: from,
            traffic_class,
            hop_limit,
        })
    }
}

fn bad(reason: &'static str) -> Error {
    ModifyError::Path(reason).into()
}

impl<'a> SendWr<'a> {
    /// Where a datagram goes: the path, the QP at its end ([`Qpn::MULTICAST`] for a
    /// group), and that QP's Q_Key. A Q_Key with the high bit set stands for the sending
    /// QP's own, as only privileged programs can give a QP such a key.
    #[must_use]
    #[doc(alias = "ibv_wr_set_ud_addr")]
    #[doc(alias = "remote_qkey")]
    pub fn ud_addr(mut self, ah: &'a AddressHandle, remote_qpn: Qpn, remote_qkey: Qkey) -> Self {
        self.core.ud = Some(ah::UdDest {
            ah: &ah.core,
            qpn: remote_qpn,
            qkey: remote_qkey,
        });
        self
    }
}
