//! For unit tests.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address that no other test has, nor another run of the tests.
pub(crate) fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let (high, low) = (200 + (pid / 250 % 50) as u8, (pid % 250) as u8);
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed))
}
