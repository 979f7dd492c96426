//! Switches: a shared buffer, thresholds, marking, and the watchdog.

mod config;
pub mod headroom;
mod mark;
mod mmu;

pub use config::{DeadQueue, SwitchConfig, Threshold, Watchdog, WatchdogAction};
pub use mark::Marking;
pub(crate) use mmu::{Arrival, Mmu};
pub use mmu::{BufferError, IngressUse};
