//! The background thread: it drives the engine while no other thread does.
//!
//! One-sided operations on a process that sleeps or computes must go on, and so must
//! timers. But while the program drives the engine itself, by polling or by waiting for
//! events, the thread would only be woken by every packet for nothing. So it has three
//! ways to sleep:
//!
//! * nothing is connected: until it is kicked;
//! * another thread drives: on a timer, a tick, to check whether that is still so, and to
//!   send what was held back;
//! * no thread does: on the sockets, until the next timer of the core.
//!
//! A program that waits by looking at its memory is of the third kind even if it polls now
//! and then: [`Vigilance`] finds that out.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use urxe_core::{ANSWER_NS, Driver, Time};
use urxe_udp::{Interest, WAIT_MAX, wait_for};

use super::clock::until;
use super::doorbell::Attempt;
use super::shard_state::ShardState;
use super::vigilance::{SILENT_AT_TICK_NS, SILENT_NS, Vigilance};
use crate::engine::Engine;
use crate::engine::carrier::seam::Sleeper;
use crate::engine::carrier::sockets::Which;
use crate::engine::upkeep::housekeeping::Housekeeping;
use crate::error::Error;
use crate::share::Retried;

/// The engine was driven by the program so recently that it is likely to be again. A
/// polling program comes back within microseconds; one that handles a message within
/// tens of them. A tick a millisecond costs well below one percent of a core. `ib_write_lat` takes 7 us; with 10 ms here 13.
pub(in crate::engine) const RECENT_NS: u64 = 1_000_000;
/// Longest tick, while one thread has been waiting for an event all the time.
const TICK_MAX: Duration = Duration::from_millis(1024);
const TICK_MIN: Duration = Duration::from_nanos(RECENT_NS);

/// Packets in one turn that are a stream rather than single messages, each of which would have the thread spin. With 64,
/// `urxe bench write` is 0.78 of the floor in place of 0.80.
const BULK_PACKETS: u64 = 16;
/// How long the thread looks for the rest of a stream before it sleeps. Waking it costs
/// the sender some microseconds and the stream some tens of them, for every train; a
/// stream's next train comes sooner than this. Single messages never make it spin. `urxe bench write` is 0.74 of the floor,
/// and 0.67 if it does not spin.
const BULK_SPIN_NS: u64 = 50_000;

/// The thread's handle. Dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub(crate) struct ProgressThread {
    engine: Arc<Engine>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Starts the thread. It belongs into other people's processes: it takes no signals,
    /// but those that its own copies raise when the memory is gone.
    pub(crate) fn start(engine: Arc<Engine>) -> Result<ProgressThread, Error> {
        let mine = engine.clone();
        // Blocked before the thread begins, which inherits the mask: there is no moment
        // in which it could take the program's signals.
        let mut others = SigSet::all();
        others.remove(Signal::SIGSEGV);
        others.remove(Signal::SIGBUS);
        let before = others.thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let thread = thread::Builder::new()
            .name("urxe-progress".into())
            .spawn(move || Progress::new(&mine).run())
            .map_err(Error::io("starting the progress thread"));
        if let Ok(before) = before {
            // It was a mask a moment ago, so it is accepted.
            let _ = before.thread_set_mask();
        }
        Ok(ProgressThread {
            engine,
            thread: Some(thread?),
        })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.engine.generation.is_past() {
            // The thread is the parent's; there is nothing to wait for.
            std::mem::forget(thread);
            return;
        }
        self.engine.progress.stop.store(true, Ordering::Release);
        self.engine.progress.kick();
        // A panic of the thread poisoned the lock, and was reported so.
        let _ = thread.join();
    }
}

/// How the thread sleeps next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Idle,
    Tick(Duration),
    Watch,
}

struct Progress<'a> {
    engine: &'a Engine,
    housekeeping: Housekeeping,
    /// Length of the next tick beside a waiting thread, and which wait it was.
    tick: Duration,
    watches_seen: u64,
    vigilance: Vigilance,
    /// The last tick fetched something and holds its ACK back, for the answer.
    expects_answer: bool,
    /// Wake-ups and kicks since they were counted.
    wakes: Cell<u64>,
    kicks: Cell<u64>,
}

impl<'a> Progress<'a> {
    fn new(engine: &'a Engine) -> Self {
        let housekeeping = Housekeeping::new(engine);
        Progress {
            engine,
            housekeeping,
            tick: TICK_MIN,
            watches_seen: 0,
            vigilance: Vigilance::default(),
            expects_answer: false,
            wakes: Cell::new(0),
            kicks: Cell::new(0),
        }
    }

    fn run(mut self) {
        let progress = &*self.engine.progress;
        while !progress.stop.load(Ordering::Acquire) {
            let now = self.engine.clock.now();
            let slept = match self.mode(now) {
                Mode::Idle => self.sleep_idle(now),
                Mode::Tick(tick) => self.sleep_a_tick(now, tick),
                Mode::Watch => self.watch(),
            };
            if slept.is_none() {
                // The engine failed; there is nothing left to drive.
                break;
            }
            if progress.serve.swap(false, Ordering::AcqRel) && self.engine.combiner.lock().is_err()
            {
                break;
            }
        }
        self.housekeeping.finish(self.engine);
    }

    fn mode(&mut self, now: Time) -> Mode {
        let progress = &*self.engine.progress;
        if self.engine.sockets.which(Which::All).next().is_none() {
            return Mode::Idle;
        }
        let watches = progress.watches.load(Ordering::Relaxed);
        if progress.is_watched() {
            // The same thread for longer and longer: it will probably stay.
            let same = watches == self.watches_seen;
            self.tick = if same {
                (self.tick * 2).min(TICK_MAX)
            } else {
                TICK_MIN
            };
            self.watches_seen = watches;
            return Mode::Tick(self.tick);
        }
        self.tick = TICK_MIN;
        if progress.was_driven(now, RECENT_NS) && !self.vigilance.is_on() {
            Mode::Tick(TICK_MIN)
        } else {
            Mode::Watch
        }
    }

    fn sleep_idle(&mut self, now: Time) -> Option<()> {
        if let Ok(mut state) = self.engine.combiner.lock() {
            state.start_turn();
            state.rouse(Sleeper::Progress);
            state.nothing_new = true;
            self.housekeeping.look(&state);
        }
        self.housekeeping.do_if_due(self.engine, now);
        let limit = self.housekeeping.due();
        self.sleep(now, limit);
        Some(())
    }

    /// No thread drove the engine for as long as a polling program never takes.
    fn is_silent(&self, now: Time, for_ns: u64) -> bool {
        let progress = &*self.engine.progress;
        let driven_at = Time(progress.driven_at.load(Ordering::Relaxed));
        now.since_ns(driven_at) >= for_ns && !progress.watched.load(Ordering::Acquire)
    }

    fn count(&mut self, state: &mut ShardState) {
        state.counters.progress_wakes += self.wakes.take();
        state.counters.progress_kicks += self.kicks.take();
        self.housekeeping.look(state);
    }

    fn count_watch(&mut self, state: &mut ShardState) {
        state.counters.progress_watches += 1;
        self.count(state);
    }

    /// Others drive: sends what they held back, and lets them.
    fn sleep_a_tick(&mut self, now: Time, tick: Duration) -> Option<()> {
        let progress = &*self.engine.progress;
        let mut end = now + tick.as_nanos() as u64;
        // The thread that waited for an event may have left since. A long tick begins only after a look that such a thread
        // either comes before, or sees the tick.
        if !progress.announce_sleep(end) && tick > TICK_MIN {
            return Some(());
        }
        let groups = self.neglected_groups();
        if let Attempt::Held(mut state) = self.engine.combiner.try_lock().ok()? {
            state.start_turn();
            state.rouse(Sleeper::Progress);
            let shared = self.engine.sockets.is_shared && !self.engine.sockets.all_active();
            if shared || groups.is_some() {
                // The driving thread looks only at those that it uses, or knows of.
                state.receive(1, Which::All);
            }
            state.receive_what_lies();
            let messages = state.shard.stats().rcvd_messages;
            let found = self.is_silent(state.now, SILENT_AT_TICK_NS)
                && state.receive(1, Which::Active)
                && state.shard.stats().rcvd_messages > messages;
            // What it came back for is no tick.
            if !self.expects_answer {
                self.vigilance.on_tick(found);
                state.counters.progress_ticks += 1;
            }
            state.handle_timers();
            // One of a moment ago may still find an answer to travel with.
            state.transmit(Driver::Background { beside: true });
            self.expects_answer = found && state.shard.has_work();
            // Timers are the driver's affair; one that it might not know of is served within
            // a tick.
            if let Some(due) = state.due() {
                end = due.max(now + RECENT_NS).min(end);
            }
            // While the lock is held: a thread that leaves it wakes this one for a timer that comes before the end of
            // this sleep, and this one would wake itself.
            progress.asleep_until.store(end.0, Ordering::Relaxed);
            self.count(&mut state);
        } else {
            // The holder may have looked before this sleep was announced, and what it leaves may be due at the next tick.
            end = end.min(now + RECENT_NS);
        }
        self.housekeeping.do_if_due(self.engine, now);
        let answer = self.expects_answer.then(|| now + ANSWER_NS);
        let end = answer.unwrap_or(end);
        let end = self.housekeeping.due().map_or(end, |other| other.min(end));
        progress.asleep_until.store(end.0, Ordering::Relaxed);
        let (mut list, mut len) = self.interests();
        if let Some(groups) = groups {
            list[len] = groups;
            len += 1;
        }
        self.wait(list, len, now, Some(end));
        Some(())
    }

    /// The sockets of groups, if the thread that waits for an event does not know of them:
    /// they are newer than its sleep.
    fn neglected_groups(&self) -> Option<Interest<'a>> {
        let progress = &self.engine.progress;
        let is_seen_to = !progress.watched.load(Ordering::Acquire)
            || progress.groups_watched.load(Ordering::Relaxed);
        if is_seen_to {
            return None;
        }
        self.engine.sockets.groups.interest()
    }

    /// No other thread drives: does everything, until there is nothing to do, and then sleeps
    /// until there is.
    fn watch(&mut self) -> Option<()> {
        // A thread that is in a call is not silent, however long ago the call began: it may have been interrupted for this one.
        let (mut state, mut in_call) = self.engine.combiner.lock_after().ok()?;
        state.rouse(Sleeper::Progress);
        // Until there are no packets, or another thread wants the engine.
        let mut spin_until = Time::ZERO;
        let stats = state.shard.stats();
        let (mut packets, messages) = (stats.rcvd_pkts, stats.rcvd_messages);
        let mut found = false;
        let driver = Driver::Background {
            beside: self.vigilance.is_on(),
        };
        // What was asked before is of threads that were in each other's way.
        self.engine.progress.was_asked();
        loop {
            let is_silent = !in_call && self.is_silent(self.engine.clock.now(), SILENT_NS);
            let which = if state.now < spin_until {
                Which::Polled
            } else {
                Which::All
            };
            let any = state.turn(driver, which);
            found |= any && is_silent && state.shard.stats().rcvd_messages > messages;
            let received = state.shard.stats().rcvd_pkts;
            if received - packets >= BULK_PACKETS {
                spin_until = state.now + BULK_SPIN_NS;
            }
            packets = received;
            let is_over = self.engine.progress.stop.load(Ordering::Relaxed);
            let goes_on = any || state.now < spin_until;
            if is_over || (!goes_on && state.doze(Sleeper::Progress)) {
                break;
            }
            let is_asked = self.engine.progress.was_asked();
            if self.vigilance.on_turn(is_asked) {
                // The next sleep is a tick, as beside any program that polls.
                self.engine.progress.note_driven(state.now);
                self.count_watch(&mut state);
                return Some(());
            }
            drop(state);
            self.hand_over_waiting();
            (state, in_call) = self.engine.combiner.lock_after().ok()?;
        }
        self.vigilance.on_watch(found);
        let (now, backlog) = (state.now, state.is_full());
        self.count_watch(&mut state);
        let answer = state.shard.has_work().then(|| now + ANSWER_NS);
        // While the lock is held: a thread that adds a timer sees how long this sleep will be.
        let ends = [state.due(), self.housekeeping.due(), answer];
        let end = Time::earliest(ends);
        let asleep_until = end.map_or(u64::MAX, |end| end.0);
        let progress = &self.engine.progress;
        progress.asleep_until.store(asleep_until, Ordering::Relaxed);
        drop(state);
        self.housekeeping.do_if_due(self.engine, now);
        self.sleep_on_sockets(now, end, backlog);
        Some(())
    }

    /// Sleeps until the thread is kicked or the time is up.
    fn sleep(&mut self, now: Time, end: Option<Time>) {
        let (list, len) = self.interests();
        self.wait(list, len, now, end);
    }

    /// Sleeps until that time, or until there are packets (or room for them, if some wait).
    fn sleep_on_sockets(&mut self, now: Time, end: Option<Time>, backlog: bool) {
        let (mut list, len) = self.interests();
        let len = self.engine.sockets.interests(backlog, &mut list, len);
        self.wait(list, len, now, end);
    }

    /// Gives neighbours what their inboxes had no room for. Without the engine's lock: others go on meanwhile.
    fn hand_over_waiting(&self) {
        let Some(membership) = &self.engine.membership else {
            return;
        };
        if membership.waiting_due().is_none() {
            return;
        }
        let Retried { delivered, lost } = membership.hand_over_waiting(self.engine.clock.now());
        if delivered + lost > 0
            && let Ok(mut state) = self.engine.combiner.lock()
        {
            state.counters.handed_over += delivered;
            state.counters.hand_over_lost += lost;
        }
    }

    /// What always wakes the thread: a kick, changes of the interface, and questions; the
    /// kick is first.
    fn interests(&self) -> ([Interest<'_>; WAIT_MAX], usize) {
        let kick = Interest::readable(self.engine.progress.kick.as_fd());
        let mut list = [kick; WAIT_MAX];
        let others = [self.engine.port.fd(), self.housekeeping.asked()];
        let mut len = 1;
        for fd in others.into_iter().flatten() {
            list[len] = Interest::readable(fd);
            len += 1;
        }
        (list, len)
    }

    /// Waits for the first `len` of a list, of which the thread's own is the first; and
    /// for packets that others got in our place, which are this thread's to take.
    fn wait<'e>(
        &'e self,
        mut list: [Interest<'e>; WAIT_MAX],
        mut len: usize,
        now: Time,
        end: Option<Time>,
    ) {
        if let Some(membership) = &self.engine.membership {
            list[len] = Interest::readable(membership.inbox());
            len += 1;
        }
        let waiting = self.engine.membership.as_ref();
        let waiting = waiting.and_then(|membership| membership.waiting_due());
        let end = Time::earliest([end, waiting]);
        let progress = &*self.engine.progress;
        // A failure of poll is a lack of memory: look around instead of sleeping.
        let ready = wait_for(&list[..len], end.map(|end| until(now, end))).unwrap_or_default();
        self.wakes.set(self.wakes.get() + 1);
        self.hand_over_waiting();
        if self.engine.membership.is_some()
            && ready.is_ready(len - 1)
            && let Ok(mut state) = self.engine.combiner.lock()
        {
            state.start_turn();
            state.receive_handed_over();
            state.transmit(Driver::Visitor);
        }
        if ready.is_ready(0) {
            progress.take_kick();
            self.kicks.set(self.kicks.get() + 1);
        }
        let mut place = 1;
        if self.engine.port.fd().is_some() {
            if ready.is_ready(place) {
                let events = &self.engine.events;
                let change = self.engine.port.on_readable(|event| events.push(event));
                if let Some(change) = change {
                    self.engine.tell_bound(change);
                }
            }
            place += 1;
        }
        if self.housekeeping.asked().is_some() && ready.is_ready(place) {
            self.housekeeping.answer(self.engine);
        }
    }
}
