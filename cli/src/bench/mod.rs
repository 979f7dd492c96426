//! `urxe bench`: bandwidth and latency between two processes, beside the floor.
//!
//! This process measures; the other side is a process that it starts, or with `--connect` one that a user has started on
//! another host (`--server`). Between samples of urxe it has the [`floor`] measured where both are on this host: bare UDP
//! with the same packets on the same CPUs, and, if urxe's go through memory, bare copies too.

pub(crate) mod busy;
pub(crate) mod fairness;
pub(crate) mod floor;
mod on_road;
mod protocol;
mod report;
mod road;
mod session;
mod shards;
pub(crate) mod target;

use std::net::IpAddr;
use std::time::Duration;

pub(crate) use urxe_measure::bench::plan::Op;
use urxe_measure::bench::plan::{PAIRS, Plan, SAMPLE_TIME};
use urxe_measure::pin::pin;

use self::floor::{FloorConfig, Wait, Wire};
use self::report::{Pair, Report};
pub(crate) use self::road::Road;
use self::session::Session;
use crate::args::{BenchArgs, OpBenchArgs, OtherBench, RoleArgs};
use crate::error::CliError;
use crate::output::{print_report, progress};
use crate::station::Station;
use crate::target::{CPUS, Target};
use crate::wire::{Way, WireName};

pub(crate) fn run(args: &BenchArgs) -> Result<(), CliError> {
    match (&args.other, &args.of_op) {
        (Some(OtherBench::Fairness(args)), _) => fairness::run(args),
        (Some(OtherBench::Shards(args)), _) => shards::run(args),
        (None, args_of_op) => match (args.role.server, args_of_op) {
            (Some(address), of_op) => serve(address, args.role.port, of_op.as_ref()),
            (None, Some(of_op)) => run_op(of_op, &args.role),
            (None, None) => unreachable!("the operation is required"),
        },
    }
}

/// The server of one client on another host, or in another terminal.
fn serve(address: IpAddr, port: u16, args: Option<&OpBenchArgs>) -> Result<(), CliError> {
    if args.is_some_and(|args| !args.is_of_server()) {
        let text = "the client says what is measured; the server is `urxe bench --server HOST`, with --port and --wire at most";
        return Err(CliError::Usage(text.to_owned()));
    }
    let wire: Way = args.and_then(|args| args.wire).into();
    crate::target::serve_one(address, wire, port, target::serve)
}

fn run_op(args: &OpBenchArgs, role: &RoleArgs) -> Result<(), CliError> {
    let mut plan = plan(args)?;
    prepare();
    let way: Way = args.wire.into();
    let mut session = match (role.connect, &args.road) {
        (Some(server), _) => {
            let target = Target::connect(server, role.port, role.local)?;
            let station = Station::open(target.control.local_ip()?, way)?;
            plan.mtu = match args.mtu {
                Some(mtu) => mtu,
                None => station.mtu()?,
            };
            Session::with(target, &station, plan)?
        }
        (None, Some(road)) => {
            return on_road::run(plan, road, (args.iters, args.duration), args.json);
        }
        (None, None) => Session::start(plan, [way; 2])?,
    };
    let has_floor = role.connect.is_none();
    let progress = progress(args.json, "{bar:20} {pos}/{len} samples: {msg}", 2 * PAIRS);
    let mut pairs = Vec::new();
    let mut p99s = Vec::new();
    let sample_time = args.duration.map(|all| all / PAIRS as u32);
    let iters = match args.iters {
        Some(iters) => iters,
        None => session.calibrate(sample_time.unwrap_or(SAMPLE_TIME))?,
    };
    for _ in 0..PAIRS {
        progress.set_message("urxe");
        let ours = session.sample(iters)?;
        progress.inc(1);
        progress.set_message("floor");
        let floor_of = |wire, is_wanted: bool| match is_wanted {
            true => floor_sample(plan, wire, args.iters),
            false => Ok(None),
        };
        let is_in_memory = session.is_in_memory()?;
        let floor = floor_of(Wire::Udp, has_floor)?;
        let memory = floor_of(Wire::Memory, has_floor && is_in_memory)?;
        progress.inc(1);
        pairs.push(Pair {
            ours: ours.value,
            floor,
            memory,
        });
        p99s.extend(ours.p99);
    }
    session.finish()?;
    progress.finish_and_clear();
    let report = report(plan, &pairs, &p99s);
    print_report(args.json, &report, || report::text(&report, &pairs, &plan))
}

/// Makes this the measuring process of a host that is quiet, or says that it is not.
pub(crate) fn prepare() {
    note_load();
    // Before the device is opened, so that its threads stay there, too.
    pin(CPUS[0]);
}

fn note_load() {
    if let Some(note) = busy::note() {
        eprintln!("urxe: {note}");
    }
}

fn plan(args: &OpBenchArgs) -> Result<Plan, CliError> {
    let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
    let Some(op) = args.op else {
        return usage("the operation is missing");
    };
    let size = match (op, args.size) {
        (Op::Atomic, None | Some(8)) => 8,
        (Op::Atomic, Some(_)) => return usage("an atomic is on 8 bytes: leave --size out"),
        (_, Some(size)) => size as usize,
        (_, None) if args.lat => 8,
        (_, None) if args.road.is_some() => 1 << 16,
        (_, None) => 1 << 20,
    };
    if args.event && (!args.lat || op == Op::Write) {
        return usage("--event is for the latency of send, read and atomic (with --lat)");
    }
    if args.signaled && !(args.lat && matches!(op, Op::Send | Op::Write)) {
        return usage("--signaled is for the latency of send and write (with --lat)");
    }
    if args.road.is_some() && matches!(args.wire, Some(WireName::Auto)) {
        return usage("--road is for the sockets wire: leave --wire out");
    }
    Ok(Plan {
        op,
        size,
        mtu: args.mtu.unwrap_or(4096),
        is_latency: args.lat,
        is_event: args.event,
        is_signaled: args.signaled,
        is_one_address: args.one_address,
        road: args.road.map(|road| road.needs()),
    })
}

/// The floor of this measurement, in the same unit. An atomic's bandwidth has none, nor has the latency of a
/// message too long to be sent at once.
fn floor_sample(plan: Plan, wire: Wire, iters: Option<u64>) -> Result<Option<f64>, CliError> {
    /// The longest message of a ping-pong that the floor can do.
    const PING_LEN_MAX: usize = 1 << 20;
    let mut config = FloorConfig::write(plan.size, plan.mtu as usize);
    config.first_header = config.header + plan.first_header_extra();
    config.wire = wire;
    // The same two for the floor's sender and receiver.
    config.cpus = Some(CPUS);
    if !plan.is_latency {
        if plan.op == Op::Atomic {
            return Ok(None);
        }
        // With a number of messages given the run is to be short: a smoke test.
        config.duration = iters.map_or(SAMPLE_TIME, |_| Duration::from_millis(50));
        return Ok(Some(floor::floor_bandwidth(&config)?.gbit_per_s));
    }
    if plan.size > PING_LEN_MAX {
        return Ok(None);
    }
    config.wait = if plan.is_event {
        Wait::Block
    } else {
        Wait::Spin
    };
    config.rounds = match (iters, plan.is_event) {
        (Some(iters), _) => iters.clamp(100, 20_000) as usize,
        (None, true) => 4_000,
        (None, false) => 20_000,
    };
    let ways = if plan.op.is_round_trip() { 2.0 } else { 1.0 };
    Ok(Some(ways * floor::floor_latency(&config)?.p50_us))
}

fn report(plan: Plan, pairs: &[Pair], p99s: &[f64]) -> Report {
    let ours = report::median_of(pairs, |pair| Some(pair.ours));
    let floor = report::median_of(pairs, |pair| pair.floor);
    let memory = report::median_of(pairs, |pair| pair.memory);
    let of = |wanted: bool, value: Option<f64>| value.filter(|_| wanted);
    let message_bits = 8.0 * plan.size as f64;
    Report {
        op: plan.op,
        size: plan.size as u64,
        mtu: plan.mtu,
        gbit_per_s: of(!plan.is_latency, ours),
        msg_per_s: of(!plan.is_latency, ours.map(|gbit| gbit * 1e9 / message_bits)),
        lat_us_p50: of(plan.is_latency, ours),
        lat_us_p99: of(plan.is_latency, crate::samples::median(p99s)),
        floor_gbit_per_s: of(!plan.is_latency, floor),
        floor_lat_us_p50: of(plan.is_latency, floor),
        ratio: report::ratio(pairs, |pair| pair.floor),
        memory_floor_gbit_per_s: of(!plan.is_latency, memory),
        memory_floor_lat_us_p50: of(plan.is_latency, memory),
        memory_ratio: report::ratio(pairs, |pair| pair.memory),
    }
}
