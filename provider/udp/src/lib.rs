//! Datagrams in and out, in batches, over ordinary UDP sockets.
//!
//! This crate knows no RDMA. It moves bytes: many packets to one address in one
//! system call where the kernel can cut them apart itself (`UDP_SEGMENT`), many
//! packets from one address in one buffer where it can join them (`UDP_GRO`), and
//! one by one where it can do neither. It degrades and never refuses: every kernel
//! feature is probed when a socket is bound, and [`Caps`] says what was found.
//!
//! # What a socket promises
//!
//! * It is bound, unconnected and non-blocking. A second socket on the same address
//!   and port fails with [`std::io::ErrorKind::AddrInUse`] unless both ask for
//!   [`UdpConfig::reuse_port`].
//! * Over IPv4 on Linux, a packet sent alone carries IP Identification 0 and Don't
//!   Fragment, and packet `k` of a segmented run carries Identification `k` when it
//!   is cut. Protocols with a checksum over the IP header rely on it. It follows
//!   from two settings: the socket is unconnected, and `IP_MTU_DISCOVER` is
//!   `IP_PMTUDISC_PROBE`. (`tests/veth.rs` looks at the packets.)
//!   A [`ConnectedSocket`] is faster for lone packets to one address; its Identifications count up, and it says which comes next.
//! * Over IPv6, datagrams with UDP checksum 0 are delivered: kernel soft-RoCE and
//!   many adapters send them so.
//! * [`UdpSocket::send`] and [`UdpSocket::recv`] allocate nothing.
//! * An error that concerns one datagram stops neither the others nor the socket.
//! * System calls are made by number, not through libc's `socket()` family: libraries
//!   that are preloaded to redirect an application's sockets must not catch these.
//!
//! # Sending and receiving
//!
//! ```
//! use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let config = UdpConfig::default();
//! let alice = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config)?;
//! let bob = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config)?;
//!
//! let bytes = b"first second third!";
//! let to_bob = Dest::new(bob.local_addr());
//! let transmits = [Transmit::single(0..5, to_bob), Transmit::single(6..12, to_bob)];
//! let outcome = alice.send(SendBatch { bytes, transmits: &transmits });
//! assert!(matches!(outcome, SendOutcome::All { sent: 2 }));
//!
//! let mut batch = RecvBatch::new(RecvBatch::DEFAULT_SLOTS);
//! let mut heard = Vec::new();
//! while heard.len() < 2 {
//!     urxe_udp::wait(&[bob.as_fd()], None)?;
//!     bob.recv(&mut batch)?;
//!     for datagram in batch.iter() {
//!         assert_eq!(datagram.source, alice.local_addr());
//!         heard.extend(datagram.segments().map(|(_, packet)| packet.to_vec()));
//!     }
//! }
//! assert_eq!(heard, [b"first".to_vec(), b"second".to_vec()]);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

mod addr;
mod caps;
mod config;
mod event;
mod recv;
mod set;
mod steer;
mod transmit;
mod wait;

// The Linux backend counts on 64-bit control message headers and on every socket
// call having its own number, which 32-bit Linux lacks.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use linux as backend;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod fallback;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
use fallback as backend;
// Kept compiling and interoperating where development happens.
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
#[allow(unreachable_pub, reason = "public where it is the backend")]
mod fallback;

pub use addr::Dest;
pub use backend::{ConnectedSocket, UdpSocket};
pub use caps::Caps;
pub use config::UdpConfig;
pub use event::EventFd;
pub use recv::{Datagram, Left, RecvBatch, Segments};
pub use set::SocketSet;
pub use steer::{OtherField, Steering, SteeringProgram};
pub use transmit::{SendBatch, SendOutcome, Transmit};
pub use wait::{Interest, Readiness, WAIT_MAX, wait, wait_for};

#[cfg(test)]
mod tests;
