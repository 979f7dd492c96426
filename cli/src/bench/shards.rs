//! `urxe bench shards`: threads of one process, each with a completion queue and two QPs that are connected with each other, write small
//! messages. How many more a second are they where the context has a shard for each thread?
//!
//! Both ends are in one process so that a thread does all the work of its messages: what threads cost each other is the lock of an
//! engine, or nothing. Between two processes the other side's threads need processors too.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use urxe_measure::shards::{Lane, Length, sample};

use super::note_load;
use crate::args::ShardsArgs;
use crate::error::{CliError, Context};
use crate::output::print_report;
use crate::samples::median;
use crate::table::{Align, Table};
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER};

/// Samples with one shard and with several, each.
const PAIRS: usize = 7;
const SAMPLE: Duration = Duration::from_millis(300);

/// The result. Rates are of all threads together.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    threads: usize,
    shards: usize,
    size: usize,
    one_shard_msg_per_s: f64,
    shards_msg_per_s: f64,
    /// Median over the pairs of samples.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

pub(crate) fn run(args: &ShardsArgs) -> Result<(), CliError> {
    note_load();
    let (threads, size) = (args.threads as usize, args.size as usize);
    let open = |address: IpAddr, shards: u32| -> Result<Vec<Lane>, CliError> {
        let mut builder = urxe::Context::builder(address).shards(shards);
        if let Some(wire) = args.wire.wire {
            builder = builder.wire(wire.into());
        }
        let context = builder.open().context("cannot open a device")?;
        if context.shard_count() < shards as usize {
            let why = "this host's contexts cannot share an address, and so have one shard";
            return Err(CliError::Failed(why.to_owned()));
        }
        let lanes = (0..threads).map(|_| Lane::new(&context, size));
        let lanes = lanes.collect::<Result<_, _>>();
        lanes.context("cannot make the QPs")
    };
    let shards = args.shards.unwrap_or(args.threads as u32);
    let one = open(LOOPBACK_SERVER, 1)?;
    let several = open(LOOPBACK_CLIENT, shards)?;
    let length = args.iters.map_or(Length::Time(SAMPLE), Length::Batches);
    // Everything is touched for the first time.
    for lanes in [&one, &several] {
        sample(lanes, Length::Batches(1))?;
    }
    let pairs = (0..PAIRS).map(|_| Ok([sample(&one, length)?, sample(&several, length)?]));
    let pairs = pairs.collect::<Result<Vec<_>, CliError>>()?;
    let middle = |value: &dyn Fn(&[f64; 2]) -> f64| {
        let values: Vec<f64> = pairs.iter().map(value).collect();
        median(&values).unwrap_or(0.0)
    };
    let ratios = pairs.iter().map(|[one, several]| several / one);
    let report = Report {
        threads,
        shards: shards as usize,
        size,
        one_shard_msg_per_s: middle(&|rates| rates[0]),
        shards_msg_per_s: middle(&|rates| rates[1]),
        ratio: middle(&|rates| rates[1] / rates[0]),
        ratio_min: ratios.clone().fold(f64::INFINITY, f64::min),
        ratio_max: ratios.fold(0.0, f64::max),
    };
    print_report(args.json, &report, || report.text())
}

impl Report {
    fn text(&self) -> String {
        let mut table = Table::new(&[
            ("shards", Align::Right),
            ("M msg/s", Align::Right),
            ("ratio", Align::Right),
        ]);
        let mut row = |shards: usize, rate: f64, ratio: String| {
            let rate = format!("{:.2}", rate / 1e6);
            table.row(vec![shards.to_string(), rate, ratio]);
        };
        row(1, self.one_shard_msg_per_s, String::new());
        let ratio = format!("{:.2}", self.ratio);
        row(self.shards, self.shards_msg_per_s, ratio);
        format!(
            "{} threads of one process, WRITEs of {} bytes\n\n{table}\nratio: median of {PAIRS} pairs of samples, {:.2} to {:.2}",
            self.threads, self.size, self.ratio_min, self.ratio_max
        )
    }
}
