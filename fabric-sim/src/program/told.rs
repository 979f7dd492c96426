//! What a run of programs has to tell when it is over.

use std::collections::BTreeMap;

use crate::program::report::HostEnd;
use crate::program::world::World;
use crate::qos::PRIORITIES;

impl World {
    pub(crate) fn ends(&self) -> Vec<Option<HostEnd>> {
        self.hosts.iter().map(|host| host.end).collect()
    }

    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for host in &self.hosts {
            for (name, count) in host.nic.counters() {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }

    /// The last frames that faults hit, and the last calls of each host.
    pub(crate) fn before(&self) -> Vec<String> {
        let topology = self.sim.fabric().topology();
        let faults = self
            .sim
            .fabric()
            .faults()
            .iter()
            .filter(|fault| fault.hits() > 0);
        let faults = faults.map(|active| {
            let hits: Vec<_> = active
                .last_hits()
                .map(|hit| hit.describe(topology))
                .collect();
            let last = if hits.is_empty() {
                String::new()
            } else {
                format!(", the last: {}", hits.join("; "))
            };
            format!("fault {}: {} hits{last}", active.fault(), active.hits())
        });
        let calls = self
            .hosts
            .iter()
            .zip(topology.hosts())
            .filter_map(|(side, host)| {
                let calls = side.nic.last_calls();
                let name = topology.name(host);
                (!calls.is_empty()).then(|| format!("{name} called last: {}", calls.join(", ")))
            });
        faults.chain(calls).collect()
    }

    /// Frames that hosts have sent, by class.
    pub(crate) fn sent_by_class(&self) -> [u64; PRIORITIES] {
        let fabric = self.sim.fabric();
        let ports = fabric.topology().hosts().map(|host| fabric.port_of(host));
        ports.fold([0; PRIORITIES], |mut sums, port| {
            for (sum, sent) in sums.iter_mut().zip(fabric.port_stats(port).sent_frames) {
                *sum += sent;
            }
            sums
        })
    }
}
