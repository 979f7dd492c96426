//! Returns memory to the system when very many QPs and connections are gone: tables are made smaller, and
//! the C library is told to give back what was freed, which it would keep otherwise.
//!
//! The progress thread does both: they look at all places of a table, and at the whole heap.

use std::sync::atomic::Ordering;
use std::time::Instant;

use urxe_core::table::{Occupancy, cut};
use urxe_core::{Places, Time};

use crate::engine::Engine;
use crate::engine::drive::doorbell::Attempt;
use crate::engine::drive::shard_state::ShardState;
use crate::mem::trim_heap;

/// How long hardly any must be left. The program frees more than its QPs when it ends connections, and what is left of
/// those rests for half a second (timewait), by default; so mostly once is enough.
const REST_NS: u64 = 1_000_000_000;
/// How long to wait for another try if the engine is busy.
const LATER_NS: u64 = 100_000_000;

/// A table that was large and is almost empty.
#[derive(Debug, Default)]
struct Low {
    since: Option<Time>,
    /// Places that were left when memory was given back last, if one that is in use kept the table from becoming
    /// smaller: then it is tried once more, when that is gone too.
    tried: usize,
}

impl Low {
    /// When memory is to be given back, if the table stays as it is.
    fn look(&mut self, now: Time, table: Occupancy) -> Option<Time> {
        if !table.is_sparse() {
            *self = Low::default();
            return None;
        }
        if table.used > 0 && table.places == self.tried {
            return None;
        }
        Some(*self.since.get_or_insert(now) + REST_NS)
    }

    /// The table was full meanwhile: what was tried before is no reason to leave it.
    fn was_full(&mut self) {
        self.tried = 0;
    }

    /// Memory was given back, and the table has so many places now.
    fn done(&mut self, places: usize) {
        if self.since.take().is_some() {
            self.tried = places;
        }
    }
}

/// When, and after what.
#[derive(Debug, Default)]
pub(in crate::engine) struct GiveBack {
    qps: Low,
    conns: Low,
    due: Option<Time>,
    /// What [`ProgressShared::emptied`](crate::engine::drive::progress_shared::ProgressShared::emptied) was at the last look.
    emptied: u32,
}

impl GiveBack {
    /// When [`GiveBack::do_if_due`] has something to do.
    pub(in crate::engine) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Looks whether most QPs or connections are gone.
    pub(in crate::engine) fn look(&mut self, state: &ShardState) {
        let (now, shard) = (state.now, &state.shard);
        let emptied = state.progress.emptied.load(Ordering::Relaxed);
        if emptied != self.emptied {
            self.emptied = emptied;
            self.qps.was_full();
            self.conns.was_full();
        }
        let qps = self.qps.look(now, shard.occupancy());
        let conns = self.conns.look(now, shard.cm_occupancy());
        self.due = Time::earliest([qps, conns]);
    }

    /// Returns true if there is something new to count.
    pub(in crate::engine) fn do_if_due(&mut self, engine: &Engine, now: Time) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        // Skip this round if another thread holds the shard's lock.
        let Ok(Attempt::Held(mut state)) = engine.combiner.try_lock() else {
            self.due = Some(now + LATER_NS);
            return false;
        };
        state.start_turn();
        self.look(&state);
        if self.due.is_none_or(|due| due > state.now) {
            return false;
        }
        let places = state.shrink();
        // What the other one needs has been done with this.
        self.qps.done(places.qps);
        self.conns.done(places.cm.map_or(0, |cm| cm.conns));
        self.due = None;
        engine
            .combiner
            .shrink(state.inlets.qps.len() + state.inlets.srqs.len());
        drop(state);
        // Without the lock, as it looks at the whole heap.
        let begin = Instant::now();
        if !trim_heap() {
            return false;
        }
        let took = begin.elapsed();
        if let Ok(mut state) = engine.combiner.lock() {
            state.counters.heap_trims += 1;
            state.counters.heap_trim_us += took.as_micros() as u64;
        }
        true
    }
}

impl ShardState {
    /// Makes tables smaller that were large and are almost empty.
    fn shrink(&mut self) -> Places {
        let places = self.shard.shrink();
        cut(&mut self.inlets.qps, places.qps);
        cut(&mut self.inlets.srqs, places.srqs);
        if let Some(places) = places.cm {
            self.cm.shrink(places);
        }
        if let Some(keeper) = self.carrier.keeper() {
            keeper.shrink();
        }
        self.cqs.shrink();
        self.mrs.shrink();
        places
    }
}

impl Engine {
    /// One QP or connection fewer is left: if that was most of very many, the progress thread is to know, which may
    /// sleep for long.
    pub(in crate::engine) fn note_gone(&self, table: Occupancy) {
        if table.turns_sparse() {
            self.progress.emptied.fetch_add(1, Ordering::Relaxed);
            self.progress.kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 10_000;

    fn table(used: usize) -> Occupancy {
        let places = PLACES;
        Occupancy { used, places }
    }

    #[test]
    fn memory_is_given_back_when_hardly_any_is_left_for_a_while() {
        let mut low = Low::default();
        assert_eq!(low.look(Time(5), table(626)), None);
        assert_eq!(low.look(Time(6), table(625)), Some(Time(6 + REST_NS)));
        assert_eq!(low.look(Time(7), table(3)), Some(Time(6 + REST_NS)));
        // They came back: from the beginning.
        assert_eq!(low.look(Time(8), table(700)), None);
        assert_eq!(low.look(Time(9), table(600)), Some(Time(9 + REST_NS)));
    }

    #[test]
    fn a_table_that_cannot_shrink_is_tried_twice() {
        let mut low = Low::default();
        assert!(low.look(Time(1), table(600)).is_some());
        low.done(PLACES);
        for used in [600, 500, 1] {
            assert_eq!(low.look(Time(2), table(used)), None, "{used} are left");
        }
        assert_eq!(low.look(Time(3), table(0)), Some(Time(3 + REST_NS)));
    }

    #[test]
    fn the_next_peak_is_another_one() {
        let mut low = Low::default();
        assert!(low.look(Time(1), table(600)).is_some());
        low.done(PLACES);
        assert_eq!(low.look(Time(2), table(PLACES)), None);
        assert!(low.look(Time(3), table(600)).is_some());
    }

    #[test]
    fn a_peak_between_two_looks_is_another_one_too() {
        let mut low = Low::default();
        assert!(low.look(Time(1), table(600)).is_some());
        low.done(PLACES);
        assert_eq!(low.look(Time(2), table(600)), None);
        low.was_full();
        assert_eq!(low.look(Time(3), table(600)), Some(Time(3 + REST_NS)));
    }

    #[test]
    fn what_was_not_low_is_not_done_with() {
        let mut low = Low::default();
        low.done(PLACES);
        assert!(low.look(Time(1), table(600)).is_some());
    }
}
