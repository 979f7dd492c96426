//! Switches: a shared buffer, thresholds, marking, and the watchdog.

mod balance;
mod config;
mod groups;
pub mod headroom;
mod mark;
mod mmu;

pub use balance::Balance;
pub(crate) use balance::Balancer;
pub use config::{DeadQueue, SwitchConfig, Threshold, Watchdog, WatchdogAction};
pub(crate) use groups::{Groups, Tree};
pub use mark::Marking;
pub(crate) use mmu::{Arrival, Mmu};
pub use mmu::{BufferError, IngressUse};
