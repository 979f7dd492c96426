//! The result of a bench: JSON for programs, a small table for people.

use serde::Serialize;

use crate::samples::median;
use crate::table::{Align, Table};
use urxe_measure::bench::plan::{Op, Plan};

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
    /// The same of the floor in memory, if that is where the packets went.
    pub(crate) memory_floor_gbit_per_s: Option<f64>,
    pub(crate) memory_floor_lat_us_p50: Option<f64>,
    pub(crate) memory_ratio: Option<f64>,
}

/// A sample of ours and one of each floor, taken one right after the other. Gbit/s, or microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) memory: Option<f64>,
}

/// Median over the pairs that have it.
pub(crate) fn median_of(pairs: &[Pair], of: impl Fn(&Pair) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = pairs.iter().filter_map(of).collect();
    median(&values)
}

/// Median of the ratios to a floor within each pair. The machine's speed drifts from second to
/// second: a ratio of two samples side by side says more than a ratio of two medians.
pub(crate) fn ratio(pairs: &[Pair], floor: impl Fn(&Pair) -> Option<f64>) -> Option<f64> {
    median_of(pairs, |pair| {
        let floor = floor(pair).filter(|&floor| floor > 0.0);
        floor.map(|floor| pair.ours / floor)
    })
}

pub(crate) fn text(report: &Report, pairs: &[Pair], plan: &Plan) -> String {
    let mut columns = vec![
        ("", Align::Left),
        ("urxe", Align::Right),
        ("floor", Align::Right),
        ("ratio", Align::Right),
    ];
    let is_in_memory = report.memory_ratio.is_some();
    if is_in_memory {
        columns.extend([("in memory", Align::Right), ("ratio", Align::Right)]);
    }
    let mut table = Table::new(&columns);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let mut row = |name: &str, cells: [String; 5]| {
        let cells = [name.to_owned()].into_iter().chain(cells);
        table.row(cells.take(columns.len()).collect());
    };
    let is_latency = report.lat_us_p50.is_some();
    let ratios = [report.ratio, report.memory_ratio].map(|ratio| number(ratio, 2));
    let [ratio, memory_ratio] = ratios;
    let none = String::new;
    if is_latency {
        let floors = [report.floor_lat_us_p50, report.memory_floor_lat_us_p50];
        let [floor, memory] = floors.map(|floor| number(floor, 2));
        let ours = number(report.lat_us_p50, 2);
        row("p50 us", [ours, floor, ratio, memory, memory_ratio]);
        let ours = number(report.lat_us_p99, 2);
        row("p99 us", [ours, none(), none(), none(), none()]);
    } else {
        let floors = [report.floor_gbit_per_s, report.memory_floor_gbit_per_s];
        let [floor, memory] = floors.map(|floor| number(floor, 2));
        let ours = number(report.gbit_per_s, 2);
        row("Gbit/s", [ours, floor, ratio, memory, memory_ratio]);
        let message_bits = 8.0 * report.size as f64;
        let rates = floors.map(|gbit| number(gbit.map(|gbit| gbit * 1e3 / message_bits), 3));
        let [floor, memory] = rates;
        let ours = number(report.msg_per_s.map(|rate| rate / 1e6), 3);
        row("M messages/s", [ours, floor, none(), memory, none()]);
    }
    format!(
        "{}, {} bytes, path MTU {}: {}\n\n{table}\n{}",
        report.op.name(),
        report.size,
        report.mtu,
        report.op.measure(plan),
        if report.ratio.is_some() {
            explanation(is_latency, is_in_memory, pairs.len())
        } else {
            "No floor was measured for this.\n".to_owned()
        },
    )
}

fn explanation(is_latency: bool, is_in_memory: bool, pairs: usize) -> String {
    let slower = if is_latency { "higher" } else { "lower" };
    let memory = if is_in_memory {
        "urxe's packets went through memory that the two processes share. The floor of that, \"in memory\", is bare\n\
         copies: each message into a ring in such memory by one process, and out of it by the other.\n"
    } else {
        ""
    };
    format!(
        "The floor is bare UDP: packets of the same sizes in the same batches between two processes on the same\n\
         two CPUs, without transport or verbs. Its samples and urxe's took turns ({pairs} of each); ratio is the\n\
         median of urxe/floor over neighbours: 1 would be as fast, {slower} is slower.\n{memory}"
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
            memory: None,
        };
        // The machine is ten times slower in the second half: the ratio does not change.
        let pairs = [pair(8.0, 10.0), pair(0.8, 1.0), pair(0.8, 1.0)];
        assert_eq!(median_of(&pairs, |pair| Some(pair.ours)), Some(0.8));
        assert_eq!(median_of(&pairs, |pair| pair.floor), Some(1.0));
        let found = ratio(&pairs, |pair| pair.floor).expect("measured");
        assert!((found - 0.8).abs() < 1e-12);
        assert_eq!(ratio(&pairs, |pair| pair.memory), None);
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
            memory_floor_gbit_per_s: Some(6.0),
            memory_floor_lat_us_p50: None,
            memory_ratio: Some(0.25),
        };
        assert_eq!(
            serde_json::to_string(&report).expect("plain data"),
            "{\"op\":\"write\",\"size\":8,\"mtu\":1024,\"gbit_per_s\":1.5,\"msg_per_s\":2.0,\
             \"lat_us_p50\":null,\"lat_us_p99\":null,\"floor_gbit_per_s\":3.0,\
             \"floor_lat_us_p50\":null,\"ratio\":0.5,\
             \"memory_floor_gbit_per_s\":6.0,\"memory_floor_lat_us_p50\":null,\"memory_ratio\":0.25}"
        );
    }
}
