//! InfiniBand transport headers over RoCEv2: parse, build, verify.
//!
//! No allocation, no I/O, no `unsafe`, no panic on anything that a peer sends. With the
//! feature `std` (the default) the ICRC detects fast instructions at run time; without it
//! the crate is `no_std` and uses what the compiler was told of the target.
//!
//! # A packet
//!
//! A RoCEv2 packet is a UDP datagram to port 4791. Its payload is what [`Packet`] takes:
//!
//! ```text
//! Ethernet | IPv4 or IPv6 | UDP | BTH | extension headers | payload | pad | ICRC
//!                               | 12  | by opcode, 0..=32 |         | 0-3 | 4
//!                               |<------------- Packet::parse ------------->|
//! |<----------------------------- Frame::parse ---------------------------->|
//! ```
//!
//! The first byte of the BTH is the opcode, and a table ([`OPCODES`]) says what follows:
//! which service and operation it is, its place in the message, which extension headers
//! and how much payload. All numbers are big-endian, except the ICRC.
//!
//! | extension header | bytes | with |
//! |---|---|---|
//! | [`Deth`]: Q_Key, source QP | 8 | every UD packet |
//! | [`XrcEth`]: shared receive queue | 4 | XRC requests |
//! | [`Feth`]: kind of flush | 4 | FLUSH |
//! | [`Reth`]: address, R_Key, length of the message | 16 | WRITE First and Only, READ Request, FLUSH, ATOMIC WRITE |
//! | [`AtomicEth`]: address, R_Key, operands | 28 | CmpSwap, FetchAdd |
//! | [`Aeth`]: syndrome, MSN | 4 | Acknowledge, READ Response but Middle |
//! | [`AtomicAckEth`]: the value before | 8 | ATOMIC Acknowledge |
//! | [`ImmDt`]: immediate data | 4 | ... with Immediate |
//! | [`Ieth`]: R_Key to invalidate | 4 | SEND with Invalidate |
//!
//! # Building and taking apart
//!
//! ```
//! use urxe_wire::*;
//!
//! // What never changes between two ends goes into every ICRC once.
//! let path = PathHeader::V4 {
//!     src: [192, 0, 2, 1],
//!     dst: [192, 0, 2, 2],
//!     sport: 0xc000,
//!     dport: ROCE_V2_PORT,
//! };
//! let seed = IcrcSeed::new(&path);
//!
//! // An RDMA WRITE of five bytes, in place in the buffer that will be sent.
//! let info = Opcode::RC_WRITE_ONLY.info().unwrap();
//! let mut datagram = vec![0; packet_len(info, 5)];
//! let mut bth = Bth::new(Opcode::RC_WRITE_ONLY, Qpn::new(0x11), Psn::new(123));
//! bth.ack_req = true;
//! let mut writer = PacketWriter::new(&mut datagram, &bth);
//! writer.reth(&Reth { va: 0x1000, rkey: Rkey(0x1234), dma_len: 5 });
//! writer.payload_mut(5).copy_from_slice(b"hello");
//! writer.finish(&seed, 0);
//!
//! // The other end.
//! let packet = Packet::parse(&datagram)?;
//! assert_eq!(seed.verify(0, &datagram), IcrcVerdict::Ok { ident: 0 });
//! assert_eq!(packet.reth().map(|reth| reth.rkey), Some(Rkey(0x1234)));
//! assert_eq!(packet.payload(), b"hello");
//! assert_eq!(
//!     packet.to_string(),
//!     "RC RDMA WRITE Only QPN 0x11 PSN 123 ackreq va 0x1000 rkey 0x1234 len 5, 5 bytes",
//! );
//! # Ok::<(), ParseError>(())
//! ```
//!
//! [`Packet::parse`] proves once that everything the opcode asks for is there; accessors
//! cannot fail afterwards. It does not verify the ICRC, because that needs the path:
//! [`IcrcSeed::verify`] does.
//!
//! # The rest
//!
//! - [`IcrcSeed`]: the checksum, and how it is known although a UDP socket hides the IPv4
//!   Identification that it covers.
//! - [`Syndrome`]: what an ACK or NAK says. [`Psn`], [`Msn`]: 24-bit circles.
//! - [`cm`]: connection manager messages. [`cnp`]: congestion notification.
//! - [`Tmh`], [`Rvh`]: what messages of tag matching begin with.
//! - [`Frame`]: whole frames, for captures and simulators, with [`PauseFrame`] for priority
//!   flow control and [`Grh`] for what a UD receive begins with.
//! - [`pcapng`]: capture files, for programs that write them.
//!
//! [WIRE.md](https://github.com/urxe/urxe/blob/main/docs/WIRE.md) has the sources, the method of the ICRC, and measurements.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

mod bth;
pub mod cm;
mod cnp;
mod crc;
mod emit;
mod error;
mod ethernet;
mod extensions;
mod feth;
mod field;
mod frame;
mod grh;
mod icrc;
mod ids;
mod immdt;
mod ipv4;
mod ipv6;
mod mad;
mod opcode;
mod packet;
pub mod pcapng;
mod pfc;
mod pretty;
mod psn;
mod syndrome;
mod tmh;
mod udp;

pub use bth::{BTH_LEN, Bth};
pub use cnp::{CNP_LEN, cnp, cnp_bth};
pub use emit::{PacketWriter, packet_len};
pub use error::{Layer, ParseError};
pub use ethernet::{EtherType, Ethernet, Mac, VlanTag};
pub use extensions::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, Reth, XrcEth};
pub use feth::Feth;
pub use frame::{Frame, LinkType, Network, RoceFrame};
pub use grh::Grh;
pub use icrc::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathChange, PathHeader, icrc_of_l3, reident};
pub use ids::{Gid, Lkey, Pkey, Qkey, Qpn, Rkey};
pub use immdt::ImmDt;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use mad::{MAD_LEN, MadHeader};
pub use opcode::{Headers, OPCODES, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Service};
pub use packet::{ICRC_LEN, Packet};
pub use pfc::{PAUSE_DESTINATION, PAUSE_QUANTUM_BITS, Pause, PauseFrame};
pub use psn::{Msn, Psn};
pub use syndrome::{CreditCode, NakCode, RnrTimer, Syndrome, SyndromeKind};
pub use tmh::{Rvh, Tmh, TmhOp};
pub use udp::{PROTOCOL_UDP, ROCE_V2_PORT, Udp};

/// Keeps the example of the registry's page true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
