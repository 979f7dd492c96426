//! Threads that sleep are woken for what arrives through memory: each time.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use urxe::{CompChannel, Cq, Qp, RecvWr, SendWr, Wc, WcOpcode};

use super::{Dice, end, patient, records, seed};
use crate::common::{End, PATIENCE, connect};

/// Round trips of each pair of QPs.
const ROUNDS: u64 = 100_000;
const ROUNDS_OF_TRAINS: u64 = 3000;

/// Messages of a train: more than a thread that polls takes out of a ring at once.
const TRAIN: u64 = 48;

/// Counts while the machine has time for other threads. What is woken by nothing but the transport's and the engine's own
/// timers sleeps for a second or longer, so that this counts much further than in any round trip of a busy machine.
struct Clock {
    ticks: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Of 10 milliseconds each, at least.
const TICKS_OF_A_LOST_WAKE_UP: u64 = 80;

impl Clock {
    fn start() -> Clock {
        let (ticks, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (theirs, stopped) = (ticks.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(10));
                theirs.fetch_add(1, Ordering::Relaxed);
            }
        });
        Clock {
            ticks,
            stop,
            thread: Some(thread),
        }
    }

    fn now(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().expect("it is there once").join();
    }
}

/// How a side waits for a message.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// In the library.
    Event,
    /// On the channel's descriptor, by the program: the library's thread finds the packets.
    Descriptor,
    /// It looks again and again.
    Poll,
}

impl Wait {
    fn any(dice: &mut Dice) -> Wait {
        [Wait::Event, Wait::Descriptor, Wait::Poll][dice.below(3) as usize]
    }
}

/// One side of a pair of QPs, with a queue and a channel of its own.
struct Side {
    qp: Qp,
    cq: Cq,
    channel: CompChannel,
    inbox: urxe::Mr,
    /// Completions of SENDs that were not seen yet.
    under_way: u32,
}

impl Side {
    fn new(end: &End) -> Side {
        let channel = end.context.create_comp_channel().expect("a channel");
        let cq = end.context.create_cq_with_channel(256, &channel);
        let cq = cq.expect("a CQ");
        let qp = end.pd.qp(&cq).max_send_wr(TRAIN as u32);
        let qp = qp.max_recv_wr(TRAIN as u32).create().expect("a QP");
        let inbox = end.memory(8);
        Side {
            qp,
            cq,
            channel,
            inbox,
            under_way: 0,
        }
    }

    fn expect(&self) {
        let part = [self.inbox.sge(..)];
        let recv = RecvWr::new(1, &part);
        self.qp.post_recv(&recv).expect("room");
    }

    fn send(&mut self, number: u64) {
        let bytes = number.to_le_bytes();
        let send = SendWr::send_inline(2, &bytes).signaled();
        self.qp.post_send(&send).expect("room");
        self.under_way += 1;
    }

    /// Waits for the next message.
    fn receive(&mut self, wait: Wait) -> u64 {
        loop {
            self.cq.req_notify(false).expect("a channel");
            let mut wc = [Wc::default()];
            if self.cq.poll(&mut wc).expect("polls") == 1 {
                assert!(wc[0].is_success(), "{}", wc[0]);
                if wc[0].opcode == WcOpcode::Recv {
                    let mut bytes = [0; 8];
                    self.inbox.read(0, &mut bytes);
                    return u64::from_le_bytes(bytes);
                }
                self.under_way -= 1;
                continue;
            }
            match wait {
                Wait::Event => {
                    let event = self.channel.wait_timeout(PATIENCE).expect("waits");
                    assert!(event.is_some(), "no event within {PATIENCE:?}");
                }
                Wait::Descriptor => {
                    let fd = self.channel.as_fd();
                    let mut fds = [rustix::event::PollFd::new(
                        &fd,
                        rustix::event::PollFlags::IN,
                    )];
                    let limit = rustix::event::Timespec {
                        tv_sec: PATIENCE.as_secs() as i64,
                        tv_nsec: 0,
                    };
                    let ready = rustix::event::poll(&mut fds, Some(&limit)).expect("polls");
                    assert_eq!(ready, 1, "no event within {PATIENCE:?}");
                    self.channel.wait_timeout(Duration::ZERO).expect("takes it");
                }
                Wait::Poll => thread::yield_now(),
            }
        }
    }
}

/// Sends numbers there and back; a round trip that nothing but a timer brought about fails.
fn play(a: Side, b: Side, wait: impl FnMut() -> [Wait; 2] + Send, clock: &Clock) {
    play_trains(a, b, wait, clock, ROUNDS, 1);
}

/// The same with so many of each number, one after the other.
fn play_trains(
    mut a: Side,
    mut b: Side,
    mut wait: impl FnMut() -> [Wait; 2] + Send,
    clock: &Clock,
    rounds: u64,
    train: u64,
) {
    (0..train).for_each(|_| b.expect());
    let (mut seen, mut waits) = (clock.now(), wait());
    let (sender, numbers) = std::sync::mpsc::channel::<Wait>();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Each number goes back as it is.
            for wait in numbers {
                let number = (0..train).fold(0, |_, _| b.receive(wait));
                (0..train).for_each(|_| b.expect());
                (0..train).for_each(|_| b.send(number));
            }
        });
        for number in 0..rounds {
            (0..train).for_each(|_| a.expect());
            sender.send(waits[1]).expect("it listens");
            (0..train).for_each(|_| a.send(number));
            (0..train).for_each(|_| assert_eq!(a.receive(waits[0]), number));
            let now = clock.now();
            assert!(
                now - seen < TICKS_OF_A_LOST_WAKE_UP,
                "round trip {number} ({waits:?}) took {} ticks",
                now - seen
            );
            (seen, waits) = (now, wait());
        }
        drop(sender);
    });
}

fn sides(a: &End, b: &End) -> (Side, Side) {
    let (a, b) = (Side::new(a), Side::new(b));
    connect(&a.qp, &b.qp, &patient());
    (a, b)
}

#[test]
fn both_sides_asleep_on_their_channels() {
    let (a, b) = (end(), end());
    let (ours, theirs) = sides(&a, &b);
    play(ours, theirs, || [Wait::Event; 2], &Clock::start());
    assert!(records(&a).iter().all(|&count| count >= ROUNDS));
    assert_eq!(a.counter("ack_timeout"), 0);
}

/// In each of the two contexts two threads sleep, one of them on the sockets, and each side chooses anew how it waits.
#[test]
fn two_sleepers_on_each_side() {
    let (a, b) = (end(), end());
    let clock = &Clock::start();
    let mut dice = seed(7);
    let dices = [0; 2].map(|_| Dice(dice.below(u64::MAX) | 1));
    thread::scope(|scope| {
        for mut dice in dices {
            let (ours, theirs) = sides(&a, &b);
            let wait = move || [0; 2].map(|_| Wait::any(&mut dice));
            scope.spawn(move || play(ours, theirs, wait, clock));
        }
    });
    assert!(records(&a).iter().all(|&count| count >= ROUNDS));
    assert_eq!(a.counter("ack_timeout"), 0);
}

/// A thread that polls takes a part of what there is, and then sleeps like the other.
#[test]
fn trains_of_messages_beside_a_sleeper() {
    let (a, b) = (end(), end());
    let clock = &Clock::start();
    let mut dice = seed(11);
    let dices = [0; 2].map(|_| Dice(dice.below(u64::MAX) | 1));
    thread::scope(|scope| {
        for mut dice in dices {
            let (ours, theirs) = sides(&a, &b);
            let wait = move || [0; 2].map(|_| Wait::any(&mut dice));
            scope.spawn(move || {
                play_trains(ours, theirs, wait, clock, ROUNDS_OF_TRAINS, TRAIN);
            });
        }
    });
    assert_eq!(a.counter("ack_timeout"), 0);
}
