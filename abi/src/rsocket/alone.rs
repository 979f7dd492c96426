//! Tests with sockets, each in a process of its own: which devices there are is said by the environment.

use core::net::{IpAddr, Ipv4Addr};
use std::process::Command;

/// The device of such a process.
const DEVICE: &str = "URXE_DEVICES";
const IS_ALONE: &str = "URXE_TEST_ALONE";

/// Addresses of this process's device, and of others that are no device's.
pub(super) fn address(last: u8) -> IpAddr {
    let device = std::env::var(DEVICE).expect("it was started with one");
    let device: Ipv4Addr = device.parse().expect("an address");
    let [a, b, c, _] = device.octets();
    Ipv4Addr::new(a, b, c, last).into()
}

/// The device's own.
pub(super) const OWN: u8 = 1;

/// Runs a test in a process that has one device, on an address that no other test has. `number` is the test's.
pub(super) fn alone(name: &str, number: u8, test: impl FnOnce()) {
    if std::env::var_os(IS_ALONE).is_some() {
        return test();
    }
    let pid = std::process::id();
    let (high, low) = (10 + number, pid % 250);
    let ran = Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([name, "--exact", "--nocapture"])
        .env(IS_ALONE, "1")
        .env(DEVICE, format!("127.{high}.{low}.{OWN}"))
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{name} is no test: {text}");
}
