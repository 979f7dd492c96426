//! Events of the connection manager for the application.

use urxe_wire::cm::RejReason;

use super::terms::{CommId, Incoming, Reply};

/// What happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmEvent {
    /// A peer wants to connect. The listener's backlog counts the request until
    /// [`super::Agent::take`].
    Request(CommId, Box<Incoming>),
    /// The other side accepted: bring the QP to RTS, then [`super::Agent::establish`].
    Reply(CommId, Box<Reply>),
    /// The other side refused.
    Rejected(CommId, RejReason, Box<[u8]>),
    /// The other side does not answer.
    Unreachable(CommId),
    /// The other side is ready too.
    Established(CommId, Box<[u8]>),
    /// The other side wants the connection to end, or knows that it has.
    Disconnected {
        /// Which.
        id: CommId,
        /// True if the peer did not answer.
        timed_out: bool,
        /// What its program sent.
        private_data: Box<[u8]>,
    },
    /// Packets of the connection can be under way no longer.
    TimewaitExit(CommId),
}

impl CmEvent {
    /// The connection.
    pub fn id(&self) -> CommId {
        match *self {
            CmEvent::Request(id, _)
            | CmEvent::Reply(id, _)
            | CmEvent::Rejected(id, ..)
            | CmEvent::Unreachable(id)
            | CmEvent::Established(id, _)
            | CmEvent::Disconnected { id, .. }
            | CmEvent::TimewaitExit(id) => id,
        }
    }
}
