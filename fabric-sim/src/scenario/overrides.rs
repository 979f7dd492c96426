//! `[[override]]`: single switches and ports with settings of their own.

use crate::fabric::{Override, Place};
use crate::qos::PRIORITIES;
use crate::scenario::ScenarioError;
use crate::scenario::faults::port_of;
use crate::scenario::file::{EcnTable, OverrideTable};
use crate::scenario::values::{Names, Size};
use crate::switch::{Marking, Threshold};
use crate::topology::{Node, PortId, SwitchId, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

/// What a table says, for each place that it names.
pub(super) fn overrides(
    topology: &Topology,
    number: usize,
    table: &OverrideTable,
    lossless: u8,
) -> Result<Vec<Override>> {
    let fault = |name: &str, fault: String| {
        ScenarioError::value(format!("override[{number}].{name}"), fault)
    };
    let places: Vec<Place> = match (&table.switch, &table.port) {
        (Some(names), None) => {
            let found = places(names, |name| switch(topology, name).map(Place::Switch));
            found.map_err(|words| fault("switch", words))?
        }
        (None, Some(names)) => {
            let found = places(names, |name| port(topology, name).map(Place::Port));
            found.map_err(|words| fault("port", words))?
        }
        _ => {
            return Err(fault(
                "switch",
                "one of switch and port is needed".to_owned(),
            ));
        }
    };
    let whole = [
        ("buffer", table.buffer.is_some()),
        ("alpha", table.alpha.is_some()),
        ("threshold", table.threshold.is_some()),
    ];
    if let Some((name, _)) = whole
        .iter()
        .find(|(_, is_given)| *is_given && table.port.is_some())
    {
        return Err(fault(
            name,
            "all ports of a switch share it: name the switch".to_owned(),
        ));
    }
    let headroom = table.headroom.map(|size| size.0);
    let ecn = table.ecn.as_ref();
    let place = format!("override[{number}].ecn");
    let given = Override {
        buffer: table.buffer.map(|Size(bytes)| bytes),
        threshold: threshold(table.alpha, table.threshold),
        headroom,
        marking: ecn.map(|ecn| marking(ecn, lossless, &place)).transpose()?,
        ..Override::new(places[0])
    };
    if given == Override::new(places[0]) {
        return Err(fault("switch", "it changes nothing".to_owned()));
    }
    Ok(places.into_iter().map(|place| given.at(place)).collect())
}

fn places(
    names: &Names,
    find: impl Fn(&str) -> core::result::Result<Place, String>,
) -> core::result::Result<Vec<Place>, String> {
    let found: Vec<Place> = names
        .each()
        .iter()
        .map(|name| find(name))
        .collect::<core::result::Result<_, _>>()?;
    if found.is_empty() {
        return Err("it names none".to_owned());
    }
    Ok(found)
}

fn switch(topology: &Topology, name: &str) -> core::result::Result<SwitchId, String> {
    match topology.find(name) {
        Some(Node::Switch(switch)) => Ok(switch),
        _ => Err(format!("{name:?} is no switch")),
    }
}

/// Hosts have no such settings.
fn port(topology: &Topology, name: &str) -> core::result::Result<PortId, String> {
    let port = port_of(topology, name)?;
    match topology.node_at(port) {
        Node::Switch(_) => Ok(port),
        Node::Host(_) => Err(format!("{name:?} is a port of a host")),
    }
}

/// The threshold that a table gives, if it does.
pub(super) fn threshold(alpha: Option<f64>, bytes: Option<Size>) -> Option<Threshold> {
    match (alpha, bytes) {
        (_, Some(Size(bytes))) => Some(Threshold::Static(bytes)),
        (alpha, None) => alpha.map(Threshold::Dynamic),
    }
}

/// How each class is marked.
pub(super) fn marking(
    ecn: &EcnTable,
    lossless: u8,
    place: &str,
) -> Result<[Option<Marking>; PRIORITIES]> {
    let marking = Marking {
        min: ecn.kmin.0,
        max: ecn.kmax.0,
        probability: ecn.pmax.0,
    };
    if marking.min > marking.max {
        return Err(ScenarioError::value(place, "kmin <= kmax is needed"));
    }
    let classes = ecn.priorities.as_ref().map_or(lossless, |c| c.0);
    let of_class = |class: usize| (classes & (1 << class) != 0).then_some(marking);
    Ok(core::array::from_fn(of_class))
}
