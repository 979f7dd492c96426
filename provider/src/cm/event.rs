//! Events of identifiers.

use super::event_kind::{EventKind, EventParam};
use super::id::Id;
use super::param::{ConnParam, UdParam};

/// Something that happened to an identifier.
///
/// It holds the identifier: one without other handles is destroyed with its last event.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// 0; or a negative `errno`; or of [`EventKind::Rejected`] the reason of the REJ, of a
    /// datagram's [`EventKind::Unreachable`] the status of the SIDR_REP.
    pub status: i32,
    /// The identifier that it is for. Of a [`EventKind::ConnectRequest`] it is new.
    pub id: Id,
    /// Of a [`EventKind::ConnectRequest`]: the identifier that listens.
    pub listen_id: Option<Id>,
    /// Its parameters.
    pub param: EventParam,
}

impl Event {
    /// The terms that the peer proposes or accepted, if there are any.
    pub fn conn(&self) -> Option<&ConnParam> {
        match &self.param {
            EventParam::Conn(param) => Some(param),
            _ => None,
        }
    }

    /// Where datagrams are to go, if the event says that.
    pub fn ud(&self) -> Option<&UdParam> {
        match &self.param {
            EventParam::Ud(param) => Some(param),
            _ => None,
        }
    }

    /// What the peer's program sent with its message.
    pub fn private_data(&self) -> &[u8] {
        match &self.param {
            EventParam::None | EventParam::User(_) => &[],
            EventParam::Conn(param) => &param.private_data,
            EventParam::Ud(param) => &param.private_data,
        }
    }
}
