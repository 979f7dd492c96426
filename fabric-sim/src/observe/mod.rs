//! Looking at a run: as a capture for Wireshark.
//!
//! Nothing here changes what happens: a run that is looked at has the trace hash of one that is not.

mod capture;

pub use capture::{Capture, captured};

use crate::topology::{Node, Topology};

/// What ports are called where a short name is wanted: `s0p3` is the fourth port of switch `s0`, and `h2` the only one
/// of host `h2`.
pub fn port_labels(topology: &Topology) -> Vec<String> {
    let mut next = vec![0; topology.switch_count()];
    let label = |port| {
        let node = topology.node_at(port);
        let name = topology.name(node);
        match node {
            Node::Host(_) => name.to_owned(),
            Node::Switch(switch) => {
                let number = &mut next[switch.0 as usize];
                *number += 1;
                format!("{name}p{}", *number - 1)
            }
        }
    };
    topology.ports().map(label).collect()
}
