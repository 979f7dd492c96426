//! Events of the connection manager for the application, and messages of handshakes, which are for what has the keys.

use core::net::IpAddr;

use urxe_wire::cm::RejReason;

use super::terms::{CommId, HelloBytes, Incoming, MadPath, Reply};

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

/// A message of a handshake that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// A peer begins one, before its request: answer by [`super::Agent::answer_hello`] or [`super::Agent::refuse_hello`].
    Hello(Hello),
    /// A listener answers that of a connection: go on by [`super::Agent::proceed`].
    Answer(CommId, Box<HelloBytes>),
}

/// A first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The way of the answer.
    pub path: MadPath,
    /// The connection, as its request will name it.
    pub from: HelloFrom,
    /// What the connection is for.
    pub service_id: u64,
    /// The message.
    pub bytes: Box<HelloBytes>,
    pub(super) transaction_id: u64,
}

/// The connection that a peer asks for, by the peer's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HelloFrom {
    /// Its address.
    pub remote: IpAddr,
    /// Its device.
    pub guid: u64,
    /// Its number for the connection.
    pub id: u32,
}
