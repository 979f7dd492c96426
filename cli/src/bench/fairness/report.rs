//! The result: JSON for programs, a small table and the shares for people.

use serde::Serialize;

use super::session::Sample;
use crate::samples::median;
use crate::table::{Align, Table};
use urxe_measure::fairness::Plan;

/// Shares in one line of the text.
const SHARES_A_LINE: usize = 8;

/// A sample without the streams and one beside them, taken one right after the other.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) alone: Sample,
    pub(super) beside: Sample,
}

/// The result of the measurement. Latencies are half round trips.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) qps: usize,
    pub(super) size: usize,
    pub(super) mtu: u32,
    /// Bytes that each streaming QP completed.
    pub(super) bytes: Vec<u64>,
    /// The least and the most, relative to their mean.
    pub(super) min_percent: f64,
    pub(super) max_percent: f64,
    /// The difference of the two.
    pub(super) spread_percent: f64,
    /// All streams together.
    pub(super) gbit_per_s: f64,
    pub(super) alone_us_p50: f64,
    pub(super) alone_us_p99: f64,
    pub(super) beside_us_p50: f64,
    pub(super) beside_us_p99: f64,
    /// Median over the pairs of samples.
    pub(super) ratio_p50: f64,
    pub(super) ratio_p99: f64,
}

impl Report {
    pub(super) fn of(plan: Plan, pairs: &mut [Pair]) -> Report {
        let mut messages = vec![0; plan.qps];
        let (mut rates, mut percentiles) = (Vec::new(), Vec::new());
        for Pair { alone, beside } in pairs {
            for (sum, more) in messages.iter_mut().zip(&beside.messages) {
                *sum += more;
            }
            let bytes = beside.messages.iter().sum::<u64>() * plan.size as u64;
            rates.push(8.0 * bytes as f64 / beside.time.as_secs_f64() / 1e9);
            percentiles.push([&mut alone.small, &mut beside.small].map(|samples| {
                let mut at = |percent| samples.percentile_us(percent);
                [at(50.0), at(99.0)]
            }));
        }
        let middle = |value: &dyn Fn(&[[f64; 2]; 2]) -> f64| {
            let values: Vec<f64> = percentiles.iter().map(value).collect();
            median(&values).unwrap_or(0.0)
        };
        let bytes: Vec<u64> = messages.iter().map(|sum| sum * plan.size as u64).collect();
        let percents = percents_of_mean(&bytes);
        let min_percent = percents.iter().copied().fold(f64::INFINITY, f64::min);
        let max_percent = percents.iter().copied().fold(0.0, f64::max);
        Report {
            qps: plan.qps,
            size: plan.size,
            mtu: plan.mtu,
            bytes,
            min_percent,
            max_percent,
            spread_percent: max_percent - min_percent,
            gbit_per_s: median(&rates).unwrap_or(0.0),
            alone_us_p50: middle(&|p| p[0][0]),
            alone_us_p99: middle(&|p| p[0][1]),
            beside_us_p50: middle(&|p| p[1][0]),
            beside_us_p99: middle(&|p| p[1][1]),
            ratio_p50: middle(&|p| p[1][0] / p[0][0]),
            ratio_p99: middle(&|p| p[1][1] / p[0][1]),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("8-byte SENDs", Align::Left),
            ("alone", Align::Right),
            ("beside", Align::Right),
            ("ratio", Align::Right),
        ]);
        let mut row = |name: &str, alone: f64, beside: f64, ratio: f64| {
            let numbers = [alone, beside, ratio].map(|number| format!("{number:.2}"));
            table.row([name.to_owned()].into_iter().chain(numbers).collect());
        };
        row(
            "p50 us",
            self.alone_us_p50,
            self.beside_us_p50,
            self.ratio_p50,
        );
        row(
            "p99 us",
            self.alone_us_p99,
            self.beside_us_p99,
            self.ratio_p99,
        );
        let Report {
            qps,
            size,
            mtu,
            min_percent,
            max_percent,
            spread_percent,
            gbit_per_s,
            ..
        } = self;
        format!(
            "{qps} QPs with RDMA WRITEs of {size} bytes beside one with 8-byte SENDs, path MTU {mtu}\n\n{table}\n\
             The latency is half a round trip of a ping-pong. Alone and beside took turns; ratio is the median over\n\
             neighbours.\n\n\
             all streams: {gbit_per_s:.2} Gbit/s\n\
             each, in percent of their mean: least {min_percent:.1}, most {max_percent:.1}, spread {spread_percent:.1}\n\
             {}",
            shares(&self.bytes),
        )
    }
}

fn percents_of_mean(bytes: &[u64]) -> Vec<f64> {
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
    // Without any bytes all have the same.
    let percent = |&bytes: &u64| {
        if mean > 0.0 {
            100.0 * bytes as f64 / mean
        } else {
            100.0
        }
    };
    bytes.iter().map(percent).collect()
}

fn shares(bytes: &[u64]) -> String {
    let mut text = String::new();
    for line in percents_of_mean(bytes).chunks(SHARES_A_LINE) {
        for percent in line {
            text.push_str(&format!(" {percent:>6.1}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::samples::Samples;

    fn sample(us: u64, messages: &[u64]) -> Sample {
        let mut small = Samples::with_capacity(1);
        small.push(Duration::from_micros(us));
        Sample {
            small,
            messages: messages.to_vec(),
            time: Duration::from_secs(1),
        }
    }

    #[test]
    fn shares_are_summed_and_ratios_are_of_neighbours() {
        let pair = |alone, beside, messages: &[u64]| Pair {
            alone: sample(alone, &[]),
            beside: sample(beside, messages),
        };
        // The machine is ten times slower in the second half: the ratio does not change.
        let mut pairs = [
            pair(2, 6, &[4, 6]),
            pair(20, 60, &[5, 5]),
            pair(20, 60, &[0, 0]),
        ];
        let plan = Plan {
            qps: 2,
            size: 4096,
            mtu: 1024,
        };
        let report = Report::of(plan, &mut pairs);
        assert_eq!(report.bytes, [9 * 4096, 11 * 4096]);
        let rounded = [
            report.min_percent,
            report.max_percent,
            report.spread_percent,
        ]
        .map(f64::round);
        assert_eq!(rounded, [90.0, 110.0, 20.0]);
        assert_eq!((report.ratio_p99, report.beside_us_p50), (3.0, 60.0));
    }
}
