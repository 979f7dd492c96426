//! The owner of a message, where several agents share an address: a message that names a
//! connection goes by the upper bits of its id, a request by the port that it asks for.

use urxe_wire::cm::CmMessage;

use super::conns::owner_of;
use super::terms::CommId;
use crate::qpn_table::QpnChunk;

/// Where a management datagram belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To the owner of this chunk of QPNs.
    Owner(QpnChunk),
    /// To the listener for this service.
    Service(u64),
    /// To no owner in particular.
    Anyone,
}

pub(super) fn of_message(message: &CmMessage) -> Destination {
    let id = match message {
        CmMessage::Req(req) => return Destination::Service(req.service_id),
        CmMessage::SidrReq(req) => return Destination::Service(req.service_id),
        CmMessage::Mra(mra) => mra.remote_comm_id,
        CmMessage::Rej(rej) => rej.remote_comm_id,
        CmMessage::Rep(rep) => rep.remote_comm_id,
        CmMessage::Rtu(rtu) => rtu.remote_comm_id,
        CmMessage::Dreq(dreq) => dreq.remote_comm_id,
        CmMessage::Drep(drep) => drep.remote_comm_id,
        CmMessage::SidrRep(rep) => rep.request_id,
        CmMessage::Lap(lap) => lap.remote_comm_id,
        CmMessage::Apr(apr) => apr.remote_comm_id,
    };
    if id == 0 {
        return Destination::Anyone;
    }
    Destination::Owner(owner_of(CommId(id)))
}
