//! `[[fault]]`: builds a [`Fault`] from the scenario file.

use crate::engine::{Span, Time};
use crate::fault::{Chance, Fault, FaultKind, Frames, Scope};
use crate::scenario::file::{FaultName, FaultTable};
use crate::scenario::values::{Names, Probability};
use crate::scenario::{ScenarioError, host_of};
use crate::topology::{HostId, Node, PortId, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

/// Names the fields of one fault.
struct At<'a>(usize, &'a Topology);

/// Reads one table.
pub(super) fn fault(topology: &Topology, number: usize, table: &FaultTable) -> Result<Fault> {
    let at = At(number, topology);
    let kind = at.kind(&table.kind)?;
    let is_about_frames = kind.is_about_frames();
    let fault = Fault {
        scope: at.scope(table)?,
        from: Time::ZERO + table.from,
        to: table.to.map_or(Time::NEVER, |to| Time::ZERO + to),
        chance: at.chance(table, is_about_frames)?,
        frames: match (&table.kind, table.frames) {
            (FaultName::PauseLoss {}, None) => Frames::Control,
            (FaultName::PauseLoss {}, Some(_)) => return Err(at.not_taken("frames")),
            (_, Some(_)) if !is_about_frames => return Err(at.not_taken("frames")),
            (_, frames) => frames.unwrap_or_default(),
        },
        stream: match table.stream {
            Some(_) if !is_about_frames => return Err(at.not_taken("stream")),
            stream => stream,
        },
        ..Fault::new(kind)
    };
    if fault.from >= fault.to {
        return Err(at.fault("to", "the window ends before it begins"));
    }
    let checked = fault.check(topology);
    checked.map_err(|error| at.fault("kind", error))?;
    Ok(fault)
}

impl At<'_> {
    fn fault(&self, name: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(format!("fault[{}].{name}", self.0), fault)
    }

    fn not_taken(&self, name: &str) -> ScenarioError {
        self.fault(name, "a fault of this kind does not take it")
    }

    fn kind(&self, name: &FaultName) -> Result<FaultKind> {
        let or = |p: &Option<Probability>, default| p.as_ref().map_or(default, |p| p.0);
        Ok(match name {
            FaultName::Loss {} | FaultName::PauseLoss {} => FaultKind::Loss,
            FaultName::BurstLoss { enter, leave, loss } => FaultKind::BurstLoss {
                enter: or(enter, 0.01),
                leave: or(leave, 0.25),
                loss: or(loss, 1.0),
            },
            FaultName::Corrupt {} => FaultKind::Corrupt,
            FaultName::CorruptInside {} => FaultKind::CorruptInside,
            FaultName::Duplicate { by } => FaultKind::Duplicate {
                later: by.unwrap_or(Span::from_us(1)),
            },
            FaultName::Reorder { by } => FaultKind::Reorder { by: *by },
            FaultName::Delay { by, jitter } => FaultKind::Delay {
                by: *by,
                jitter: *jitter,
            },
            FaultName::Rate { rate } => FaultKind::Rate(*rate),
            FaultName::LinkDown { down, up, reroute } => FaultKind::LinkDown {
                flap: match (*down, *up) {
                    (Some(_), None) => return Err(self.fault("up", "down needs it")),
                    (None, Some(_)) => return Err(self.fault("down", "up needs it")),
                    (down, up) => down.zip(up),
                },
                reroute: *reroute,
            },
            FaultName::Partition { side, one_way } => FaultKind::Partition {
                side: self.hosts(side)?,
                one_way: *one_way,
            },
            FaultName::PauseStorm { classes } => FaultKind::PauseStorm {
                classes: classes.as_ref().map_or(1 << 3, |classes| classes.0),
            },
            FaultName::BleachEcn {} => FaultKind::BleachEcn,
            FaultName::BlackHole { mtu } => FaultKind::BlackHole { mtu: mtu.0 },
            FaultName::SlowReceiver { rate } => FaultKind::SlowReceiver(*rate),
            FaultName::Crash { reroute } => FaultKind::Crash { reroute: *reroute },
            FaultName::Forge { forgery } => FaultKind::Forge(*forgery),
        })
    }

    fn hosts(&self, names: &Names) -> Result<Vec<HostId>> {
        let each = names.each().iter();
        let found =
            each.map(|name| host_of(self.1, name).map_err(|fault| self.fault("side", fault)));
        found.collect()
    }

    fn chance(&self, table: &FaultTable, is_about_frames: bool) -> Result<Chance> {
        let chance = match (&table.p, table.every, &table.nth) {
            (None, None, None) => None,
            (Some(p), None, None) => Some(("p", Chance::Probability(p.0))),
            (None, Some(n), None) => Some(("every", Chance::Every(n.get()))),
            (None, None, Some(numbers)) => Some(("nth", Chance::Nth(numbers.0.clone()))),
            _ => return Err(self.fault("p", "only one of p, every and nth")),
        };
        let is_burst = matches!(table.kind, FaultName::BurstLoss { .. });
        match (chance, &table.kind) {
            (Some((key, _)), _) if is_burst || !is_about_frames => Err(self.not_taken(key)),
            (Some((_, chance)), _) => Ok(chance),
            (None, FaultName::Delay { .. } | FaultName::Partition { .. }) => Ok(Chance::Always),
            (None, FaultName::BleachEcn {} | FaultName::BlackHole { .. }) => Ok(Chance::Always),
            (None, _) if is_burst || !is_about_frames => Ok(Chance::Always),
            (None, _) => Err(self.fault("p", "a fault of this kind needs p, every or nth")),
        }
    }

    fn scope(&self, table: &FaultTable) -> Result<Scope> {
        let link = between(self.1, &table.link, "cable", '-');
        let port = between(self.1, &table.port, "port", '>');
        let host = |name: &String| host_of(self.1, name).map(Scope::Host);
        let switch = |name: &String| match self.1.find(name) {
            Some(Node::Switch(switch)) => Ok(Scope::Switch(switch)),
            _ => Err(format!("{name:?} is no switch")),
        };
        let scopes = [
            ("host", table.host.as_ref().map(host)),
            ("switch", table.switch.as_ref().map(switch)),
            ("link", link.map(|port| port.map(Scope::Cable))),
            ("port", port.map(|port| port.map(Scope::Port))),
        ];
        let mut scope = None;
        for (name, given) in scopes {
            let given = given.transpose().map_err(|fault| self.fault(name, fault))?;
            if given.is_some() && scope.is_some() {
                return Err(self.fault("kind", "only one of host, switch, link and port"));
            }
            scope = scope.or(given);
        }
        Ok(scope.unwrap_or_default())
    }
}

/// The port of `a` towards `b`, of "a-b"; names may hold the sign themselves.
fn between(
    topology: &Topology,
    text: &Option<String>,
    what: &str,
    sign: char,
) -> Option<core::result::Result<PortId, String>> {
    Some(port_between(topology, text.as_deref()?, what, sign))
}

/// The port of a name like "s0>h1".
pub(super) fn port_of(topology: &Topology, text: &str) -> core::result::Result<PortId, String> {
    port_between(topology, text, "port", '>')
}

/// The port of the first node of a name like "s0-h1".
pub(super) fn cable_of(topology: &Topology, text: &str) -> core::result::Result<PortId, String> {
    port_between(topology, text, "cable", '-')
}

fn port_between(
    topology: &Topology,
    text: &str,
    what: &str,
    sign: char,
) -> core::result::Result<PortId, String> {
    let find = |(at, _)| {
        let (a, b) = (topology.find(&text[..at])?, topology.find(&text[at + 1..])?);
        topology.port_between(a, b)
    };
    let found = text.match_indices(sign).find_map(find);
    found.ok_or_else(|| format!("{text:?} is no {what}: two names with a {sign} between them"))
}
