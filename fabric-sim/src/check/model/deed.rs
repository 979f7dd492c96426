//! What a packet does when it is executed, and packets that came before their turn.

use core::fmt;
use std::collections::VecDeque;

use urxe_wire::{BTH_LEN, ICRC_LEN, Opcode, Operation, Position, Psn};

/// What a packet does when it is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deed {
    pub(super) psn: Psn,
    pub(super) operation: Operation,
    pub(super) position: Position,
    /// It answers a READ, an atomic, or says that something came.
    pub(super) is_answer: bool,
    /// Bytes that it writes.
    pub(super) len: u64,
    /// PSNs that it stands for.
    pub(super) psns: u32,
}

impl Deed {
    /// Of a packet that the transport has read already: this runs for each, and reads no more than it needs.
    #[inline]
    pub(super) fn of(packet: &[u8], mtu: u32) -> Option<Deed> {
        let &[opcode, flags, _, _, _, _, _, _, _, p0, p1, p2] = packet.first_chunk::<BTH_LEN>()?;
        let info = Opcode(opcode).info()?;
        let pad = flags >> 4 & 3;
        let around = BTH_LEN + usize::from(info.headers.len() + pad) + ICRC_LEN;
        let len = match info.operation {
            Operation::Acknowledge => 0,
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicAcknowledge => 8,
            _ => packet.len().saturating_sub(around) as u64,
        };
        let psns = match info.operation {
            Operation::ReadRequest => psns_of(read_len(packet).into(), mtu),
            _ => 1,
        };
        Some(Deed {
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
            operation: info.operation,
            position: info.position,
            is_answer: info.is_response(),
            len,
            psns,
        })
    }

    pub(super) fn is_atomic(&self) -> bool {
        matches!(
            self.operation,
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicAcknowledge
        )
    }

    pub(super) fn begins_message(&self) -> bool {
        matches!(self.position, Position::First | Position::Only)
    }

    pub(super) fn ends_message(&self) -> bool {
        matches!(self.position, Position::Last | Position::Only)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with PSN {}", self.operation, self.psn)
    }
}

/// Bytes that a READ request asks for: the last field of its RETH.
fn read_len(packet: &[u8]) -> u32 {
    let field = packet
        .get(BTH_LEN + 12..)
        .and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_be_bytes(*field))
}

/// PSNs that a request of so many bytes takes.
pub(super) fn psns_of(len: u64, mtu: u32) -> u32 {
    len.div_ceil(u64::from(mtu.max(1))).max(1) as u32
}

/// A packet that is further ahead was not kept.
const AHEAD_MAX: u32 = 1 << 16;

/// Packets that came before their turn and may have been kept, by PSN.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// PSN of the first place.
    base: Psn,
    places: VecDeque<Option<Deed>>,
}

impl Ahead {
    /// A packet came, and `next` is to be executed before it. Of several with its PSN the first counts.
    pub(super) fn put(&mut self, next: Psn, deed: Deed) {
        self.pass(next);
        let at = deed.psn.distance_from(next);
        if at < AHEAD_MAX {
            let at = at as usize;
            if at >= self.places.len() {
                self.places.resize(at + 1, None);
            }
            self.places[at].get_or_insert(deed);
        }
    }

    /// The packet that is next, if it came.
    pub(super) fn take(&mut self, next: Psn) -> Option<Deed> {
        self.pass(next);
        self.places.front_mut()?.take()
    }

    /// Forgets what is before `next`.
    fn pass(&mut self, next: Psn) {
        let passed = next.distance_from(self.base) as usize;
        self.places.drain(..passed.min(self.places.len()));
        self.base = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(psn: u32) -> Deed {
        Deed {
            psn: Psn::new(psn),
            operation: Operation::Write,
            position: Position::Middle,
            is_answer: false,
            len: u64::from(psn),
            psns: 1,
        }
    }

    #[test]
    fn what_came_is_taken_when_its_turn_comes_and_once() {
        let mut ahead = Ahead::default();
        let next = Psn::new(0xff_fffe);
        for psn in [1, 0xff_ffff, 0x01_0000] {
            ahead.put(next, deed(psn));
        }
        let again = Deed { len: 0, ..deed(1) };
        ahead.put(next, again);
        assert_eq!(ahead.take(next), None);
        assert_eq!(ahead.take(Psn::new(0xff_ffff)), Some(deed(0xff_ffff)));
        assert_eq!(ahead.take(Psn::new(0xff_ffff)), None);
        assert_eq!(ahead.take(Psn::new(0)), None);
        assert_eq!(
            ahead.take(Psn::new(1)),
            Some(deed(1)),
            "the first that came"
        );
        assert_eq!(ahead.take(Psn::new(0x01_0000)), None, "too far ahead");
        assert!(ahead.places.is_empty());
    }

    #[test]
    fn a_request_takes_a_psn_for_each_packet_and_at_least_one() {
        for (len, psns) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (1 << 20, 1024)] {
            assert_eq!(psns_of(len, 1024), psns);
        }
    }
}
