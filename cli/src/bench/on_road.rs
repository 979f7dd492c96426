//! `urxe bench --road`: what connections make of a [`Road`].

use std::time::Duration;

use serde::Serialize;

use super::road::Road;
use super::session::Session;
use crate::error::CliError;
use crate::output::{print_report, progress};
use crate::samples::median;
use crate::table::{Align, Table};
use urxe_measure::bench::plan::{Op, Plan};

/// Samples of bandwidth; round trips are measured in one.
const SAMPLES: u64 = 5;

/// A sample takes so long, or so many round trips if these take longer: the window has to grow.
const SAMPLE_TIME: Duration = Duration::from_secs(3);
const SAMPLE_ROUND_TRIPS: u32 = 25;

/// Operations in a sample of a given time.
fn iters_of(plan: &Plan, road: &Road, time: Option<Duration>) -> u64 {
    let usual = SAMPLE_TIME.max(road.rtt * SAMPLE_ROUND_TRIPS);
    let seconds = time.unwrap_or(usual).as_secs_f64();
    let bits = 8.0 * plan.size as f64;
    let per_second = match road.carries(plan) {
        Some(carries) if !plan.is_latency => carries / bits,
        _ => 1.0 / road.rtt.as_secs_f64(),
    };
    ((per_second * seconds) as u64).clamp(20, 50_000_000)
}

/// The result. What was not measured is null.
#[derive(Clone, Debug, Serialize)]
struct Report {
    op: Op,
    size: u64,
    mtu: u32,
    /// What packets of the measuring side met.
    faults: String,
    gbit_per_s: Option<f64>,
    msg_per_s: Option<f64>,
    road_gbit_per_s: Option<f64>,
    round_trip_us_p50: Option<f64>,
    round_trip_us_p99: Option<f64>,
    road_rtt_us: f64,
    /// Ours divided by what the road has.
    ratio: Option<f64>,
    /// Packets of the measuring side, and those of them that the road lost, and that found its queue full.
    packets: u64,
    lost: u64,
    queue_full: u64,
    /// The same of the other side.
    peer_packets: u64,
    peer_lost: u64,
    peer_queue_full: u64,
}

/// `time` is that of all samples together, where it is given.
pub(super) fn run(
    plan: Plan,
    road: &Road,
    (iters, time): (Option<u64>, Option<Duration>),
    is_json: bool,
) -> Result<(), CliError> {
    let is_short = plan.is_latency || iters.is_some();
    let count = if is_short { 1 } else { SAMPLES };
    let progress = progress(is_json, "{bar:20} {pos}/{len} samples", count as usize);
    let mut session = Session::start(plan, [road.way(0), road.way(1)])?;
    let time = time.map(|all| all / count as u32);
    let iters = iters.unwrap_or_else(|| iters_of(&plan, road, time));
    let (mut values, mut p99) = (Vec::new(), None);
    for _ in 0..count {
        let sample = session.sample(iters)?;
        values.push(sample.value);
        p99 = sample.p99;
        progress.inc(1);
    }
    let ours = median(&values);
    let [near, far] = session.packets()?;
    let mut report = Report {
        op: plan.op,
        size: plan.size as u64,
        mtu: plan.mtu,
        faults: road
            .way(0)
            .faults
            .map(|faults| faults.to_string())
            .unwrap_or_default(),
        gbit_per_s: None,
        msg_per_s: None,
        road_gbit_per_s: None,
        round_trip_us_p50: None,
        round_trip_us_p99: None,
        road_rtt_us: road.rtt.as_secs_f64() * 1e6,
        ratio: None,
        packets: near.sent,
        lost: near.lost,
        queue_full: near.queue_full,
        peer_packets: far.sent,
        peer_lost: far.lost,
        peer_queue_full: far.queue_full,
    };
    if plan.is_latency {
        // Those of ping-pongs were halved.
        let ways = if plan.op.is_round_trip() { 1.0 } else { 2.0 };
        report.round_trip_us_p50 = ours.map(|us| ways * us);
        report.round_trip_us_p99 = p99.map(|us| ways * us);
        report.ratio = report.round_trip_us_p50.map(|us| us / report.road_rtt_us);
    } else {
        let carries = road.carries(&plan).map(|bits| bits / 1e9);
        report.gbit_per_s = ours;
        report.msg_per_s = ours.map(|gbit| gbit * 1e9 / (8.0 * plan.size as f64));
        report.road_gbit_per_s = carries;
        report.ratio = ours.zip(carries).map(|(ours, carries)| ours / carries);
    }
    session.finish()?;
    progress.finish_and_clear();
    print_report(is_json, &report, || text(&report, &plan))
}

fn text(report: &Report, plan: &Plan) -> String {
    let columns = ["", "urxe", "road", "ratio"].map(|name| match name {
        "" => (name, Align::Left),
        _ => (name, Align::Right),
    });
    let mut table = Table::new(&columns);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let mut row = |name: &str, cells: [String; 3]| {
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    let (none, ratio) = (String::new, number(report.ratio, 3));
    if plan.is_latency {
        let [p50, p99] = [report.round_trip_us_p50, report.round_trip_us_p99];
        let rtt = number(Some(report.road_rtt_us), 0);
        row("p50 us", [number(p50, 0), rtt, ratio]);
        row("p99 us", [number(p99, 0), none(), none()]);
    } else {
        let mbit = |gbit: Option<f64>| number(gbit.map(|gbit| gbit * 1e3), 1);
        row(
            "Mbit/s",
            [mbit(report.gbit_per_s), mbit(report.road_gbit_per_s), ratio],
        );
        row("messages/s", [number(report.msg_per_s, 0), none(), none()]);
    }
    let Report {
        faults,
        packets,
        lost,
        queue_full,
        peer_packets,
        peer_lost,
        peer_queue_full,
        ..
    } = report;
    let what = match (plan.is_latency, plan.op.is_round_trip()) {
        (false, _) => "one way, as much as goes",
        (true, false) => "a message and its answer, of the same size",
        (true, true) => "a whole operation, request to completion",
    };
    let (name, size, mtu) = (report.op.name(), report.size, report.mtu);
    format!(
        "{name}, {size} bytes, path MTU {mtu}: {what}\n\n{table}\n\
         Each side's packets met {faults} (the other side with the next seed).\n\
         Of {packets} packets of this side {lost} were lost on the road and {queue_full} found its queue full;\n\
         of {peer_packets} packets of the other side {peer_lost} and {peer_queue_full}.\n{}",
        if plan.is_latency {
            "\"road\" is its round trip when nothing waits.\n"
        } else {
            "\"road\" is the payload that it has room for if nothing is lost. The first fifth of each sample does not count.\n"
        }
    )
}
