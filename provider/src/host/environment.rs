//! The environment variables of programs that use urxe: docs/ENVIRONMENT.md has them all.
//!
//! One that is empty is not set. One with a value that makes no sense is an error of the call that asks for it, which names
//! the variable: what was to run with faults, or under a seed, must not run without because of a typing error.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind};

/// [`crate::Likeness`] of all listed devices.
pub(crate) const AS: &str = "URXE_AS";
/// How connections react to congestion ([`urxe_core::congestion::CongestionControl`]).
pub(crate) const CONGESTION: &str = "URXE_CONGESTION";
/// The devices of programs that cannot name an address ([`crate::ListedDevice`]).
pub(crate) const DEVICES: &str = "URXE_DEVICES";
/// A [`crate::FaultSpec`] for all contexts.
pub(crate) const FAULTS: &str = "URXE_FAULTS";
/// The secrets that packets are sealed with.
pub(crate) const KEY_FILE: &str = "URXE_KEY_FILE";
/// The largest path MTU.
pub(crate) const MTU: &str = "URXE_MTU";
/// The file of captures.
pub(crate) const PCAP: &str = "URXE_PCAP";
/// What is done about lost packets ([`crate::Recovery`]).
pub(crate) const RECOVERY: &str = "URXE_RECOVERY";
/// How many engines work for each context ([`crate::ContextBuilder::shards`]).
pub(crate) const SHARDS: &str = "URXE_SHARDS";
/// [`crate::Security`] of all contexts.
pub(crate) const SECURITY: &str = "URXE_SECURITY";
/// [`crate::PortSpeed`] of all ports.
pub(crate) const SPEED: &str = "URXE_SPEED";
/// What decisions of strict mode and of faults follow from.
pub(crate) const SEED: &str = "URXE_SEED";
/// Strict mode ([`crate::StrictMode`]).
pub(crate) const STRICT: &str = "URXE_STRICT";
/// What packets between processes of one host travel through ([`crate::Wire`]).
pub(crate) const WIRE: &str = "URXE_WIRE";
/// More words on standard error.
pub(crate) const VERBOSE: &str = "URXE_VERBOSE";

/// What a variable holds.
pub(crate) fn value(variable: &str) -> Option<OsString> {
    let value = std::env::var_os(variable)?;
    (!value.to_string_lossy().trim().is_empty()).then_some(value)
}

/// A variable as what it means.
///
/// # Errors
/// What `parse` says of its text.
pub(crate) fn parsed<T>(
    variable: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let read = |value: OsString| parse(value.to_string_lossy().trim());
    let parsed = value(variable).map(read).transpose();
    parsed.map_err(|reason| ErrorKind::Environment { variable, reason }.into())
}

/// A switch: on unless it is 0 or `off`.
pub(crate) fn is_on(variable: &str) -> bool {
    value(variable).is_some_and(|value| value != "0" && value != "off")
}

/// What `URXE_SEED` says.
///
/// # Errors
/// If it is no number.
pub(crate) fn seed() -> Result<Option<u64>, Error> {
    parsed(SEED, |text| {
        number(text).ok_or_else(|| format!("\"{text}\" is not a number"))
    })
}

/// A number, hexadecimal with `0x` or decimal.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A seed for a context: each gets another one from `given`, or from the seed of this process. That is the variable's, or
/// else drawn from `fresh`; it is printed when it is first needed.
pub(crate) fn seed_of_context(given: Option<u64>, fresh: u64) -> u64 {
    static SEED_OF_PROCESS: OnceLock<u64> = OnceLock::new();
    static CONTEXTS: AtomicU64 = AtomicU64::new(0);
    let base = given.unwrap_or_else(|| {
        *SEED_OF_PROCESS.get_or_init(|| {
            // No context opens if the variable makes no sense.
            let set = seed().ok().flatten();
            let seed = set.unwrap_or(fresh & 0xffff_ffff);
            eprintln!(
                "urxe: strict mode or faults are on; {SEED}={seed} repeats this run's decisions"
            );
            seed
        })
    });
    base.wrapping_add(CONTEXTS.fetch_add(1, Ordering::Relaxed) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_numbers() {
        assert_eq!(number("12"), Some(12));
        assert_eq!(number("0xff"), Some(255));
        assert_eq!(number("seven"), None);
        assert_eq!(number(""), None);
    }
}
