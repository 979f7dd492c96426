//! Faults on the way out, on purpose (`URXE_FAULTS`): around whatever carries the packets, which go through a queue
//! first.

use core::net::IpAddr;
use std::os::fd::OwnedFd;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::{RunLimits, TxBatch, TxDest};

use super::intake::Intake;
use super::keeper::Keeper;
use super::seam::{Carrier, Sending, Sent, Sleeper};
use super::sockets::Which;
use crate::error::Error;
use crate::faults::{FaultCounts, FaultyPath};
use crate::share::Neighbour;

/// A carrier with faults before it.
#[derive(Debug)]
pub(in crate::engine) struct FaultyCarrier {
    path: FaultyPath,
    below: Box<dyn Carrier>,
    /// The batch holds packets that have met their faults, and had no room below.
    is_full: bool,
}

impl FaultyCarrier {
    pub(in crate::engine) fn new(path: FaultyPath, below: Box<dyn Carrier>) -> FaultyCarrier {
        FaultyCarrier {
            path,
            below,
            is_full: false,
        }
    }
}

impl Carrier for FaultyCarrier {
    /// Packets that are lost, late or changed one by one travel one by one.
    fn batch(&self) -> TxBatch {
        let mut batch = self.below.batch();
        batch.set_limits(RunLimits::SINGLE);
        batch
    }

    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent {
        if !self.is_full {
            self.path.take(batch, cx.now);
        }
        cx.may_lend = false;
        while self.is_full || self.path.release(batch, cx.now) {
            self.is_full = self.below.send(batch, cx) == Sent::Full;
            if self.is_full {
                return Sent::Full;
            }
        }
        match self.due() {
            Some(_) => Sent::Kept,
            None => Sent::All,
        }
    }

    fn has_room(&self) -> bool {
        self.below.has_room()
    }

    fn receive(&mut self, which: Which, calls_max: u32, intake: &mut Intake<'_>) -> bool {
        self.below.receive(which, calls_max, intake)
    }

    fn is_quiet(&mut self) -> bool {
        self.below.is_quiet()
    }

    fn due(&self) -> Option<Time> {
        let dues = [self.path.due(), self.below.due()];
        Time::earliest(dues)
    }

    /// Nothing of a QP that is about to go stays on the way.
    fn settle(&mut self, now: Time) -> bool {
        self.path.settle(now);
        self.due().is_some()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        self.below.join(group)
    }

    fn leave(&mut self, has_members: &dyn Fn(IpAddr) -> bool) {
        self.below.leave(has_members);
    }

    fn prepare(&mut self, remote: IpAddr, chunk: QpnChunk, now: Time) -> bool {
        self.below.prepare(remote, chunk, now)
    }

    fn expect(&mut self, remote: IpAddr, now: Time) {
        self.below.expect(remote, now);
    }

    fn has_ring_to(&self, remote: IpAddr, chunk: QpnChunk) -> bool {
        self.below.has_ring_to(remote, chunk)
    }

    fn accept(&mut self, from: Neighbour, memory: Option<OwnedFd>) {
        self.below.accept(from, memory);
    }

    fn refused(&mut self, by: Neighbour) {
        self.below.refused(by);
    }

    fn waits_at(&mut self, dest: &TxDest, since: Time, now: Time) -> bool {
        self.below.waits_at(dest, since, now)
    }

    fn doze(&mut self, sleeper: Sleeper) -> bool {
        self.below.doze(sleeper)
    }

    fn has_sleeper(&self) -> bool {
        self.below.has_sleeper()
    }

    fn rouse(&mut self, sleeper: Sleeper) {
        self.below.rouse(sleeper);
    }

    fn upkeep(&mut self, now: Time) -> Option<Time> {
        self.below.upkeep(now)
    }

    fn is_sealed(&self) -> bool {
        self.below.is_sealed()
    }

    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
        self.below.keeper()
    }

    fn poll_gone(&mut self) -> Option<(IpAddr, QpnChunk)> {
        self.below.poll_gone()
    }

    fn faults(&self) -> Option<&FaultyPath> {
        Some(&self.path)
    }
}

pub(in crate::engine) fn counters(
    faults: Option<&FaultyPath>,
) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let counts = faults.map(|path| path.counts);
    let FaultCounts {
        packets: _,
        dropped,
        duplicated,
        reordered,
        corrupted,
        delayed,
        queue_full,
        overflowed,
    } = counts.unwrap_or_default();
    [
        ("fault_dropped", dropped),
        ("fault_duplicated", duplicated),
        ("fault_reordered", reordered),
        ("fault_corrupted", corrupted),
        ("fault_delayed", delayed),
        ("fault_queue_full", queue_full),
        ("fault_overflowed", overflowed),
    ]
    .into_iter()
}
