//! What a sealed packet looks like: BTH, sixteen bytes of header, the rest of the packet, and a tag.

use core::fmt;
use core::str::FromStr;

/// Bytes of a BTH, which stays in the clear.
pub(crate) const BTH: usize = 12;
/// Bytes of the header.
pub const HEADER: usize = 16;
/// What is in the clear, and authenticated.
pub(crate) const CLEAR: usize = BTH + HEADER;
/// Bytes of the tag.
pub(crate) const TAG: usize = 16;
/// Bytes of the ICRC, which the tag replaces.
pub(crate) const ICRC: usize = 4;
/// What a sealed packet has more than a plain one.
pub const OVERHEAD: usize = HEADER + TAG - ICRC;
/// The longest packet that another one takes along in its envelope ([`crate::PathSealer::seal_with`]): an ACK is shorter.
pub const RIDER_MAX: usize = 64;
/// The byte behind a rider, which says how long it is.
pub(crate) const RIDER_LEN: usize = 1;
/// The shortest sealed packet.
pub(crate) const LEN_MIN: usize = CLEAR + TAG;

/// The version of all that is sealed. In 1 the cipher was AES-256-GCM, in 2 AEGIS-256X2, in 3 AEGIS-128L.
pub const VERSION: u8 = 4;

/// In the place of an epoch: the packet is sealed under the keys of a pair.
pub(crate) const PAIR: u8 = 0;

/// How much is done for each packet. The larger one protects more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Authenticated: without the key none can be made or changed. All of it can be read.
    Auth = 1,
    /// Authenticated, and all but BTH and header encrypted.
    Seal = 2,
}

/// A word that is no [`Mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither \"auth\" nor \"seal\"")]
pub struct ParseModeError;

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Mode, ParseModeError> {
        match text {
            "auth" => Ok(Mode::Auth),
            "seal" => Ok(Mode::Seal),
            _ => Err(ParseModeError),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Auth => "auth",
            Mode::Seal => "seal",
        })
    }
}

const AUTH: u8 = VERSION << 4 | Mode::Auth as u8;
const SEAL: u8 = VERSION << 4 | Mode::Seal as u8;
/// The bit beside the mode: there is a rider.
const RIDER: u8 = 4;
const AUTH_RIDER: u8 = AUTH | RIDER;
const SEAL_RIDER: u8 = SEAL | RIDER;

/// The header, which comes after the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The version in the upper half of the first byte, the mode in the lower half.
    pub mode: Mode,
    /// Another packet is in the envelope. It has the next counter for its own.
    pub has_rider: bool,
    /// The number of the secret in the key file; 0 if the keys are those of a pair.
    pub epoch: u8,
    /// The key file's number ([`crate::KeyFile::id`]).
    pub key_id: u16,
    /// A number that the sender drew; of a pair, the receiver.
    pub sender: u32,
    /// Never twice the same under one key.
    pub counter: u64,
}

impl Envelope {
    /// Its bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let rider = if self.has_rider { RIDER } else { 0 };
        bytes[0] = VERSION << 4 | rider | self.mode as u8;
        bytes[1] = self.epoch;
        bytes[2..4].copy_from_slice(&self.key_id.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sender.to_be_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }

    /// Reads it; `None` if the version or the mode is unknown.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Envelope> {
        let [first, epoch, k0, k1, s0, s1, s2, s3, counter @ ..] = *bytes;
        let mode = match first {
            AUTH | AUTH_RIDER => Mode::Auth,
            SEAL | SEAL_RIDER => Mode::Seal,
            _ => return None,
        };
        Some(Envelope {
            mode,
            has_rider: first & RIDER != 0,
            epoch,
            key_id: u16::from_be_bytes([k0, k1]),
            sender: u32::from_be_bytes([s0, s1, s2, s3]),
            counter: u64::from_be_bytes(counter),
        })
    }

    /// The same of one packet alone: what the packet and its rider are known by when they are out of their envelope.
    pub(crate) fn alone(&self, counter: u64) -> Envelope {
        Envelope {
            has_rider: false,
            counter,
            ..*self
        }
    }

    /// The header of a sealed packet; `None` if it is too short for one, or of an unknown version.
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Envelope> {
        Envelope::parse(header(packet)?)
    }
}

/// The bytes of the header of a sealed packet of any version.
#[inline]
pub fn header(packet: &[u8]) -> Option<&[u8; HEADER]> {
    if packet.len() < LEN_MIN {
        return None;
    }
    packet[BTH..].first_chunk()
}

/// The QP that a packet is for, sealed or not.
#[inline]
pub(crate) fn dest_qp(packet: &[u8]) -> u32 {
    let bth: Option<&[u8; BTH]> = packet.first_chunk();
    bth.map_or(0, |bth| u32::from_be_bytes([0, bth[5], bth[6], bth[7]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_document_says() {
        let envelope = Envelope {
            mode: Mode::Seal,
            has_rider: false,
            epoch: 3,
            key_id: 0x3fa2,
            sender: 0x0102_0304,
            counter: 0x1112_1314_1516_1718,
        };
        let bytes = envelope.emit();
        let expected = [
            0x42, 3, 0x3f, 0xa2, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Envelope::parse(&bytes), Some(envelope));
        for first in [0x41, 0x42, 0x45, 0x46] {
            let mut bytes = bytes;
            bytes[0] = first;
            let parsed = Envelope::parse(&bytes).expect("a mode");
            assert_eq!(parsed.has_rider, first & 4 != 0);
            assert_eq!(parsed.emit(), bytes);
        }
        for first in (0..=255).filter(|first| ![0x41, 0x42, 0x45, 0x46].contains(first)) {
            let mut bytes = bytes;
            bytes[0] = first;
            assert_eq!(Envelope::parse(&bytes), None, "{first:#x}");
        }
    }
}
