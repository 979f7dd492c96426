//! The client's side of a ping-pong: says what happens, measures, verifies, prints the result.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::protocol::{Answer, Request, Variant};
use super::report::{Lines, Report, Row};
use crate::args::PingpongArgs;
use crate::control::{self, ANSWER_MAX, Control};
use crate::error::{CliError, Context};
use crate::output::{print_report, progress};
use crate::pattern::Direction;
use crate::samples::Samples;
use crate::station::{RemoteMemory, Station};
use crate::usage::{CpuClock, CpuUse};
use urxe_measure::pingpong::{Link, Slot};

/// Rounds before the measured ones: they warm the caches and tell how long a round takes.
const WARM_UP: u64 = 100;

/// How long a variant is measured when the number of rounds is not given: ten thousand rounds, of the slowest on a slow machine.
const VARIANT_TIME: Duration = Duration::from_secs(1);

/// Runs the variants against the server and prints the result; with a failure, what came before it, too.
pub(crate) fn run(server: IpAddr, args: &PingpongArgs) -> Result<(), CliError> {
    let control = control::connect("the server", server, args.role.port, args.role.local)?;
    let station = Station::open(control.local_ip()?, args.wire.wire)?;
    let mut client = Client { station, control };
    let progress = progress(args.json, "{spinner} {msg}", 0);
    let variants = if args.variant.is_empty() {
        Variant::value_variants()
    } else {
        &args.variant
    };
    let mut lines = Lines::new(args.iters);
    let say = |text: &str| match args.json {
        true => Ok(()),
        false => progress.suspend(|| io::stdout().write_all(text.as_bytes())),
    };
    say(&lines.heading(args.size))?;
    let mut report = Report::default();
    let outcome = variants.iter().try_for_each(|&variant| {
        progress.set_message(variant.to_string());
        progress.tick();
        let measured = client.measure(variant, args.size as usize, args.iters);
        let (row, outcome) = match measured {
            Ok(row) => (row, Ok(())),
            Err(error) => (Row::failed(variant), Err(error)),
        };
        say(&lines.row(&row))?;
        report.rows.push(row);
        outcome.context(variant)
    });
    progress.finish_and_clear();
    // The server may be what failed: then it takes no farewell.
    let _ = client.control.send(&Request::Bye);
    print_report(args.json, &report, || lines.comparison())?;
    outcome
}

struct Client {
    station: Station,
    control: Control,
}

/// The result of one run of rounds.
struct RunResult {
    samples: Samples,
    client: CpuUse,
    server: CpuUse,
}

impl RunResult {
    fn add(&mut self, other: RunResult) {
        self.samples.append(other.samples);
        self.client += other.client;
        self.server += other.server;
    }
}

impl Client {
    fn measure(
        &mut self,
        variant: Variant,
        size: usize,
        iters: Option<u64>,
    ) -> Result<Row, CliError> {
        let mut link = Link::new(&self.station, variant, size)?;
        self.control.send(&Request::Setup {
            variant,
            size,
            endpoint: link.endpoint(),
        })?;
        let memory = match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Ready { endpoint, memory } => {
                link.connect(&endpoint)?;
                memory
            }
            other => return Err(self.control.out_of_turn(&other)),
        };
        let mut run = match iters {
            Some(iters) => {
                self.run(&mut link, memory, 0, WARM_UP.min(iters))?;
                self.run(&mut link, memory, WARM_UP.min(iters), iters)?
            }
            None => self.run_for(&mut link, memory, VARIANT_TIME)?,
        };
        Ok(Row {
            variant,
            iters: run.samples.count() as u64,
            rtt_us_p50: run.samples.percentile_us(50.0),
            rtt_us_p99: run.samples.percentile_us(99.0),
            client_cpu_user: run.client.user_percent(),
            client_cpu_sys: run.client.sys_percent(),
            server_cpu_user: run.server.user_percent(),
            server_cpu_sys: run.server.sys_percent(),
            verified: true,
        })
    }

    /// Runs that take `time` together. Each is a tenth of it as far as the speed of the one before tells: the
    /// number of rounds has to be said before a run begins.
    fn run_for(
        &mut self,
        link: &mut Link,
        memory: RemoteMemory,
        time: Duration,
    ) -> Result<RunResult, CliError> {
        let start = Instant::now();
        self.run(link, memory, 0, WARM_UP)?;
        let (mut first, mut last) = (WARM_UP, (WARM_UP, start.elapsed()));
        let mut sum: Option<RunResult> = None;
        let start = Instant::now();
        while start.elapsed() < time {
            let (rounds, took) = last;
            let fitting = rounds as f64 * time.as_secs_f64() / 10.0 / took.as_secs_f64().max(1e-6);
            // At most tenfold: a first guess may be far off.
            let rounds = (fitting as u64).clamp(10, 10 * rounds);
            let started = Instant::now();
            let run = self.run(link, memory, first, rounds)?;
            last = (rounds, started.elapsed());
            first += rounds;
            match &mut sum {
                None => sum = Some(run),
                Some(sum) => sum.add(run),
            }
        }
        Ok(sum.expect("the time is not zero"))
    }

    fn run(
        &mut self,
        link: &mut Link,
        memory: RemoteMemory,
        first: u64,
        iters: u64,
    ) -> Result<RunResult, CliError> {
        let mut samples = Samples::with_capacity(iters as usize);
        self.control.send(&Request::Run { first, iters })?;
        self.control.expect(&Answer::Running)?;
        let clock = CpuClock::start();
        for round in first..first + iters {
            link.fill(Slot::Out(round), round, Direction::ToServer);
            match link.variant() {
                Variant::SendRecvPoll | Variant::SendRecvNotify => {
                    samples.push(self.send_recv(link, round)?);
                    link.verify(Slot::of_round(round), round, Direction::ToClient)?;
                }
                Variant::WriteReadNotify => {
                    samples.push(self.write_read(link, round, memory)?);
                    link.verify(Slot::In0, round, Direction::ToServer)?;
                }
                Variant::WriteReadUnsignaled => {
                    samples.push(self.write_read_unsignaled(link, round, memory)?);
                    link.verify(Slot::In0, round, Direction::ToServer)?;
                }
            }
        }
        let client = clock.read();
        if !link.variant().is_two_sided() {
            link.set_count(iters);
            link.post_send(Slot::Count, &mut || Ok(()))?;
        }
        link.drain_sends(&mut || self.control.check())?;
        if !link.variant().is_two_sided() {
            self.control.send(&Request::Finished)?;
        }
        let server = match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Report { cpu } => cpu,
            other => return Err(self.control.out_of_turn(&other)),
        };
        Ok(RunResult {
            samples,
            client,
            server,
        })
    }

    /// A round of one message there and one back.
    fn send_recv(&mut self, link: &mut Link, round: u64) -> Result<Duration, CliError> {
        let start = Instant::now();
        link.post_recv(Slot::of_round(round))?;
        let check = &mut || self.control.check();
        link.post_send(Slot::Out(round), check)?;
        link.wait_recv(check)?;
        Ok(start.elapsed())
    }

    /// A WRITE, its completion, a READ, its completion.
    fn write_read(
        &mut self,
        link: &mut Link,
        round: u64,
        memory: RemoteMemory,
    ) -> Result<Duration, CliError> {
        let check = &mut || self.control.check();
        let start = Instant::now();
        link.post_write(round, memory)?;
        link.wait_send(check)?;
        link.post_read(memory)?;
        link.wait_send(check)?;
        Ok(start.elapsed())
    }

    /// A WRITE that only speaks up when it fails, and a READ behind it: its completion covers both, because a
    /// READ is executed after the WRITEs before it.
    fn write_read_unsignaled(
        &mut self,
        link: &mut Link,
        round: u64,
        memory: RemoteMemory,
    ) -> Result<Duration, CliError> {
        let start = Instant::now();
        link.post_write_then_read(round, memory)?;
        link.wait_send(&mut || self.control.check())?;
        Ok(start.elapsed())
    }
}
