//! What a run of programs has to tell when it is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Time;
use crate::program::nic::Nic;
use crate::program::report::{Cause, HostEnd};
use crate::program::world::{Status, World};
use crate::qos::PRIORITIES;

/// A host's name, and what its programs call.
pub(crate) type Caller = (String, Arc<Nic>);

/// The last calls of each host.
pub(crate) fn last_calls(callers: &[Caller]) -> Vec<String> {
    let called = callers.iter().filter_map(|(name, nic)| {
        let calls = nic.last_calls();
        (!calls.is_empty()).then(|| format!("{name} called last: {}", calls.join("; ")))
    });
    called.collect()
}

impl World {
    /// Programs are left, and nothing happens until the time is up.
    pub(super) fn nothing_happens(&self, until: Time) -> Cause {
        let mut waiting = Vec::new();
        for task in self.tasks.values() {
            let what = match &task.status {
                Status::Waits(reason) => reason.to_string(),
                Status::Ready => "is about to go on".to_owned(),
            };
            let name = self.sim.fabric().topology().name(task.host);
            waiting.push(format!("{name} {what}"));
        }
        if self.sim.fabric().is_idle() {
            Cause::Deadlock(waiting)
        } else {
            Cause::TimeLimit { until, waiting }
        }
    }

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
        faults.chain(last_calls(&self.callers())).collect()
    }

    /// What the programs' verbs did that they must not goes to the other checks.
    pub(crate) fn report_findings(&mut self) {
        let found = self.hosts.iter().flat_map(|host| host.nic.take_findings());
        for finding in found.collect::<Vec<_>>() {
            let (host, qpn) = finding.qp;
            let (at, check, words) = (finding.at, finding.check, finding.words);
            self.sim.report_at(at, host, check, qpn, words);
        }
    }

    /// The hosts by name.
    pub(crate) fn callers(&self) -> Vec<Caller> {
        let topology = self.sim.fabric().topology();
        let sides = self.hosts.iter().zip(topology.hosts());
        sides
            .map(|(side, host)| (topology.name(host).to_owned(), side.nic.clone()))
            .collect()
    }

    /// Frames that hosts have sent, by class.
    pub(crate) fn sent_by_class(&self) -> [u64; PRIORITIES] {
        let fabric = self.sim.fabric();
        let ports = fabric
            .topology()
            .hosts()
            .flat_map(|host| fabric.ports_of(host));
        ports.fold([0; PRIORITIES], |mut sums, &port| {
            for (sum, sent) in sums.iter_mut().zip(fabric.port_stats(port).sent_frames) {
                *sum += sent;
            }
            sums
        })
    }
}
