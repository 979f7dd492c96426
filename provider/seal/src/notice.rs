//! What a receiver tells the sender of a packet that it refused, so that no program waits for what never comes.
//!
//! It cannot be authenticated: the two have no key in common. So it quotes the header of the refused packet, the numbers of which are
//! known only where the packet passed, and a sender believes it only of a peer that it has never heard.

use crate::envelope::{Envelope, Mode};
use crate::refusal::Refusal;

/// No opcode begins so.
const MAGIC: [u8; 4] = [0xff, b'n', b'o', 1];

/// Bytes of a notice: fewer than the packet that it answers has.
pub const NOTICE_LEN: usize = 24;

/// Why a receiver does not take a sender's packets, and what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The header of the packet that was refused.
    pub quoted: Envelope,
    /// The key file's number at the receiver.
    pub key_id: u16,
    /// What the receiver accepts at least.
    pub mode_min: Mode,
}

impl Notice {
    /// What is told of a refusal; `None` if nothing is: of packets that may be anything's.
    pub fn of(refusal: Refusal, quoted: Envelope, key_id: u16, mode_min: Mode) -> Option<Notice> {
        let is_told = matches!(
            refusal,
            Refusal::OtherKey(_)
                | Refusal::TooWeak(_)
                | Refusal::UnknownEpoch(_)
                | Refusal::OldEpoch(_)
                | Refusal::Forged
        );
        is_told.then_some(Notice {
            quoted,
            key_id,
            mode_min,
        })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; NOTICE_LEN] {
        let mut bytes = [0; NOTICE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.mode_min as u8;
        bytes[6..8].copy_from_slice(&self.key_id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.quoted.emit());
        bytes
    }

    /// Reads one; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Notice> {
        let bytes: &[u8; NOTICE_LEN] = bytes.try_into().ok()?;
        let (head, quoted) = bytes.split_first_chunk::<8>()?;
        let mode_min = match head[4..6] {
            [1, 0] => Mode::Auth,
            [2, 0] => Mode::Seal,
            _ => return None,
        };
        let quoted = Envelope::parse(quoted.first_chunk()?)?;
        (head[..4] == MAGIC).then(|| Notice {
            quoted,
            key_id: u16::from_be_bytes([head[6], head[7]]),
            mode_min,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed() {
        let quoted = Envelope {
            mode: Mode::Auth,
            epoch: 9,
            key_id: 1,
            sender: 2,
            counter: 3,
        };
        let notice = Notice::of(Refusal::OtherKey(1), quoted, 0xbeef, Mode::Seal);
        let notice = notice.expect("it is told");
        let bytes = notice.emit();
        assert_eq!(Notice::parse(&bytes), Some(notice));
        for place in [0, 1, 2, 3, 4, 5, 8] {
            let mut bytes = bytes;
            bytes[place] ^= 0x80;
            assert_eq!(Notice::parse(&bytes), None, "{place}");
        }
        assert_eq!(Notice::parse(&bytes[1..]), None);
        for refusal in [Refusal::Replayed, Refusal::Late, Refusal::NoEnvelope] {
            assert_eq!(Notice::of(refusal, quoted, 1, Mode::Auth), None);
        }
    }
}
