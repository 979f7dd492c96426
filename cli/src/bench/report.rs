//! The result of a bench: JSON for programs, a small table for people.

use serde::Serialize;

use super::plan::{Op, Plan};
use crate::samples::median;
use crate::table::{Align, Table};

/// One measurement's result. What was not measured is null.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) op: Op,
    pub(crate) size: u64,
    pub(crate) mtu: u32,
    pub(crate) gbit_per_s: Option<f64>,
    pub(crate) msg_per_s: Option<f64>,
    pub(crate) lat_us_p50: Option<f64>,
    pub(crate) lat_us_p99: Option<f64>,
    pub(crate) floor_gbit_per_s: Option<f64>,
    pub(crate) floor_lat_us_p50: Option<f64>,
    /// Median over the pairs of samples of ours divided by the floor.
    pub(crate) ratio: Option<f64>,
}

/// A sample of ours and one of the floor, taken one right after the other. Gbit/s, or microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) floor: Option<f64>,
}

/// Median of ours, of the floor, and of the ratios within each pair. The machine's speed drifts from second to
/// second: a ratio of two samples side by side says more than a ratio of two medians.
pub(crate) fn medians(pairs: &[Pair]) -> (Option<f64>, Option<f64>, Option<f64>) {
    let ours: Vec<f64> = pairs.iter().map(|pair| pair.ours).collect();
    let floor: Vec<f64> = pairs.iter().filter_map(|pair| pair.floor).collect();
    let ratio = |pair: &Pair| {
        pair.floor
            .filter(|&floor| floor > 0.0)
            .map(|floor| pair.ours / floor)
    };
    let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
    (median(&ours), median(&floor), median(&ratios))
}

pub(crate) fn text(report: &Report, pairs: &[Pair], plan: &Plan) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("urxe", Align::Right),
        ("floor", Align::Right),
        ("ratio", Align::Right),
    ]);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let mut row = |name: &str, cells: [String; 3]| {
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    let is_latency = report.lat_us_p50.is_some();
    let ratio = number(report.ratio, 2);
    if is_latency {
        let (ours, floor) = (report.lat_us_p50, report.floor_lat_us_p50);
        row("p50 us", [number(ours, 2), number(floor, 2), ratio]);
        let ours = number(report.lat_us_p99, 2);
        row("p99 us", [ours, String::new(), String::new()]);
    } else {
        let (ours, floor) = (report.gbit_per_s, report.floor_gbit_per_s);
        row("Gbit/s", [number(ours, 2), number(floor, 2), ratio]);
        let message_bits = 8.0 * report.size as f64;
        let floor = floor.map(|gbit| gbit * 1e3 / message_bits);
        let ours = report.msg_per_s.map(|rate| rate / 1e6);
        let (ours, floor) = (number(ours, 3), number(floor, 3));
        row("M messages/s", [ours, floor, String::new()]);
    }
    format!(
        "{}, {} bytes, path MTU {}: {}\n\n{table}\n{}",
        report.op.name(),
        report.size,
        report.mtu,
        report.op.measure(plan),
        if report.ratio.is_some() {
            explanation(is_latency, pairs.len())
        } else {
            "No floor was measured for this.\n".to_owned()
        },
    )
}

fn explanation(is_latency: bool, pairs: usize) -> String {
    let slower = if is_latency { "higher" } else { "lower" };
    format!(
        "The floor is bare UDP: packets of the same sizes in the same batches between two processes on the same\n\
         two CPUs, without transport or verbs. Its samples and urxe's took turns ({pairs} of each); ratio is the\n\
         median of urxe/floor over neighbours: 1 would be as fast, {slower} is slower.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_neighbours() {
        let pair = |ours, floor| Pair {
            ours,
            floor: Some(floor),
        };
        // The machine is ten times slower in the second half: the ratio does not change.
        let pairs = [pair(8.0, 10.0), pair(0.8, 1.0), pair(0.8, 1.0)];
        let (ours, floor, ratio) = medians(&pairs);
        assert_eq!((ours, floor), (Some(0.8), Some(1.0)));
        assert!((ratio.expect("measured") - 0.8).abs() < 1e-12);
        let unmeasured = [Pair {
            ours: 1.0,
            floor: None,
        }];
        assert_eq!(medians(&unmeasured), (Some(1.0), None, None));
    }

    #[test]
    fn json_has_the_promised_names_and_nulls() {
        let report = Report {
            op: Op::Write,
            size: 8,
            mtu: 1024,
            gbit_per_s: Some(1.5),
            msg_per_s: Some(2.0),
            lat_us_p50: None,
            lat_us_p99: None,
            floor_gbit_per_s: Some(3.0),
            floor_lat_us_p50: None,
            ratio: Some(0.5),
        };
        assert_eq!(
            serde_json::to_string(&report).expect("plain data"),
            "{\"op\":\"write\",\"size\":8,\"mtu\":1024,\"gbit_per_s\":1.5,\"msg_per_s\":2.0,\
             \"lat_us_p50\":null,\"lat_us_p99\":null,\"floor_gbit_per_s\":3.0,\
             \"floor_lat_us_p50\":null,\"ratio\":0.5}"
        );
    }
}
