//! Why packets are not opened.

use crate::envelope::{Mode, VERSION, header};
use crate::window::Stale;

/// Why a packet is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is no sealed packet.
    #[error("it is not a sealed packet")]
    NoEnvelope,
    /// It is one of another version.
    #[error("it is a sealed packet of version {0}, and this is version {VERSION}")]
    OtherVersion(u8),
    /// It is sealed under another key file.
    #[error("it is sealed under key {0:04x}")]
    OtherKey(u16),
    /// It is genuine, but authenticated only, and more is required.
    #[error("its mode is {0}, which is too little here")]
    TooWeak(Mode),
    /// The key file has no such epoch.
    #[error("the key file has no epoch {0}")]
    UnknownEpoch(u8),
    /// The epoch is over.
    #[error("epoch {0} is over by the clock here")]
    OldEpoch(u8),
    /// Its tag is wrong: it was made without the key, or changed on its way, or is for another path.
    #[error("its tag is wrong")]
    Forged,
    /// It was received before.
    #[error("it was received before")]
    Replayed,
    /// It comes so late that it may have been.
    #[error("it comes so late that it may have been received before")]
    Late,
    /// It is sealed under keys of a pair that is not known here.
    #[error("it is sealed under keys of a pair that this process does not have")]
    UnknownPair,
    /// It is genuine, and for another QP than that of its pair.
    #[error("its QP is not that of its pair")]
    OtherQp,
    /// It is genuine, as of any member of the cluster, and its QP takes packets of its peer only.
    #[error("its QP takes packets under the keys of its pair only")]
    NotOfPair,
}

impl From<Stale> for Refusal {
    fn from(stale: Stale) -> Refusal {
        match stale {
            Stale::Seen => Refusal::Replayed,
            Stale::Old => Refusal::Late,
        }
    }
}

impl Refusal {
    /// Of a packet that has no header which this version reads.
    #[cold]
    pub(crate) fn of_unread(packet: &[u8]) -> Refusal {
        match header(packet).map(|bytes| (bytes[0] >> 4, bytes[0] & 15)) {
            // In all versions the first byte says so.
            Some((version, 1 | 2)) if version != 0 && version != VERSION => {
                Refusal::OtherVersion(version)
            }
            _ => Refusal::NoEnvelope,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_told_from_junk() {
        for first in 0..=255_u8 {
            let mut packet = [0; 44];
            packet[12] = first;
            let is_other = first >> 4 != VERSION && first > 0x10 && [1, 2].contains(&(first & 15));
            let expected = match is_other {
                true => Refusal::OtherVersion(first >> 4),
                false => Refusal::NoEnvelope,
            };
            assert_eq!(Refusal::of_unread(&packet), expected, "{first:#x}");
            assert_eq!(Refusal::of_unread(&packet[1..]), Refusal::NoEnvelope);
        }
    }
}
