//! What a receiver tells the sender of a packet that it refused, so that no program waits for what never comes.
//!
//! It cannot be authenticated: the two have no key in common. So it quotes the header of the refused packet, the numbers of which are
//! known only where the packet passed, and a sender believes it only of a peer that it has never heard.

use crate::envelope::{HEADER, Mode, VERSION};
use crate::refusal::Refusal;

/// No opcode begins so.
const MAGIC: [u8; 4] = [0xff, b'n', b'o', 1];

/// Bytes of a notice: fewer than the packet that it answers has.
pub const NOTICE_LEN: usize = 24;

/// Why a receiver does not take a sender's packets, and what it takes. Its bytes are the same in all versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The header of the packet that was refused, of whatever version.
    pub quoted: [u8; HEADER],
    /// The version at the receiver.
    pub version: u8,
    /// The key file's number there.
    pub key_id: u16,
    /// What the receiver accepts at least.
    pub mode_min: Mode,
}

impl Notice {
    /// True if a sender is told of such a refusal: of packets that may be anything's none is.
    pub fn is_of(refusal: Refusal) -> bool {
        matches!(
            refusal,
            Refusal::OtherVersion(_)
                | Refusal::OtherKey(_)
                | Refusal::TooWeak(_)
                | Refusal::UnknownEpoch(_)
                | Refusal::OldEpoch(_)
                | Refusal::Forged
        )
    }

    /// One of this version.
    pub fn new(quoted: [u8; HEADER], key_id: u16, mode_min: Mode) -> Notice {
        Notice {
            quoted,
            version: VERSION,
            key_id,
            mode_min,
        }
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; NOTICE_LEN] {
        let mut bytes = [0; NOTICE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.mode_min as u8;
        bytes[5] = self.version;
        bytes[6..8].copy_from_slice(&self.key_id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.quoted);
        bytes
    }

    /// Reads one; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Notice> {
        let bytes: &[u8; NOTICE_LEN] = bytes.try_into().ok()?;
        let (head, quoted) = bytes.split_first_chunk::<8>()?;
        let mode_min = match head[4] {
            1 => Mode::Auth,
            2 => Mode::Seal,
            _ => return None,
        };
        (head[..4] == MAGIC && head[5] != 0).then_some(Notice {
            quoted: *quoted.first_chunk()?,
            version: head[5],
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
        let notice = Notice::new([0x41; HEADER], 0xbeef, Mode::Seal);
        let bytes = notice.emit();
        assert_eq!(bytes[..8], [0xff, b'n', b'o', 1, 2, VERSION, 0xbe, 0xef]);
        assert_eq!(Notice::parse(&bytes), Some(notice));
        for place in [0, 1, 2, 3, 4] {
            let mut bytes = bytes;
            bytes[place] ^= 0x80;
            assert_eq!(Notice::parse(&bytes), None, "{place}");
        }
        assert_eq!(Notice::parse(&bytes[1..]), None);
        // One of a version that is yet to come.
        let mut newer = bytes;
        newer[5] = VERSION + 1;
        let read = Notice::parse(&newer).expect("all versions have it");
        assert_eq!(
            read,
            Notice {
                version: VERSION + 1,
                ..notice
            }
        );
        for refusal in [Refusal::Replayed, Refusal::Late, Refusal::NoEnvelope] {
            assert!(!Notice::is_of(refusal));
        }
    }
}
