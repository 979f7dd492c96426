//! Packet accounts. rxe counts no ICRC failures, but it counts a packet as received only after the ICRC, the headers,
//! the keys and the addresses were found right. So when nothing is lost on the way, each side must have received as
//! many packets as the other sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::rxe_side::RxeSide;
use crate::side::{Result, Side};
use crate::urxe_side::UrxeSide;

/// How long the last packets (ACKs that were held back) may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counters of the guest's device when the present test began. urxe's begin at zero.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    sent_before: u64,
    received_before: u64,
}

impl Accounts {
    pub(crate) fn open(_urxe: &mut UrxeSide, rxe: &mut RxeSide) -> Result<Accounts> {
        let counters = rxe.counters()?;
        Ok(Accounts {
            sent_before: of(&counters, "sent_pkts")?,
            received_before: of(&counters, "rcvd_pkts")?,
        })
    }

    /// Compares what one side sent with what the other received.
    pub(crate) fn settle(&self, urxe: &mut UrxeSide, rxe: &mut RxeSide) -> Result<()> {
        let start = Instant::now();
        loop {
            let (here, there) = (urxe.counters()?, rxe.counters()?);
            let to_rxe = [
                of(&here, "sent_pkts")?,
                of(&there, "rcvd_pkts")? - self.received_before,
            ];
            let to_urxe = [
                of(&there, "sent_pkts")? - self.sent_before,
                of(&here, "rcvd_pkts")?,
            ];
            let dropped: Vec<_> = here
                .iter()
                .filter(|(name, count)| name.starts_with("drop_") && **count > excused(name))
                .collect();
            if to_rxe[0] == to_rxe[1] && to_urxe[0] == to_urxe[1] && dropped.is_empty() {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "packets do not add up: urxe sent {}, rxe took {}; rxe sent {}, urxe got {}, dropped {dropped:?}",
                    to_rxe[0], to_rxe[1], to_urxe[0], to_urxe[1]
                ));
            }
            std::thread::yield_now();
        }
    }
}

/// Over IPv4 the Identification is solved for, and the first packet after a jump of rxe's counter (it jumps by chance
/// after a silence) is refused once and sent again: `provider/core/src/qp/ident.rs`.
pub(crate) fn excused(name: &str) -> u64 {
    u64::from(name == "drop_icrc")
}

fn of(counters: &BTreeMap<String, u64>, name: &str) -> Result<u64> {
    let count = counters.get(name).copied();
    count.ok_or_else(|| format!("there is no counter {name}"))
}
