//! The text of `URXE_FAULTS` and `urxe run --faults`: which faults, how often.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use urxe_core::congestion::Rate;

use crate::host::environment;

/// Part of all packets, to a millionth.
///
/// ```
/// let share: urxe::Share = "0.5%".parse().unwrap();
/// assert_eq!(share.per_million(), 5000);
/// assert!("0.5".parse::<urxe::Share>().is_err()); // of what?
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const NONE: Share = Share(0);
    const WHOLE: u32 = 1_000_000;

    /// The share of so many in a million; at most all of them.
    pub fn from_per_million(count: u32) -> Share {
        Share(count.min(Share::WHOLE))
    }

    /// How many of a million packets.
    pub fn per_million(self) -> u32 {
        self.0
    }

    /// True of that part of all 32-bit numbers.
    pub(super) fn includes(self, draw: u32) -> bool {
        u64::from(draw) * u64::from(Share::WHOLE) < u64::from(self.0) << 32
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Share, &'static str> {
        const WANTED: &str = "a share is a percentage, as in 2% or 0.5%";
        let number = text.strip_suffix('%').ok_or(WANTED)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) {
            return Err(WANTED);
        }
        if part.len() > 4 {
            return Err("no more than four decimals count");
        }
        let whole: u32 = whole.parse().map_err(|_| TOO_MUCH)?;
        let part: u32 = format!("{part:0<4}").parse().map_err(|_| WANTED)?;
        let sum = whole
            .saturating_mul(Share::WHOLE / 100)
            .saturating_add(part);
        if sum > Share::WHOLE {
            return Err(TOO_MUCH);
        }
        Ok(Share(sum))
    }
}

const TOO_MUCH: &str = "a share is at most 100%";

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        let part = format!("{part:04}");
        write!(f, "{whole}.{}%", part.trim_end_matches('0'))
    }
}

/// Which faults packets meet on their way out, and how many of them.
///
/// As text it is `drop=2%,dup=1%,reorder=1%,corrupt=0.5%,delay=50us..1ms,rate=1G,queue=1M,seed=7`;
/// what is left out does not happen. [`crate::ContextBuilder::faults`] takes one, or the
/// environment variable `URXE_FAULTS`.
///
/// ```
/// let faults: urxe::FaultSpec = "drop=2%, delay=1ms, seed=7".parse().unwrap();
/// assert_eq!(faults.to_string(), "drop=2%,delay=1ms,seed=7");
/// let error = "drop=2".parse::<urxe::FaultSpec>().unwrap_err();
/// assert_eq!(error.to_string(), "drop=2: a share is a percentage, as in 2% or 0.5%");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub struct FaultSpec {
    /// Packets that are lost.
    pub drop: Share,
    /// Packets that are sent twice.
    pub duplicate: Share,
    /// Packets that one to three later ones overtake.
    pub reorder: Share,
    /// Packets of which one bit is wrong.
    pub corrupt: Share,
    /// How late every packet is: anything from the one to the other. Order is kept.
    pub delay: Option<(Duration, Duration)>,
    /// How fast frames leave, one after another.
    pub rate: Option<Rate>,
    /// Bytes of frames that may wait for the rate; a packet that finds no room is lost. Without it, what the rate carries
    /// in twice the delay, and at least 100 kB.
    pub queue: Option<u64>,
    /// What the decisions follow from; without it, `URXE_SEED` or a number that is
    /// printed.
    pub seed: Option<u64>,
}

/// A text that is no [`FaultSpec`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{part}: {reason}")]
pub struct FaultSpecError {
    /// The part of it that is wrong.
    pub part: String,
    /// Why.
    pub reason: &'static str,
}

/// Longest delay: beyond it connections fail before the first answer.
const DELAY_MAX: Duration = Duration::from_secs(10);

impl FaultSpec {
    /// True if there is no fault in it.
    pub fn is_empty(&self) -> bool {
        let shares = [self.drop, self.duplicate, self.reorder, self.corrupt];
        self.delay.is_none() && self.rate.is_none() && shares == [Share::NONE; 4]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "drop" => self.drop = value.parse()?,
            "dup" => self.duplicate = value.parse()?,
            "reorder" => self.reorder = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "delay" => self.delay = Some(delay(value)?),
            "rate" => self.rate = Some(Rate::from_bps(rate(value)?)),
            "queue" => self.queue = Some(queue(value)?),
            "seed" => {
                let seed = environment::number(value);
                self.seed = Some(seed.ok_or("a seed is a whole number")?);
            }
            _ => {
                return Err(
                    "there is drop=N%, dup=N%, reorder=N%, corrupt=N%, delay=TIME, delay=TIME..TIME, rate=RATE, queue=SIZE and seed=N",
                );
            }
        }
        Ok(())
    }
}

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<FaultSpec, FaultSpecError> {
        let mut spec = FaultSpec::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let fault = |reason| FaultSpecError {
                part: if part.is_empty() { "\"\"" } else { part }.to_owned(),
                reason,
            };
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(fault("it is there twice"));
            }
            seen.push(name);
            spec.set(name, value).map_err(fault)?;
        }
        if let (Some(queue), None) = (spec.queue, spec.rate) {
            return Err(FaultSpecError {
                part: format!("queue={}", Scaled(queue)),
                reason: "a queue is for a rate: add rate=RATE, as in rate=200M",
            });
        }
        if spec.is_empty() {
            return Err(FaultSpecError {
                part: text.trim().to_owned(),
                reason: "there is no fault in it",
            });
        }
        Ok(spec)
    }
}

fn delay(text: &str) -> Result<(Duration, Duration), &'static str> {
    let (low, high) = match text.split_once("..") {
        Some((low, high)) => (time(low.trim())?, time(high.trim())?),
        None => (time(text)?, time(text)?),
    };
    if low > high {
        return Err("the first time is the shorter one");
    }
    if high > DELAY_MAX {
        return Err("10s is the longest delay");
    }
    if high.is_zero() {
        return Err("that is no delay");
    }
    Ok((low, high))
}

fn time(text: &str) -> Result<Duration, &'static str> {
    const WANTED: &str = "a time is a whole number and us, ms or s, as in 50us";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| WANTED)?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(WANTED),
    }
}

/// Slowest rate: below it a packet takes longer than connections wait.
const RATE_MIN: u64 = 10_000;
/// Longest queue; the packets in it are kept in memory.
const QUEUE_MAX: u64 = 64_000_000;

fn rate(text: &str) -> Result<u64, &'static str> {
    let bits = scaled(text)
        .ok_or("a rate is a whole number of bits a second with k, M or G, as in 200M")?;
    if bits < RATE_MIN {
        return Err("10k, of bits a second, is the slowest rate");
    }
    Ok(bits)
}

fn queue(text: &str) -> Result<u64, &'static str> {
    match scaled(text).ok_or("a queue is a whole number of bytes with k or M, as in 500k")? {
        0 => Err("that is no queue"),
        bytes if bytes > QUEUE_MAX => Err("64M, of bytes, is the longest queue"),
        bytes => Ok(bytes),
    }
}

/// What the letters for powers of ten stand for, the largest first.
const SCALES: [(&str, u64); 4] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000), ("", 1)];

/// A whole number with a letter for a power of ten, or without.
fn scaled(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, letter) = text.split_at(digits);
    let (_, scale) = SCALES.iter().find(|(name, _)| *name == letter)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

/// A number with the largest letter with which it is whole.
struct Scaled(u64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = |(_, scale): &&(&str, u64)| self.0.is_multiple_of(*scale);
        let (letter, scale) = SCALES.iter().find(fitting).expect("1 fits");
        write!(f, "{}{letter}", self.0 / scale)
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("drop", self.drop),
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        let present = shares.iter().filter(|(_, share)| *share != Share::NONE);
        let mut parts: Vec<String> = present.map(|(name, s)| format!("{name}={s}")).collect();
        if let Some((low, high)) = self.delay {
            let (low, high) = (Written(low), Written(high));
            parts.push(if low.0 == high.0 {
                format!("delay={low}")
            } else {
                format!("delay={low}..{high}")
            });
        }
        parts.extend(self.rate.map(|rate| format!("rate={}", Scaled(rate.bps()))));
        parts.extend(self.queue.map(|queue| format!("queue={}", Scaled(queue))));
        parts.extend(self.seed.map(|seed| format!("seed={seed}")));
        f.write_str(&parts.join(","))
    }
}

/// A time in the largest unit in which it is whole.
struct Written(Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        match us {
            _ if us.is_multiple_of(1_000_000) && us > 0 => write!(f, "{}s", us / 1_000_000),
            _ if us.is_multiple_of(1000) && us > 0 => write!(f, "{}ms", us / 1000),
            _ => write!(f, "{us}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> FaultSpec {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_part_is_understood() {
        let spec = parse("drop=2%,dup=1%,reorder=1.25%,corrupt=0.0001%,delay=50us..1ms,seed=0x10");
        let share = Share::from_per_million;
        assert_eq!(
            (spec.drop, spec.duplicate, spec.reorder, spec.corrupt),
            (share(20_000), share(10_000), share(12_500), share(1))
        );
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        assert_eq!((spec.delay, spec.seed), (Some((us(50), ms(1))), Some(16)));
        assert_eq!(parse(" drop = 100% ").drop, share(1_000_000));
        assert_eq!(parse("delay=2s").delay, Some((ms(2000), ms(2000))));
        let spec = parse("rate=200M,queue=500k");
        let rate = Some(Rate::from_bps(200_000_000));
        assert_eq!((spec.rate, spec.queue), (rate, Some(500_000)));
        assert_eq!(parse("rate=1G").rate, Some(Rate::from_gbps(1)));
        assert_eq!(parse("rate=64000").rate, Some(Rate::from_bps(64_000)));
    }

    #[test]
    fn its_text_reads_as_itself() {
        for text in [
            "drop=2%,dup=1%,reorder=1%,corrupt=0.5%,seed=7",
            "delay=0us..3s",
            "drop=0.0001%,delay=1500us",
            "corrupt=100%",
            "delay=5ms,rate=1500M,queue=123456,seed=1",
        ] {
            assert_eq!(parse(text).to_string(), text);
            assert_eq!(parse(&parse(text).to_string()), parse(text));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("", "\"\""),
            ("drop", "drop"),
            ("drop=2", "drop=2"),
            ("drop=two%", "drop=two%"),
            ("drop=%", "drop=%"),
            ("drop=1.%", "drop=1.%"),
            ("drop=-1%", "drop=-1%"),
            ("drop=101%", "drop=101%"),
            ("drop=99999999999%", "drop=99999999999%"),
            ("drop=1.00001%", "drop=1.00001%"),
            ("drop=1%,", "\"\""),
            ("drop=1%,drop=2%", "drop=2%"),
            ("lose=1%", "lose=1%"),
            ("delay=5", "delay=5"),
            ("delay=5.5ms", "delay=5.5ms"),
            ("delay=2ms..1ms", "delay=2ms..1ms"),
            ("delay=11s", "delay=11s"),
            ("delay=0us", "delay=0us"),
            ("delay=99999999999999999999s", "delay=99999999999999999999s"),
            ("rate=200", "rate=200"),
            ("rate=200Mbit", "rate=200Mbit"),
            ("rate=0.5G", "rate=0.5G"),
            ("rate=M", "rate=M"),
            ("rate=0G", "rate=0G"),
            ("rate=99999999999G", "rate=99999999999G"),
            ("rate=1G,queue=0", "queue=0"),
            ("rate=1G,queue=65M", "queue=65M"),
            ("rate=1G,queue=1MB", "queue=1MB"),
            ("queue=100000,drop=1%", "queue=100k"),
            ("drop=1%,seed=x", "seed=x"),
            ("seed=7", "seed=7"),
            ("drop=0%", "drop=0%"),
        ] {
            let error = text.parse::<FaultSpec>().expect_err(text);
            assert_eq!(error.part, part, "{error}");
        }
    }

    #[test]
    fn a_share_is_that_part_of_all_numbers() {
        let count = |share: Share| {
            let draws = (0..1_000_000_u64).map(|n| (n * 4_294_967_296 / 1_000_000) as u32);
            draws.filter(|draw| share.includes(*draw)).count()
        };
        assert_eq!(count(Share::NONE), 0);
        assert!(count(Share(20_000)).abs_diff(20_000) <= 1);
        assert_eq!(count(Share(1_000_000)), 1_000_000);
    }

    fn share() -> impl Strategy<Value = Share> {
        (0..=Share::WHOLE).prop_map(Share)
    }

    fn spec() -> impl Strategy<Value = FaultSpec> {
        let micros = || 1..=DELAY_MAX.as_micros() as u64;
        let delay = prop::option::of((micros(), micros()).prop_map(|(a, b)| {
            let [low, high] = [a.min(b), a.max(b)];
            (Duration::from_micros(low), Duration::from_micros(high))
        }));
        (
            share(),
            share(),
            share(),
            share(),
            delay,
            prop::option::of((RATE_MIN..u64::MAX, prop::option::of(1..=QUEUE_MAX))),
            any::<Option<u64>>(),
        )
            .prop_map(
                |(drop, duplicate, reorder, corrupt, delay, rate, seed)| FaultSpec {
                    drop,
                    duplicate,
                    reorder,
                    corrupt,
                    delay,
                    rate: rate.map(|(bits, _)| Rate::from_bps(bits)),
                    queue: rate.and_then(|(_, queue)| queue),
                    seed,
                },
            )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(spec in spec()) {
            prop_assume!(!spec.is_empty());
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }

        #[test]
        fn a_text_is_refused_by_the_part_that_is_wrong(
            before in spec(), wrong in "[a-z]{0,6}(=[0-9.%a-z]{0,8})?",
        ) {
            prop_assume!(!before.is_empty());
            let text = format!("{before},{wrong}");
            match text.parse::<FaultSpec>() {
                Ok(spec) => prop_assert_eq!(spec.to_string().parse(), Ok(spec)),
                Err(error) if wrong.is_empty() => prop_assert_eq!(error.part, "\"\""),
                Err(error) => prop_assert_eq!(error.part, wrong),
            }
        }
    }
}
