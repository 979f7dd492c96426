//! Builds the network of a scenario file.

use crate::engine::Rate;
use crate::link::Link;
use crate::scenario::ScenarioError;
use crate::scenario::file::{Shape, TopologyTable};
use crate::scenario::values::Cable;
use crate::topology::Topology;

/// The network that a file's table says.
///
/// # Errors
/// [`ScenarioError`] names a key that nothing of this kind of network would heed.
pub(super) fn topology(table: &TopologyTable) -> Result<Topology, ScenarioError> {
    refuse_unheeded(table)?;
    let link = |rate: Option<Rate>, cable: Option<Cable>, base: Link| Link {
        rate: rate.unwrap_or(base.rate),
        delay: cable.map_or(base.delay, |cable| cable.0),
        ..base
    };
    let base = Link {
        mtu: table.mtu.unwrap_or(crate::link::JUMBO_MTU),
        bit_error_rate: table.bit_error_rate.unwrap_or(0.0),
        ..Link::new(Rate::gbps(100))
    };
    let edge = link(table.rate, table.cable, base);
    let up = link(table.uplink_rate, table.uplink_cable, edge);
    let plane = match &table.kind {
        Shape::SingleSwitch { hosts } => Topology::single_switch(hosts.0, edge),
        Shape::BackToBack {} => Topology::back_to_back(edge),
        Shape::Dumbbell { left, right } => Topology::dumbbell(left.0, right.0, edge, up),
        Shape::ParkingLot(row) => {
            Topology::parking_lot(row.switches.0, row.hosts_per_switch.0, edge, up)
        }
        Shape::Ring(row) => Topology::ring(row.switches.0, row.hosts_per_switch.0, edge, up),
        Shape::LeafSpine {
            leaves,
            spines,
            hosts_per_switch,
        } => Topology::leaf_spine(leaves.0, spines.0, hosts_per_switch.0, edge, up),
        Shape::Rails {
            rails,
            groups,
            spines,
            hosts_per_switch: hosts,
        } => Topology::rails(rails.0, groups.0, spines.0, hosts.0, edge, up),
        Shape::FatTree { k } => Topology::fat_tree(k.0, edge, up),
        Shape::Dragonfly {
            routers,
            hosts_per_switch,
            global,
        } => Topology::dragonfly(routers.0, hosts_per_switch.0, global.0, edge, up),
        Shape::Edges { edges } => edges.clone().of_quality(base.mtu, base.bit_error_rate),
    };
    Ok(plane.planes(table.planes()))
}

/// A key that changed nothing would be taken for one that did.
fn refuse_unheeded(table: &TopologyTable) -> Result<(), ScenarioError> {
    let rate_and_cable = [
        ("rate", table.rate.is_some()),
        ("cable", table.cable.is_some()),
    ];
    let uplinks = [
        ("uplink_rate", table.uplink_rate.is_some()),
        ("uplink_cable", table.uplink_cable.is_some()),
    ];
    let refuse = |keys: &[(&str, bool)], fault: &str| match keys.iter().find(|(_, given)| *given) {
        Some((key, _)) => Err(ScenarioError::value(format!("topology.{key}"), fault)),
        None => Ok(()),
    };
    match table.kind {
        Shape::SingleSwitch { .. } => refuse(
            &uplinks,
            "it is for cables between switches, and there is one switch",
        ),
        Shape::BackToBack {} => refuse(
            &uplinks,
            "it is for cables between switches, and there is no switch",
        ),
        Shape::Edges { .. } => {
            let fault = "each line of edges has the rate and the length of its cable";
            refuse(&rate_and_cable, fault)?;
            refuse(&uplinks, fault)
        }
        _ => Ok(()),
    }
}
