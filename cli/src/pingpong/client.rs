//! The client's side of a ping-pong: says what happens, measures, verifies, prints the result.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::link::{Link, RemoteMemory, Slot, Station};
use super::protocol::{Answer, Request, Variant};
use super::report::{self, Report, Row};
use crate::args::PingpongArgs;
use crate::control::{self, ANSWER_MAX, Control};
use crate::error::CliError;
use crate::pattern::Direction;
use crate::samples::Samples;
use crate::usage::{CpuClock, CpuShare};

/// Rounds before the measured ones: they warm the caches and tell how long a round takes.
const WARM_UP: u64 = 100;

/// How long a variant is measured when the number of rounds is not given.
const VARIANT_TIME: Duration = Duration::from_secs(2);

/// Runs the variants against the server and prints the result; with a failure, what came before it, too.
pub(crate) fn run(server: IpAddr, args: &PingpongArgs) -> Result<(), CliError> {
    let control = control::connect(server, args.role.port, args.role.local)?;
    let station = Station::open(control.local_ip()?)?;
    let mut client = Client {
        station,
        control,
        early: None,
    };
    let variants = if args.variant.is_empty() {
        &Variant::ALL[..]
    } else {
        &args.variant
    };
    let mut report = Report::default();
    let outcome = variants.iter().try_for_each(|&variant| {
        let row = client.measure(variant, args.size as usize, args.iters);
        let failed = row.as_ref().err().map(|_| Row::failed(variant));
        report.rows.extend(row.as_ref().ok().cloned().or(failed));
        row.map(|_| ())
            .map_err(|error| CliError::context(variant, error))
    });
    // The server may be what failed: then there is nobody to say goodbye to.
    let _ = client.control.send(&Request::Bye);
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&report).expect("a report is plain data")
        );
    } else {
        print!("{}", report::text(&report, args.size as usize));
    }
    outcome
}

struct Client {
    station: Station,
    control: Control,
    /// The server's report, when it arrived while this side was still waiting for a completion.
    early: Option<CpuShare>,
}

/// What one run of rounds gave.
struct RunResult {
    samples: Samples,
    client: CpuShare,
    server: CpuShare,
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
            Answer::Ready {
                endpoint,
                addr,
                rkey,
            } => {
                link.connect(&endpoint)?;
                RemoteMemory { addr, rkey }
            }
            other => return Err(unexpected(other)),
        };
        let mut warm_up = self.run(&mut link, memory, 0, WARM_UP)?;
        let round = warm_up.samples.percentile_us(50.0).max(0.1);
        let fitting = (VARIANT_TIME.as_secs_f64() * 1e6 / round) as u64;
        let iters = iters.unwrap_or_else(|| fitting.clamp(100, 1_000_000));
        let mut run = self.run(&mut link, memory, WARM_UP, iters)?;
        Ok(Row {
            variant,
            iters: run.samples.len() as u64,
            rtt_us_p50: run.samples.percentile_us(50.0),
            rtt_us_p99: run.samples.percentile_us(99.0),
            client_cpu_user: run.client.user,
            client_cpu_sys: run.client.sys,
            server_cpu_user: run.server.user,
            server_cpu_sys: run.server.sys,
            verified: true,
        })
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
        match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Running => {}
            other => return Err(unexpected(other)),
        }
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
        let client = clock.share();
        if !link.variant().is_two_sided() {
            link.set_count(iters);
            link.post_send(Slot::Count, &mut || Ok(()))?;
        }
        link.drain_sends(&mut || check_server(&mut self.control, &mut self.early))?;
        if !link.variant().is_two_sided() {
            self.control.send(&Request::Finished)?;
        }
        let server = self.server_share()?;
        Ok(RunResult {
            samples,
            client,
            server,
        })
    }

    /// The server's CPU share, which may have arrived already.
    fn server_share(&mut self) -> Result<CpuShare, CliError> {
        if let Some(cpu) = self.early.take() {
            return Ok(cpu);
        }
        match self.control.recv(Some(ANSWER_MAX))? {
            Answer::Report { cpu } => Ok(cpu),
            other => Err(unexpected(other)),
        }
    }

    /// One message there, one back.
    fn send_recv(&mut self, link: &mut Link, round: u64) -> Result<Duration, CliError> {
        let start = Instant::now();
        link.post_recv(Slot::of_round(round))?;
        let check = &mut || check_server(&mut self.control, &mut self.early);
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
        let start = Instant::now();
        link.post_write(round, memory)?;
        link.wait_send(&mut || check_server(&mut self.control, &mut self.early))?;
        link.post_read(memory)?;
        link.wait_send(&mut || check_server(&mut self.control, &mut self.early))?;
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
        link.wait_send(&mut || check_server(&mut self.control, &mut self.early))?;
        Ok(start.elapsed())
    }
}

/// Whether the server still lives; keeps a report that arrives early.
fn check_server(control: &mut Control, early: &mut Option<CpuShare>) -> Result<(), CliError> {
    if early.is_some() || !control.has_news() {
        return Ok(());
    }
    match control.recv(Some(ANSWER_MAX))? {
        Answer::Report { cpu } => *early = Some(cpu),
        other => return Err(unexpected(other)),
    }
    Ok(())
}

fn unexpected(answer: Answer) -> CliError {
    match answer {
        Answer::Fault { text } => CliError::Failed(format!("the server failed: {text}")),
        other => CliError::Failed(format!("the server sent {other:?} out of turn")),
    }
}
