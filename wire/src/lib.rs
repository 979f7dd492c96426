//! InfiniBand transport headers over RoCEv2: parse, build, verify.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod bth;
mod bytes;
mod crc;
mod deth;
mod emit;
mod error;
mod feth;
mod icrc;
mod ids;
mod ieth;
mod immdt;
mod opcode;
mod packet;
mod psn;
mod reth;
mod syndrome;
mod xrceth;

pub use aeth::Aeth;
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::{BTH_LEN, Bth};
pub use deth::Deth;
pub use emit::{PacketWriter, packet_len};
pub use error::{Layer, ParseError};
pub use feth::Feth;
pub use icrc::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathHeader, reident};
pub use ids::{Gid, Lkey, Pkey, Qkey, Qpn, Rkey};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::{
    Headers, OPCODES, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Service,
};
pub use packet::{ICRC_LEN, Packet};
pub use psn::{Msn, Psn};
pub use reth::Reth;
pub use syndrome::{CreditCode, NakCode, RnrTimer, Syndrome, SyndromeKind};
pub use xrceth::XrcEth;
