//! The seam below the engine: what a carrier of packets does for it.

use core::fmt::Debug;
use core::net::IpAddr;
use std::os::fd::OwnedFd;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::{TxBatch, TxDest};

use super::intake::Intake;
use super::keeper::Keeper;
use super::sockets::Which;
use crate::engine::upkeep::counters::EngineCounters;
use crate::engine::upkeep::tap::Tap;
use crate::error::{Error, ErrorKind};
use crate::faults::FaultyPath;
use crate::share::Neighbour;

/// Carries packets. All calls come with the engine's lock held.
pub(in crate::engine) trait Carrier: Debug + Send {
    /// An empty batch of the size and kind that it takes.
    fn batch(&self) -> TxBatch;

    /// Takes the packets out of the batch, or what it left there the last time.
    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent;

    /// It has room for a batch. One that has none must come back by itself when it has.
    fn has_room(&self) -> bool {
        true
    }

    /// Fetches packets, with at most so many calls at each place where they arrive; true if there were any. One that
    /// brings packets by itself has nothing to fetch.
    fn receive(&mut self, _which: Which, _calls_max: u32, _intake: &mut Intake<'_>) -> bool {
        false
    }

    /// A thread that polls need not look now: there is nothing where most packets come from, and it looked everywhere a moment ago.
    fn is_quiet(&mut self) -> bool {
        false
    }

    /// When a packet leaves that it keeps ([`Sent::Kept`]).
    fn due(&self) -> Option<Time> {
        None
    }

    /// A QP is about to go: the next [`Carrier::send`] takes along whatever is kept. False if nothing is.
    fn settle(&mut self, _now: Time) -> bool {
        false
    }

    /// Hears a multicast group from now on.
    fn join(&mut self, _group: IpAddr) -> Result<(), Error> {
        Err(NO_GROUPS.into())
    }

    /// Leaves the groups that have no members any more.
    fn leave(&mut self, _has_members: &dyn Fn(IpAddr) -> bool) {}

    /// A QP's peer is the owner of that chunk at that address. True if packets go there through memory.
    fn prepare(&mut self, _remote: IpAddr, _chunk: QpnChunk, _now: Time) -> bool {
        false
    }

    /// Datagrams may go to that address.
    fn expect(&mut self, _remote: IpAddr, _now: Time) {}

    /// True if packets to the owner of that chunk at that address leave through memory now.
    fn has_ring_to(&self, _remote: IpAddr, _chunk: QpnChunk) -> bool {
        false
    }

    /// A neighbour offers memory, to which it writes its packets from now on; `None` if it did not come with the offer.
    fn accept(&mut self, _from: Neighbour, _memory: Option<OwnedFd>) {}

    /// A neighbour does not read the memory that it was offered.
    fn refused(&mut self, _by: Neighbour) {}

    /// What was sent there before `since` is not lost: some of it waits for a receiver that lives.
    fn waits_at(&mut self, _dest: &TxDest, _since: Time, _now: Time) -> bool {
        false
    }

    /// A thread is about to sleep on the sockets, and is to be woken for what arrives elsewhere, too. False if something has
    /// arrived already.
    fn doze(&mut self, _sleeper: Sleeper) -> bool {
        true
    }

    /// Threads sleep.
    fn has_sleeper(&self) -> bool {
        false
    }

    /// It is awake.
    fn rouse(&mut self, _sleeper: Sleeper) {}

    /// Looks whether neighbours are gone. Returns when to look again.
    fn upkeep(&mut self, _now: Time) -> Option<Time> {
        None
    }

    /// Packets are sealed where they leave, and need no ICRC.
    fn is_sealed(&self) -> bool {
        false
    }

    /// What keeps the envelopes, if packets are sealed where they leave.
    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
        None
    }

    /// An owner of QPNs, at an address, that has ended: as was found out by [`Carrier::upkeep`], or before it.
    fn poll_gone(&mut self) -> Option<(IpAddr, QpnChunk)> {
        None
    }

    /// The faults that packets meet on purpose.
    fn faults(&self) -> Option<&FaultyPath> {
        None
    }
}

/// Who sleeps on the sockets: a thread that waits for an event, or the progress thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Sleeper {
    Waiter,
    Progress,
}

/// What a carrier has of its surroundings while it sends.
pub(in crate::engine) struct Sending<'a> {
    pub(in crate::engine) now: Time,
    pub(in crate::engine) counters: &'a mut EngineCounters,
    pub(in crate::engine) tap: Option<&'a mut Tap>,
    /// Two packets that leave one after the other may be worth more in one train.
    pub(in crate::engine) expects_pairs: bool,
    /// The core fills the batch next, and then it comes here: so memory may be lent for it.
    pub(in crate::engine) may_lend: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Sent {
    /// The batch is empty, and so is the carrier.
    All,
    /// The batch is empty, but the carrier keeps packets for later: it is to be asked at each turn.
    Kept,
    /// There was no room for all of it: the core must not fill the batch before the rest is gone.
    Full,
}

/// Where there are no groups.
pub(in crate::engine) const NO_GROUPS: ErrorKind =
    ErrorKind::Unsupported("a network that is no sockets has no multicast groups");
