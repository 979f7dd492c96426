//! Jobs in parts of a simulation: each part has what is kept of jobs at its hosts.

use crate::engine::Time;
use crate::host::job::{HostJobs, Job, JobSpec, Jobs};
use crate::topology::HostId;

impl Jobs {
    /// Why they cannot be in several parts.
    pub(super) fn undivided(&self) -> Option<&'static str> {
        let mut all = self.all.iter();
        all.any(|job| job.hosts.is_none())
            .then_some("jobs of this kind act at several hosts at once")
    }

    /// When one next begins: it acts at all of its hosts.
    pub(super) fn next_start(&self) -> Option<Time> {
        self.all.iter().filter_map(|job| job.begins).min()
    }

    /// The simulation was whole at that time: what was to begin has begun.
    pub(super) fn pass(&mut self, time: Time) {
        for job in &mut self.all {
            job.begins = job.begins.filter(|&at| at > time);
        }
    }

    /// The jobs for a part: without what is kept at hosts, but with what workloads have of those that are its own.
    pub(super) fn fork(&mut self, is_theirs: &dyn Fn(HostId) -> bool) -> Jobs {
        let part = |job: &mut Job| {
            let workload = job.spec.workload.divisible()?;
            let mut fork = workload.fork();
            workload.exchange(fork.as_mut(), is_theirs);
            let spec = JobSpec {
                name: String::new(),
                start: job.spec.start,
                options: job.spec.options,
                workload: fork,
            };
            Some(Job::new(spec, None))
        };
        Jobs {
            all: self.all.iter_mut().filter_map(part).collect(),
            hosts: self.hosts.iter().map(|_| HostJobs::default()).collect(),
            doors: self.doors.clone(),
        }
    }

    /// Puts a part back, but for what is kept at hosts.
    pub(super) fn join(&mut self, others: Vec<Job>, is_theirs: &dyn Fn(HostId) -> bool) {
        for (job, mut other) in self.all.iter_mut().zip(others) {
            if let Some(workload) = job.spec.workload.divisible() {
                workload.exchange(other.spec.workload.as_mut(), is_theirs);
            }
            job.arrived += other.arrived;
            job.bytes += other.bytes;
            job.messages.append(&mut other.messages);
            job.last = job.last.max(other.last);
            if let (Some(status), Some(at)) = (other.failure, other.failed_at) {
                job.fail(status, at);
            }
        }
    }

    /// All parts are back: a job that is complete now was when the last of it was done.
    pub(super) fn conclude(&mut self) {
        for job in &mut self.all {
            if job.end.is_none() && job.begins.is_none() && job.spec.workload.is_complete() {
                job.end = Some(job.last);
            }
        }
    }

    pub(super) fn order_messages(&mut self) {
        for job in &mut self.all {
            job.order_messages();
        }
    }
}
