//! `urxe sim exec`: programs of the system's on simulated hosts.
//!
//! Each program is a process, with the drop-in library and the one of `preload/simulated` before its own. Its part of the simulation is a
//! program that does what the process asks for (`process`): verbs by `urxe::network::remote`, and by `calls` all else: time, and
//! streams between hosts (`streams`).

mod calls;
mod process;
mod streams;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabric_sim::program::{Failure, HostEnd, Report, Simulation};
use fabric_sim::scenario::{Program, Scenario};
use fabric_sim::{HostId, Time};
use nix::sys::personality::{self, Persona};

use self::process::{Ended, Process};
use self::streams::Streams;
use crate::error::CliError;
use crate::launch::{obstacle, simulated};
use crate::output::print_report;
use crate::sim::args::{ExecArgs, ScenarioArgs};
use crate::sim::json::{Executed, ExecutedProgram};

/// Between the beginnings of two programs, where the file says nothing else: servers come first.
const APART: Duration = Duration::from_millis(1);

/// What came of a run.
struct Run {
    result: Result<Report, Failure>,
    /// Of each program in order.
    ended: Vec<Ended>,
}

impl Run {
    fn trace(&self) -> u64 {
        match &self.result {
            Ok(report) => report.trace(),
            Err(failure) => failure.trace(),
        }
    }

    fn at(&self) -> Time {
        match &self.result {
            Ok(report) => report.ended_at(),
            Err(failure) => failure.at(),
        }
    }

    /// A fault ended the programs of the host.
    fn has_crashed(&self, host: HostId) -> bool {
        let report = self.result.as_ref().ok();
        report.and_then(|report| report.end_of(host)) == Some(HostEnd::Crashed)
    }

    /// What went wrong, in words.
    fn faults(&self, programs: &[Program]) -> Vec<String> {
        let each = programs.iter().zip(&self.ended);
        let faults = each.filter_map(|(program, ended)| {
            let fault = ended
                .fault
                .as_ref()
                .filter(|_| !self.has_crashed(program.host))?;
            Some(format!(
                "h{}: {}: {fault}",
                program.host.0, program.command[0]
            ))
        });
        let failure = self.result.as_ref().err().map(ToString::to_string);
        failure.into_iter().chain(faults).collect()
    }
}

pub(super) fn run(args: &ExecArgs) -> Result<(), CliError> {
    let scenario = scenario(args)?;
    let programs = programs(args, scenario.as_ref())?;
    for program in &programs {
        if let Some(obstacle) = obstacle(program.command[0].as_ref()) {
            let name = &program.command[0];
            return Err(CliError::Failed(format!(
                "{name} does not see urxe: it is {obstacle}"
            )));
        }
    }
    forgo_random_addresses();
    let first = scenario.as_ref().map_or(1, Scenario::seed);
    let first = args.seed.unwrap_or(first);
    for seed in (0..args.seeds).map(|more| first.wrapping_add(more)) {
        let run = run_seed(args, scenario.as_ref(), &programs, seed)?;
        let again = match args.twice {
            true => Some(run_seed(args, scenario.as_ref(), &programs, seed)?),
            false => None,
        };
        let is_same = again
            .as_ref()
            .map(|again| run.trace() == again.trace() && run.ended == again.ended);
        let faults = run.faults(&programs);
        let is_bad = is_same == Some(false) || !faults.is_empty();
        if args.json {
            print_json(&programs, &run, seed, is_same, &faults)?;
        } else if args.seeds == 1 || is_bad {
            print(&programs, &run, seed)?;
        }
        if let (Some(again), Some(false)) = (again, is_same) {
            if !args.json {
                print(&programs, &again, seed)?;
            }
            return Err(CliError::Fault(format!(
                "seed {seed} is not the same twice"
            )));
        }
        if !args.json {
            let (at, trace) = (run.at(), run.trace());
            writeln!(stdout(), "seed {seed}: {at}, trace {trace:016x}")?;
        }
        if !faults.is_empty() {
            return Err(CliError::Fault(faults.join("\n")));
        }
    }
    Ok(())
}

fn scenario(args: &ExecArgs) -> Result<Option<Scenario>, CliError> {
    let open = |file: &std::path::PathBuf| {
        let args = ScenarioArgs {
            file: file.clone(),
            set: args.set.clone(),
            swarm: false,
        };
        args.open_with_programs()
    };
    args.file.as_ref().map(open).transpose()
}

/// What runs where.
fn programs(args: &ExecArgs, scenario: Option<&Scenario>) -> Result<Vec<Program>, CliError> {
    let named = scenario.map(Scenario::programs).transpose();
    let named = named.map_err(|error| CliError::Failed(error.to_string()))?;
    let named = named.unwrap_or_default();
    match (args.command.is_empty(), named.is_empty()) {
        (false, false) => {
            let text = "the scenario has programs already: give a command or [[program]] tables";
            Err(CliError::Usage(text.to_owned()))
        }
        (true, true) => {
            let text = "the scenario has no [[program]], and no command follows `--`";
            Err(CliError::Usage(text.to_owned()))
        }
        (true, false) => Ok(named),
        (false, true) => {
            let server = Program {
                host: HostId(0),
                command: args.command.clone(),
                start: None,
            };
            let mut client = Program {
                host: HostId(1),
                ..server.clone()
            };
            let address = Simulation::new(0).address(server.host);
            client.command.push(address.to_string());
            Ok(vec![server, client])
        }
    }
}

/// Where the system has memory begin for a program: addresses reach packets, and those are to follow from the seed. What this process starts
/// inherits it.
fn forgo_random_addresses() {
    let set = personality::get().and_then(|now| personality::set(now | Persona::ADDR_NO_RANDOMIZE));
    if let Err(error) = set {
        eprintln!(
            "urxe: addresses of programs are random here ({error}): runs that send addresses differ"
        );
    }
}

fn run_seed(
    args: &ExecArgs,
    scenario: Option<&Scenario>,
    programs: &[Program],
    seed: u64,
) -> Result<Run, CliError> {
    let mut sim = Simulation::new(seed);
    if let Some(scenario) = scenario {
        sim.scenario(scenario);
    }
    if let Some(path) = &args.pcap {
        sim.capture(path);
    }
    sim.patience(Duration::from_secs(args.patience));
    let addresses = programs.iter().map(|program| {
        let IpAddr::V4(address) = sim.address(program.host) else {
            unreachable!("simulated hosts have IPv4 addresses")
        };
        (address, program.host)
    });
    let addresses: BTreeMap<_, _> = addresses.collect();
    let streams = Arc::new(Mutex::new(Streams::new(addresses)));
    let mut processes = Vec::new();
    for (place, program) in (0..).zip(programs) {
        let start = program
            .start
            .map(|span| Duration::from_nanos(span.ps() / 1000));
        let start = start.unwrap_or(APART * place);
        let device = format!("urxe0={}", sim.address(program.host));
        let variables = simulated(&device)?;
        let process = Process::new(program, variables, start)?;
        let (process, streams) = (Arc::new(process), streams.clone());
        processes.push(process.clone());
        sim.host(program.host, move || process.run(&streams));
    }
    let result = sim.run();
    let ended = processes.iter().map(|process| process.end());
    Ok(Run {
        result,
        ended: ended.collect(),
    })
}

/// A line of JSON about a seed.
fn print_json(
    programs: &[Program],
    run: &Run,
    seed: u64,
    is_same: Option<bool>,
    failures: &[String],
) -> Result<(), CliError> {
    let each = programs.iter().zip(&run.ended);
    let programs = each.map(|(program, ended)| ExecutedProgram {
        host: format!("h{}", program.host.0),
        command: &program.command,
        output: String::from_utf8_lossy(&ended.output),
        refused: &ended.notes,
        failure: ended
            .fault
            .as_deref()
            .filter(|_| !run.has_crashed(program.host)),
    });
    let executed = Executed {
        seed,
        trace: format!("{:016x}", run.trace()),
        end_s: run.at().since(Time::ZERO).as_secs_f64(),
        is_same,
        programs: programs.collect(),
        failures,
    };
    print_report(true, &executed, String::new)
}

/// What the programs printed.
fn print(programs: &[Program], run: &Run, seed: u64) -> Result<(), CliError> {
    let mut text = String::new();
    for (program, ended) in programs.iter().zip(&run.ended) {
        let _ = writeln!(
            text,
            "h{}, seed {seed}: {}",
            program.host.0,
            program.command.join(" ")
        );
        for line in String::from_utf8_lossy(&ended.output).lines() {
            let _ = writeln!(text, "  {line}");
        }
        for note in &ended.notes {
            let _ = writeln!(text, "  (urxe: the program {note}, which is not simulated)");
        }
    }
    Ok(stdout().write_all(text.as_bytes())?)
}
