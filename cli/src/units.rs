//! Values of the command line with units, and hosts by their names.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use urxe_measure::bench::plan::SIZE_MAX;

/// Bytes of a message: `4096`, `64k`, `1M`, `64KiB`. A letter is a power of 1024, as tools that measure have it.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    size_from(text, 1)
}

/// As [`size`], of messages that are to be streamed.
pub(crate) fn long_size(text: &str) -> Result<u64, String> {
    size_from(text, 4096)
}

fn size_from(text: &str, least: u64) -> Result<u64, String> {
    let bytes =
        bytes(text).ok_or("a size is a whole number of bytes, or one with k or M, as in 64k")?;
    if !(least..=SIZE_MAX).contains(&bytes) {
        return Err(format!("{bytes} bytes: a message has {least} bytes to 64M"));
    }
    Ok(bytes)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// A time: `10` are seconds, `500ms`, `2s`, `1m`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "a time is a whole number of seconds, or one with ms, s or m, as in 500ms";
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| WANTED)?;
    let scale_ms = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        _ => return Err(WANTED.to_owned()),
    };
    match number.checked_mul(scale_ms) {
        Some(ms @ 1..=86_400_000) => Ok(Duration::from_millis(ms)),
        _ => Err("a time is between 1ms and a day".to_owned()),
    }
}

/// The digits in front, and what is behind them.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

/// The address of a host, by its name too. Of a name's addresses it is one of IPv4 if there is one, at each end.
pub(crate) fn host(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = (text, 0).to_socket_addrs();
    let found = found.map_err(|error| format!("no address and no known host: {error}"))?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let address = v4.or(addresses.first());
    address
        .copied()
        .ok_or_else(|| "this host has no address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("64 KiB", 65_536),
            ("1M", 1 << 20),
            ("1MB", 1_000_000),
            ("64M", 64 << 20),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "0",
            "65M",
            "1G",
            "1.5k",
            "1x",
            "99999999999999999999k",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(
            (long_size("4k"), long_size("4095").is_err()),
            (Ok(4096), true)
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("2"), Ok(Duration::from_secs(2)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1m"), Ok(Duration::from_secs(60)));
        for text in ["", "0", "s", "1h", "-1", "99999999999999999999", "2000m"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_have_addresses_or_names() {
        assert_eq!(host("10.0.0.1"), Ok(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(host("::1"), Ok("::1".parse().expect("an address")));
        assert!(host("localhost").expect("known everywhere").is_loopback());
        let error = host("no such host").expect_err("a name has no spaces");
        assert!(error.contains("no known host"), "{error}");
    }
}
