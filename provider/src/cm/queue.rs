//! Events on their way to the program.

use std::sync::Weak;

use urxe_core::cm::{CmEvent, CommId, Incoming};

use super::event::{EventKind, EventParam};
use super::id::Handle;
use crate::queues::Channel;

/// The queue of a channel.
pub(crate) type Queue = Channel<Queued>;

/// An event that the program did not take so far. It holds no identifier: those that are
/// gone get no events.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) to: Weak<Handle>,
    pub(crate) what: What,
}

/// A queued event.
#[derive(Debug)]
pub(crate) enum What {
    /// Something that is as it is.
    Plain(EventKind, i32, EventParam),
    /// Something of the protocol.
    Agent(CmEvent),
    /// A request; with the number of the context that the listener has.
    Request(usize, CommId, Box<Incoming>),
}
