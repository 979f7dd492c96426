//! Jobs: workloads over the real transport. A message is an RDMA WRITE with immediate, as collective libraries send them; its
//! receiver is told by the completion of a receive, its sender by that of the WRITE.
//!
//! What happens at a host changes what is kept of jobs there, and nothing of other hosts: so their hosts can be in several parts of a
//! simulation. Only the beginning of a job acts at all of its hosts.

use urxe_core::WcStatus;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::work::{SendWr, Sge, WrData, WrOpcode};

use crate::host::job::{HostJobs, Job, JobId, JobSpec, Message, News, OF_JOBS, Posted};
use crate::host::lane::DEPTH;
use crate::host::sim::Sim;
use crate::host::timer::TimerFor;
use crate::host::transport::Verbs;
use crate::topology::HostId;
use crate::workload::{Action, Event, Todo};

impl Sim {
    /// Adds a job. It begins at its time.
    pub fn add_job(&mut self, mut spec: JobSpec) -> JobId {
        let jobs = &mut self.drivers.jobs;
        let id = jobs.all.len() as u32;
        let start = spec.start.max(self.fabric.now());
        let count = self.fabric.topology().host_count();
        jobs.hosts.resize_with(count, HostJobs::default);
        std::sync::Arc::make_mut(&mut jobs.doors).resize(count, None);
        if spec.options.steering.is_some_and(|s| s.reads_telemetry()) {
            self.fabric.telemetry.begin();
        }
        let hosts = spec.workload.divisible().map(|workload| workload.hosts());
        let job = Job::new(spec, Some(start));
        jobs.all.push(Job { hosts, ..job });
        let place = jobs.hosts[0].new_wait(id, None);
        self.set_timer(HostId(0), start, TimerFor::Job(place));
        JobId(id)
    }

    /// A job.
    pub fn job(&self, id: JobId) -> &Job {
        &self.drivers.jobs.all[id.0 as usize]
    }

    /// All jobs.
    pub fn jobs(&self) -> &[Job] {
        &self.drivers.jobs.all
    }

    /// The time of a job has come.
    pub(crate) fn on_job_timer(&mut self, host: HostId, place: u32) {
        let Some(at_host) = self.drivers.jobs.hosts.get_mut(host.index()) else {
            return;
        };
        let Some(&(job, tag)) = at_host.waits.get(place as usize) else {
            return;
        };
        at_host.unused.push(place);
        match tag {
            Some(tag) => self.tell_job(host, job, Some(Event::Due(tag))),
            None => self.begin_job(host, job),
        }
    }

    fn begin_job(&mut self, here: HostId, number: u32) {
        let job = &mut self.drivers.jobs.all[number as usize];
        job.begins = None;
        for host in job.hosts.clone().into_iter().flatten() {
            if let Err(error) = self.open_door(host) {
                let name = self.fabric.topology().name(host);
                panic!("a job begins, and {name} has no memory for it: {error}");
            }
        }
        self.tell_job(here, number, None);
    }

    /// Tells a job what has happened, or that it begins, and does what it wants. `here` is the host that is being served.
    fn tell_job(&mut self, here: HostId, number: u32, event: Option<Event>) {
        let now = self.fabric.now();
        let is_part = self.fabric.parts.is_some();
        let mut todo = Todo::at(now);
        let job = &mut self.drivers.jobs.all[number as usize];
        let workload = &mut job.spec.workload;
        let mut done = || workload.divisible().map(|workload| workload.done());
        let before = if is_part { done() } else { None };
        match event {
            None => job.spec.workload.start(&mut todo),
            Some(event) => job.spec.workload.on_event(event, &mut todo),
        }
        if is_part {
            let workload = job.spec.workload.divisible();
            if workload.map(|workload| workload.done()) != before {
                job.last = now;
            }
        } else if job.end.is_none() && job.spec.workload.is_complete() {
            job.end = Some(now);
        }
        for action in todo.drain() {
            let (Action::Send { from: host, .. } | Action::Wait { host, .. }) = action;
            assert!(
                host == here || !is_part,
                "a workload that says it can be divided acts where something has happened"
            );
            match action {
                Action::Send {
                    from,
                    to,
                    bytes,
                    tag,
                } => {
                    if let Err(status) = self.send_for_job(number, (from, to), bytes, tag) {
                        self.fail_job(number, status, from);
                    } else if from != here {
                        self.set_timer(from, now, TimerFor::Transport);
                    }
                }
                Action::Wait { host, until, tag } => {
                    let at_host = &mut self.drivers.jobs.hosts[host.index()];
                    let place = at_host.new_wait(number, Some(tag));
                    self.set_timer(host, until, TimerFor::Job(place));
                }
            }
        }
    }

    fn fail_job(&mut self, job: u32, status: WcStatus, host: HostId) {
        let now = self.fabric.now();
        self.drivers.jobs.all[job as usize].fail(status, (now, host));
    }

    /// Puts a message on a connection.
    fn send_for_job(
        &mut self,
        job: u32,
        (from, to): (HostId, HostId),
        bytes: u32,
        tag: u64,
    ) -> Result<(), WcStatus> {
        let keeps = self.keeps_messages(job);
        let at_host = &mut self.drivers.jobs.hosts[from.index()];
        let free = at_host.free.get_mut(&(job, to));
        let found = free.and_then(|list| {
            if keeps {
                list.pop()
            } else {
                list.last().copied()
            }
        });
        let place = match found {
            Some(place) => place,
            None => {
                // What cannot be connected fails as a connection without an answer does.
                let begun = self.begin_lane(job, (from, to));
                let place = begun.map_err(|_| WcStatus::RetryExcErr)?;
                if !keeps {
                    let at_host = &mut self.drivers.jobs.hosts[from.index()];
                    at_host.free.insert((job, to), vec![place]);
                }
                place
            }
        };
        let since = self.fabric.now();
        let end = &mut self.drivers.jobs.hosts[from.index()].ends[place as usize];
        end.waiting.push_back(Posted { bytes, tag, since });
        self.post_for_jobs(from, place)
    }

    pub(crate) fn keeps_messages(&self, job: u32) -> bool {
        let workload = &self.drivers.jobs.all[job as usize].spec.workload;
        workload.keeps_messages()
    }

    /// Posts what waits, as far as the queue has room.
    fn post_for_jobs(&mut self, host: HostId, place: u32) -> Result<(), WcStatus> {
        let now = self.fabric.now();
        loop {
            let drivers = &mut self.drivers;
            let end = &mut drivers.jobs.hosts[host.index()].ends[place as usize];
            let (peer, qpn) = end.peer;
            let doors = &drivers.jobs.doors;
            let (Some(own), Some(theirs)) = (doors[host.index()], doors[peer.index()]) else {
                return Err(WcStatus::WrFlushErr);
            };
            let Some(transport) = &mut drivers.transports[host.index()] else {
                return Err(WcStatus::WrFlushErr);
            };
            if end.posted.len() >= DEPTH as usize {
                return Ok(());
            }
            let Some(message) = end.waiting.pop_front() else {
                return Ok(());
            };
            let sges = [Sge {
                addr: own.addr,
                length: message.bytes,
                lkey: own.lkey,
            }];
            let sges = &sges[..usize::from(message.bytes > 0)];
            let opcode = WrOpcode::RdmaWriteWithImm;
            let mut wr = SendWr::new(OF_JOBS | u64::from(place), opcode, WrData::Sges(sges));
            (wr.remote_addr, wr.rkey) = (theirs.addr, theirs.rkey);
            let mut verbs = Verbs { now, transport };
            if verbs.post_send(end.qp.index, &wr).is_err() {
                return Err(WcStatus::WrFlushErr);
            }
            end.posted.push_back(message);
            self.tell_peer(peer, qpn, News::Posted(message));
        }
    }

    /// A work request of a job has completed.
    pub(crate) fn on_job_completion(&mut self, host: HostId, cqe: &Cqe) {
        let place = cqe.wr_id as u32;
        let at_host = &mut self.drivers.jobs.hosts[host.index()];
        let end = &mut at_host.ends[place as usize];
        let job = end.job;
        let is_receive = matches!(cqe.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        if cqe.status != WcStatus::Success {
            // Receives are flushed when their QP fails, and that has a completion of its own or a peer with one.
            if !is_receive {
                self.fail_job(job, cqe.status, host);
            }
            return;
        }
        if is_receive {
            let Some(message) = end.coming.pop_front() else {
                return;
            };
            let of_job = &mut self.drivers.jobs.all[job as usize];
            of_job.arrived += 1;
            of_job.bytes += u64::from(message.bytes);
            self.post_receive_for_jobs(host, place);
            return self.tell_job(host, job, Some(Event::Arrived(message.tag)));
        }
        let to = end.peer.0;
        let Some(message) = end.posted.pop_front() else {
            return;
        };
        self.on_message_end(job, place, (host, to), message);
        if let Err(status) = self.post_for_jobs(host, place) {
            self.fail_job(job, status, host);
        }
        self.tell_job(host, job, Some(Event::Sent(message.tag)));
    }

    fn on_message_end(
        &mut self,
        number: u32,
        place: u32,
        (from, to): (HostId, HostId),
        posted: Posted,
    ) {
        if !self.keeps_messages(number) {
            return;
        }
        let now = self.fabric.now();
        self.drivers.jobs.all[number as usize]
            .messages
            .push(Message {
                from,
                to,
                bytes: posted.bytes,
                start: posted.since,
                took: now.since(posted.since),
            });
        let at_host = &mut self.drivers.jobs.hosts[from.index()];
        at_host.free.entry((number, to)).or_default().push(place);
    }
}
