//! An envelope for RoCEv2 packets: authenticated, or authenticated and encrypted, with keys that follow from one secret of a cluster.
//!
//! No I/O: a [`Sealer`] turns packets into sealed ones, an [`Opener`] turns them back, and both are told the addresses and the time. That
//! needs no handshake; [`Initiator`] and [`respond`] have one, for two ends that want keys which no other member of the cluster has.
//! [SEALED.md](https://github.com/urxe/urxe/blob/main/docs/SEALED.md)
//! has the format byte by byte, and what it protects from.
//!
//! ```
//! use urxe_seal::{Identity, KeyFile, Keys, Mode, OVERHEAD, Opener, Path, Sealer};
//!
//! let file = KeyFile::new(0x3fa2, [7; 32], 0);
//! let path = Path { source: [10, 0, 0, 1].into(), dest: [10, 0, 0, 2].into() };
//! let mut sealer = Sealer::new(Keys::new(&file), Mode::Seal, Identity::new([1; 12]), 0);
//! let mut opener = Opener::new(Keys::new(&file), Mode::Auth);
//!
//! // A BTH, 8 bytes of payload, and four in the place of the ICRC.
//! let packet = *b"bth---------payload.icrc";
//! let mut bytes = [0; 24 + OVERHEAD];
//! sealer.on(path).seal(&packet, &mut bytes);
//! assert!(!bytes.windows(7).any(|part| part == b"payload"));
//! let opened = opener.open(&path, 0, &mut bytes, 0..24 + OVERHEAD, 0)?;
//! assert_eq!(bytes[..opened.len][..20], packet[..20]);
//! # Ok::<(), urxe_seal::Refusal>(())
//! ```
//!
//! # Features
//!
//! * `ciphers`, on by default: what encrypts, authenticates and agrees on keys. Without it, which builds in a tenth of the time, there are the
//!   formats of packets alone: no key file can be made or read ([`KeyFileError::NoCiphers`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(feature = "ciphers"))]
mod absent;
#[cfg(feature = "ciphers")]
mod aead;
mod derive;
mod envelope;
#[cfg(test)]
mod hex;
#[cfg(feature = "ciphers")]
mod hkdf;
mod key_file;
mod keys;
mod notice;
mod opener;
mod pair;
mod refusal;
mod sealer;
mod senders;
mod window;

#[cfg(not(feature = "ciphers"))]
use absent::{aead, hkdf};

pub use envelope::{Envelope, HEADER, Mode, OVERHEAD, ParseModeError, RIDER_MAX, VERSION, header};
pub use key_file::{GRACE_S, KeyFile, KeyFileError};
pub use keys::Keys;
pub use notice::{NOTICE_LEN, Notice};
pub use opener::{Opened, Opener};
pub use pair::{HELLO_LEN, Initiator, Pair, PairEnds, PairRandom, respond};
pub use refusal::Refusal;
pub use sealer::{Identity, PathSealer, Sealer, sealed_len};

use core::net::IpAddr;

/// The UDP port of sealed packets. Peers that know none of this never see them.
pub const PORT: u16 = 14791;

/// Which way a packet goes. Both addresses are part of what keys follow from: a packet that is sent on to another host, or in the
/// name of one, does not open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's, or that of a multicast group.
    pub dest: IpAddr,
}

/// Told where key material lies, so that it is kept out of core dumps: an address, and a number of bytes.
pub type Hide = fn(*const u8, usize);
