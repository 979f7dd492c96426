//! Several owners on one address: processes of one user, or contexts of one process.
//!
//! RoCEv2 has one UDP port, so all of them bind it (`SO_REUSEPORT`), and a QPN identifies the owner of
//! a packet: the QPN space is dealt out in chunks by a file that all of a user's
//! processes in a network namespace share ([`registry`]). A program in the kernel looks
//! at the QPN and picks the socket. When sockets come and go it is wrong for a moment;
//! then a participant that gets another's packet hands it over ([`hand_over`]), and the
//! other, which learns from this that the program is wrong, corrects it.
//!
//! There is no daemon. A process that dies leaves locks that the kernel drops; the process that
//! comes next sees that and takes its chunks back, after a rest.

mod census;
mod directory;
mod entries;
mod farewell_watch;
mod farewells;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hand_over;
mod lock;
mod membership;
mod neighbours;
mod pace;
mod ports;
mod registry;
mod steer;
mod tables;
mod waiting;

pub use census::{Participant, participants};
pub use directory::user_directory;
pub(crate) use directory::{create_own, open_own, printable, read_own};
pub(crate) use hand_over::{Arrived, Handed, Neighbour};
pub(crate) use membership::{JoinError, Joined, Membership, Shared};
pub(crate) use ports::{BLOCK as PORT_BLOCK, PortName};
pub(crate) use steer::{PROBE_LEN, is_probe};
pub(crate) use waiting::Retried;
