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
pub mod cm;
mod cnp;
mod crc;
mod deth;
mod emit;
mod error;
mod ethernet;
mod feth;
mod frame;
mod grh;
mod icrc;
mod ids;
mod ieth;
mod immdt;
mod ipv4;
mod ipv6;
mod mad;
mod opcode;
mod packet;
mod pfc;
mod pretty;
mod psn;
mod reth;
mod syndrome;
mod udp;
mod xrceth;

pub use aeth::Aeth;
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::{BTH_LEN, Bth};
pub use cnp::{CNP_LEN, cnp, cnp_bth};
pub use deth::Deth;
pub use emit::{PacketWriter, packet_len};
pub use error::{Layer, ParseError};
pub use ethernet::{EtherType, Ethernet, Mac, VlanTag};
pub use feth::Feth;
pub use frame::{Frame, LinkType, Network, RoceFrame};
pub use grh::Grh;
pub use icrc::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathHeader, icrc_of_l3, reident};
pub use ids::{Gid, Lkey, Pkey, Qkey, Qpn, Rkey};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use mad::{MAD_LEN, MadHeader};
pub use opcode::{Headers, OPCODES, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Service};
pub use packet::{ICRC_LEN, Packet};
pub use pfc::{PAUSE_DESTINATION, PAUSE_QUANTUM_BITS, Pause, PauseFrame};
pub use psn::{Msn, Psn};
pub use reth::Reth;
pub use syndrome::{CreditCode, NakCode, RnrTimer, Syndrome, SyndromeKind};
pub use udp::{ROCE_V2_PORT, Udp};
pub use xrceth::XrcEth;
