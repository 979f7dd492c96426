//! Packet accounts. rxe counts no ICRC failures, but it counts a packet as received only after the ICRC, the headers,
//! the keys and the addresses were found right. So each side must have received as many packets as the other sent, but
//! for those that a queue on the way says it dropped ([`crate::queues`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::queues::Dropped;
use crate::rxe_side::RxeSide;
use crate::side::{Result, Side};
use crate::urxe_side::UrxeSide;

/// How long the last packets (ACKs that were held back) may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What urxe drops because something was lost before, or was sent again because a slow guest took longer than the
/// timeout. Nothing is wrong with such packets.
const FOLLOW_A_LOSS: [&str; 3] = [
    "drop_ahead_of_sequence",
    "drop_stale_duplicate",
    "drop_stale_response",
];

/// Counters of the guest's device when the present test began. urxe's begin at zero.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    sent_before: u64,
    received_before: u64,
    dropped_before: Dropped,
}

/// Packets that went one way.
#[derive(Clone, Copy, Debug)]
struct Way {
    sent: u64,
    received: u64,
    /// By queues; of these packets and of others.
    dropped: u64,
}

impl Way {
    fn adds_up(self) -> bool {
        let missing = self.sent.checked_sub(self.received);
        missing.is_some_and(|missing| missing <= self.dropped)
    }
}

impl Accounts {
    pub(crate) fn open(rxe: &mut RxeSide) -> Result<Accounts> {
        let counters = rxe.counters()?;
        Ok(Accounts {
            sent_before: of(&counters, "sent_pkts")?,
            received_before: of(&counters, "rcvd_pkts")?,
            dropped_before: Dropped::now(rxe)?,
        })
    }

    /// Compares what one side sent with what the other received.
    pub(crate) fn settle(&self, urxe: &mut UrxeSide, rxe: &mut RxeSide) -> Result<()> {
        let start = Instant::now();
        loop {
            let (here, there) = (urxe.counters()?, rxe.counters()?);
            let queues = Dropped::now(rxe)?.since(self.dropped_before);
            let to_rxe = Way {
                sent: of(&here, "sent_pkts")?,
                received: of(&there, "rcvd_pkts")? - self.received_before,
                dropped: queues.to_rxe,
            };
            let to_urxe = Way {
                sent: of(&there, "sent_pkts")? - self.sent_before,
                received: of(&here, "rcvd_pkts")?,
                dropped: queues.to_urxe,
            };
            let refused: Vec<_> = here
                .iter()
                .filter(|(name, count)| name.starts_with("drop_") && **count > 0)
                .filter(|(name, _)| !FOLLOW_A_LOSS.contains(&name.as_str()))
                .collect();
            if to_rxe.adds_up() && to_urxe.adds_up() && refused.is_empty() {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "packets do not add up: to rxe {to_rxe:?}; to urxe {to_urxe:?}, refused {refused:?}"
                ));
            }
            std::thread::yield_now();
        }
    }
}

fn of(counters: &BTreeMap<String, u64>, name: &str) -> Result<u64> {
    let count = counters.get(name).copied();
    count.ok_or_else(|| format!("there is no counter {name}"))
}
