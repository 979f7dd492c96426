//! Times of single operations, and their percentiles.

use std::time::Duration;

/// Operation times in nanoseconds. Room is taken up front: recording must not allocate.
#[derive(Debug)]
pub struct Samples {
    nanos: Vec<u32>,
}

impl Samples {
    pub fn with_capacity(count: usize) -> Samples {
        Samples {
            nanos: Vec::with_capacity(count),
        }
    }

    /// Records one time; above four seconds it counts as that.
    pub fn push(&mut self, time: Duration) {
        self.nanos
            .push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
    }

    /// Adds those of another run.
    pub fn append(&mut self, mut other: Samples) {
        self.nanos.append(&mut other.nanos);
    }

    pub fn count(&self) -> usize {
        self.nanos.len()
    }

    /// The value that the given share of the samples does not exceed, in microseconds; 0 without samples.
    pub fn percentile_us(&mut self, percent: f64) -> f64 {
        self.nanos.sort_unstable();
        let rank = (percent / 100.0 * self.nanos.len() as f64).ceil() as usize;
        let index = rank.clamp(1, self.nanos.len().max(1)) - 1;
        self.nanos
            .get(index)
            .map_or(0.0, |&nanos| f64::from(nanos) / 1e3)
    }
}

/// The middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut samples = Samples::with_capacity(100);
        for us in (1..=100).rev() {
            samples.push(Duration::from_micros(us));
        }
        assert_eq!(samples.count(), 100);
        assert_eq!(samples.percentile_us(50.0), 50.0);
        assert_eq!(samples.percentile_us(99.0), 99.0);
        assert_eq!(samples.percentile_us(100.0), 100.0);
        assert_eq!(Samples::with_capacity(0).percentile_us(50.0), 0.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
