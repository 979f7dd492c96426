//! `urxe scale`: what thousands of connections cost. Memory of an idle queue pair, and the rate of small messages
//! that take turns on all of them, beside the rate on a few.
//!
//! This process measures; the other side is a process that it starts. Both have all the queue pairs.

mod protocol;
mod report;
pub(crate) mod target;

use std::time::Duration;

use urxe_measure::fleet::{self, Fleet};

use self::protocol::{Answer, Request};
use self::report::{Memory, Report};
use crate::args::ScaleArgs;
use crate::bench::prepare;
use crate::error::CliError;
use crate::output::print_report;
use crate::resident::resident;
use crate::samples::median;
use crate::station::Station;
use crate::target::{LOOPBACK_CLIENT, Measurement, Target};
use crate::wire::WireName;

/// Queue pairs that the many are compared with.
const FEW: usize = 10;

/// Messages of the first sample, which tells how many a sample needs.
const WARM_UP: usize = 2_000;

/// How long a sample lasts.
const SAMPLE_TIME: Duration = Duration::from_millis(150);

/// Messages under way at most, with few queue pairs and with many.
const UNDER_WAY: usize = FEW * fleet::DEPTH;

pub(crate) fn run(args: &ScaleArgs) -> Result<(), CliError> {
    prepare();
    let mut session = Session::start(args.qps as usize, args.wire.wire)?;
    let few = FEW.min(args.qps as usize);
    let rate = session.sample(few, WARM_UP)?;
    let messages = ((rate * SAMPLE_TIME.as_secs_f64()) as usize).max(1_000);
    // The first round over all of them touches everything for the first time.
    session.sample(args.qps as usize, messages.max(args.qps as usize))?;
    let (mut rates, mut rates_few, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.samples {
        let of_few = session.sample(few, messages)?;
        let of_many = session.sample(args.qps as usize, messages)?;
        rates_few.push(of_few);
        rates.push(of_many);
        ratios.push(of_many / of_few);
    }
    let report = Report {
        qps: args.qps,
        memory: session.memory,
        few: few as u64,
        msg_per_s_few: median(&rates_few).expect("there are samples"),
        msg_per_s: median(&rates).expect("there are samples"),
        ratio: median(&ratios).expect("there are samples"),
    };
    session.finish()?;
    print_report(args.json, &report, || report.text())
}

/// Both sides, connected.
struct Session {
    fleet: Fleet,
    memory: Memory,
    target: Target,
}

impl Session {
    fn start(qps: usize, wire: Option<WireName>) -> Result<Session, CliError> {
        let mut target = Target::start(Measurement::Scale, wire)?;
        let control = &mut target.control;
        let station = Station::open(LOOPBACK_CLIENT, wire)?;
        let before = resident()?;
        let mut fleet = Fleet::create(&station, qps, 4096)?;
        control.send(&Request::Create { qps })?;
        control.send_endpoints(&fleet.endpoints())?;
        fleet.connect(&control.recv_endpoints(qps)?)?;
        let memory = Memory {
            resident_bytes_per_qp: resident()?.saturating_sub(before) / qps as u64,
            queue_bytes_per_qp: fleet.queue_bytes_per_qp(),
        };
        Ok(Session {
            fleet,
            memory,
            target,
        })
    }

    /// Sends so many messages, each on the next of the first `qps` queue pairs; returns messages a second.
    fn sample(&mut self, qps: usize, messages: usize) -> Result<f64, CliError> {
        self.target.control.send(&Request::Run {
            messages: messages as u64,
        })?;
        self.target.control.expect(&Answer::Running)?;
        let time = self.fleet.send(qps, messages, UNDER_WAY)?;
        self.target.control.expect(&Answer::Done)?;
        Ok(messages as f64 / time.as_secs_f64())
    }

    fn finish(mut self) -> Result<(), CliError> {
        self.target.control.send(&Request::Bye)?;
        self.target.wait()
    }
}
