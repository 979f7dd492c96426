//! Completion queues: rings that the engine fills and the application empties.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use urxe_core::Time;
use urxe_core::cq::{CqId, CqOverrun, Cqe};
use urxe_core::error::WcStatus;
use urxe_wire::Qpn;

use super::Object;
use super::channel::Channel;
use super::moderation::{Moderation, ModerationClock, Notice};
use crate::lock::lock;
use crate::wc::Wc;

/// What a completion queue raises its events with: the queue itself, if it still is.
pub(crate) type CqChannel = Channel<Object>;

/// Which completion raises the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    Solicited,
    Next,
}

/// How to make a queue.
#[derive(Debug)]
pub(crate) struct CqInit {
    pub(crate) capacity: usize,
    pub(crate) channel: Option<Arc<CqChannel>>,
    /// Keep the time of every completion.
    pub(crate) timestamps: bool,
}

#[derive(Debug)]
pub(crate) struct CqCore {
    pub(crate) id: CqId,
    pub(crate) channel: Option<Arc<CqChannel>>,
    /// A channel of the queue's own, where the program named none and waits for the queue itself.
    pub(crate) own: OnceLock<Arc<CqChannel>>,
    /// The program's object, for events. Set once it is made.
    pub(crate) handle: OnceLock<Object>,
    inner: Mutex<Inner>,
    /// Changes only while `inner` is locked.
    capacity: AtomicUsize,
    /// Completions in the ring: so that a poll of an empty queue takes no lock.
    pub(crate) len: AtomicUsize,
    /// A completion was lost: what is in the queue is not all there was.
    overrun: AtomicBool,
    /// The overrun was told.
    is_overrun_told: AtomicBool,
    /// Polls in a row that found something.
    polls: AtomicUsize,
    /// Shards with QPs that complete here, one bit for each.
    shards: AtomicU64,
    /// Events that the program took, less those that it acknowledged.
    pub(crate) unacked: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) ring: VecDeque<Cqe>,
    /// When each of the ring was stored, if the queue keeps that.
    pub(crate) stamps: Option<VecDeque<Time>>,
    pub(crate) armed: Armed,
    pub(crate) moderation: Moderation,
}

impl Inner {
    /// Begins at the start of its memory again, if it is empty: programs make queues for the worst case, and one that goes round in all of
    /// that finds each place out of the cache. `urxe scale`, which makes room for 160,000 completions, takes 20 to 30 ns less a message so.
    #[inline]
    fn rest(&mut self) {
        if self.ring.is_empty() {
            self.ring.clear();
        }
    }

    /// Completions of a QP; those that only say "flushed" are not counted.
    pub(crate) fn results_of(&self, qpn: Qpn) -> usize {
        let is_result = |cqe: &&Cqe| cqe.qpn == qpn && cqe.status != WcStatus::WrFlushErr;
        self.ring.iter().filter(is_result).count()
    }
}

/// A smaller size than the completions that are in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WouldLose {
    pub(crate) held: usize,
}

/// A program that always finds completions must look at the network now and then too,
/// or the socket's buffer overflows. Sixteen polls of a few completions each are a few
/// microseconds; the buffer holds a millisecond. `urxe bench send --size 8` is 0.31 of the floor, and 0.26 if every poll drives.
const POLLS_PER_DRIVE: usize = 16;

impl CqCore {
    pub(crate) fn new(id: CqId, init: CqInit) -> CqCore {
        let CqInit {
            capacity,
            channel,
            timestamps,
        } = init;
        let inner = Inner {
            ring: VecDeque::with_capacity(capacity),
            stamps: timestamps.then(|| VecDeque::with_capacity(capacity)),
            armed: Armed::No,
            moderation: Moderation::default(),
        };
        CqCore {
            id,
            channel,
            own: OnceLock::new(),
            handle: OnceLock::new(),
            inner: Mutex::new(inner),
            capacity: AtomicUsize::new(capacity),
            len: AtomicUsize::new(0),
            overrun: AtomicBool::new(false),
            is_overrun_told: AtomicBool::new(false),
            polls: AtomicUsize::new(0),
            shards: AtomicU64::new(0),
            unacked: AtomicU32::new(0),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Completions that it can take now.
    pub(crate) fn room(&self) -> usize {
        let held = self.len.load(Ordering::Acquire);
        if self.is_overrun() {
            0
        } else {
            self.capacity().saturating_sub(held)
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Takes up to `out.len()` completions.
    #[inline]
    pub(crate) fn take(&self, out: &mut [Wc]) -> usize {
        let mut places = out.iter_mut();
        self.take_each(places.len(), |wc| {
            if let Some(place) = places.next() {
                *place = wc;
            }
        })
    }

    /// Takes up to `most` completions. The queue is locked while `each` gets one.
    #[inline]
    pub(crate) fn take_each(&self, most: usize, mut each: impl FnMut(Wc)) -> usize {
        if self.is_empty() || most == 0 {
            return 0;
        }
        let mut inner = self.lock();
        let mut count = 0;
        while count < most
            && let Some(cqe) = inner.ring.pop_front()
        {
            each(Wc::from(cqe));
            count += 1;
        }
        if let Some(stamps) = &mut inner.stamps {
            stamps.drain(..count);
        }
        inner.rest();
        self.len.store(inner.ring.len(), Ordering::Release);
        count
    }

    /// Takes the oldest completion, with its time if the queue keeps that.
    pub(crate) fn take_stamped(&self) -> Option<(Wc, Option<Time>)> {
        if self.is_empty() {
            return None;
        }
        let mut inner = self.lock();
        let cqe = inner.ring.pop_front()?;
        let stamp = inner.stamps.as_mut().and_then(VecDeque::pop_front);
        inner.rest();
        self.len.store(inner.ring.len(), Ordering::Release);
        Some((Wc::from(cqe), stamp))
    }

    /// Changes the capacity. Nothing that is in the queue is lost or moved.
    pub(crate) fn resize(&self, capacity: usize) -> Result<(), WouldLose> {
        let stamped = self.lock().stamps.is_some();
        // The memory first: no packet waits for an allocation.
        let mut ring = VecDeque::with_capacity(capacity);
        let mut stamps = VecDeque::with_capacity(if stamped { capacity } else { 0 });
        let mut inner = self.lock();
        let held = inner.ring.len();
        if held > capacity {
            return Err(WouldLose { held });
        }
        ring.extend(inner.ring.drain(..));
        let old = std::mem::replace(&mut inner.ring, ring);
        if let Some(mine) = &mut inner.stamps {
            stamps.extend(mine.drain(..));
            std::mem::swap(mine, &mut stamps);
        }
        self.capacity.store(capacity, Ordering::Relaxed);
        drop(inner);
        drop(old);
        Ok(())
    }

    /// Asks for an event at the next completion (or the next solicited one).
    pub(crate) fn arm(&self, armed: Armed) {
        // Under the lock: a completion is either in the ring before this, so that the
        // poll which the program does now finds it, or it sees the arming.
        let mut inner = self.lock();
        if inner.armed != Armed::Next {
            inner.armed = armed;
        }
    }

    /// True once every so many calls: a poll that found completions shall drive too.
    #[inline]
    pub(crate) fn is_turn_to_drive(&self) -> bool {
        // Racing pollers may lose a count: harmless.
        let polls = self.polls.load(Ordering::Relaxed) + 1;
        self.polls.store(polls, Ordering::Relaxed);
        polls.is_multiple_of(POLLS_PER_DRIVE)
    }

    /// QPs of this shard complete here from now on.
    pub(crate) fn note_shard(&self, shard: usize) {
        self.shards.fetch_or(1 << shard, Ordering::Relaxed);
    }

    /// QPs of this shard may complete here.
    #[inline]
    pub(crate) fn serves(&self, shard: usize) -> bool {
        self.shards.load(Ordering::Relaxed) >> shard & 1 != 0
    }

    /// The shard that has QPs which complete here; the first of several.
    pub(crate) fn home(&self) -> Option<usize> {
        let shards = self.shards.load(Ordering::Relaxed);
        (shards != 0).then(|| shards.trailing_zeros() as usize)
    }

    /// True for the first that asks, of all shards that met the overrun.
    pub(crate) fn tell_overrun(&self) -> bool {
        !self.is_overrun_told.swap(true, Ordering::Relaxed)
    }

    /// Completions that were not polled; those that only say "flushed" are not counted.
    pub(crate) fn unpolled(&self) -> usize {
        let inner = self.lock();
        let worth = |cqe: &&Cqe| cqe.status != WcStatus::WrFlushErr;
        inner.ring.iter().filter(worth).count()
    }

    /// A QP's completions were not polled that say more than "flushed".
    pub(crate) fn has_results_of(&self, qpn: Qpn) -> bool {
        !self.is_empty() && self.lock().results_of(qpn) > 0
    }

    /// True if a completion was lost.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn push(
        self: &Arc<Self>,
        cqe: Cqe,
        clock: &mut ModerationClock,
    ) -> Result<(), CqOverrun> {
        let mut inner = self.lock();
        if inner.ring.len() >= self.capacity() || self.is_overrun() {
            self.on_overrun(inner);
            return Err(CqOverrun);
        }
        let matches = match inner.armed {
            Armed::No => false,
            Armed::Solicited => cqe.solicited,
            Armed::Next => true,
        };
        clock.met_armed |= inner.armed != Armed::No;
        inner.ring.push_back(cqe);
        if let Some(stamps) = &mut inner.stamps {
            stamps.push_back(clock.now);
        }
        self.len.store(inner.ring.len(), Ordering::Release);
        if matches {
            self.on_match(inner, clock);
        }
        Ok(())
    }

    /// A completion of the kind that an event was asked for arrived.
    fn on_match(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, clock: &mut ModerationClock) {
        match inner.moderation.on_completion(clock.now) {
            Notice::Now => self.raise(inner),
            Notice::Later => {}
            Notice::At(time) => clock.wait(self, time),
        }
    }

    /// A queue that lost a completion takes no more: what was there before the loss can
    /// still be polled, and then the loss is reported. A thread that waits for an event must
    /// hear of it too.
    #[cold]
    fn on_overrun(&self, inner: MutexGuard<'_, Inner>) {
        self.overrun.store(true, Ordering::Relaxed);
        if inner.armed != Armed::No {
            self.raise(inner);
        }
    }

    pub(crate) fn raise(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.armed = Armed::No;
        inner.moderation.on_raised();
        drop(inner);
        let channel = self.channel.as_ref().or_else(|| self.own.get());
        if let (Some(channel), Some(handle)) = (channel, self.handle.get()) {
            channel.push(handle.clone());
        }
    }

    /// How many completions, or how much time, an event waits for.
    pub(crate) fn moderate(&self, count: u16, period_us: u16) {
        let mut inner = self.lock();
        inner.moderation.set(count, period_us);
        // What was waited for under the old rule is not waited for any longer.
        if inner.moderation.is_pending() {
            self.raise(inner);
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;
    use urxe_core::cq::{TmInfo, WcOpcode};
    use urxe_core::error::Fault;
    use urxe_wire::Qpn;

    fn cqe(wr_id: u64, solicited: bool) -> Cqe {
        Cqe {
            wr_id,
            status: WcStatus::Success,
            fault: Fault::None,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn: Qpn::new(2),
            src_qp: Qpn::new(3),
            grh: false,
            ipv4: false,
            solicited,
            tm: TmInfo::default(),
        }
    }

    fn queue(capacity: usize, channel: Option<Arc<CqChannel>>) -> Arc<CqCore> {
        let init = CqInit {
            capacity,
            channel,
            timestamps: true,
        };
        let cq = CqCore::new(CqId(7), init);
        cq.handle.set(Weak::<()>::new()).expect("new");
        Arc::new(cq)
    }

    #[test]
    fn an_emptied_queue_begins_where_it_began() {
        let cq = queue(1000, None);
        let mut wcs = [Wc::default(); 3];
        let first = |cq: &CqCore| cq.lock().ring.as_slices().0.as_ptr().addr();
        cq.push(cqe(0, false), &mut at(1)).expect("room");
        let begin = first(&cq);
        for n in 1..700 {
            cq.push(cqe(n, false), &mut at(1)).expect("room");
            // Some that the program has not taken yet keep their places.
            let (taken, place) = (cq.take(&mut wcs[..1]), first(&cq));
            assert_eq!((taken, wcs[0].wr_id), (1, n - 1));
            assert_eq!(place, begin + n as usize * size_of::<Cqe>());
        }
        assert_eq!(cq.take(&mut wcs), 1);
        cq.push(cqe(700, false), &mut at(1)).expect("room");
        assert_eq!(first(&cq), begin);
        assert!(cq.take_stamped().is_some());
        cq.push(cqe(701, false), &mut at(1)).expect("room");
        assert_eq!(first(&cq), begin);
    }

    fn at(now: u64) -> ModerationClock {
        let mut clock = ModerationClock::default();
        clock.now = Time(now);
        clock
    }

    fn ids(cq: &CqCore) -> Vec<u64> {
        std::iter::from_fn(|| cq.take_stamped())
            .map(|(wc, _)| wc.wr_id)
            .collect()
    }

    #[test]
    fn holds_what_it_was_made_for_and_reports_the_rest() {
        let (cq, mut clock) = (queue(3, None), at(0));
        for n in 0..3 {
            assert_eq!(cq.push(cqe(n, false), &mut clock), Ok(()));
        }
        assert_eq!(cq.push(cqe(3, false), &mut clock), Err(CqOverrun));
        assert!(cq.is_overrun());
        let mut out = [Wc::default(); 2];
        assert_eq!(cq.take(&mut out), 2);
        assert_eq!((out[0].wr_id, out[1].wr_id), (0, 1));
        // There is room, but a completion after the lost one would hide the loss.
        assert_eq!(cq.push(cqe(4, false), &mut clock), Err(CqOverrun));
        assert_eq!(cq.take(&mut out), 1);
        assert!(cq.is_empty());
    }

    #[test]
    fn a_resize_keeps_every_completion_with_its_time() {
        let cq = queue(4, None);
        for n in 0..4 {
            cq.push(cqe(n, false), &mut at(n * 10)).expect("room");
        }
        assert_eq!(cq.resize(3), Err(WouldLose { held: 4 }));
        assert_eq!(cq.capacity(), 4, "a refused resize changes nothing");
        cq.resize(6).expect("larger");
        for n in 4..6 {
            cq.push(cqe(n, false), &mut at(n * 10)).expect("room");
        }
        assert_eq!(cq.push(cqe(6, false), &mut at(60)), Err(CqOverrun));
        for n in 0..6 {
            let (wc, stamp) = cq.take_stamped().expect("there");
            assert_eq!((wc.wr_id, stamp), (n, Some(Time(n * 10))));
        }
    }

    #[test]
    fn raises_one_event_per_arming() {
        let channel = Arc::new(Channel::new().expect("a descriptor"));
        let (cq, mut clock) = (queue(100, Some(channel.clone())), at(0));
        let mut events = |pushes: &[bool]| {
            for &solicited in pushes {
                cq.push(cqe(0, solicited), &mut clock).expect("room");
            }
            std::iter::from_fn(|| channel.try_take()).count()
        };
        assert_eq!(events(&[true]), 0, "not armed");
        cq.arm(Armed::Next);
        assert_eq!(events(&[false, false]), 1);
        cq.arm(Armed::Solicited);
        assert_eq!(events(&[false, false]), 0);
        assert_eq!(events(&[true, true]), 1);
        cq.arm(Armed::Next);
        cq.arm(Armed::Solicited);
        assert_eq!(events(&[false]), 1, "the stronger arming stays");
    }

    #[test]
    fn a_completion_for_an_armed_queue_tells_of_a_program_that_waits() {
        let channel = Arc::new(Channel::new().expect("a descriptor"));
        let (cq, mut clock) = (queue(100, Some(channel)), at(0));
        cq.push(cqe(0, true), &mut clock).expect("room");
        assert!(!clock.met_armed);
        // Also one that it does not want to hear of.
        cq.arm(Armed::Solicited);
        cq.push(cqe(0, false), &mut clock).expect("room");
        assert!(clock.met_armed);
    }

    #[test]
    fn an_overrun_wakes_whoever_waits() {
        let channel = Arc::new(Channel::new().expect("a descriptor"));
        let (cq, mut clock) = (queue(1, Some(channel.clone())), at(0));
        cq.push(cqe(0, false), &mut clock).expect("room");
        cq.arm(Armed::Solicited);
        assert_eq!(cq.push(cqe(1, false), &mut clock), Err(CqOverrun));
        assert!(channel.try_take().is_some());
        assert_eq!(ids(&cq), [0]);
    }

    #[test]
    fn moderation_waits_for_a_number_or_a_time() {
        let channel = Arc::new(Channel::new().expect("a descriptor"));
        let (cq, mut clock) = (queue(100, Some(channel.clone())), at(1_000));
        let events = || std::iter::from_fn(|| channel.try_take()).count();
        cq.moderate(3, 5);
        cq.arm(Armed::Next);
        for n in 0..3 {
            assert_eq!(events(), 0, "after {n}");
            cq.push(cqe(n, false), &mut clock).expect("room");
        }
        assert_eq!(events(), 1, "three are there");
        // The timer of the round that ended by number must not end the next one.
        cq.arm(Armed::Next);
        assert_eq!(clock.due, Some(Time(6_000)));
        clock.now = Time(6_000);
        clock.fire();
        assert_eq!((events(), clock.due), (0, None));
        cq.push(cqe(3, false), &mut clock).expect("room");
        assert_eq!(clock.due, Some(Time(11_000)), "a new round, a new time");
        clock.now = Time(10_999);
        clock.fire();
        assert_eq!(events(), 0);
        clock.now = Time(11_000);
        clock.fire();
        assert_eq!(events(), 1, "five microseconds are up");
        // Switched off, what waits is raised at once.
        cq.arm(Armed::Next);
        cq.push(cqe(4, false), &mut clock).expect("room");
        assert_eq!(events(), 0);
        cq.moderate(0, 0);
        assert_eq!(events(), 1);
    }
}
