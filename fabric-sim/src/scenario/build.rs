//! Builds the simulation from the scenario file.

use urxe_core::Recovery;
use urxe_core::congestion::{CongestionControl, Rate as CoreRate};
use urxe_core::qp::attr::Mtu;

use crate::Sim;
use crate::engine::{Rate, Span, Time};
use crate::fabric::FabricConfig;
use crate::host::{Arrivals, ConnectOptions, FlowSpec, StreamOp, StreamSpec, TransportConfig};
use crate::qos::{FlowControl, PauseTimes, Qos};
use crate::scenario::extent::Extent;
use crate::scenario::file::{
    ArrivalsName, BalanceName, DcqcnTable, FlowControlName, FlowTable, FramesTable, HostTable, Op,
    QosTable, RecoveryName, Scenario, SwitchTable,
};
use crate::scenario::network::topology;
use crate::scenario::overrides::{marking, overrides, set_rates, threshold};
use crate::scenario::values::{Classes, Congestion, Names, Size};
use crate::scenario::{ScenarioError, faults, host_of};
use crate::switch::{Balance, SwitchConfig};
use crate::topology::{HostId, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

/// A program of the system's that a scenario names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The host that it runs on.
    pub host: HostId,
    /// The program, and its arguments.
    pub command: Vec<String>,
    /// When it begins, if the file says so.
    pub start: Option<Span>,
}

impl Scenario {
    /// Builds the simulation, with the file's seed or another.
    ///
    /// # Errors
    /// [`ScenarioError`] names the field that makes no sense.
    pub fn build(&self, seed: u64) -> Result<Sim> {
        self.build_all(seed)
            .map_err(|error| error.in_text(&self.text))
    }

    fn build_all(&self, seed: u64) -> Result<Sim> {
        let file = &self.file;
        if file.sim.swarm {
            return self.drawn(seed)?.build_all(seed);
        }
        let qos = qos(&file.qos);
        let mut config = FabricConfig {
            seed,
            mode: file.sim.mode,
            switch: switch(&file.switch, qos.lossless)?,
            qos,
            ..FabricConfig::default()
        };
        config.adapter.rx_rate = file.host.rx_rate;
        config.adapter.latency = file.host.latency;
        config.adapter.planes = file.host.planes;
        if let Some(Size(buffer)) = file.host.rx_buffer {
            config.adapter.rx_buffer = buffer;
            (config.adapter.xoff, config.adapter.xon) = (buffer / 2, buffer / 4);
        }
        Extent::of(&file.topology.kind)
            .planes(file.topology.planes())
            .check()?;
        let mut topology = topology(&file.topology)?;
        set_rates(&mut topology, &file.overrides)?;
        for (number, table) in file.overrides.iter().enumerate() {
            let given = overrides(&topology, number, table, config.qos.lossless)?;
            config.overrides.extend(given);
        }
        let mut sim = Sim::new(topology, config)?;
        let mut transport = TransportConfig {
            first_psn: file.host.first_psn.as_ref().map(|psn| psn.0),
            recovery: recovery(file.host.recovery),
            ..TransportConfig::default()
        };
        if let Some(Size(window)) = file.host.window {
            (transport.window_bytes, transport.window_packets) = (window, u32::MAX);
        }
        sim.set_transport_config(transport);
        self.set_checks(&mut sim);
        for (number, flow) in file.flows.iter().enumerate() {
            At(number).add(&mut sim, flow, self)?;
        }
        for (number, job) in (0..).zip(&file.jobs) {
            self.add_job(&mut sim, number, job)?;
        }
        for (number, table) in file.faults.iter().enumerate() {
            let fault = faults::fault(sim.fabric().topology(), number, table)?;
            let place = || format!("fault[{number}].kind");
            sim.add_fault(fault)
                .map_err(|error| ScenarioError::value(place(), error))?;
        }
        Ok(sim)
    }

    /// The programs that it names, in the file's order: [`Simulation::scenario`](crate::program::Simulation::scenario) does not run them by itself.
    ///
    /// # Errors
    /// [`ScenarioError`] names the host that there is not, or the command without a word.
    pub fn programs(&self) -> Result<Vec<Program>> {
        let programs = || {
            Extent::of(&self.file.topology.kind).check()?;
            let topology = topology(&self.file.topology)?;
            let tables = self.file.programs.iter().enumerate();
            let programs = tables.map(|(number, table)| {
                let fault = |field, fault: String| {
                    ScenarioError::value(format!("program[{number}].{field}"), fault)
                };
                if table.command.is_empty() {
                    return Err(fault("command", "there is no program in it".to_owned()));
                }
                Ok(Program {
                    host: host_of(&topology, &table.host).map_err(|it| fault("host", it))?,
                    command: table.command.clone(),
                    start: table.start,
                })
            });
            programs.collect()
        };
        let programs: Result<_> = programs();
        programs.map_err(|error| error.in_text(&self.text))
    }

    /// When the run ends, unless nothing is left to happen before.
    pub fn until(&self) -> Time {
        let until = self.file.sim.until;
        until.map_or(Time::NEVER, |span| Time::ZERO + span)
    }
}

fn qos(table: &QosTable) -> Qos {
    let default = Qos::default();
    let classes = |given: &Option<Classes>, default| given.as_ref().map_or(default, |c| c.0);
    let mut qos = Qos {
        trust: table.trust,
        lossless: classes(&table.lossless, default.lossless),
        strict: classes(&table.strict, default.strict),
        weights: table.weights.unwrap_or(default.weights),
        ..default
    };
    for &(dscp, class) in table.dscp_map.iter().flat_map(|map| &map.0) {
        qos.dscp_map[dscp] = class;
    }
    qos.flow_control = match table.flow_control {
        FlowControlName::Pfc => FlowControl::Pfc(PauseTimes::default()),
        FlowControlName::Pause => FlowControl::Pause(PauseTimes::default()),
        FlowControlName::None => FlowControl::None,
        FlowControlName::Credits => FlowControl::Credits {
            buffer: table.credit_buffer.map_or(64 << 10, |size| size.0),
            update: table.credit_update.map_or(8 << 10, |size| size.0),
        },
    };
    qos
}

fn switch(table: &SwitchTable, lossless: u8) -> Result<SwitchConfig> {
    let default = SwitchConfig::default();
    let mut config = SwitchConfig {
        buffer: table.buffer.map_or(default.buffer, |size| size.0),
        cell: table.cell.unwrap_or(default.cell),
        reserved: table.reserved.map_or(default.reserved, |size| size.0),
        threshold: threshold(table.alpha, table.threshold).unwrap_or(default.threshold),
        xon_offset: table.xon_offset.map_or(default.xon_offset, |size| size.0),
        headroom: table.headroom.map(|size| size.0),
        headroom_pool: table.headroom_pool.map(|size| size.0),
        lossy_threshold: threshold(table.lossy_alpha, table.lossy_threshold)
            .unwrap_or(default.lossy_threshold),
        lossy_pool: table.lossy_pool.map(|size| size.0),
        watchdog: table.watchdog,
        dead_queue: table.dead_queue,
        latency: table.latency,
        balance: balance(table)?,
        ..default
    };
    if let Some(ecn) = &table.ecn {
        config.marking = marking(ecn, lossless, "switch.ecn")?;
    }
    Ok(config)
}

fn balance(table: &SwitchTable) -> Result<Balance> {
    let gap = table.flowlet_gap;
    if gap.is_some() && table.balance != BalanceName::Flowlets {
        let fault = "it is for balance = \"flowlets\"";
        return Err(ScenarioError::value("switch.flowlet_gap", fault));
    }
    Ok(match table.balance {
        BalanceName::Ecmp => Balance::Ecmp,
        BalanceName::Flowlets => Balance::Flowlets(gap.unwrap_or(Balance::FLOWLET_GAP)),
        BalanceName::Adaptive => Balance::Adaptive,
        BalanceName::Spray => Balance::Spray,
        BalanceName::Rotate => Balance::Rotate,
    })
}

fn recovery(name: RecoveryName) -> Recovery {
    match name {
        RecoveryName::GoBackN => Recovery::GoBackN,
        RecoveryName::Keep => Recovery::Keep,
        RecoveryName::Selective => Recovery::Selective,
    }
}

/// Headers of IP, UDP, the BTH and the RETH, and the ICRC.
const PACKET_HEADERS: u32 = 20 + 8 + 12 + 16 + 4;

impl HostTable {
    /// Of a connection of a host with such a link, by its own congestion control or that of all.
    pub(super) fn options(&self, cc: Option<Congestion>, rate: Rate) -> Result<ConnectOptions> {
        let cc = cc.unwrap_or(self.cc);
        let default = ConnectOptions::default();
        let checked = |name: &str, given: Option<u8>, default: u8, most: u8| match given {
            Some(value) if value > most => {
                let fault = format!("{value}: at most {most}");
                Err(ScenarioError::value(format!("host.{name}"), fault))
            }
            given => Ok(given.unwrap_or(default)),
        };
        Ok(ConnectOptions {
            timeout: checked("timeout", self.timeout, default.timeout, 31)?,
            retry_cnt: checked("retry_cnt", self.retry_cnt, default.retry_cnt, 7)?,
            rnr_retry: checked("rnr_retry", self.rnr_retry, default.rnr_retry, 7)?,
            congestion: self.dcqcn.apply(cc.at(rate)),
            steering: cc.steering(),
            ..default
        })
    }
}

impl DcqcnTable {
    /// These parameters in place of the paper's, if it is DCQCN.
    fn apply(&self, mut congestion: CongestionControl) -> CongestionControl {
        if let CongestionControl::Dcqcn(params) = &mut congestion {
            let rate = |rate: Rate| CoreRate::from_bps(rate.as_bps());
            let ns = |span: Span| span.ps() / 1000;
            set(&mut params.min_rate, self.min_rate.map(rate));
            set(
                &mut params.additive_increase,
                self.additive_increase.map(rate),
            );
            set(&mut params.hyper_increase, self.hyper_increase.map(rate));
            set(&mut params.g, self.g);
            set(&mut params.alpha_timer_ns, self.alpha_timer.map(ns));
            set(&mut params.increase_timer_ns, self.increase_timer.map(ns));
            set(
                &mut params.increase_bytes,
                self.increase_bytes.map(|size| size.0),
            );
            set(&mut params.fast_recovery_steps, self.fast_recovery_steps);
        }
        congestion
    }
}

fn set<T>(value: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *value = given;
    }
}

/// Names the fields of one flow.
struct At(usize);

impl At {
    fn fault(&self, name: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(format!("flow[{}].{name}", self.0), fault)
    }

    fn host(&self, topology: &Topology, field: &str, name: &str) -> Result<HostId> {
        host_of(topology, name).map_err(|fault| self.fault(field, fault))
    }

    fn senders(&self, topology: &Topology, names: &Names, to: HostId) -> Result<Vec<HostId>> {
        match names {
            Names::One(name) if name == "all" => {
                Ok(topology.hosts().filter(|&host| host != to).collect())
            }
            names => {
                let each = names.each().iter();
                each.map(|name| self.host(topology, "from", name)).collect()
            }
        }
    }

    /// The receiver has such planes, and one leads to the other.
    fn check_planes(&self, topology: &Topology, table: &FlowTable, to: HostId) -> Result<()> {
        let (planes, name) = (topology.host_ports(to).count(), &table.to);
        for (key, plane) in [("plane", table.plane), ("to_plane", table.to_plane)] {
            if plane.is_some_and(|plane| usize::from(plane) >= planes) {
                return Err(self.fault(key, format!("{name} has {planes}, counted from 0")));
            }
        }
        let is_across = table.to_plane.is_some() && table.to_plane != table.plane;
        if is_across && !topology.has_rails() {
            let fault =
                "only rails that spines join (kind = \"rails\") lead from a plane to another";
            return Err(self.fault("to_plane", fault));
        }
        Ok(())
    }

    /// There is a way to the receiver, and no cable of it is too narrow for a packet.
    fn check_ways(&self, sim: &Sim, senders: &[HostId], to: HostId, mtu: Mtu) -> Result<()> {
        let (fabric, topology) = (sim.fabric(), sim.fabric().topology());
        for &from in senders {
            let path = fabric.path(&FlowSpec::new(from, to)).ok_or_else(|| {
                let (from, to) = (topology.name(from), topology.name(to));
                self.fault("to", format!("there is no way from {from} to {to}"))
            })?;
            let links = path
                .iter()
                .map(|port| topology.cables()[port.cable()].link.mtu);
            let narrowest = links.min().unwrap_or(u32::MAX);
            if narrowest < mtu.bytes() + PACKET_HEADERS {
                let packet = mtu.bytes() + PACKET_HEADERS;
                let fault = format!(
                    "a packet has up to {packet} bytes, and a cable takes {narrowest}: topology.mtu"
                );
                return Err(self.fault("mtu", fault));
            }
        }
        Ok(())
    }

    fn arrivals(&self, table: &FramesTable) -> Result<Arrivals> {
        match (table.rate, table.arrivals) {
            (None, None | Some(ArrivalsName::Greedy)) => Ok(Arrivals::Greedy),
            (Some(rate), None | Some(ArrivalsName::Paced)) => Ok(Arrivals::Paced(rate)),
            (Some(rate), Some(ArrivalsName::Poisson)) => Ok(Arrivals::Poisson(rate)),
            _ => Err(self.fault("arrivals", "greedy, or with a rate paced or poisson")),
        }
    }

    fn add(&self, sim: &mut Sim, table: &FlowTable, scenario: &Scenario) -> Result<()> {
        let host = &scenario.file.host;
        let topology = sim.fabric().topology();
        let to = self.host(topology, "to", &table.to)?;
        let senders = self.senders(topology, &table.from, to)?;
        let start = Time::ZERO + table.start;
        let size = table.size.map(|size| size.0);
        let tos = table.dscp.as_ref().map_or(Qos::ROCE_TOS, |dscp| dscp.0);
        let mtu = table.mtu.as_ref().map_or(Mtu::Mtu1024, |mtu| mtu.0);
        let (plane, to_plane) = (table.plane, table.to_plane);
        self.check_planes(topology, table, to)?;
        self.check_ways(sim, &senders, to, mtu)?;
        let (op, messages) = match &table.op {
            Op::Frames(frames) => {
                if size.is_none() && frames.stop.is_none() && scenario.file.sim.until.is_none() {
                    return Err(self.fault(
                        "stop",
                        "without size, stop or sim.until it goes on for ever",
                    ));
                }
                let arrivals = self.arrivals(frames)?;
                for from in senders {
                    sim.add_flow(FlowSpec {
                        tos,
                        source_port: frames.source_port.unwrap_or(0xc000),
                        payload: mtu.bytes(),
                        size,
                        start,
                        plane,
                        to_plane,
                        stop: frames.stop.map_or(Time::NEVER, |span| Time::ZERO + span),
                        arrivals,
                        ..FlowSpec::new(from, to)
                    });
                }
                return Ok(());
            }
            Op::Write(messages) => (StreamOp::Write, messages),
            Op::Read(messages) => (StreamOp::Read, messages),
            Op::Send(messages) => (StreamOp::Send, messages),
            Op::FetchAdd(messages) => (StreamOp::FetchAdd, messages),
        };
        let message = u32::try_from(size.unwrap_or(1 << 20)).ok();
        let message = message.filter(|&n| n <= 1 << 31);
        let message = message.ok_or_else(|| self.fault("size", "a message has at most 2 GiB"))?;
        for from in senders {
            let topology = sim.fabric().topology();
            let rate = topology.link_at(topology.host_port(from)).rate;
            sim.add_stream(StreamSpec {
                from,
                to,
                op,
                message,
                count: messages.count.unwrap_or(1),
                depth: messages.depth.unwrap_or(1),
                receives: messages.receives,
                repost: messages.repost,
                start,
                options: ConnectOptions {
                    tos,
                    mtu,
                    plane,
                    to_plane,
                    ..host.options(messages.cc, rate)?
                },
            })?;
        }
        Ok(())
    }
}
