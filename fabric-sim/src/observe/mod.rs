//! Looking at a run: as a capture for Wireshark, as samples of queues, pauses and rates, and as a page that draws them.
//!
//! Nothing here changes what happens: a run that is looked at has the trace hash of one that is not.

mod capture;
pub mod csv;
mod diff;
pub mod html;
mod outcome;
mod series;
mod timeline;

pub use capture::{Capture, captured};
pub use diff::{Difference, Happening, Run, compared};
pub(crate) use outcome::ideal_of_message;
pub use outcome::{FlowOutcome, outcomes};
#[cfg(feature = "programs")]
pub(crate) use series::Sampler;
pub use series::{ClassSeries, Sampling, Series, sampled};
pub use timeline::{Bar, timeline};

use crate::Sim;
use crate::engine::Time;
use crate::fabric::PortStats;
use crate::topology::{Node, Topology};
use crate::workload::{JobOutcome, MessageOutcome, job_outcomes, messages};

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
                let number = &mut next[switch.index()];
                *number += 1;
                format!("{name}p{}", *number - 1)
            }
        }
    };
    topology.ports().map(label).collect()
}

/// A run as tables and reports show it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The network.
    pub topology: Topology,
    /// How it went.
    pub series: Series,
    /// What became of each flow.
    pub flows: Vec<FlowOutcome>,
    /// What became of each job.
    pub jobs: Vec<JobOutcome>,
    /// The messages of jobs that keep them.
    pub messages: Vec<MessageOutcome>,
    /// What each port did in all.
    pub ports: Vec<PortStats>,
}

/// Runs a simulation until a time, and tells what it did.
///
/// ```
/// use fabric_sim::host::StreamSpec;
/// use fabric_sim::observe::{Sampling, csv, observed};
/// use fabric_sim::{FabricConfig, HostId, Link, Rate, Sim, Time, Topology};
///
/// let topology = Topology::single_switch(3, Link::new(Rate::gbps(100)));
/// let mut sim = Sim::new(topology, FabricConfig::default())?;
/// for host in [0, 1] {
///     sim.add_stream(StreamSpec::write(HostId(host), HostId(2), 100_000))?;
/// }
/// let seen = observed(&mut sim, Time::NEVER, Sampling::AtMost(100));
/// assert!(seen.flows.iter().all(|flow| flow.slowdown().is_some_and(|times| times > 1.5)));
/// csv::write_flows(&mut std::io::stdout(), &seen)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// As [`sampled`].
pub fn observed(sim: &mut Sim, until: Time, sampling: Sampling) -> Observation {
    let series = sampled(sim, until, sampling);
    Observation::of(sim, series)
}

impl Observation {
    /// Of a run that was sampled.
    pub(crate) fn of(sim: &Sim, series: Series) -> Observation {
        let fabric = sim.fabric();
        let ports = fabric
            .topology()
            .ports()
            .map(|port| fabric.port_stats(port));
        Observation {
            topology: fabric.topology().clone(),
            series,
            flows: outcomes(sim),
            jobs: job_outcomes(sim),
            messages: messages(sim),
            ports: ports.collect(),
        }
    }
}
