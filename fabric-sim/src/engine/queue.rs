//! The queue of events, in a total order: by time, of one time by the entity that scheduled them, and
//! of one entity by the order in which it did.
//!
//! The order of simultaneous events follows from what each entity has done, and not from how the
//! entities' events were mixed before: a part of the network that runs by itself has it, too.
//!
//! Events of the near future (nearly all of them: the next frame on some link) lie in a ring of
//! buckets, one for each few nanoseconds; a bucket is sorted when its turn comes. What is further
//! away waits in a heap. docs/SIMULATION.md has it measured beside a heap alone.

use core::cmp::Reverse;
use core::num::NonZeroU32;
use std::collections::BinaryHeap;

use super::Time;

/// A bucket holds 2^12 ps = 4.1 ns: about one event of each hundred ports at 100 Gb/s.
const BUCKET_BITS: u32 = 12;
/// Buckets in the ring: 33.6 us, longer than a frame on anything but slow links.
const BUCKETS: u64 = 8192;
const WORDS: usize = BUCKETS as usize / 64;
/// Bits of an entity's own count in a key. What is left names 2^24 entities.
const COUNT_BITS: u32 = 40;

/// In the order of its fields, of which the first two decide: no two entries have both in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry<E> {
    time: Time,
    /// The entity that scheduled it, and how many it had scheduled before.
    rank: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Time, u64) {
        (self.time, self.rank)
    }
}

/// Place of an event in the slab.
type Place = Option<NonZeroU32>;

/// The queue.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// First event of each bucket of the ring; the others are chained behind it, in no order.
    ring: Box<[Place]>,
    /// The events of the ring, each with the next of its bucket. A free place names the next free one.
    slab: Vec<(Entry<E>, Place)>,
    free: Place,
    /// The current bucket: sorted, the next event last.
    due: Vec<Entry<E>>,
    /// What was scheduled for the current bucket after its turn had come: rarely anything, except that
    /// a whole simulation begins at one time.
    late: BinaryHeap<Reverse<Entry<E>>>,
    /// Which buckets of the ring hold anything.
    occupied: Box<[u64; WORDS]>,
    /// The number of the current bucket, counted from the start of time. Events before it are gone.
    current: u64,
    far: BinaryHeap<Reverse<Entry<E>>>,
    /// The rank of the next event of each entity.
    ranks: Vec<u64>,
    len: usize,
    now: Time,
    /// Of the event that was taken out last.
    rank: u64,
}

impl<E: Copy + Ord> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl<E: Copy + Ord> EventQueue<E> {
    /// An empty queue at time zero.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            ring: vec![None; BUCKETS as usize].into(),
            slab: Vec::new(),
            free: None,
            due: Vec::new(),
            late: BinaryHeap::new(),
            occupied: Box::new([0; WORDS]),
            current: 0,
            far: BinaryHeap::new(),
            ranks: Vec::new(),
            len: 0,
            now: Time::ZERO,
            rank: 0,
        }
    }

    /// The time of the event that was taken out last.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Schedules an event of an entity. One for the past happens now, in the order of those that are due.
    ///
    /// # Panics
    /// If `entity` is 2^24 or more.
    #[inline]
    pub fn push(&mut self, time: Time, entity: u32, event: E) {
        let rank = self.next_rank(entity);
        self.insert(time, rank, event);
    }

    /// Schedules an event that has its rank already: [`EventQueue::next_rank`] gave it, of this queue or of that of another part of
    /// the simulation.
    #[inline]
    pub(crate) fn insert(&mut self, time: Time, rank: u64, event: E) {
        let entry = Entry {
            time: time.max(self.now),
            rank,
            event,
        };
        self.len += 1;
        let bucket = entry.time.ps() >> BUCKET_BITS;
        if bucket <= self.current {
            self.late.push(Reverse(entry));
        } else if bucket - self.current < BUCKETS {
            self.store(bucket, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// The rank of the next event of an entity.
    #[inline]
    pub(crate) fn next_rank(&mut self, entity: u32) -> u64 {
        if self.ranks.len() <= entity as usize {
            self.add_entities(entity);
        }
        let next = &mut self.ranks[entity as usize];
        let rank = *next;
        *next += 1;
        rank
    }

    #[cold]
    fn add_entities(&mut self, last: u32) {
        assert!(last >> (64 - COUNT_BITS) == 0, "fewer than 2^24 entities");
        let from = self.ranks.len() as u64;
        let new = (from..=u64::from(last)).map(|entity| entity << COUNT_BITS);
        self.ranks.extend(new);
    }

    /// Takes the next event out, and moves time on to it.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::NEVER)
    }

    /// Takes the next event out if it is not later than `until`.
    #[inline]
    pub fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        if self.next_time()? > until {
            return None;
        }
        let entry = match self.late.peek() {
            Some(Reverse(late)) if self.due.last().is_none_or(|due| late.key() < due.key()) => {
                self.late.pop()?.0
            }
            _ => self.due.pop()?,
        };
        self.len -= 1;
        (self.now, self.rank) = (entry.time, entry.rank);
        Some((entry.time, entry.event))
    }

    /// Place of the event that was taken out last in the order of all.
    #[inline]
    pub(crate) fn place(&self) -> (Time, u64) {
        (self.now, self.rank)
    }

    /// The next events that are known to be that, as a rule the next one first.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = &E> {
        self.due.iter().rev().map(|entry| &entry.event)
    }

    /// An empty queue with the same time and ranks.
    pub(crate) fn fork(&self) -> EventQueue<E> {
        EventQueue {
            ranks: self.ranks.clone(),
            now: self.now,
            rank: self.rank,
            current: self.current,
            ..EventQueue::new()
        }
    }

    /// Goes on with the later of both times, and the ranks of both: each entity has scheduled events in one of them.
    pub(crate) fn join(&mut self, other: &EventQueue<E>) {
        (self.now, self.rank) = self.place().max(other.place());
        self.ranks
            .resize(self.ranks.len().max(other.ranks.len()), 0);
        for (rank, &theirs) in self.ranks.iter_mut().zip(&other.ranks) {
            *rank = theirs.max(*rank);
        }
    }

    /// All events that wait and their times, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, &E)> {
        let heaps = self
            .late
            .iter()
            .chain(&self.far)
            .map(|Reverse(entry)| entry);
        let ring = self.ring.iter().flat_map(|&first| {
            core::iter::successors(first, |place| self.slab[place.get() as usize - 1].1)
                .map(|place| &self.slab[place.get() as usize - 1].0)
        });
        let all = self.due.iter().chain(heaps).chain(ring);
        all.map(|entry| (entry.time, &entry.event))
    }

    /// Takes all events out, in no order, with their times and ranks.
    pub(crate) fn drain(&mut self) -> Vec<(Time, u64, E)> {
        let mut all = core::mem::take(&mut self.due);
        for heap in [&mut self.late, &mut self.far] {
            all.extend(
                core::mem::take(heap)
                    .into_iter()
                    .map(|Reverse(entry)| entry),
            );
        }
        for first in &mut self.ring {
            let mut next = first.take();
            while let Some(place) = next {
                let (entry, behind) = self.slab[place.get() as usize - 1];
                all.push(entry);
                next = behind;
            }
        }
        self.slab.clear();
        self.free = None;
        self.occupied.fill(0);
        self.len = 0;
        let all = all.into_iter();
        all.map(|entry| (entry.time, entry.rank, entry.event))
            .collect()
    }

    /// The time of the next event.
    #[inline]
    pub fn next_time(&mut self) -> Option<Time> {
        while self.due.is_empty() && self.late.is_empty() {
            if !self.advance() {
                return None;
            }
        }
        let due = self.due.last().map(|entry| entry.time);
        match self.late.peek() {
            Some(Reverse(late)) => Some(due.map_or(late.time, |due| due.min(late.time))),
            None => due,
        }
    }

    /// Goes to the next bucket that holds anything; false if none does.
    fn advance(&mut self) -> bool {
        let next = match (self.next_in_ring(), self.far.peek()) {
            (Some(bucket), _) => bucket,
            (None, Some(Reverse(far))) => far.time.ps() >> BUCKET_BITS,
            (None, None) => return false,
        };
        // The heap may hold something earlier: it was far away when it was scheduled.
        self.current = match self.far.peek() {
            Some(Reverse(far)) => next.min(far.time.ps() >> BUCKET_BITS),
            None => next,
        };
        while let Some(Reverse(far)) = self.far.peek() {
            let bucket = far.time.ps() >> BUCKET_BITS;
            if bucket - self.current >= BUCKETS {
                break;
            }
            if let Some(Reverse(entry)) = self.far.pop() {
                self.store(bucket, entry);
            }
        }
        self.take_bucket((self.current % BUCKETS) as usize);
        true
    }

    /// Moves a bucket's events out of the slab, and sorts them.
    fn take_bucket(&mut self, bucket: usize) {
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        let mut next = self.ring[bucket].take();
        while let Some(place) = next {
            let (entry, behind) = &mut self.slab[place.get() as usize - 1];
            self.due.push(*entry);
            next = core::mem::replace(behind, self.free);
            self.free = Some(place);
        }
        self.due.sort_unstable_by_key(|entry| Reverse(entry.key()));
    }

    #[inline]
    fn store(&mut self, bucket: u64, entry: Entry<E>) {
        let bucket = (bucket % BUCKETS) as usize;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        let first = &mut self.ring[bucket];
        *first = match self.free {
            Some(place) => {
                let slot = &mut self.slab[place.get() as usize - 1];
                self.free = slot.1;
                *slot = (entry, *first);
                Some(place)
            }
            None => {
                self.slab.push((entry, *first));
                let place = u32::try_from(self.slab.len())
                    .ok()
                    .and_then(NonZeroU32::new);
                Some(place.expect("fewer events than memory has bytes"))
            }
        };
    }

    /// The first bucket after the current one that holds anything.
    fn next_in_ring(&self) -> Option<u64> {
        let start = ((self.current + 1) % BUCKETS) as usize;
        let first = self.occupied[start / 64] & (!0 << (start % 64));
        // Once round: the word of the start is looked at again at the end, for its lower bits.
        let mut word = first;
        for step in 0..=WORDS {
            if word != 0 {
                let index = (start / 64 + step) % WORDS * 64 + word.trailing_zeros() as usize;
                let distance = (index + BUCKETS as usize - start) % BUCKETS as usize;
                return Some(self.current + 1 + distance as u64);
            }
            word = self.occupied[(start / 64 + step + 1) % WORDS];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rng;
    use proptest::prelude::*;

    /// The order by definition: a heap of (time, entity, the entity's count).
    #[derive(Default)]
    struct Model(BinaryHeap<Reverse<(u64, u32, u64)>>, [u64; 4]);

    impl Model {
        fn push(&mut self, time: u64, entity: u32) -> (u32, u64) {
            let count = &mut self.1[entity as usize];
            *count += 1;
            self.0.push(Reverse((time, entity, *count)));
            (entity, *count)
        }

        fn pop(&mut self) -> Option<(Time, (u32, u64))> {
            let Reverse((time, entity, count)) = self.0.pop()?;
            Some((Time::from_ps(time), (entity, count)))
        }
    }

    proptest! {
        /// Whatever is scheduled, near or far or now: it comes in the order of the definition.
        #[test]
        fn the_order_is_total(seed in any::<u64>(), reach in 0u32..40) {
            let mut rng = Rng::new(seed);
            let (mut queue, mut model) = (EventQueue::new(), Model::default());
            for _ in 0..400 {
                for _ in 0..rng.below(4) {
                    let scale = rng.below(u64::from(reach) + 1);
                    let ahead = rng.below(1 << scale);
                    let (time, entity) = (queue.now().ps() + ahead, rng.below(4) as u32);
                    let id = model.push(time, entity);
                    queue.push(Time::from_ps(time), entity, id);
                }
                if rng.below(3) > 0 {
                    prop_assert_eq!(queue.pop(), model.pop());
                }
                prop_assert_eq!(queue.len(), model.0.len());
            }
            while !model.0.is_empty() {
                prop_assert_eq!(queue.pop(), model.pop());
            }
            prop_assert_eq!(queue.pop(), None);
        }

        /// The order of simultaneous events does not depend on how entities took turns to schedule them.
        #[test]
        fn how_entities_mix_does_not_matter(seed in any::<u64>()) {
            let mut rng = Rng::new(seed);
            let mut run = || {
                let (mut queue, mut left) = (EventQueue::new(), [20u32; 5]);
                while left.iter().any(|&n| n > 0) {
                    let entity = rng.below(5) as u32;
                    if let Some(n) = left[entity as usize].checked_sub(1) {
                        left[entity as usize] = n;
                        queue.push(Time::from_ps(u64::from(n % 3)), entity, (entity, n));
                    }
                }
                core::iter::from_fn(|| queue.pop()).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
        }
    }

    /// Events that are taken out and put into two queues come from each in the order of the whole, also those that are
    /// scheduled afterwards.
    #[test]
    fn parts_of_a_queue_keep_the_order() {
        let mut rng = Rng::new(5);
        let (mut whole, mut first) = (EventQueue::new(), EventQueue::new());
        for n in 0..3000u64 {
            let scale = rng.below(36);
            let (ahead, entity) = (rng.below(1 << scale), rng.below(4) as u32);
            for queue in [&mut whole, &mut first] {
                let time = Time::from_ps(queue.now().ps() + ahead);
                queue.push(time, entity, (entity, n));
                if n % 3 == 0 {
                    queue.pop();
                }
            }
        }
        let second = first.fork();
        let mut parts = [first, second];
        for (time, rank, event) in parts[0].drain() {
            parts[usize::from(event.0 > 1)].insert(time, rank, event);
        }
        assert_eq!(parts[0].len() + parts[1].len(), whole.len());
        for entity in 0..4 {
            let at = Time::from_ps(whole.now().ps() + 1000);
            let part = &mut parts[usize::from(entity > 1)];
            for queue in [&mut whole, part] {
                queue.push(at, entity, (entity, 9999));
            }
        }
        while let Some(next) = whole.pop() {
            let part = &mut parts[usize::from(next.1.0 > 1)];
            assert_eq!(part.pop(), Some(next));
        }
        let [mut first, second] = parts;
        first.join(&second);
        assert_eq!(first.place(), whole.place());
        assert_eq!(first.ranks, whole.ranks);
    }

    /// A whole simulation that begins at once. Where each event moved those behind it, this took minutes.
    #[test]
    fn a_million_events_of_one_time() {
        let mut queue = EventQueue::new();
        for n in 0..1_000_000u32 {
            queue.push(Time::ZERO, n % 1000, (n % 1000, n / 1000));
        }
        let events = core::iter::from_fn(|| queue.pop().map(|(_, event)| event));
        assert!(events.is_sorted(), "by entity, and by its count");
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_due_is_known_before_it_is_taken_out() {
        let mut queue = EventQueue::new();
        for (time, event) in [(300, 'c'), (1 << 30, 'z'), (100, 'a'), (200, 'b')] {
            queue.push(Time::from_ps(time), 0, event);
        }
        assert_eq!(queue.upcoming().count(), 0, "not yet");
        // All of the first bucket is late as long as time stands still.
        queue.push(Time::from_ps(1 << 20), 0, 'm');
        queue.push(Time::from_ps((1 << 20) + 1), 0, 'n');
        let first: String = (0..4).filter_map(|_| Some(queue.pop()?.1)).collect();
        assert_eq!(first, "abcm");
        assert_eq!(queue.upcoming().collect::<Vec<_>>(), [&'n']);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn what_is_late_happens_now() {
        let mut queue = EventQueue::new();
        queue.push(Time::from_ps(100), 1, 'a');
        queue.push(Time::from_ps(100), 1, 'b');
        assert_eq!(queue.pop(), Some((Time::from_ps(100), 'a')));
        queue.push(Time::from_ps(7), 1, 'c');
        assert_eq!(queue.pop(), Some((Time::from_ps(100), 'b')));
        assert_eq!(queue.pop(), Some((Time::from_ps(100), 'c')));
    }

    #[test]
    fn a_limit_leaves_the_event_where_it_is() {
        let mut queue = EventQueue::new();
        queue.push(Time::from_ps(1 << 40), 0, 'x');
        assert_eq!(queue.pop_until(Time::from_ps(1000)), None);
        // Earlier than what the queue has looked at already.
        queue.push(Time::from_ps(2000), 0, 'y');
        assert_eq!(queue.pop(), Some((Time::from_ps(2000), 'y')));
        assert_eq!(queue.pop(), Some((Time::from_ps(1 << 40), 'x')));
        assert!(queue.is_empty());
    }
}
