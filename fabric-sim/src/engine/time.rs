//! Time in whole picoseconds: at 400 Gb/s a byte takes 20 of them, so serialisation times add
//! up without rounding, and two runs agree on every machine.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};
use core::str::FromStr;

const PS_PER_NS: u64 = 1_000;

/// A point in time: picoseconds since the start of the simulation. Lasts 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The start.
    pub const ZERO: Time = Time(0);
    /// Later than everything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time so many picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// Picoseconds since the start.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if that is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// As the transport core counts: whole nanoseconds, rounded down.
    #[inline]
    pub const fn to_core(self) -> urxe_core::Time {
        urxe_core::Time(self.0 / PS_PER_NS)
    }

    /// The time that is this time of the core.
    #[inline]
    pub const fn from_core(time: urxe_core::Time) -> Time {
        Time(time.0.saturating_mul(PS_PER_NS))
    }

    /// Seconds since the start, for reports; no decision is made with it.
    pub fn as_secs_f64(self) -> f64 {
        Span(self.0).as_secs_f64()
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);

    /// Picoseconds.
    pub const fn from_ps(ps: u64) -> Span {
        Span(ps)
    }

    /// Nanoseconds.
    pub const fn from_ns(ns: u64) -> Span {
        Span(ns * PS_PER_NS)
    }

    /// Microseconds.
    pub const fn from_us(us: u64) -> Span {
        Span(us * 1_000_000)
    }

    /// Milliseconds.
    pub const fn from_ms(ms: u64) -> Span {
        Span(ms * 1_000_000_000)
    }

    /// Time that light (and a signal in copper, nearly) takes through so many metres of cable:
    /// 5 ns each.
    pub const fn of_cable(metres: u64) -> Span {
        Span(metres * 5_000)
    }

    /// Picoseconds.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// Seconds, for reports; no decision is made with it.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }
}

impl Add<Span> for Time {
    type Output = Time;

    /// Sticks at the end of time rather than wrapping.
    #[inline]
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;

    #[inline]
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;

    /// Zero if `other` is longer.
    #[inline]
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;

    #[inline]
    fn mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Time({self})")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.0;
        match ps {
            0 => f.write_str("0 s"),
            _ if ps.is_multiple_of(1_000_000_000_000) => write!(f, "{} s", ps / 1_000_000_000_000),
            1_000_000_000.. => write!(f, "{} ms", ps as f64 / 1e9),
            1_000_000.. => write!(f, "{} us", ps as f64 / 1e6),
            1_000.. => write!(f, "{} ns", ps as f64 / 1e3),
            _ => write!(f, "{ps} ps"),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({self})")
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// Bits of a byte times picoseconds of a second.
const BYTE_PS: u64 = 8 * 1_000_000_000_000;

impl Rate {
    /// Bits per second.
    ///
    /// # Panics
    /// If that is zero.
    pub const fn bps(bits: u64) -> Rate {
        assert!(bits > 0, "a rate is more than nothing");
        Rate(bits)
    }

    /// Megabits per second.
    pub const fn mbps(megabits: u64) -> Rate {
        Rate::bps(megabits * 1_000_000)
    }

    /// Gigabits per second.
    pub const fn gbps(gigabits: u64) -> Rate {
        Rate::bps(gigabits * 1_000_000_000)
    }

    /// Bits per second.
    #[inline]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Gigabits per second, for reports.
    pub fn as_gbps_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// How long so many bytes take, rounded up.
    #[inline]
    pub const fn time_of(self, bytes: u64) -> Span {
        if bytes < u64::MAX / BYTE_PS {
            // All frames: 64 bits are enough, and fast.
            return Span((bytes * BYTE_PS).div_ceil(self.0));
        }
        let ps = (bytes as u128 * BYTE_PS as u128).div_ceil(self.0 as u128);
        Span(if ps > u64::MAX as u128 {
            u64::MAX
        } else {
            ps as u64
        })
    }

    /// How many whole bytes pass in such a time.
    pub const fn bytes_in(self, span: Span) -> u64 {
        (span.0 as u128 * self.0 as u128 / BYTE_PS as u128) as u64
    }

    /// The rate at which so many bytes take such a time; `None` if one of both is zero.
    pub const fn of(bytes: u64, span: Span) -> Option<Rate> {
        if bytes == 0 || span.0 == 0 {
            return None;
        }
        let bps = bytes as u128 * BYTE_PS as u128 / span.0 as u128;
        if bps == 0 {
            None
        } else {
            Some(Rate(bps as u64))
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1_000_000_000.. => write!(f, "{} Gb/s", self.0 as f64 / 1e9),
            1_000_000.. => write!(f, "{} Mb/s", self.0 as f64 / 1e6),
            _ => write!(f, "{} b/s", self.0),
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate({self})")
    }
}

/// A text that is no quantity of the kind that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseQuantityError {
    text: String,
    wanted: &'static str,
}

/// Splits "12.5us" into its digits and its unit, and multiplies exactly.
pub(crate) fn quantity(
    text: &str,
    wanted: &'static str,
    unit: impl Fn(&str) -> Option<u64>,
) -> Result<u64, ParseQuantityError> {
    let fault = || ParseQuantityError {
        text: text.to_owned(),
        wanted,
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(trimmed.len());
    let (number, name) = trimmed.split_at(digits);
    let scale = unit(name.trim()).ok_or_else(fault)?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole: u64 = whole.parse().map_err(|_| fault())?;
    let whole = whole.checked_mul(scale).ok_or_else(fault)?;
    let (mut part, mut of) = (0, 1);
    for digit in fraction.chars() {
        let digit = digit.to_digit(10).ok_or_else(fault)?;
        // What comes after 20 places is less than one of anything.
        if of < 10_u128.pow(20) {
            (part, of) = (part * 10 + u128::from(digit), of * 10);
        }
    }
    let part = (part * u128::from(scale) / of) as u64;
    whole.checked_add(part).ok_or_else(fault)
}

impl FromStr for Span {
    type Err = ParseQuantityError;

    /// Reads `20ms`, `12.5us`, `100ns`, `1s`.
    fn from_str(text: &str) -> Result<Span, ParseQuantityError> {
        let unit = |name: &str| match name {
            "ps" => Some(1),
            "ns" => Some(1_000),
            "us" => Some(1_000_000),
            "ms" => Some(1_000_000_000),
            "s" => Some(1_000_000_000_000),
            _ => None,
        };
        quantity(text, "a time like 20ms or 1.5us", unit).map(Span)
    }
}

impl FromStr for Rate {
    type Err = ParseQuantityError;

    /// Reads `40Gbps`, `2.5 Gb/s`, `100Mbps`.
    fn from_str(text: &str) -> Result<Rate, ParseQuantityError> {
        let wanted = "a rate like 40Gbps";
        let unit = |name: &str| match name.strip_suffix("bps").or(name.strip_suffix("b/s"))? {
            "" => Some(1),
            "k" => Some(1_000),
            "M" => Some(1_000_000),
            "G" => Some(1_000_000_000),
            "T" => Some(1_000_000_000_000),
            _ => None,
        };
        match quantity(text, wanted, unit)? {
            0 => Err(ParseQuantityError {
                text: text.to_owned(),
                wanted,
            }),
            bits => Ok(Rate(bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_is_exact_at_usual_rates() {
        for (gbps, ps) in [
            (1, 8000),
            (10, 800),
            (25, 320),
            (40, 200),
            (100, 80),
            (400, 20),
        ] {
            assert_eq!(Rate::gbps(gbps).time_of(1), Span::from_ps(ps));
            assert_eq!(Rate::gbps(gbps).time_of(9216), Span::from_ps(9216 * ps));
        }
        // Rounded up where it is not: a frame is never faster than its link.
        assert_eq!(Rate::bps(3).time_of(1), Span::from_ps(2_666_666_666_667));
        assert_eq!(Rate::bps(1).time_of(u64::MAX), Span::from_ps(u64::MAX));
        assert_eq!(Rate::gbps(100).bytes_in(Span::from_us(1)), 12_500);
        assert_eq!(Rate::of(12_500, Span::from_us(1)), Some(Rate::gbps(100)));
        assert_eq!(Rate::of(1, Span::ZERO), None);
    }

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!("20ms".parse(), Ok(Span::from_ms(20)));
        assert_eq!("1.5 us".parse(), Ok(Span::from_ns(1500)));
        assert_eq!("0.001ns".parse(), Ok(Span::from_ps(1)));
        assert_eq!("40Gbps".parse(), Ok(Rate::gbps(40)));
        assert_eq!("2.5 Gb/s".parse(), Ok(Rate::mbps(2500)));
        for bad in [
            "",
            "ms",
            "20",
            "20 parsecs",
            "-1ms",
            "1.2.3ms",
            "99999999999999999999s",
        ] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        for bad in ["0bps", "40", "40GB", "Gbps"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_end_of_time_holds() {
        assert_eq!(Time::NEVER + Span::from_ms(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::from_ps(5)), Span::ZERO);
        assert_eq!(
            Time::from_core(urxe_core::Time(7)).to_core(),
            urxe_core::Time(7)
        );
    }
}
