//! Keys of packets from the secret of an epoch.

use core::net::IpAddr;

use zeroize::Zeroizing;

use crate::Path;
use crate::aead::{KEY, Key};
use crate::envelope::Mode;
use crate::hkdf;

/// Bytes of a secret.
pub(crate) const SECRET: usize = 32;

/// Another with each cipher: what is a key of one is none of another's.
const SALT: &[u8] = b"urxe sealed packets 4";
const PAIR_SALT: &[u8] = b"urxe packets of a pair 4";
const OTHER_SALT: &[u8] = b"urxe sealed packets 1";

/// The key of all packets that one sender sends on one path in one mode.
pub(crate) fn key(secret: &[u8; SECRET], path: &Path, mode: Mode, sender: u32) -> Key {
    let [source, dest] = [path.source, path.dest].map(octets);
    let mut bytes = Zeroizing::new([0; KEY]);
    let info: [&[u8]; 4] = [&[mode as u8], &sender.to_be_bytes(), &source, &dest];
    hkdf::expand(SALT, secret, &info, &mut bytes);
    Key::new(&bytes)
}

/// The key of the packets that one end of a pair sends, of as many as one key is used for.
pub(crate) fn pair_key(
    secret: &[u8; SECRET],
    path: &Path,
    mode: Mode,
    number: u32,
    turn: u64,
) -> Key {
    let [source, dest] = [path.source, path.dest].map(octets);
    let mut bytes = Zeroizing::new([0; KEY]);
    let (number, turn) = (number.to_be_bytes(), turn.to_be_bytes());
    let info: [&[u8]; 5] = [&[mode as u8], &number, &source, &dest, &turn];
    hkdf::expand(PAIR_SALT, secret, &info, &mut bytes);
    Key::new(&bytes)
}

/// An address as keys follow from it.
pub(crate) fn octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// What the handshakes of pairs begin with.
pub(crate) fn psk(secret: &[u8; SECRET]) -> Zeroizing<[u8; SECRET]> {
    let mut bytes = Zeroizing::new([0; SECRET]);
    hkdf::expand(OTHER_SALT, secret, &[b"pair"], &mut bytes);
    bytes
}

/// What tells secrets apart, without telling them.
pub(crate) fn check(secret: &[u8; SECRET]) -> u32 {
    let mut bytes = [0; KEY];
    hkdf::expand(OTHER_SALT, secret, &[b"check"], &mut bytes);
    u32::from_be_bytes(*bytes.first_chunk().expect("it is longer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_makes_another_key() {
        let path = |source: [u8; 4], dest: [u8; 4]| Path {
            source: source.into(),
            dest: dest.into(),
        };
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let variants = [
            ([1; 32], path(a, b), Mode::Seal, 1),
            ([2; 32], path(a, b), Mode::Seal, 1),
            ([1; 32], path(b, a), Mode::Seal, 1),
            ([1; 32], path(a, a), Mode::Seal, 1),
            ([1; 32], path(b, b), Mode::Seal, 1),
            ([1; 32], path(a, b), Mode::Auth, 1),
            ([1; 32], path(a, b), Mode::Seal, 0x0100_0000),
        ];
        let tags = variants.map(|(secret, path, mode, sender)| {
            key(&secret, &path, mode, sender).seal(0, &[], &mut [])
        });
        for (place, tag) in tags.iter().enumerate() {
            assert!(!tags[..place].contains(tag), "{place}");
        }
    }
}
