//! Messages for neighbours with full inboxes. The thread that received one leaves it here and goes on; the
//! progress thread tries again for a while. What a neighbour that is stopped does not fetch costs the others a few
//! system calls, whatever the sender, and no waiting.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use urxe_core::Time;

use super::entries::Row;
use super::hand_over::Delivery;
use crate::lock::lock;

/// Messages for all neighbours together: some megabytes.
const LEN_MAX: usize = 1 << 14;
/// Messages for one of them: thousands of requests may come at once, and its inbox holds ten.
const OF_ONE_MAX: usize = 1 << 13;
/// Bytes of a message: any management datagram with all that is around it.
const BYTES_MAX: usize = 1024;
/// How long messages are kept for a neighbour that fetches nothing.
const PATIENCE_NS: u64 = 50_000_000;
/// The time between two attempts, and after one that has found room.
const RETRY_NS: u64 = 1_000_000;
const RETRY_SOON_NS: u64 = 50_000;
/// How long nothing is kept for a neighbour that fetched nothing.
const UNFETCHED_NS: u64 = 1_000_000_000;

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Waiting {
    queue: Mutex<Queue>,
    /// When the next attempt is due.
    due: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    neighbours: Vec<Neighbour>,
    /// Messages for all of them.
    len: usize,
}

/// A neighbour that has messages, or is given up.
#[derive(Debug)]
struct Neighbour {
    row: Row,
    letters: VecDeque<Box<[u8]>>,
    /// Since then it has fetched nothing that waited for it.
    idle_since: Time,
    is_given_up: bool,
}

/// The outcomes of messages that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Retried {
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            queue: Mutex::default(),
            due: AtomicU64::new(NEVER),
        }
    }
}

impl Waiting {
    /// Keeps a message. False if there is no room for it, or its neighbour is given up.
    pub(super) fn keep(&self, to: Row, bytes: &[u8], now: Time) -> bool {
        let mut queue = lock(&self.queue);
        let Queue { neighbours, len } = &mut *queue;
        neighbours.retain(|n| {
            let is_over = !n.is_given_up || now.since_ns(n.idle_since) >= UNFETCHED_NS;
            !(is_over && n.letters.is_empty())
        });
        let place = neighbours.iter().position(|n| n.row == to);
        let is_full = place.is_some_and(|place| {
            let neighbour = &neighbours[place];
            neighbour.is_given_up || neighbour.letters.len() == OF_ONE_MAX
        });
        if is_full || *len == LEN_MAX || bytes.len() > BYTES_MAX {
            return false;
        }
        let place = place.unwrap_or_else(|| {
            neighbours.push(Neighbour {
                row: to,
                letters: VecDeque::new(),
                idle_since: now,
                is_given_up: false,
            });
            neighbours.len() - 1
        });
        neighbours[place].letters.push_back(bytes.into());
        *len += 1;
        self.due.fetch_min((now + RETRY_NS).0, Ordering::Relaxed);
        true
    }

    /// When [`Waiting::retry`] has something to do.
    pub(super) fn due(&self) -> Option<Time> {
        let due = self.due.load(Ordering::Relaxed);
        (due != NEVER).then_some(Time(due))
    }

    /// Tries again, if that is due; `send` does not wait.
    pub(super) fn retry(&self, now: Time, send: impl Fn(Row, &[u8]) -> Delivery) -> Retried {
        let mut retried = Retried::default();
        if self.due().is_none_or(|due| due > now) {
            return retried;
        }
        let mut queue = lock(&self.queue);
        let Queue { neighbours, len } = &mut *queue;
        for neighbour in neighbours.iter_mut() {
            let tried = neighbour.retry(now, &send);
            retried.delivered += tried.delivered;
            retried.lost += tried.lost;
        }
        *len = neighbours.iter().map(|n| n.letters.len()).sum();
        let pause = match retried.delivered {
            0 => RETRY_NS,
            _ => RETRY_SOON_NS,
        };
        let due = if *len == 0 { NEVER } else { (now + pause).0 };
        self.due.store(due, Ordering::Relaxed);
        retried
    }
}

impl Neighbour {
    /// Sends what waits for it, until its inbox is full.
    fn retry(&mut self, now: Time, send: impl Fn(Row, &[u8]) -> Delivery) -> Retried {
        let mut retried = Retried::default();
        while let Some(letter) = self.letters.front() {
            match send(self.row, letter) {
                Delivery::Taken => {
                    self.letters.pop_front();
                    retried.delivered += 1;
                    self.idle_since = now;
                }
                Delivery::Gone => retried.lost += self.clear(),
                Delivery::Full if now.since_ns(self.idle_since) < PATIENCE_NS => break,
                Delivery::Full => {
                    retried.lost += self.clear();
                    (self.is_given_up, self.idle_since) = (true, now);
                }
            }
        }
        retried
    }

    fn clear(&mut self) -> u64 {
        let lost = self.letters.len() as u64;
        self.letters = VecDeque::new();
        lost
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const STOPPED: Row = Row(1);
    const BUSY: Row = Row(2);

    fn ms(n: u64) -> Time {
        Time(1 + n * 1_000_000)
    }

    #[test]
    fn a_message_for_a_full_inbox_is_tried_again_until_there_is_room() {
        let waiting = Waiting::default();
        let got = RefCell::new(Vec::new());
        for n in 0..3 {
            assert!(waiting.keep(BUSY, &[n], ms(0)));
        }
        let full = |_: Row, _: &[u8]| Delivery::Full;
        let take = |row: Row, bytes: &[u8]| {
            got.borrow_mut().push((row, bytes[0]));
            Delivery::Taken
        };
        assert_eq!(waiting.retry(ms(0), take), Retried::default(), "not due");
        assert_eq!(waiting.due(), Some(ms(1)));
        for n in 1..40 {
            assert_eq!(waiting.retry(ms(n), full), Retried::default());
        }
        assert_eq!(waiting.retry(ms(40), take).delivered, 3);
        assert_eq!(*got.borrow(), [(BUSY, 0), (BUSY, 1), (BUSY, 2)]);
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn who_is_stopped_takes_no_places_from_others_and_few_attempts() {
        let waiting = Waiting::default();
        let attempts = RefCell::new(0);
        let send = |row: Row, _: &[u8]| {
            *attempts.borrow_mut() += 1;
            if row == STOPPED {
                Delivery::Full
            } else {
                Delivery::Taken
            }
        };
        let (mut kept, mut lost, mut delivered) = (0, 0, 0);
        // Ten seconds of a flood for one that is stopped, and now and then a message for one that is busy.
        for n in 0..10_000 {
            for _ in 0..20 {
                kept += u64::from(waiting.keep(STOPPED, &[0], ms(n)));
            }
            if n % 100 == 0 {
                assert!(waiting.keep(BUSY, &[1], ms(n)), "there is room for others");
            }
            let retried = waiting.retry(ms(n), send);
            lost += retried.lost;
            delivered += retried.delivered;
        }
        assert_eq!((delivered, kept - lost), (100, 0));
        assert!(kept <= 10 * OF_ONE_MAX as u64, "{kept} were kept");
        assert!(*attempts.borrow() <= 10 * 51 + 100, "{attempts:?} attempts");
    }
}
