//! `[[override]]`: single switches and ports with settings of their own.

use crate::fabric::{Override, Place};
use crate::qos::PRIORITIES;
use crate::scenario::ScenarioError;
use crate::scenario::faults::{cable_of, port_of};
use crate::scenario::file::{EcnTable, OverrideTable};
use crate::scenario::values::{Names, Size};
use crate::switch::{Marking, Threshold};
use crate::topology::{Node, Topology};

type Result<T> = core::result::Result<T, ScenarioError>;

/// What a table says, for each place that it names.
pub(super) fn overrides(
    topology: &Topology,
    number: usize,
    table: &OverrideTable,
    lossless: u8,
) -> Result<Vec<Override>> {
    let at = At(number);
    let place = format!("override[{number}].ecn");
    let ecn = table.ecn.as_ref();
    let marking = ecn.map(|ecn| marking(ecn, lossless, &place)).transpose()?;
    let places = match (&table.switch, &table.port) {
        (Some(names), _) => at.each("switch", names, |name| switch(topology, name))?,
        (_, Some(names)) if table.headroom.is_some() || ecn.is_some() => {
            at.each("port", names, |name| port(topology, name))?
        }
        // There is a rate alone, which is the topology's.
        _ => return Ok(Vec::new()),
    };
    let given = |place| Override {
        buffer: table.buffer.map(|Size(bytes)| bytes),
        threshold: threshold(table.alpha, table.threshold),
        headroom: table.headroom.map(|size| size.0),
        marking,
        ..Override::new(place)
    };
    Ok(places.into_iter().map(given).collect())
}

/// Gives ports the rates that tables name: those of cables first, so that a port's own holds.
pub(super) fn set_rates(topology: &mut Topology, tables: &[OverrideTable]) -> Result<()> {
    for (number, table) in tables.iter().enumerate() {
        let at = At(number);
        at.check(table)?;
        if let (Some(names), Some(rate)) = (&table.link, table.rate) {
            for port in at.each("link", names, |name| cable_of(topology, name))? {
                topology.set_rate(port, rate);
                topology.set_rate(port.peer(), rate);
            }
        }
    }
    for (number, table) in tables.iter().enumerate() {
        if let (Some(names), Some(rate)) = (&table.port, table.rate) {
            for port in At(number).each("port", names, |name| port_of(topology, name))? {
                topology.set_rate(port, rate);
            }
        }
    }
    Ok(())
}

/// Names the fields of one table.
struct At(usize);

impl At {
    fn fault(&self, name: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(format!("override[{}].{name}", self.0), fault)
    }

    /// A table names places of one kind, and says of them what they have.
    fn check(&self, table: &OverrideTable) -> Result<()> {
        let (of_switch, of_port, of_link) = (
            table.switch.is_some(),
            table.port.is_some(),
            table.link.is_some(),
        );
        if u8::from(of_switch) + u8::from(of_port) + u8::from(of_link) != 1 {
            return Err(self.fault("switch", "one of switch, port and link is needed"));
        }
        let settings = [
            ("buffer", table.buffer.is_some()),
            ("alpha", table.alpha.is_some()),
            ("threshold", table.threshold.is_some()),
            ("headroom", table.headroom.is_some()),
            ("ecn", table.ecn.is_some()),
            ("rate", table.rate.is_some()),
        ];
        let mut given = settings.iter().filter(|(_, is_given)| *is_given).peekable();
        if given.peek().is_none() {
            let place = if of_port { "port" } else { "switch" };
            let place = if of_link { "link" } else { place };
            return Err(self.fault(place, "it changes nothing"));
        }
        for &(name, _) in given {
            match name {
                "buffer" | "alpha" | "threshold" if of_port => {
                    let fault = "all ports of a switch share it: name the switch";
                    return Err(self.fault(name, fault));
                }
                "rate" if of_switch => {
                    return Err(self.fault(name, "ports have one each: name ports or links"));
                }
                "rate" => {}
                _ if of_link => {
                    return Err(self.fault(name, "a cable has a rate alone: name a switch or port"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is found by each name.
    fn each<T>(
        &self,
        field: &str,
        names: &Names,
        find: impl Fn(&str) -> core::result::Result<T, String>,
    ) -> Result<Vec<T>> {
        let names = names.each();
        if names.is_empty() {
            return Err(self.fault(field, "it names none"));
        }
        let found = names.iter().map(|name| find(name));
        found
            .map(|found| found.map_err(|fault| self.fault(field, fault)))
            .collect()
    }
}

fn switch(topology: &Topology, name: &str) -> core::result::Result<Place, String> {
    match topology.find(name) {
        Some(Node::Switch(switch)) => Ok(Place::Switch(switch)),
        _ => Err(format!("{name:?} is no switch")),
    }
}

/// Ports of hosts have a rate alone.
fn port(topology: &Topology, name: &str) -> core::result::Result<Place, String> {
    let port = port_of(topology, name)?;
    match topology.node_at(port) {
        Node::Switch(_) => Ok(Place::Port(port)),
        Node::Host(_) => Err(format!(
            "{name:?} is a port of a host, which has a rate alone"
        )),
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
