//! A hierarchical timing wheel: arming, cancelling and asking for the next
//! deadline cost the same with ten timers and with a million.
//!
//! One timer per QP. Deadlines move forward with every acknowledgement, so a
//! timer that fires early is cheap by design: the owner looks at its real
//! deadline and arms again. Nothing needs to be cancelled on the packet path.

use crate::table::{QpIndex, cut};
use crate::time::Time;

/// 2^14 ns = 16.4 us: fine enough for the shortest RNR timers, which are rounded up.
const TICK_BITS: u32 = 14;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// 64^5 ticks are 4.9 hours, longer than the longest ACK timeout (2.4 h).
const LEVELS: usize = 5;
const NONE: u32 = u32::MAX;

/// The wheel. Entries are named by [`QpIndex`].
#[derive(Debug)]
pub(crate) struct TimerWheel {
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    entries: Vec<Entry>,
    /// All ticks before this one were processed.
    now_tick: u64,
    /// The next tick that has something. Every turn asks for it, and few change it.
    next: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    next: u32,
    prev: u32,
    tick: u64,
    /// Level and slot while armed.
    place: Option<(u8, u8)>,
    /// No longer needed: it is taken out when its time comes, without a look at the QP.
    rests: bool,
}

impl Default for TimerWheel {
    fn default() -> Self {
        TimerWheel {
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            entries: Vec::new(),
            now_tick: 0,
            next: None,
        }
    }
}

impl TimerWheel {
    /// Makes room for an entry, so that arming it never allocates.
    pub(crate) fn reserve(&mut self, index: QpIndex) {
        let len = index.0 as usize + 1;
        if self.entries.len() < len {
            self.entries.resize(
                len,
                Entry {
                    next: NONE,
                    prev: NONE,
                    tick: 0,
                    place: None,
                    rests: false,
                },
            );
        }
    }

    /// Gives up the entries from `places` on, as far as none of them is armed.
    pub(crate) fn shrink(&mut self, places: usize) {
        let armed = self.entries.iter().rposition(|entry| entry.place.is_some());
        cut(
            &mut self.entries,
            places.max(armed.map_or(0, |last| last + 1)),
        );
    }

    /// Makes the entry fire no later than about `deadline`, or no more if there is none.
    #[inline]
    pub(crate) fn set(&mut self, index: QpIndex, deadline: Option<Time>) {
        match deadline {
            Some(deadline) => self.arm(index, deadline),
            None => self.rest(index),
        }
    }

    /// Makes the entry fire no later than about `deadline`. An entry that is armed
    /// for an earlier time stays there.
    #[inline]
    pub(crate) fn arm(&mut self, index: QpIndex, deadline: Time) {
        // Rounded up: a timer never fires before its time.
        let tick = (deadline.0 >> TICK_BITS) + 1;
        let entry = &mut self.entries[index.0 as usize];
        if entry.place.is_some() {
            if entry.tick <= tick {
                entry.rests = false;
                return;
            }
            self.unlink(index.0);
        }
        self.link(index.0, tick.max(self.now_tick));
        self.next = self.find_next();
    }

    /// Makes the entry fire no more until it is armed again. It stays where it is, because most are armed again
    /// before their time comes.
    #[inline]
    pub(crate) fn rest(&mut self, index: QpIndex) {
        self.entries[index.0 as usize].rests = true;
    }

    /// Takes the entry out.
    pub(crate) fn cancel(&mut self, index: QpIndex) {
        if self
            .entries
            .get(index.0 as usize)
            .is_some_and(|e| e.place.is_some())
        {
            self.unlink(index.0);
            self.next = self.find_next();
        }
    }

    /// Next entry that is due at `now`, taken out. Call until `None`.
    #[must_use]
    pub(crate) fn poll_expired(&mut self, now: Time) -> Option<QpIndex> {
        let expired = self.take_expired(now);
        self.next = self.find_next();
        expired
    }

    fn take_expired(&mut self, now: Time) -> Option<QpIndex> {
        let target = now.0 >> TICK_BITS;
        loop {
            let slot = (self.now_tick as usize) & (SLOTS - 1);
            let head = self.heads[0][slot];
            if self.now_tick <= target && head != NONE {
                self.unlink(head);
                if self.entries[head as usize].rests {
                    continue;
                }
                return Some(QpIndex(head));
            }
            if self.now_tick >= target {
                return None;
            }
            self.advance(target);
        }
    }

    /// No entry is due before this time; `None` if none is armed.
    #[inline]
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.next.map(|tick| Time(tick << TICK_BITS))
    }

    fn find_next(&self) -> Option<u64> {
        let ticks = (0..LEVELS).filter_map(|level| self.next_tick(level));
        ticks.min()
    }

    /// The tick at which the next occupied slot of a level begins.
    fn next_tick(&self, level: usize) -> Option<u64> {
        let shift = LEVEL_BITS * level as u32;
        let at = (self.now_tick >> shift) as u32 & (SLOTS as u32 - 1);
        let mut slots = self.occupied[level].rotate_right(at);
        if slots == 0 {
            return None;
        }
        if level > 0 {
            // The slot that the clock stands in holds entries a whole round ahead:
            // those of this round were moved down when it was entered.
            slots &= !1;
        }
        let ahead = if slots == 0 {
            SLOTS as u64
        } else {
            u64::from(slots.trailing_zeros())
        };
        Some(((self.now_tick >> shift) + ahead) << shift)
    }

    /// Moves the clock to the next tick that has something, at most to `target`.
    fn advance(&mut self, target: u64) {
        // The slot of level 0 that the clock stands in is empty: it was polled.
        self.now_tick = self.find_next().map_or(target, |tick| tick.min(target));
        // At a round's end the next slot of each level above is spread out.
        for level in (1..LEVELS).rev() {
            let below = self.now_tick & ((1 << (LEVEL_BITS * level as u32)) - 1);
            if below == 0 {
                self.cascade(level);
            }
        }
    }

    fn cascade(&mut self, level: usize) {
        let slot = (self.now_tick >> (LEVEL_BITS * level as u32)) as usize & (SLOTS - 1);
        // The whole slot comes off first: an entry may land in the same one again.
        let mut head = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while head != NONE {
            let Entry {
                next, tick, rests, ..
            } = self.entries[head as usize];
            if rests {
                self.entries[head as usize].place = None;
            } else {
                self.link(head, tick);
            }
            head = next;
        }
    }

    fn link(&mut self, index: u32, tick: u64) {
        let tick = tick.max(self.now_tick);
        let distance = tick - self.now_tick;
        let mut level = 0;
        while level + 1 < LEVELS && distance >> (LEVEL_BITS * (level as u32 + 1)) != 0 {
            level += 1;
        }
        let farthest = (1u64 << (LEVEL_BITS * LEVELS as u32)) - 1;
        let placed = self.now_tick + distance.min(farthest);
        let slot = (placed >> (LEVEL_BITS * level as u32)) as usize & (SLOTS - 1);
        let head = self.heads[level][slot];
        self.entries[index as usize] = Entry {
            next: head,
            prev: NONE,
            tick,
            place: Some((level as u8, slot as u8)),
            rests: false,
        };
        if head != NONE {
            self.entries[head as usize].prev = index;
        }
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let Entry {
            next, prev, place, ..
        } = self.entries[index as usize];
        let (level, slot) = place.expect("only armed entries are unlinked");
        let (level, slot) = (level as usize, slot as usize);
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        if prev == NONE {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        } else {
            self.entries[prev as usize].next = next;
        }
        self.entries[index as usize].place = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(w: &mut TimerWheel, now: Time) -> Vec<u32> {
        let mut v = Vec::new();
        while let Some(i) = w.poll_expired(now) {
            v.push(i.0);
        }
        v.sort_unstable();
        v
    }

    proptest! {
        /// Against a plain list: fires everything due (to the tick), nothing early, nothing that rests,
        /// and `next_deadline` never lies beyond the earliest entry. An entry that rested may fire at
        /// the time that it had before.
        #[test]
        fn agrees_with_a_list(ops in proptest::collection::vec((0u32..24, 0u64..40, any::<u16>(), 0u8..9), 1..200)) {
            let mut wheel = TimerWheel::default();
            for i in 0..24 { wheel.reserve(QpIndex(i)); }
            let mut list = std::collections::BTreeMap::<u32, Listed>::new();
            let mut now = Time::ZERO;
            for (index, exponent, mantissa, op) in ops {
                let delta = u64::from(mantissa) << exponent.min(30);
                match op {
                    0..=3 => {
                        let deadline = now + delta;
                        wheel.arm(QpIndex(index), deadline);
                        let new = Listed { from: deadline.0, by: deadline.0, rests: false };
                        let e = list.entry(index).or_insert(new);
                        e.by = if e.rests { deadline.0 } else { e.by.min(deadline.0) };
                        (e.from, e.rests) = (e.from.min(deadline.0), false);
                    }
                    4 => { wheel.cancel(QpIndex(index)); list.remove(&index); }
                    5 => {
                        wheel.rest(QpIndex(index));
                        if let Some(e) = list.get_mut(&index) { e.rests = true; }
                    }
                    _ => {
                        let live = list.values().filter(|e| !e.rests);
                        if let Some(earliest) = live.map(|e| e.by).min() {
                            let next = wheel.next_deadline().expect("armed");
                            prop_assert!(next.0 <= ((earliest >> TICK_BITS) + 1) << TICK_BITS, "{next:?} after {earliest}");
                        }
                        now = now + delta;
                        let fired = drain(&mut wheel, now);
                        let is_over = |at: u64| at >> TICK_BITS < now.0 >> TICK_BITS;
                        for (i, e) in &list {
                            let did = fired.contains(i);
                            prop_assert!(did || e.rests || !is_over(e.by), "{i} does not fire");
                            prop_assert!(!did || (!e.rests && is_over(e.from)), "{i} fires");
                        }
                        list.retain(|i, e| !(fired.contains(i) || (e.rests && is_over(e.from))));
                    }
                }
            }
        }
    }

    /// An entry as the plain list has it.
    struct Listed {
        /// It may fire from here on,
        from: u64,
        /// and must have fired here.
        by: u64,
        rests: bool,
    }

    #[test]
    fn a_wheel_that_shrank_keeps_what_is_armed() {
        let mut w = TimerWheel::default();
        w.reserve(QpIndex(4999));
        for index in [7, 300, 2000, 4999] {
            w.arm(QpIndex(index), Time(u64::from(index) << TICK_BITS));
        }
        w.cancel(QpIndex(4999));
        w.shrink(100);
        assert_eq!(w.entries.len(), 2001, "up to the last that is armed");
        w.reserve(QpIndex(3000));
        w.arm(QpIndex(3000), Time(1));
        assert_eq!(drain(&mut w, Time(u64::MAX >> 1)), [7, 300, 2000, 3000]);
        w.shrink(100);
        assert_eq!(w.entries.len(), 100);
        assert_eq!(w.next_deadline(), None);
    }

    #[test]
    fn following_next_deadline_reaches_every_timer() {
        let mut w = TimerWheel::default();
        w.reserve(QpIndex(0));
        for shift in 0..43 {
            let start = Time(w.now_tick << TICK_BITS);
            let deadline = start + (1 << shift);
            w.arm(QpIndex(0), deadline);
            let mut steps = 0;
            let fired_at = loop {
                let next = w.next_deadline().expect("armed");
                if w.poll_expired(next).is_some() {
                    break next;
                }
                steps += 1;
                assert!(steps < 400, "shift {shift} never fires");
            };
            assert!(fired_at >= deadline);
            assert!(fired_at.since_ns(deadline) <= 2 << TICK_BITS);
        }
    }
}
