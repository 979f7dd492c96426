//! `[[fault]]`: builds a [`Fault`] from the scenario file.

use toml::Table;

use crate::engine::{Span, Time};
use crate::fault::{Chance, Fault, FaultKind, Forgery, Frames, Scope};
use crate::scenario::ScenarioError;
use crate::scenario::fields::Fields;
use crate::topology::{HostId, Node, PortId, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

const KINDS: &str = "loss, burst-loss, corrupt, corrupt-inside, duplicate, reorder, delay, rate, link-down, \
    partition, pause-storm, pause-loss, bleach-ecn, black-hole, slow-receiver, crash or forge";

/// Reads one table.
pub(super) fn fault(topology: &Topology, number: usize, table: &Table) -> Result<Fault> {
    let mut fields = Fields::new(format!("fault[{number}]"), table);
    let name = fields
        .text("kind")?
        .ok_or_else(|| fields.fault("kind", format!("it is {KINDS}")))?;
    let kind = kind(&mut fields, &name, topology)?;
    let mut fault = Fault::new(kind);
    fault.scope = scope(&mut fields, topology)?;
    if let Some(from) = fields.quantity::<Span>("from")? {
        fault.from = Time::ZERO + from;
    }
    if let Some(to) = fields.quantity::<Span>("to")? {
        fault.to = Time::ZERO + to;
    }
    if fault.from >= fault.to {
        return Err(fields.fault("to", "the window ends before it begins"));
    }
    if fault.kind.is_about_frames() {
        fault.frames = frames(&mut fields, &name)?;
        if !matches!(fault.kind, FaultKind::BurstLoss { .. }) {
            fault.chance = chance(&mut fields, &name)?;
        }
        let stream = fields.number("stream")?.map(u32::try_from).transpose();
        fault.stream = stream.map_err(|_| fields.fault("stream", "more than 32 bits"))?;
    }
    // What only the kind as a whole can tell, before keys that it does not take.
    let checked = fault
        .check(topology)
        .map_err(|error| fields.fault("kind", error));
    fields.finish(&name)?;
    checked.map(|()| fault)
}

fn kind(fields: &mut Fields, name: &str, topology: &Topology) -> Result<FaultKind> {
    Ok(match name {
        "loss" | "pause-loss" => FaultKind::Loss,
        "burst-loss" => FaultKind::BurstLoss {
            enter: probability(fields, "enter")?.unwrap_or(0.01),
            leave: probability(fields, "leave")?.unwrap_or(0.25),
            loss: probability(fields, "loss")?.unwrap_or(1.0),
        },
        "corrupt" => FaultKind::Corrupt,
        "corrupt-inside" => FaultKind::CorruptInside,
        "duplicate" => FaultKind::Duplicate {
            later: fields.quantity("by")?.unwrap_or(Span::from_us(1)),
        },
        "reorder" => FaultKind::Reorder {
            by: fields.needed("by", name)?,
        },
        "delay" => FaultKind::Delay {
            by: fields.needed("by", name)?,
            jitter: fields.quantity("jitter")?.unwrap_or_default(),
        },
        "rate" => FaultKind::Rate(fields.needed("rate", name)?),
        "slow-receiver" => FaultKind::SlowReceiver(fields.needed("rate", name)?),
        "link-down" => FaultKind::LinkDown {
            flap: flap(fields)?,
            reroute: fields.quantity("reroute")?,
        },
        "partition" => FaultKind::Partition {
            side: hosts(fields, topology)?,
            one_way: fields.is_set("one_way")?,
        },
        "pause-storm" => FaultKind::PauseStorm {
            classes: classes(fields)?,
        },
        "bleach-ecn" => FaultKind::BleachEcn,
        "black-hole" => {
            let mtu = fields.size("mtu")?;
            let mtu = mtu.ok_or_else(|| fields.fault("mtu", "black-hole needs it"))?;
            let mtu = u32::try_from(mtu).map_err(|_| fields.fault("mtu", "more than 4 GiB"))?;
            FaultKind::BlackHole { mtu }
        }
        "crash" => FaultKind::Crash,
        "forge" => FaultKind::Forge(forgery(fields)?),
        other => return Err(fields.fault("kind", format!("{other:?} is not {KINDS}"))),
    })
}

fn probability(fields: &mut Fields, key: &str) -> Result<Option<f64>> {
    let p = fields.float(key)?;
    match p.filter(|p| !(0.0..=1.0).contains(p)) {
        Some(p) => Err(fields.fault(key, format!("{p} is no probability: 0 to 1"))),
        None => Ok(p),
    }
}

fn chance(fields: &mut Fields, name: &str) -> Result<Chance> {
    let given = (
        probability(fields, "p")?,
        fields.number("every")?,
        fields.numbers("nth")?,
    );
    match given {
        (Some(p), None, None) => Ok(Chance::Probability(p)),
        (None, Some(0), None) => Err(fields.fault("every", "it must be more than 0")),
        (None, Some(n), None) => Ok(Chance::Every(n)),
        (None, None, Some(numbers)) if numbers.is_sorted_by(|a, b| a < b) => {
            Ok(Chance::Nth(numbers))
        }
        (None, None, Some(_)) => Err(fields.fault("nth", "numbers of frames must rise")),
        (None, None, None) => match name {
            "delay" | "partition" | "bleach-ecn" | "black-hole" => Ok(Chance::Always),
            _ => Err(fields.fault("p", format!("{name} needs p, every or nth"))),
        },
        _ => Err(fields.fault("p", "only one of p, every and nth")),
    }
}

fn frames(fields: &mut Fields, name: &str) -> Result<Frames> {
    match (fields.text("frames")?.as_deref(), name) {
        (None, "pause-loss") => Ok(Frames::Control),
        (Some(_), "pause-loss") => Err(fields.fault("frames", "pause-loss does not take it")),
        (None | Some("data"), _) => Ok(Frames::Data),
        (Some("control"), _) => Ok(Frames::Control),
        (Some("all"), _) => Ok(Frames::All),
        (Some("acks"), _) => Ok(Frames::Acks),
        (Some("atomics"), _) => Ok(Frames::Atomics),
        (Some("reads"), _) => Ok(Frames::Reads),
        (Some("cnps"), _) => Ok(Frames::Cnps),
        (Some(other), _) => {
            let known = "data, control, all, acks, atomics, reads or cnps";
            Err(fields.fault("frames", format!("{other:?} is not {known}")))
        }
    }
}

fn flap(fields: &mut Fields) -> Result<Option<(Span, Span)>> {
    match (fields.quantity("down")?, fields.quantity("up")?) {
        (None, None) => Ok(None),
        (Some(down), Some(up)) => Ok(Some((down, up))),
        (Some(_), None) => Err(fields.fault("up", "down needs it")),
        (None, Some(_)) => Err(fields.fault("down", "up needs it")),
    }
}

fn classes(fields: &mut Fields) -> Result<u8> {
    let classes = fields.numbers("classes")?.unwrap_or_else(|| vec![3]);
    match classes.iter().find(|&&class| class > 7) {
        Some(class) => Err(fields.fault("classes", format!("{class}: classes are 0 to 7"))),
        None => Ok(classes.iter().fold(0, |mask, class| mask | 1 << class)),
    }
}

fn forgery(fields: &mut Fields) -> Result<Forgery> {
    let Some(name) = fields.text("forgery")? else {
        return Err(fields.fault("forgery", "forge needs it"));
    };
    let found = Forgery::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, forgery)| *forgery).ok_or_else(|| {
        let known = Forgery::ALL.map(|(known, _)| known).join(", ");
        fields.fault("forgery", format!("{name:?} is none of {known}"))
    })
}

fn hosts(fields: &mut Fields, topology: &Topology) -> Result<Vec<HostId>> {
    let Some(names) = fields.texts("side")? else {
        return Err(fields.fault("side", "partition needs it"));
    };
    let find = |name: &String| match topology.find(name) {
        Some(Node::Host(host)) => Ok(host),
        _ => Err(fields.fault("side", format!("{name:?} is no host"))),
    };
    names.iter().map(find).collect()
}

fn scope(fields: &mut Fields, topology: &Topology) -> Result<Scope> {
    let mut scopes = Vec::new();
    if let Some(name) = fields.text("host")? {
        match topology.find(&name) {
            Some(Node::Host(host)) => scopes.push(Scope::Host(host)),
            _ => return Err(fields.fault("host", format!("{name:?} is no host"))),
        }
    }
    if let Some(name) = fields.text("switch")? {
        match topology.find(&name) {
            Some(Node::Switch(switch)) => scopes.push(Scope::Switch(switch)),
            _ => return Err(fields.fault("switch", format!("{name:?} is no switch"))),
        }
    }
    if let Some(name) = fields.text("link")? {
        let port = between(topology, &name, '-');
        let fault = format!("{name:?} is no cable: two names with a - between them");
        scopes.push(Scope::Cable(
            port.ok_or_else(|| fields.fault("link", fault))?,
        ));
    }
    if let Some(name) = fields.text("port")? {
        let port = between(topology, &name, '>');
        let fault = format!("{name:?} is no port: two names with a > between them");
        scopes.push(Scope::Port(
            port.ok_or_else(|| fields.fault("port", fault))?,
        ));
    }
    match scopes[..] {
        [] => Ok(Scope::Everything),
        [scope] => Ok(scope),
        _ => Err(fields.fault("kind", "only one of host, switch, link and port")),
    }
}

/// The port of `a` towards `b`, of "a-b"; names may hold the sign themselves.
fn between(topology: &Topology, text: &str, sign: char) -> Option<PortId> {
    let find = |(at, _)| {
        let (a, b) = (topology.find(&text[..at])?, topology.find(&text[at + 1..])?);
        topology.port_between(a, b)
    };
    text.match_indices(sign).find_map(find)
}
