//! Congestion control as people write it: in an environment variable, or on a command line.

use core::fmt;
use core::str::FromStr;

use super::{CongestionControl, DcqcnParams, DelayParams, Rate};

/// What is written: a name, and after `=` what some of them need.
const WANTED: &str = "there is auto, none, path, delay=TIME (as 100us), dcqcn=RATE (as 25G) and window=BYTES (as 64K)";

/// A text is no [`CongestionControl`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionTextError(&'static str);

impl fmt::Display for CongestionTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for CongestionTextError {}

impl FromStr for CongestionControl {
    type Err = CongestionTextError;

    fn from_str(text: &str) -> Result<CongestionControl, CongestionTextError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let control = match (name, value) {
            ("auto", None) => Some(CongestionControl::Auto),
            ("none", None) => Some(CongestionControl::None),
            ("path", None) => Some(CongestionControl::Path),
            ("delay", Some(value)) => nanoseconds(value)
                .map(DelayParams::target)
                .map(CongestionControl::Delay),
            ("dcqcn", Some(value)) => number(value, 1000, "KMG")
                .map(Rate::from_bps)
                .map(DcqcnParams::at)
                .map(CongestionControl::Dcqcn),
            ("window", Some(value)) => number(value, 1024, "KMG")
                .and_then(|bytes| u32::try_from(bytes).ok())
                .map(|bytes| CongestionControl::Window { bytes }),
            _ => None,
        };
        let control = control.ok_or(CongestionTextError(WANTED))?;
        control.check().map_err(CongestionTextError)?;
        Ok(control)
    }
}

fn nanoseconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let each = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

/// A whole number, with one of the letters, of which each is worth `step` times the one before.
fn number(text: &str, step: u64, letters: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let last = upper.chars().last().and_then(|last| letters.find(last));
    let (digits, power) = match last {
        Some(at) => (&text[..text.len() - 1], at as u32 + 1),
        None => (text, 0),
    };
    // A sign is no digit.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(step.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        let dcqcn = DcqcnParams::at(Rate::from_gbps(25));
        for (text, control) in [
            ("auto", CongestionControl::Auto),
            ("none", CongestionControl::None),
            ("path", CongestionControl::Path),
            (
                "delay=100us",
                CongestionControl::Delay(DelayParams::target(100_000)),
            ),
            ("dcqcn=25G", CongestionControl::Dcqcn(dcqcn)),
            ("window=64k", CongestionControl::Window { bytes: 65536 }),
        ] {
            assert_eq!(text.parse(), Ok(control), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for text in [
            "",
            "bbr",
            "auto=1",
            "delay",
            "delay=5",
            "delay=0us",
            "delay=99999999999999999999s",
            "dcqcn=",
            "dcqcn=+5G",
            "dcqcn=1",
            "window=0",
            "window=5G",
            "window=K",
            "window=\u{e9}",
        ] {
            let error = text.parse::<CongestionControl>().expect_err(text);
            assert!(error.to_string().len() > 20, "{text}: {error}");
        }
    }
}
