//! A simulation of programs: its parts, and running it.

use core::fmt;
use core::mem::take;
use core::time::Duration;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::check::Check;
use crate::engine::{Rate, Span, Time};
use crate::fabric::{FabricConfig, Interference, Mode};
use crate::fault::Fault;
use crate::host::{FlowSpec, Sim, address_of};
use crate::link::Link;
use crate::program::capture::Capturing;
use crate::program::cpu::{Cpu, CpuModel};
use crate::program::fewer::{Did, Left};
use crate::program::marks::Marks;
use crate::program::model::Model;
use crate::program::nic::Nic;
use crate::program::page::Page;
use crate::program::report::{Cause, Failure, Report, seen};
use crate::program::threads::{Shared, Watch, with_patience};
use crate::program::told::{Caller, last_calls};
use crate::program::world::{Body, Service, World};
use crate::qos::Qos;
use crate::scenario::Scenario;
use crate::topology::{HostId, Topology};

/// How long a run may take, in its own time, unless [`Simulation::limit`] says otherwise.
const LIMIT: Span = Span::from_ms(10_000);
/// How long a program may keep its turn in real time.
const PATIENCE: Duration = Duration::from_secs(30);

enum Program {
    Once(Body),
    Service(Service),
}

/// Programs on hosts, a network between them, and what goes wrong.
///
/// ```
/// use fabric_sim::program::{Simulation, ask, sleep, tell};
/// use fabric_sim::{HostId, Span};
///
/// let mut sim = Simulation::new(7);
/// sim.host(HostId(0), || tell("greeting", "hello"));
/// sim.host(HostId(1), || {
///     sleep(std::time::Duration::from_secs(1)); // of virtual time
///     assert_eq!(ask("greeting"), "hello");
/// });
/// let report = sim.run()?;
/// assert!(report.ended_at().since(fabric_sim::Time::ZERO) >= Span::from_ms(1000));
/// # Ok::<(), fabric_sim::program::Failure>(())
/// ```
pub struct Simulation {
    seed: u64,
    topology: Option<Topology>,
    scenario: Option<Scenario>,
    config: FabricConfig,
    cpu: CpuModel,
    traffic_class: u8,
    limit: Span,
    patience: Duration,
    faults: Vec<Fault>,
    flows: Vec<FlowSpec>,
    programs: Vec<(HostId, Program)>,
    skipped: Vec<Check>,
    interference: Option<Box<dyn Interference + Send>>,
    capture: Option<PathBuf>,
    pub(crate) page: Option<Page>,
    /// What is left of each fault, by its place, where a failure is made small.
    pub(crate) left: Option<Vec<Left>>,
    /// What the faults of the last run did.
    pub(crate) did: Arc<Shared<Vec<Did>>>,
    pub(crate) marks: Arc<Marks>,
    /// Traces of the runs so far, to compare two runs of one seed.
    pub(crate) traces: Arc<Shared<Vec<u64>>>,
}

impl Simulation {
    /// An empty one. All that is random follows from the seed.
    pub fn new(seed: u64) -> Simulation {
        Simulation {
            seed,
            topology: None,
            scenario: None,
            config: FabricConfig::default(),
            cpu: CpuModel::default(),
            traffic_class: Qos::ROCE_TOS,
            limit: LIMIT,
            patience: PATIENCE,
            faults: Vec::new(),
            flows: Vec::new(),
            programs: Vec::new(),
            skipped: Vec::new(),
            interference: None,
            capture: None,
            page: None,
            left: None,
            did: Arc::default(),
            marks: Arc::default(),
            traces: Arc::default(),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The network. By default one switch of 100 Gb/s ports, with a port for each host that has a program.
    pub fn topology(&mut self, topology: Topology) -> &mut Self {
        self.topology = Some(topology);
        self
    }

    /// The network, its faults, its traffic, its checks and its limit as a scenario file has them, in place of a topology and a configuration.
    pub fn scenario(&mut self, scenario: &Scenario) -> &mut Self {
        if scenario.until() != Time::NEVER {
            self.limit = scenario.until().since(Time::ZERO);
        }
        self.scenario = Some(scenario.clone().in_bytes());
        self
    }

    /// Switches, classes and adapters. Seed and mode are the simulation's own: programs have contents, so
    /// frames carry their bytes.
    pub fn config(&mut self, config: FabricConfig) -> &mut Self {
        self.config = config;
        self
    }

    /// How long calls of programs take.
    pub fn cpu(&mut self, cpu: CpuModel) -> &mut Self {
        self.cpu = cpu;
        self
    }

    /// The traffic class byte (DSCP and ECN) of connections that name none: their [`ConnectOptions::traffic_class`](urxe::ConnectOptions) is 0. By default
    /// [`Qos::ROCE_TOS`], which is the lossless class 3: a network administrator would have set that up for RoCE. With 0 they are in
    /// the lossy class 0, without pauses and marks. [`Report::sent_by_class`] says which were used.
    pub fn traffic_class(&mut self, tos: u8) -> &mut Self {
        self.traffic_class = tos;
        self
    }

    /// How long the run may take, in its own time: 10 s by default. Programs that have not ended by then are a
    /// [`Cause::TimeLimit`].
    pub fn limit(&mut self, limit: Span) -> &mut Self {
        self.limit = limit;
        self
    }

    /// How long a program may compute without a call, in real time: 30 s by default. One that takes longer is
    /// [`Cause::Stuck`]; its run is left as it is, with the thread that it is on.
    pub fn patience(&mut self, patience: Duration) -> &mut Self {
        self.patience = patience;
        self
    }

    /// Runs a program on a host. It uses `urxe` as everywhere; its context is opened on
    /// [`Simulation::address`]. An async program runs in [`block_on`](crate::program::task::block_on).
    ///
    /// If the host crashes, the program ends where it is, its values are dropped, and it does not come back.
    pub fn host(&mut self, host: HostId, program: impl FnOnce() + Send + 'static) -> &mut Self {
        self.programs.push((host, Program::Once(Box::new(program))));
        self
    }

    /// Gives a program to a host; it begins anew whenever the host starts again after a crash.
    pub fn service(
        &mut self,
        host: HostId,
        program: impl Fn() + Send + Sync + 'static,
    ) -> &mut Self {
        self.programs
            .push((host, Program::Service(Arc::new(program))));
        self
    }

    /// The address of a host.
    pub fn address(&self, host: HostId) -> IpAddr {
        address_of(host)
    }

    /// Adds a fault.
    pub fn fault(&mut self, fault: Fault) -> &mut Self {
        self.faults.push(fault);
        self
    }

    /// Changes frames on cables in a way of your own, in place of what was set before: faults that there are not, or mistakes that a
    /// [check](crate::check) must find.
    pub fn interference(&mut self, interference: impl Interference + Send + 'static) -> &mut Self {
        self.interference = Some(Box::new(interference));
        self
    }

    /// Leaves a check out: what it would find is meant to be. A program that changes what it has posted before it has left, by a pointer and
    /// not by a call, does without [`Check::Delivery`].
    pub fn skip_check(&mut self, check: Check) -> &mut Self {
        self.skipped.push(check);
        self
    }

    /// Adds traffic that belongs to no program, to have the programs' packets wait.
    pub fn traffic(&mut self, flow: FlowSpec) -> &mut Self {
        self.flows.push(flow);
        self
    }

    /// Writes every frame of a run to a file that Wireshark opens: see [`crate::observe::Capture`].
    pub fn capture(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.capture = Some(path.into());
        self
    }

    /// Writes a page for browsers about a run, also of one that fails: see [`crate::observe::html`].
    pub fn page(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.page = Some(Page {
            path: path.into(),
            name: "programs".to_owned(),
            again: format!("Simulation::new({})", self.seed),
        });
        self
    }

    /// Runs until all programs have ended. The simulation is empty then, but for its settings.
    ///
    /// # Errors
    /// [`Failure`] says which program did not come to its end, and why.
    pub fn run(&mut self) -> Result<Report, Failure> {
        let seed = self.seed;
        let watch = Arc::<Watch>::default();
        let (mut whole, its) = (self.take_all(), watch.clone());
        let callers = Arc::<Shared<Vec<Caller>>>::default();
        let begun = callers.clone();
        let run = move || whole.run_here(its, &begun);
        let result = with_patience(format!("seed {seed}"), self.patience, &watch, run);
        let result = result.unwrap_or_else(|kept| {
            let host = HostId(kept.host);
            let named = self.topology.as_ref().map(|t| t.name(host).to_owned());
            let cause = Cause::Stuck(named.unwrap_or_else(|| format!("h{}", host.0)));
            Err(Failure {
                before: callers.with(|callers| last_calls(callers)),
                ..failed(seed, Time::from_ps(kept.at_ps), cause)
            })
        });
        let trace = match &result {
            Ok(report) => report.trace(),
            Err(failure) => failure.trace,
        };
        self.traces.with(|traces| traces.push(trace));
        result
    }

    /// What runs: the settings, and all that is run once.
    fn take_all(&mut self) -> Simulation {
        Simulation {
            seed: self.seed,
            topology: self.topology.clone(),
            scenario: self.scenario.clone(),
            config: self.config.clone(),
            cpu: self.cpu,
            traffic_class: self.traffic_class,
            limit: self.limit,
            patience: self.patience,
            faults: take(&mut self.faults),
            flows: take(&mut self.flows),
            programs: take(&mut self.programs),
            skipped: self.skipped.clone(),
            interference: self.interference.take(),
            capture: self.capture.clone(),
            page: self.page.clone(),
            left: self.left.clone(),
            did: self.did.clone(),
            marks: self.marks.clone(),
            traces: self.traces.clone(),
        }
    }

    /// The run, on the thread that is its own.
    fn run_here(
        &mut self,
        watch: Arc<Watch>,
        callers: &Shared<Vec<Caller>>,
    ) -> Result<Report, Failure> {
        let seed = self.seed;
        let not_begun = |cause| failed(seed, Time::ZERO, cause);
        let mut world = self.build(watch).map_err(not_begun)?;
        callers.with(|callers| *callers = world.callers());
        let begin = |path: &PathBuf| Capturing::begin(&mut world.sim, path, seed);
        let capture = self.capture.as_ref().map(begin).transpose();
        let capture = capture.map_err(not_begun)?;
        if let Some(page) = &self.page {
            world.begin_page(page);
        }
        self.start(&mut world);
        let result = world.run(Time::ZERO + self.limit);
        let at = world.now();
        let mut before = world.before();
        let did = world.sim.fabric().faults().iter().map(Did::of).collect();
        self.did.with(|last| *last = did);
        let left = world.end_all();
        world.report_findings();
        let verdict = world.sim.verdict();
        if let (Err(_), Err(violated)) = (&result, &verdict) {
            let also = violated.violations.iter();
            before.extend(also.map(|violation| format!("a check failed: {violation}")));
        }
        let verdict = verdict.map_err(|violated| Cause::Violated(violated.violations));
        let result = result.and(verdict);
        let paged = world.paging.take().map_or(Ok(()), |paging| {
            let failure = result.as_ref().err().map(Cause::to_string);
            let failures = failure.map(|words| [vec![words], before.clone()].concat());
            let failures = failures.unwrap_or_default();
            paging.finish(&mut world.sim, seed, failures)
        });
        let written = capture.map_or(Ok(()), |capture| capture.finish(&mut world.sim));
        let counters = world.counters();
        let report = Report {
            seed,
            ended_at: at,
            trace: world.sim.fabric().trace(),
            order: world.order(),
            ends: world.ends(),
            seen: seen(world.sim.marks(), &counters),
            counters,
            drops: *world.sim.fabric().drops(),
            sent: world.sent_by_class(),
            marks: self.marks.clone(),
        };
        match result.and(paged).and(written) {
            Ok(()) => Ok(report),
            Err(cause) => Err(Failure {
                trace: report.trace(),
                left,
                before,
                ..failed(seed, at, cause)
            }),
        }
    }

    fn build(&mut self, watch: Arc<Watch>) -> Result<World, Cause> {
        let mut sim = self.network()?;
        let hosts = sim.fabric().topology().host_count();
        let mut placed = self.programs.iter().map(|(host, _)| *host);
        if let Some(host) = placed.find(|host| host.index() >= hosts) {
            return Err(Cause::Setup(format!("there is no host {}", host.0)));
        }
        for (place, fault) in self.faults.drain(..).enumerate() {
            let left = self.left.as_ref().and_then(|left| left.get(place));
            let Some(fault) = left.unwrap_or(&Left::Whole).of(place, fault) else {
                continue;
            };
            let added = sim.add_fault(fault);
            added.map_err(|error| Cause::Setup(format!("a fault: {error}")))?;
        }
        for flow in self.flows.drain(..) {
            sim.add_flow(flow);
        }
        for check in &self.skipped {
            sim.skip_check(*check);
        }
        if let Some(interference) = self.interference.take() {
            sim.fabric_mut().set_interference(interference);
        }
        let nics = (0..sim.fabric().topology().host_count() as u32).map(HostId);
        let model = Arc::<Shared<Model>>::default();
        let nics = nics.map(|host| {
            let port = sim.fabric().port_of(host);
            let mtu = sim.fabric().topology().cables()[port.cable()].link.mtu;
            let cpu = Cpu::new(self.cpu, host, self.seed);
            let tos = self.traffic_class;
            Nic::new(host, self.seed, mtu, tos, cpu, model.clone())
        });
        let nics = nics.collect();
        Ok(World::new(sim, nics, watch))
    }

    /// The network alone, or with all that a scenario has.
    fn network(&self) -> Result<Sim, Cause> {
        if let Some(scenario) = &self.scenario {
            let sim = scenario.build(self.seed);
            return sim.map_err(|error| Cause::Setup(error.to_string()));
        }
        let hosts = self.programs.iter().map(|(host, _)| host.0 + 1).max();
        let hosts = hosts.unwrap_or(0).max(2);
        let star = || Topology::single_switch(hosts, Link::new(Rate::gbps(100)));
        let topology = self.topology.clone().unwrap_or_else(star);
        let config = FabricConfig {
            seed: self.seed,
            mode: Mode::Bytes,
            ..self.config.clone()
        };
        Sim::new(topology, config).map_err(|error| Cause::Setup(error.to_string()))
    }

    fn start(&mut self, world: &mut World) {
        for (host, program) in self.programs.drain(..) {
            match program {
                Program::Once(body) => world.start(host, body),
                Program::Service(service) => world.serve(host, service),
            }
        }
    }
}

/// A failure with nothing to tell but its cause.
fn failed(seed: u64, at: Time, cause: Cause) -> Failure {
    Failure {
        seed,
        at,
        cause,
        trace: 0,
        left: Vec::new(),
        before: Vec::new(),
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("programs", &self.programs.len())
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
