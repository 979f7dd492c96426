//! Address handles: where a datagram goes, worked out once and used for many.

use core::net::IpAddr;

use urxe_wire::{IcrcSeed, Qkey, Qpn, ROCE_V2_PORT};

use crate::mr::PdId;
use crate::path::icrc_seed;
use crate::qp::attr::{AddressVector, check_path};
use crate::qp::state::ModifyError;
use crate::qpn_table::QpnChunk;
use crate::transmit::TxDest;

/// The path of datagrams: an address vector, bound to a protection domain, with what
/// every packet's ICRC has in common.
///
/// It is a plain value. A post copies it, so what happens to the application's handle
/// after the post does not matter.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    pd: PdId,
    pub(crate) dest: TxDest,
    pub(crate) seed: IcrcSeed,
    hop_limit: u8,
}

impl AddressHandle {
    /// A handle of `pd` for the path, which may lead to a multicast group.
    ///
    /// # Errors
    /// [`ModifyError::Path`] if no packet can take the path.
    #[doc(alias = "ibv_create_ah")]
    pub fn new(pd: PdId, path: &AddressVector) -> Result<AddressHandle, ModifyError> {
        check_path(Some(*path))?;
        if path.local.is_multicast() || is_broadcast(path.remote) {
            return Err(ModifyError::Path(
                "packets neither come from a group nor go to all hosts",
            ));
        }
        Ok(AddressHandle {
            pd,
            dest: TxDest {
                local: path.local,
                remote: path.remote,
                tos: path.traffic_class,
                source_port: ROCE_V2_PORT,
                chunk: QpnChunk(0),
                in_memory: false,
                near_port: None,
            },
            seed: icrc_seed(path.local, ROCE_V2_PORT, path.remote),
            hop_limit: path.hop_limit,
        })
    }

    /// The protection domain that it belongs to.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// The path that it was made for.
    #[doc(alias = "ibv_query_ah")]
    pub fn path(&self) -> AddressVector {
        AddressVector {
            local: self.dest.local,
            remote: self.dest.remote,
            traffic_class: self.dest.tos,
            hop_limit: self.hop_limit,
        }
    }
}

fn is_broadcast(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(v4) if v4.is_broadcast())
}

/// Where one datagram goes, as it is posted.
#[derive(Clone, Copy, Debug)]
pub struct UdDest<'a> {
    /// The path.
    pub ah: &'a AddressHandle,
    /// The QP at its end; [`Qpn::MULTICAST`] if that is a group.
    pub qpn: Qpn,
    /// The Q_Key of that QP. With the high bit set: the sending QP's own Q_Key instead.
    pub qkey: Qkey,
}

/// Where one datagram goes, while it waits in the send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdTarget {
    pub(crate) ah: AddressHandle,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: Qkey,
}

impl From<UdDest<'_>> for UdTarget {
    fn from(dest: UdDest<'_>) -> UdTarget {
        let mut ah = *dest.ah;
        ah.dest.chunk = QpnChunk::of(dest.qpn);
        UdTarget {
            ah,
            qpn: dest.qpn,
            qkey: dest.qkey,
        }
    }
}
