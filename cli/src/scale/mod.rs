//! `urxe scale`: what thousands of connections cost. Memory of an idle queue pair, and the rate of small messages
//! that take turns on all of them, beside the rate on a few.
//!
//! This process measures; the other side is a process that it starts. Both have all the queue pairs.

mod fleet;
mod memory;
mod protocol;
mod report;
mod target;

use std::process::Stdio;
use std::time::{Duration, Instant};

use urxe::{SendWr, Wc};

use self::fleet::Fleet;
use self::protocol::{Answer, Request};
use self::report::{Memory, Report};
use crate::args::{ScaleArgs, ScaleTargetArgs};
use crate::control::{self, ANSWER_MAX, Control};
use crate::error::CliError;
use crate::pingpong::{LOOPBACK_CLIENT, LOOPBACK_SERVER};
use crate::process::{self, ChildGuard};
use crate::samples::median;
use crate::station::Station;

/// The hidden subcommand that the other side is started with.
pub(crate) const TARGET_SUBCOMMAND: &str = "scale-target";

/// The CPU of the measuring side and that of the other.
const CPUS: [usize; 2] = [0, 1];

/// Queue pairs that the many are compared with.
const FEW: usize = 10;

/// Messages of the first sample, which tells how many a sample needs.
const WARM_UP: usize = 2_000;

/// How long a sample lasts.
const SAMPLE_TIME: Duration = Duration::from_millis(150);

/// Messages under way at most, with few queue pairs and with many.
const UNDER_WAY: usize = FEW * fleet::DEPTH as usize;

/// The other side, in its process.
pub(crate) fn run_target(args: &ScaleTargetArgs) -> Result<(), CliError> {
    if let Some(parent) = args.parent {
        process::die_with(parent)?;
    }
    target::run(args.address, CPUS[1])
}

/// Measures and prints.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), CliError> {
    if let Some(note) = crate::bench::busy::note() {
        eprintln!("urxe: {note}");
    }
    process::pin(CPUS[0]);
    let mut session = Session::start(args.qps as usize)?;
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
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("plain data"));
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

/// Both sides, connected.
struct Session {
    fleet: Fleet,
    control: Control,
    memory: Memory,
    // Keeps the device open; dropped after the queue pairs.
    _station: Station,
    child: ChildGuard,
}

impl Session {
    fn start(qps: usize) -> Result<Session, CliError> {
        let args = [TARGET_SUBCOMMAND.to_owned(), LOOPBACK_SERVER.to_string()];
        let mut child = ChildGuard::spawn("target", &args, Stdio::piped())?;
        let port = control::announced_port(&child.first_line()?)?;
        let mut control = control::connect(LOOPBACK_SERVER, port, Some(LOOPBACK_CLIENT))?;
        let station = Station::open(LOOPBACK_CLIENT)?;
        let before = memory::resident()?;
        let mut fleet = Fleet::create(&station, qps)?;
        control.send(&Request::Create { qps })?;
        for part in fleet.endpoints().chunks(protocol::ENDPOINTS_A_LINE) {
            control.send(&Request::Endpoints(part.to_vec()))?;
        }
        let mut remotes = Vec::with_capacity(qps);
        while remotes.len() < qps {
            match control.recv(Some(ANSWER_MAX))? {
                Answer::Endpoints(part) => remotes.extend(part),
                other => return Err(unexpected(other)),
            }
        }
        fleet.connect(&remotes)?;
        drop(remotes);
        let memory = Memory {
            resident_bytes_per_qp: memory::resident()?.saturating_sub(before) / qps as u64,
            queue_bytes_per_qp: fleet.queue_bytes_per_qp(),
        };
        Ok(Session {
            fleet,
            control,
            memory,
            _station: station,
            child,
        })
    }

    /// Sends so many messages, each on the next of the first `qps` queue pairs; returns messages a second.
    fn sample(&mut self, qps: usize, messages: usize) -> Result<f64, CliError> {
        self.control.send(&Request::Run {
            messages: messages as u64,
        })?;
        match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Running => {}
            other => return Err(unexpected(other)),
        }
        let fleet = &self.fleet;
        let mut wcs = [Wc::default(); 64];
        let mut outstanding = vec![0_u32; qps];
        let (mut posted, mut completed) = (0, 0);
        let start = Instant::now();
        while completed < messages {
            while posted < messages && posted - completed < UNDER_WAY {
                let next = posted % qps;
                if outstanding[next] == fleet::DEPTH {
                    break;
                }
                let wr = SendWr::send_inline(next as u64, &fleet::MESSAGE).signaled();
                fleet.post_send(next, &wr)?;
                outstanding[next] += 1;
                posted += 1;
            }
            let taken = fleet.sends.wait(&mut wcs, &mut || Ok(()))?;
            for wc in &wcs[..taken] {
                outstanding[wc.wr_id as usize] -= 1;
            }
            completed += taken;
        }
        let time = start.elapsed();
        match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Done => Ok(messages as f64 / time.as_secs_f64()),
            other => Err(unexpected(other)),
        }
    }

    fn finish(mut self) -> Result<(), CliError> {
        self.control.send(&Request::Bye)?;
        match self.child.wait_up_to(ANSWER_MAX)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let how = process::describe(status);
                Err(CliError::Failed(format!("the target process {how}")))
            }
            None => Err(CliError::Failed(
                "the target process did not end".to_owned(),
            )),
        }
    }
}

fn unexpected(answer: Answer) -> CliError {
    match answer {
        Answer::Fault { text } => CliError::Failed(format!("the target failed: {text}")),
        other => CliError::Failed(format!("the target sent {other:?} out of turn")),
    }
}
