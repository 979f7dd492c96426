//! What the progress thread does about ten times a second while packets flow: captured
//! packets go to their file, counters to where other processes can read them, and the
//! handler of memory faults is checked to be in place. Also the list of QPs, on request; and what is done when very
//! many QPs are gone.

use std::os::fd::BorrowedFd;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::table::QpIndex;

use super::give_back::GiveBack;
use crate::engine::Engine;
use crate::engine::drive::doorbell::Attempt;
use crate::engine::drive::shard_state::ShardState;
use crate::mem::guarded;
use crate::stat_file::StatFile;
use crate::stat_qps::{self, Asked};

const PERIOD_NS: u64 = 100_000_000;
/// How often it is looked whether neighbours with connections were killed.
const FAREWELLS_NS: u64 = 1_000_000_000;

/// When, and with what.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    due: Option<Time>,
    /// Packets so far, to see whether there were any since.
    packets: u64,
    /// None if there is no place for it: a program must not fail for that.
    stats: Option<StatFile>,
    /// None if there can be no socket there.
    asked: Option<Asked>,
    give_back: GiveBack,
    /// When it is looked which neighbours are gone, while there are any.
    farewells_due: Option<Time>,
}

/// QPs that are listed while the lock is held once: some tens of microseconds.
const QPS_PER_TURN: usize = 128;

impl Housekeeping {
    pub(crate) fn new(engine: &Engine) -> Housekeeping {
        let stats = StatFile::create(engine.sockets.addrs());
        let asked = stats.as_ref().and_then(|stats| Asked::new(&stats.path));
        Housekeeping {
            asked,
            due: Some(Time::ZERO),
            packets: 0,
            stats,
            give_back: GiveBack::default(),
            farewells_due: None,
        }
    }

    /// When [`Housekeeping::do_if_due`] has something to do.
    pub(crate) fn due(&self) -> Option<Time> {
        let dues = [self.due, self.give_back.due(), self.farewells_due];
        Time::earliest(dues)
    }

    /// Looks whether there were packets, or most QPs are gone, and so something to do soon.
    pub(crate) fn look(&mut self, state: &ShardState) {
        self.give_back.look(state);
        let membership = state.membership.as_ref();
        if !membership.is_some_and(|membership| membership.watches()) {
            self.farewells_due = None;
        } else if self.farewells_due.is_none() {
            self.farewells_due = Some(state.now + FAREWELLS_NS);
        }
        let stats = state.shard.stats();
        let packets = stats.sent_pkts + stats.rcvd_pkts;
        if packets != self.packets {
            self.packets = packets;
            self.due.get_or_insert(state.now + PERIOD_NS);
        }
    }

    pub(crate) fn do_if_due(&mut self, engine: &Engine, now: Time) {
        if self.farewells_due.is_some_and(|due| due <= now) {
            self.farewells_due = Some(now + FAREWELLS_NS);
            engine.say_farewells();
        }
        if self.give_back.do_if_due(engine, now) {
            // The counters say so, packets or not.
            self.due = Some(now);
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        // Skip this round if another thread holds the shard's lock.
        let Ok(Attempt::Held(mut state)) = engine.combiner.try_lock() else {
            self.due = Some(now + PERIOD_NS);
            return;
        };
        let stale = state.cm.handshakes.forget_old(now);
        let dues = [state.carrier_upkeep(), stale];
        self.due = Time::earliest(dues);
        // The program may have put signal handlers of its own in front of ours.
        guarded::protect();
        if let Some(tap) = &mut state.tap {
            tap.flush();
        }
        if let Some(stats) = &mut self.stats {
            stats.gather(engine.counters_of(&state));
            drop(state);
            stats.write();
        }
    }

    /// Readable when a process asks for the QPs.
    pub(crate) fn asked(&self) -> Option<BorrowedFd<'_>> {
        self.asked.as_ref().map(Asked::fd)
    }

    pub(crate) fn answer(&self, engine: &Engine) {
        let Some(asked) = &self.asked else { return };
        asked.answer(|text| {
            let mut next = 0;
            // A failed engine has no QPs to speak of.
            while let Ok(state) = engine.combiner.lock() {
                let end = (next + QPS_PER_TURN).min(state.inlets.qps.len());
                for place in next..end {
                    let index = QpIndex(place as u32);
                    if let Some(report) = state.shard.qp_report(index) {
                        let in_memory = report
                            .peer
                            .is_some_and(|(addr, qpn)| state.has_ring_to(addr, QpnChunk::of(qpn)));
                        stat_qps::line(text, &report, in_memory);
                    }
                }
                next = end;
                if next == state.inlets.qps.len() {
                    break;
                }
            }
        });
    }

    /// The last of it, when the context ends.
    pub(crate) fn finish(&mut self, engine: &Engine) {
        if let Ok(mut state) = engine.combiner.lock()
            && let Some(tap) = &mut state.tap
        {
            tap.flush();
        }
        self.asked = None;
        self.stats = None;
    }
}
