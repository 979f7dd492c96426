//! Messages for neighbours whose inboxes are full at the moment. Whoever received one leaves it here and goes on; the
//! progress thread tries again for a while. What a neighbour that is stopped does not fetch costs the others a few
//! system calls, whoever sends it, and no waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use urxe_core::Time;

use super::entries::Row;
use super::hand_over::Delivery;

/// Messages for all neighbours together: a quarter of a megabyte.
const LEN_MAX: usize = 256;
/// Messages for one of them: more than its inbox holds.
const OF_ONE_MAX: usize = 16;
/// Bytes of a message: any management datagram with all that is around it.
const BYTES_MAX: usize = 1024;
/// How long a message is kept.
const PATIENCE_NS: u64 = 50_000_000;
/// Between two attempts.
const RETRY_NS: u64 = 1_000_000;
/// How long nothing is kept for a participant that fetched nothing in all that time.
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
    letters: VecDeque<Letter>,
    /// Who did not fetch what was kept, and since when.
    unfetched: Vec<(Row, Time)>,
}

#[derive(Debug)]
struct Letter {
    to: Row,
    until: Time,
    bytes: Box<[u8]>,
}

/// What became of messages that waited.
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
    /// Keeps a message. False if there is no place for it, or no hope.
    pub(super) fn keep(&self, to: Row, bytes: &[u8], now: Time) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Queue { letters, unfetched } = &mut *queue;
        unfetched.retain(|(_, since)| now.since_ns(*since) < UNFETCHED_NS);
        let of_this_one = letters.iter().filter(|letter| letter.to == to).count();
        if unfetched.iter().any(|(other, _)| *other == to)
            || letters.len() == LEN_MAX
            || of_this_one == OF_ONE_MAX
            || bytes.len() > BYTES_MAX
        {
            return false;
        }
        letters.push_back(Letter {
            to,
            until: now + PATIENCE_NS,
            bytes: bytes.into(),
        });
        let due = (now + RETRY_NS).0;
        self.due.fetch_min(due, Ordering::Relaxed);
        true
    }

    /// When [`Waiting::retry`] has something to do.
    pub(super) fn due(&self) -> Option<Time> {
        let due = self.due.load(Ordering::Relaxed);
        (due != NEVER).then_some(Time(due))
    }

    /// Tries again, if that is due; `send` does not wait. Whose inbox is full is tried once.
    pub(super) fn retry(&self, now: Time, send: impl Fn(Row, &[u8]) -> Delivery) -> Retried {
        let mut retried = Retried::default();
        if self.due().is_none_or(|due| due > now) {
            return retried;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Queue { letters, unfetched } = &mut *queue;
        let mut full: Vec<Row> = Vec::new();
        letters.retain(|letter| {
            if !full.contains(&letter.to) {
                match send(letter.to, &letter.bytes) {
                    Delivery::Taken => {
                        retried.delivered += 1;
                        return false;
                    }
                    Delivery::Gone => {
                        retried.lost += 1;
                        return false;
                    }
                    Delivery::Full => full.push(letter.to),
                }
            }
            if now < letter.until {
                return true;
            }
            retried.lost += 1;
            if !unfetched.iter().any(|(row, _)| *row == letter.to) {
                unfetched.push((letter.to, now));
            }
            false
        });
        let due = if letters.is_empty() {
            NEVER
        } else {
            (now + RETRY_NS).0
        };
        self.due.store(due, Ordering::Relaxed);
        retried
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
