//! `urxe bench shards`: threads of one process, each with a completion queue and two QPs that are connected with each other, write small
//! messages. How many more a second are they where the context has a shard for each thread?
//!
//! Both ends are in one process so that a thread does all the work of its messages: what threads cost each other is the lock of an
//! engine, or nothing. Between two processes the other side's threads need processors too.

use std::net::IpAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use urxe::{Access, ConnectOptions, Error, SendWr, Wc};

use super::note_load;
use crate::args::ShardsArgs;
use crate::error::{CliError, Context};
use crate::output::print_report;
use crate::process;
use crate::samples::median;
use crate::table::{Align, Table};
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER};

/// Samples with one shard and with several, each.
const PAIRS: usize = 7;
const SAMPLE: Duration = Duration::from_millis(300);
/// WRITEs that are posted together, of which the last one completes.
const BATCH: u64 = 32;
/// Batches under way.
const BATCHES: u64 = 4;

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

#[derive(Clone, Copy)]
enum Length {
    Time(Duration),
    Batches(u64),
}

/// What one thread has.
struct Lane {
    cq: urxe::Cq,
    from: urxe::Qp,
    /// Connected with the other; it answers by itself.
    _to: urxe::Qp,
    source: urxe::Mr,
    target: urxe::Mr,
}

impl Lane {
    fn new(context: &urxe::Context, size: usize) -> Result<Lane, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(256)?;
        let qp = || pd.qp(&cq).max_send_wr((BATCH * BATCHES) as u32).create();
        let (from, to) = (qp()?, qp()?);
        from.connect(&to.endpoint(), &ConnectOptions::default())?;
        to.connect(&from.endpoint(), &ConnectOptions::default())?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Lane {
            source: pd.reg_owned(vec![7; size], Access::NONE)?,
            target: pd.reg_owned(vec![0; size], rights)?,
            cq,
            from,
            _to: to,
        })
    }

    fn post(&self) -> Result<(), Error> {
        let sges = [self.source.sge(..)];
        let (addr, rkey) = (self.target.addr(), self.target.rkey());
        let wrs = (1..=BATCH).map(|n| {
            let wr = SendWr::rdma_write(n, &sges, addr, rkey);
            if n == BATCH { wr.signaled() } else { wr }
        });
        self.from.post_send_iter(wrs).map_err(Error::from)
    }

    /// Writes for so long; returns how many messages were written.
    fn stream(&self, length: Length) -> Result<u64, Error> {
        let end = match length {
            Length::Time(time) => Some(Instant::now() + time),
            Length::Batches(_) => None,
        };
        let (mut posted, mut done) = (0, 0);
        let mut wcs = [Wc::default(); BATCHES as usize];
        loop {
            let is_over = match length {
                Length::Time(_) => end.is_some_and(|end| Instant::now() >= end),
                Length::Batches(count) => posted >= count,
            };
            if is_over && posted == done {
                return Ok(done * BATCH);
            }
            while !is_over && posted < done + BATCHES {
                self.post()?;
                posted += 1;
            }
            let found = self.cq.poll(&mut wcs)?;
            for wc in &wcs[..found] {
                wc.ok()?;
                done += 1;
            }
        }
    }
}

/// Messages a second, of all threads.
fn sample(lanes: &[Lane], length: Length) -> Result<f64, CliError> {
    let start = Barrier::new(lanes.len());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads = lanes.iter().enumerate().map(|(n, lane)| {
            let start = &start;
            scope.spawn(move || {
                process::pin(n % cpus);
                start.wait();
                let from = Instant::now();
                let messages = lane.stream(length).context("a WRITE failed")?;
                Ok(messages as f64 / from.elapsed().as_secs_f64())
            })
        });
        let threads: Vec<_> = threads.collect();
        let rates = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(CliError::Failed("a thread panicked".to_owned())))
        });
        rates.sum()
    })
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
