//! Checks for what only privileged programs may do.

use std::fs;

use crate::error::{Error, ErrorKind};

/// `CAP_NET_RAW` of `linux/capability.h`, which the kernel asks for in the same places.
const CAP_NET_RAW: u32 = 13;

/// # Errors
/// [`ErrorKind::Privilege`] if the program has no CAP_NET_RAW.
pub(in crate::engine) fn check_net_raw() -> Result<(), Error> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if has(&status, CAP_NET_RAW) {
        return Ok(());
    }
    let why = "a Q_Key with the high bit set can be given to a QP with CAP_NET_RAW only";
    Err(ErrorKind::Privilege(why).into())
}

/// Whether the capability is among the effective ones of a `/proc/PID/status`.
fn has(status: &str, capability: u32) -> bool {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|bits| bits >> capability & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = |hex| format!("Name:\tx\nCapPrm:\tffff\nCapEff:\t{hex}\n");
        assert!(has(&status("000001ffffffffff"), CAP_NET_RAW));
        assert!(has(&status("0000000000002000"), CAP_NET_RAW));
        assert!(!has(&status("0000000000001000"), CAP_NET_RAW));
        assert!(!has(&status("no number"), CAP_NET_RAW));
        assert!(!has("", CAP_NET_RAW));
    }
}
