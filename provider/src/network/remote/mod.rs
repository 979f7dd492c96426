//! A [`Network`](super::Network) in another process: how a simulation runs programs that are no closures.
//!
//! The program's process has [`join`]ed: its contexts are opened on a network that asks a proxy in the simulation, over a
//! socket, for all that a network does. The proxy ([`serve`]) has the real network, and is a program of the simulation like
//! any other.
//!
//! One of both sides has the turn. The program gives its own up in [`Network::pause`](super::Network::pause), and in [`call`]s that
//! wait; until it is back, its thread serves what the simulation does to its contexts: packets that arrive, timers, room. So
//! nothing depends on when the system runs which process, and one seed is one run.
//!
//! What a program does beside verbs (its clock, its sleep, its streams) are [`Call`]s, by numbers that the simulation knows. That there is one
//! thread that calls is the program's part.

mod guest;
mod line;
mod proxy;

pub use guest::{Guest, call, join};
pub use line::{CLOCK, SLEEP};
pub use proxy::{Call, serve};
