//! Builds the simulation from the scenario file.

use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::Mtu;

use crate::Sim;
use crate::engine::{Rate, Span, Time};
use crate::fabric::{FabricConfig, Mode};
use crate::host::{Arrivals, ConnectOptions, FlowSpec, StreamOp, StreamSpec, TransportConfig};
use crate::link::Link;
use crate::qos::{FlowControl, PRIORITIES, PauseTimes, Qos, Trust};
use crate::scenario::congestion::congestion_control;
use crate::scenario::file::{
    EcnTable, FlowTable, Names, QosTable, Scenario, Size, SwitchTable, TopologyTable, WatchdogTable,
};
use crate::scenario::{ScenarioError, faults};
use crate::switch::{Marking, SwitchConfig, Threshold, Watchdog, WatchdogAction};
use crate::topology::{HostId, Node, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

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
        if self.sim.swarm {
            return self.drawn(seed)?.build_all(seed);
        }
        let qos = self.qos()?;
        let mut config = FabricConfig {
            seed,
            mode: match self.sim.mode.as_str() {
                "bytes" => Mode::Bytes,
                "lite" => Mode::Lite,
                other => return Err(unknown("sim.mode", other, "bytes or lite")),
            },
            switch: switch(&self.switch, qos.lossless)?,
            qos,
            ..FabricConfig::default()
        };
        config.adapter.rx_rate = quantity("host.rx_rate", &self.host.rx_rate)?;
        if let Some(buffer) = size("host.rx_buffer", &self.host.rx_buffer)? {
            config.adapter.rx_buffer = buffer;
            (config.adapter.xoff, config.adapter.xon) = (buffer / 2, buffer / 4);
        }
        let mut sim = Sim::new(topology(&self.topology)?, config)?;
        sim.set_transport_config(self.transport()?);
        self.set_checks(&mut sim)?;
        for (number, flow) in self.flows.iter().enumerate() {
            let cc = flow.cc.as_ref().or(self.host.cc.as_ref());
            add_flow(&mut sim, number, flow, cc)?;
        }
        for (number, table) in self.faults.iter().enumerate() {
            let fault = faults::fault(sim.fabric().topology(), number, table)?;
            let place = || format!("fault[{number}].kind");
            sim.add_fault(fault)
                .map_err(|error| ScenarioError::value(place(), error))?;
        }
        Ok(sim)
    }

    /// When the run ends, unless nothing is left to happen before.
    ///
    /// # Errors
    /// [`ScenarioError::Value`] if that is no time.
    pub fn until(&self) -> Result<Time> {
        let until: Option<Span> = quantity("sim.until", &self.sim.until)?;
        Ok(until.map_or(Time::NEVER, |span| Time::ZERO + span))
    }

    fn transport(&self) -> Result<TransportConfig> {
        let mut config = TransportConfig {
            first_psn: self.host.first_psn.map(urxe_wire::Psn::new),
            ..TransportConfig::default()
        };
        if self.host.first_psn.is_some_and(|psn| psn >= 1 << 24) {
            return Err(ScenarioError::value("host.first_psn", "a PSN has 24 bits"));
        }
        if let Some(window) = size("host.window", &self.host.window)? {
            config.window_bytes = u32::try_from(window)
                .map_err(|_| ScenarioError::value("host.window", "more than 4 GiB"))?;
            config.window_packets = u32::MAX;
        }
        Ok(config)
    }

    fn qos(&self) -> Result<Qos> {
        let table: &QosTable = &self.qos;
        let mut qos = Qos::default();
        if let Some(classes) = &table.lossless {
            qos.lossless = mask("qos.lossless", classes)?;
        }
        if let Some(classes) = &table.strict {
            qos.strict = mask("qos.strict", classes)?;
        }
        if let Some(weights) = &table.weights {
            qos.weights = <[u8; PRIORITIES]>::try_from(weights.as_slice())
                .map_err(|_| ScenarioError::value("qos.weights", "eight numbers are needed"))?;
        }
        for (dscp, &priority) in table.dscp_map.iter().flatten() {
            let place = dscp
                .parse::<usize>()
                .ok()
                .and_then(|d| qos.dscp_map.get_mut(d));
            match place.filter(|_| priority < 8) {
                Some(place) => *place = priority,
                None => {
                    let fault =
                        format!("{dscp} = {priority}: a DSCP is below 64, a priority below 8");
                    return Err(ScenarioError::value("qos.dscp_map", fault));
                }
            }
        }
        qos.trust = match table.trust.as_deref() {
            None | Some("dscp") => Trust::Dscp,
            Some("pcp") => Trust::Pcp,
            Some(other) => return Err(unknown("qos.trust", other, "dscp or pcp")),
        };
        let small = |place, given: &Option<Size>, default: u32| match size(place, given)? {
            None => Ok(default),
            Some(bytes) => {
                u32::try_from(bytes).map_err(|_| ScenarioError::value(place, "more than 4 GiB"))
            }
        };
        qos.flow_control = match table.flow_control.as_deref() {
            None | Some("pfc") => FlowControl::Pfc(PauseTimes::default()),
            Some("pause") => FlowControl::Pause(PauseTimes::default()),
            Some("none") => FlowControl::None,
            Some("credits") => FlowControl::Credits {
                buffer: small("qos.credit_buffer", &table.credit_buffer, 64 << 10)?,
                update: small("qos.credit_update", &table.credit_update, 8 << 10)?,
            },
            Some(other) => {
                return Err(unknown(
                    "qos.flow_control",
                    other,
                    "pfc, pause, credits or none",
                ));
            }
        };
        Ok(qos)
    }
}

fn switch(table: &SwitchTable, lossless: u8) -> Result<SwitchConfig> {
    let default = SwitchConfig::default();
    let small = |place, given: &Option<Size>| {
        let bytes = size(place, given)?.map(u32::try_from).transpose();
        bytes.map_err(|_| ScenarioError::value(place, "more than 4 GiB"))
    };
    let threshold = |alpha: Option<f64>, bytes, default| match (alpha, bytes) {
        (_, Some(bytes)) => Threshold::Static(bytes),
        (Some(alpha), None) => Threshold::Dynamic(alpha),
        (None, None) => default,
    };
    let mut config = SwitchConfig {
        buffer: size("switch.buffer", &table.buffer)?.unwrap_or(default.buffer),
        cell: table.cell.unwrap_or(default.cell),
        reserved: small("switch.reserved", &table.reserved)?.unwrap_or(default.reserved),
        threshold: threshold(
            table.alpha,
            size("switch.threshold", &table.threshold)?,
            default.threshold,
        ),
        xon_offset: small("switch.xon_offset", &table.xon_offset)?.unwrap_or(default.xon_offset),
        headroom: small("switch.headroom", &table.headroom)?,
        headroom_pool: size("switch.headroom_pool", &table.headroom_pool)?,
        lossy_threshold: threshold(
            table.lossy_alpha,
            size("switch.lossy_threshold", &table.lossy_threshold)?,
            default.lossy_threshold,
        ),
        lossy_pool: size("switch.lossy_pool", &table.lossy_pool)?,
        ..default
    };
    if let Some(ecn) = &table.ecn {
        config.marking = marking(ecn, lossless)?;
    }
    config.watchdog = table.watchdog.as_ref().map(watchdog).transpose()?;
    Ok(config)
}

fn marking(ecn: &EcnTable, lossless: u8) -> Result<[Option<Marking>; PRIORITIES]> {
    let min = bytes("switch.ecn.kmin", &ecn.kmin)?;
    let max = bytes("switch.ecn.kmax", &ecn.kmax)?;
    if min > max || !(0.0..=1.0).contains(&ecn.pmax) {
        let fault = "kmin <= kmax and 0 <= pmax <= 1 are needed";
        return Err(ScenarioError::value("switch.ecn", fault));
    }
    let classes = match &ecn.priorities {
        Some(classes) => mask("switch.ecn.priorities", classes)?,
        None => lossless,
    };
    let probability = ecn.pmax;
    let of_class = |class: usize| {
        let marks = classes & (1 << class) != 0;
        marks.then_some(Marking {
            min,
            max,
            probability,
        })
    };
    Ok(core::array::from_fn(of_class))
}

fn watchdog(table: &WatchdogTable) -> Result<Watchdog> {
    let default = Watchdog::default();
    let detect = quantity("switch.watchdog.detect", &table.detect)?;
    let restore = quantity("switch.watchdog.restore", &table.restore)?;
    let action = match table.action.as_deref() {
        None | Some("drop") => WatchdogAction::Drop,
        Some("forward") => WatchdogAction::Forward,
        Some(other) => return Err(unknown("switch.watchdog.action", other, "drop or forward")),
    };
    Ok(Watchdog {
        detect: detect.unwrap_or(default.detect),
        restore: restore.unwrap_or(default.restore),
        action,
    })
}

/// The cables to hosts, and those between switches.
fn links(table: &TopologyTable) -> Result<(Link, Link)> {
    let link = |place: &str, rate: &Option<String>, cable: &Option<String>, base: Link| {
        let rate = quantity(&format!("topology.{place}rate"), rate)?.unwrap_or(base.rate);
        let place = format!("topology.{place}cable");
        let delay = cable
            .as_deref()
            .map(crate::topology::cable_delay)
            .transpose();
        let delay = delay.map_err(|fault| ScenarioError::value(place, fault))?;
        Ok::<_, ScenarioError>(Link {
            rate,
            delay: delay.unwrap_or(base.delay),
            ..base
        })
    };
    let base = Link {
        mtu: table.mtu.unwrap_or(crate::link::JUMBO_MTU),
        bit_error_rate: table.bit_error_rate.unwrap_or(0.0),
        ..Link::new(Rate::gbps(100))
    };
    let edge = link("", &table.rate, &table.cable, base)?;
    let up = link("uplink_", &table.uplink_rate, &table.uplink_cable, edge)?;
    Ok((edge, up))
}

fn topology(table: &TopologyTable) -> Result<Topology> {
    let (edge, up) = links(table)?;
    let need = |name: &str, value: Option<u32>| match value {
        Some(n) if (1..=65_536).contains(&n) => Ok(n),
        Some(n) => Err(ScenarioError::value(
            format!("topology.{name}"),
            format!("{n}: 1 to 65536"),
        )),
        None => {
            let fault = format!("{} needs it", table.kind);
            Err(ScenarioError::value(format!("topology.{name}"), fault))
        }
    };
    let each = || need("hosts_per_switch", table.hosts_per_switch);
    let switches = || need("switches", table.switches);
    Ok(match table.kind.as_str() {
        "single-switch" => Topology::single_switch(need("hosts", table.hosts)?, edge),
        "back-to-back" => Topology::back_to_back(edge),
        "dumbbell" => Topology::dumbbell(
            need("left", table.left)?,
            need("right", table.right)?,
            edge,
            up,
        ),
        "parking-lot" => Topology::parking_lot(switches()?, each()?, edge, up),
        "ring" => Topology::ring(switches()?, each()?, edge, up),
        "leaf-spine" => {
            let (leaves, spines) = (need("leaves", table.leaves)?, need("spines", table.spines)?);
            Topology::leaf_spine(leaves, spines, each()?, edge, up)
        }
        "fat-tree" => match need("k", table.k)? {
            k if k % 2 == 0 && k <= 64 => Topology::fat_tree(k, edge),
            k => {
                return Err(ScenarioError::value(
                    "topology.k",
                    format!("{k}: even, at most 64"),
                ));
            }
        },
        "edges" => {
            let text = table.edges.as_deref().unwrap_or_default();
            text.parse()
                .map_err(|error| ScenarioError::value("topology.edges", error))?
        }
        other => {
            let kinds = "single-switch, back-to-back, dumbbell, parking-lot, ring, leaf-spine, \
                fat-tree or edges";
            return Err(unknown("topology.kind", other, kinds));
        }
    })
}

/// Names the fields of one flow.
struct At(usize);

impl At {
    fn field(&self, name: &str) -> String {
        format!("flow[{}].{name}", self.0)
    }

    fn fault(&self, name: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(self.field(name), fault)
    }

    fn host(&self, sim: &Sim, field: &str, name: &str) -> Result<HostId> {
        match sim.fabric().topology().find(name) {
            Some(Node::Host(host)) => Ok(host),
            _ => Err(self.fault(field, format!("{name:?} is no host"))),
        }
    }

    fn senders(&self, sim: &Sim, names: &Names, to: HostId) -> Result<Vec<HostId>> {
        match names {
            Names::One(name) if name == "all" => Ok(sim
                .fabric()
                .topology()
                .hosts()
                .filter(|&host| host != to)
                .collect()),
            Names::One(name) => Ok(vec![self.host(sim, "from", name)?]),
            Names::Some(names) => names.iter().map(|n| self.host(sim, "from", n)).collect(),
        }
    }

    fn tos(&self, dscp: Option<u8>) -> Result<u8> {
        match dscp {
            None => Ok(Qos::ROCE_TOS),
            Some(dscp) if dscp < 64 => Ok(dscp << 2 | 2),
            Some(dscp) => Err(self.fault("dscp", format!("{dscp} is above 63"))),
        }
    }

    fn mtu(&self, bytes: Option<u32>) -> Result<Mtu> {
        let bytes = bytes.unwrap_or(1024);
        let fault = format!("{bytes} is not 256, 512, 1024, 2048 or 4096");
        Mtu::from_bytes(bytes).ok_or_else(|| self.fault("mtu", fault))
    }

    fn congestion(
        &self,
        sim: &Sim,
        cc: Option<&String>,
        from: HostId,
    ) -> Result<CongestionControl> {
        let Some(text) = cc else {
            return Ok(CongestionControl::None);
        };
        let topology = sim.fabric().topology();
        let cable = topology.host_port(from).cable();
        let rate = topology.cables()[cable].link.rate;
        congestion_control(&self.field("cc"), text, rate)
    }

    fn arrivals(&self, table: &FlowTable) -> Result<Arrivals> {
        let rate: Option<Rate> = quantity(&self.field("rate"), &table.rate)?;
        match (rate, table.arrivals.as_deref()) {
            (None, None | Some("greedy")) => Ok(Arrivals::Greedy),
            (Some(rate), None | Some("paced")) => Ok(Arrivals::Paced(rate)),
            (Some(rate), Some("poisson")) => Ok(Arrivals::Poisson(rate)),
            (_, Some(other)) => {
                let known = "greedy, or with a rate paced or poisson";
                Err(unknown(&self.field("arrivals"), other, known))
            }
        }
    }
}

fn add_flow(sim: &mut Sim, number: usize, table: &FlowTable, cc: Option<&String>) -> Result<()> {
    let at = At(number);
    let to = at.host(sim, "to", &table.to)?;
    let from = at.senders(sim, &table.from, to)?;
    let start: Option<Span> = quantity(&at.field("start"), &table.start)?;
    let start = Time::ZERO + start.unwrap_or_default();
    let stop: Option<Span> = quantity(&at.field("stop"), &table.stop)?;
    let stop = stop.map_or(Time::NEVER, |span| Time::ZERO + span);
    let bytes = size(&at.field("size"), &table.size)?;
    let (tos, mtu, arrivals) = (at.tos(table.dscp)?, at.mtu(table.mtu)?, at.arrivals(table)?);
    let op = match table.op.as_str() {
        "frames" => None,
        "write" => Some(StreamOp::Write),
        "read" => Some(StreamOp::Read),
        "send" => Some(StreamOp::Send),
        "fetch-add" => Some(StreamOp::FetchAdd),
        other => {
            let known = "frames, write, read, send or fetch-add";
            return Err(unknown(&at.field("op"), other, known));
        }
    };
    for from in from {
        let Some(op) = op else {
            sim.add_flow(FlowSpec {
                tos,
                source_port: table.source_port.unwrap_or(0xc000),
                payload: mtu.bytes(),
                size: bytes,
                start,
                stop,
                arrivals,
                ..FlowSpec::new(from, to)
            });
            continue;
        };
        let message = u32::try_from(bytes.unwrap_or(1 << 20))
            .ok()
            .filter(|&n| n <= 1 << 31);
        sim.add_stream(StreamSpec {
            from,
            to,
            op,
            message: message.ok_or_else(|| at.fault("size", "a message has at most 2 GiB"))?,
            count: table.count.unwrap_or(1),
            depth: table.depth.unwrap_or(1),
            receives: table.receives.unwrap_or(0),
            repost: quantity(&at.field("repost"), &table.repost)?.unwrap_or_default(),
            start,
            options: ConnectOptions {
                tos,
                mtu,
                congestion: at.congestion(sim, cc, from)?,
                ..ConnectOptions::default()
            },
        })?;
    }
    Ok(())
}

fn unknown(place: &str, given: &str, known: &str) -> ScenarioError {
    ScenarioError::value(place, format!("{given:?} is not {known}"))
}

pub(super) fn quantity<T: core::str::FromStr<Err: core::fmt::Display>>(
    place: &str,
    text: &Option<String>,
) -> Result<Option<T>> {
    let parse = |text: &String| text.parse().map_err(|e| ScenarioError::value(place, e));
    text.as_ref().map(parse).transpose()
}

fn mask(place: &str, classes: &[u8]) -> Result<u8> {
    match classes.iter().find(|&&class| class > 7) {
        Some(class) => Err(ScenarioError::value(
            place,
            format!("{class}: classes are 0 to 7"),
        )),
        None => Ok(classes.iter().fold(0, |mask, class| mask | 1 << class)),
    }
}

fn size(place: &str, given: &Option<Size>) -> Result<Option<u64>> {
    given.as_ref().map(|given| bytes(place, given)).transpose()
}

pub(super) fn bytes(place: &str, given: &Size) -> Result<u64> {
    let text = match given {
        Size::Bytes(bytes) => return Ok(*bytes),
        Size::Text(text) => text.trim(),
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "B" => Some(1),
        "KB" | "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .zip(scale)
        .and_then(|(n, scale)| n.checked_mul(scale));
    bytes.ok_or_else(|| ScenarioError::value(place, format!("{text:?} is not a size like 64KiB")))
}
