//! Sizes of messages as distributions: points of a cumulative distribution function, with straight lines between them.
//!
//! The files of the field have a point a line, bytes and percent; the same is read here. Three published ones are built in.

use core::str::FromStr;

use crate::engine::Rng;

/// Percent are counted in millionths.
const MILLION: u64 = 1_000_000;
const WHOLE: u64 = 100 * MILLION;

/// A distribution of sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes, and the part that has at most so many.
    points: Vec<(u64, u64)>,
}

/// Names of the distributions that are built in.
pub const NAMES: [&str; 3] = ["websearch", "hadoop", "storage"];

/// Web search: Alizadeh et al., "Data Center TCP", SIGCOMM 2010, as the points that HPCC's authors published with their simulator.
const WEBSEARCH: &str = "0 0\n10000 15\n20000 20\n30000 30\n50000 40\n80000 53\n200000 60\n1000000 70\n2000000 80\n\
                         5000000 90\n10000000 97\n30000000 100\n";
/// Hadoop at Facebook: Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015, as above.
const HADOOP: &str = "0 0\n100 1\n200 2\n300 5\n350 15\n400 20\n500 30\n600 40\n700 50\n1000 60\n2000 67\n7000 70\n30000 72\n\
                      50000 82\n80000 87\n120000 90\n300000 95\n1000000 97.5\n2000000 99\n10000000 100\n";
/// Storage at Alibaba: Li et al., "HPCC", SIGCOMM 2019, as above.
const STORAGE: &str = "0 0\n4000 22.93\n8000 69.21\n16000 80.61\n32000 90.47\n64000 93.53\n128000 96.77\n256000 97.53\n\
                       2000000 100\n";

/// Why a text is no distribution.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct SizesError {
    /// The line, counted from 1.
    pub line: usize,
    /// In words.
    pub fault: String,
}

/// Millionths of a percent.
fn percent(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) {
        return None;
    }
    // Further digits change nothing that a run would show.
    let part: String = part.chars().chain("000000".chars()).take(6).collect();
    let millionths = whole.parse::<u64>().ok()?.checked_mul(MILLION)?;
    millionths.checked_add(part.parse().ok()?)
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Sizes, SizesError> {
        let mut points: Vec<(u64, u64)> = Vec::new();
        let (mut last, lines) = (1, (1..).zip(text.lines()));
        for (line, content) in lines {
            let fault = |fault: String| SizesError { line, fault };
            let content = content.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            last = line;
            let mut words = content.split_whitespace();
            let (Some(bytes), Some(part), None) = (words.next(), words.next(), words.next()) else {
                return Err(fault(format!("{content:?} is not bytes and percent")));
            };
            let size = bytes.parse::<u64>().ok();
            let size = size.filter(|&n| n <= super::MESSAGE_MAX);
            let size = size.ok_or_else(|| fault(format!("{bytes:?} is no size of a message")))?;
            let part = percent(part).filter(|&p| p <= WHOLE);
            let part = part.ok_or_else(|| fault("percent are 0 to 100".to_owned()))?;
            if points.last().is_some_and(|&(b, p)| size < b || part < p) {
                return Err(fault("sizes and percent must rise".to_owned()));
            }
            points.push((size, part));
        }
        if points.last().is_none_or(|&(_, part)| part != WHOLE) {
            let fault = "the last point has 100 percent".to_owned();
            return Err(SizesError { line: last, fault });
        }
        let sizes = Sizes { points };
        if sizes.mean() == 0 {
            let fault = "all messages would be empty".to_owned();
            return Err(SizesError { line: last, fault });
        }
        Ok(sizes)
    }
}

impl Sizes {
    /// A distribution that is built in: `websearch`, `hadoop`, `storage`.
    pub fn named(name: &str) -> Option<Sizes> {
        let text = match name {
            "websearch" => WEBSEARCH,
            "hadoop" => HADOOP,
            "storage" => STORAGE,
            _ => return None,
        };
        text.parse().ok()
    }

    /// All of one size.
    pub fn fixed(bytes: u64) -> Sizes {
        Sizes {
            points: vec![(bytes, WHOLE)],
        }
    }

    /// The mean, in bytes.
    pub fn mean(&self) -> u64 {
        let first = self
            .points
            .first()
            .map(|&(b, p)| u128::from(b) * u128::from(p));
        let between = self.points.windows(2).map(|pair| {
            let ((a, from), (b, to)) = (pair[0], pair[1]);
            u128::from(a + b) * u128::from(to - from) / 2
        });
        let sum = first.unwrap_or(0) + between.sum::<u128>();
        (sum / u128::from(WHOLE)) as u64
    }

    /// Draws a size: at least a byte.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let part = rng.below(WHOLE);
        let place = self.points.partition_point(|&(_, p)| p <= part);
        let (b, to) = self.points[place.min(self.points.len() - 1)];
        let (a, from) = match place.checked_sub(1) {
            Some(before) => self.points[before],
            // Below the first point all have its size.
            None => (b, 0),
        };
        let (width, into) = (u128::from(to - from).max(1), u128::from(part - from));
        let more = (u128::from(b - a) * into / width) as u64;
        (a + more).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_have_the_means_of_their_papers_files() {
        // Straight lines between the points, by hand.
        for (name, mean) in [
            ("websearch", 1_711_250),
            ("hadoop", 120_420),
            ("storage", 40_869),
        ] {
            let sizes = Sizes::named(name).expect("is built in");
            assert_eq!(sizes.mean(), mean, "{name}");
            let mut rng = Rng::new(7);
            let drawn: u64 = (0..200_000).map(|_| u64::from(sizes.draw(&mut rng))).sum();
            let off = (drawn / 200_000).abs_diff(sizes.mean()) as f64 / sizes.mean() as f64;
            assert!(
                off < 0.02,
                "{name}: {} drawn, {}",
                drawn / 200_000,
                sizes.mean()
            );
        }
    }

    #[test]
    fn as_many_are_below_a_point_as_it_says() {
        let sizes = Sizes::named("websearch").expect("is built in");
        let mut rng = Rng::new(3);
        let drawn: Vec<u32> = (0..100_000).map(|_| sizes.draw(&mut rng)).collect();
        for (bytes, percent) in [
            (10_000, 15.0),
            (80_000, 53.0),
            (1_000_000, 70.0),
            (10_000_000, 97.0),
        ] {
            let below = drawn.iter().filter(|&&n| n <= bytes).count() as f64 / 1000.0;
            assert!(
                (below - percent).abs() < 0.7,
                "{below} % up to {bytes}, not {percent}"
            );
        }
    }

    #[test]
    fn files_that_are_none_say_where() {
        for (text, line, fault) in [
            ("", 1, "the last point has 100 percent"),
            ("0 0\n10 50\n", 2, "the last point has 100 percent"),
            ("0 0\n10\n", 2, "\"10\" is not bytes and percent"),
            ("0 0\n# note\n-4 7\n", 3, "\"-4\" is no size of a message"),
            ("0 0\n10 101\n", 2, "percent are 0 to 100"),
            ("0 0\n10 x\n", 2, "percent are 0 to 100"),
            ("10 50\n9 100\n", 2, "sizes and percent must rise"),
            ("0 100\n", 1, "all messages would be empty"),
            (
                "99999999999 100\n",
                1,
                "\"99999999999\" is no size of a message",
            ),
        ] {
            let error = text.parse::<Sizes>().expect_err(text);
            assert_eq!(
                (error.line, error.fault.as_str()),
                (line, fault),
                "{text:?}"
            );
        }
        assert_eq!(Sizes::fixed(9).draw(&mut Rng::new(1)), 9);
        assert_eq!("5 100".parse::<Sizes>().map(|s| s.mean()), Ok(5));
    }
}
