//! What the queues on the way say that they dropped. An emulated guest is slower than the host, so some packets of a
//! message of MiBs may find a queue full; that is an ordinary loss, and it is counted where it happens.

use crate::rxe_side::RxeSide;
use crate::side::Result;

/// The tables that count it, of either kernel: of interfaces, and of UDP sockets.
const TABLES: [&str; 3] = ["/proc/net/dev", "/proc/net/snmp", "/proc/net/snmp6"];

/// Packets dropped since the start, by the way that they took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) to_rxe: u64,
    pub(crate) to_urxe: u64,
}

impl Dropped {
    /// As of now.
    pub(crate) fn now(rxe: &mut RxeSide) -> Result<Dropped> {
        let mut here = String::new();
        for table in TABLES {
            // A kernel without IPv6 lacks the last.
            here += &std::fs::read_to_string(table).unwrap_or_default();
        }
        let there = rxe.shell(&format!("cat {}", TABLES.join(" ")))?;
        let (here, there) = (drops(&here), drops(&there));
        Ok(Dropped {
            to_rxe: here.sent + there.received,
            to_urxe: there.sent + here.received,
        })
    }

    /// Those of after `before`.
    pub(crate) fn since(self, before: Dropped) -> Dropped {
        Dropped {
            to_rxe: self.to_rxe - before.to_rxe,
            to_urxe: self.to_urxe - before.to_urxe,
        }
    }
}

/// Of one kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Drops {
    received: u64,
    sent: u64,
}

fn drops(tables: &str) -> Drops {
    let mut sum = Drops::default();
    let mut udp_head: Vec<&str> = Vec::new();
    for line in tables.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match words.first() {
            Some(&"Udp:") if number(1).is_none() => udp_head.clone_from(&words),
            Some(&"Udp:") => {
                let at = udp_head.iter().position(|head| *head == "RcvbufErrors");
                sum.received += at.and_then(number).unwrap_or(0);
            }
            Some(&"Udp6RcvbufErrors") => sum.received += number(1).unwrap_or(0),
            // An interface: bytes, packets, errors, drops, ... received, and four columns later sent.
            Some(name) if name.ends_with(':') && words.len() >= 17 => {
                sum.received += number(4).unwrap_or(0);
                sum.sent += number(12).unwrap_or(0);
            }
            _ => {}
        }
    }
    sum
}
