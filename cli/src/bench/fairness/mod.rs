//! `urxe bench fairness`: some QPs stream large messages, one beside them exchanges small ones. How equal are the
//! shares of those that stream, and how long do the small ones wait?
//!
//! All QPs are of one context on each side. This process measures; the other side is a process that it starts.

mod protocol;
mod report;
mod session;
pub(crate) mod target;

use std::time::Duration;

use self::report::{Pair, Report};
use self::session::{Length, Session};
use super::prepare;
use crate::args::FairnessArgs;
use crate::error::CliError;
use crate::output::print_report;
use urxe_measure::fairness::Plan;

/// QPs beside those that stream.
const QPS_SMALL: usize = 1;
/// Samples alone and beside the streams, each.
const PAIRS: usize = 7;
/// How long a sample alone lasts.
const ALONE: Duration = Duration::from_millis(150);
/// How long one beside the streams lasts: so many QPs have some dozens of messages each.
const BESIDE: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &FairnessArgs) -> Result<(), CliError> {
    prepare();
    let plan = Plan {
        qps: args.qps as usize,
        size: args.size as usize,
        mtu: args.mtu,
    };
    let mut session = Session::start(plan, args.wire.wire)?;
    let length = |time| match args.iters {
        Some(iters) => Length::RoundTrips(iters as usize),
        None => Length::Time(time),
    };
    // Everything is touched for the first time.
    session.sample(plan.qps, Length::RoundTrips(1))?;
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        pairs.push(Pair {
            alone: session.sample(0, length(ALONE))?,
            beside: session.sample(plan.qps, length(BESIDE))?,
        });
    }
    session.finish()?;
    let report = Report::of(plan, &mut pairs);
    print_report(args.json, &report, || report.text())
}
