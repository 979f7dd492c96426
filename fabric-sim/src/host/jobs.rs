//! Jobs: workloads over the real transport. A message is an RDMA WRITE with immediate, as collective libraries send them; its
//! receiver is told by the completion of a receive, its sender by that of the WRITE.

use std::collections::VecDeque;

use urxe_core::WcStatus;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::qp::attr::QpCap;
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};

use crate::host::drive::StreamError;
use crate::host::job::{End, Job, JobId, JobSpec, Lane, Message, OF_JOBS, Posted};
use crate::host::memory::Contents;
use crate::host::sim::Sim;
use crate::host::timer::TimerFor;
use crate::host::transport::Verbs;
use crate::topology::HostId;
use crate::workload::{Action, Event, MESSAGE_MAX, Todo};

/// Messages of a connection that are posted at a time, each way.
const DEPTH: u32 = 16;

impl Sim {
    /// Adds a job. It begins at its time.
    pub fn add_job(&mut self, spec: JobSpec) -> JobId {
        let id = self.drivers.jobs.all.len() as u32;
        let start = spec.start.max(self.fabric.now());
        self.drivers.jobs.all.push(Job {
            spec,
            arrived: 0,
            bytes: 0,
            messages: Vec::new(),
            end: None,
            failure: None,
        });
        let place = self.drivers.jobs.new_wait(id, None);
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
        let jobs = &mut self.drivers.jobs;
        let Some(&(job, tag)) = jobs.waits.get(place as usize) else {
            return;
        };
        jobs.unused.push(place);
        self.tell_job(host, job, tag.map(Event::Due));
    }

    /// Tells a job what has happened, or that it begins, and does what it wants. `here` is the host that is being served.
    fn tell_job(&mut self, here: HostId, number: u32, event: Option<Event>) {
        let now = self.fabric.now();
        let mut todo = Todo::at(now);
        let job = &mut self.drivers.jobs.all[number as usize];
        match event {
            None => job.spec.workload.start(&mut todo),
            Some(event) => job.spec.workload.on_event(event, &mut todo),
        }
        if job.end.is_none() && job.spec.workload.is_complete() {
            job.end = Some(now);
        }
        for action in todo.drain() {
            match action {
                Action::Send {
                    from,
                    to,
                    bytes,
                    tag,
                } => {
                    if let Err(status) = self.send_for_job(number, (from, to), bytes, tag) {
                        self.fail_job(number, status);
                    } else if from != here {
                        self.set_timer(from, now, TimerFor::Transport);
                    }
                }
                Action::Wait { host, until, tag } => {
                    let place = self.drivers.jobs.new_wait(number, Some(tag));
                    self.set_timer(host, until, TimerFor::Job(place));
                }
            }
        }
    }

    fn fail_job(&mut self, job: u32, status: WcStatus) {
        let failure = &mut self.drivers.jobs.all[job as usize].failure;
        failure.get_or_insert(status);
    }

    /// Puts a message on a connection.
    fn send_for_job(
        &mut self,
        job: u32,
        (from, to): (HostId, HostId),
        bytes: u32,
        tag: u64,
    ) -> Result<(), WcStatus> {
        let keeps = self.drivers.jobs.all[job as usize]
            .spec
            .workload
            .keeps_messages();
        let key = match keeps {
            true => (job, from, to),
            false => (job, from.min(to), from.max(to)),
        };
        let free = self.drivers.jobs.free.get_mut(&key);
        let found = free.and_then(|list| {
            if keeps {
                list.pop()
            } else {
                list.last().copied()
            }
        });
        let lane = match found {
            Some(lane) => lane,
            None => {
                let depth = if keeps { 1 } else { DEPTH };
                // What cannot be connected, such as a host that crashed, fails as a connection without an answer does.
                let lane = self.new_lane(job, (key.1, key.2), depth);
                let lane = lane.map_err(|_| WcStatus::RetryExcErr)?;
                if !keeps {
                    self.drivers.jobs.free.insert(key, vec![lane]);
                }
                lane
            }
        };
        let end = usize::from(from != key.1);
        let since = self.fabric.now();
        let waiting = &mut self.drivers.jobs.lanes[lane as usize].ends[end].waiting;
        waiting.push_back(Posted { bytes, tag, since });
        self.post_for_jobs(lane, end)
    }

    fn new_lane(
        &mut self,
        job: u32,
        hosts: (HostId, HostId),
        depth: u32,
    ) -> Result<u32, StreamError> {
        let number = self.drivers.jobs.lanes.len() as u32;
        let cap = QpCap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let mut end = |host: HostId| {
            let known = self.drivers.jobs.regions.get(&host).copied();
            let (qp, memory) = self.with_verbs(host, |verbs| {
                let cq = verbs.stream_cq();
                let memory = match known {
                    Some(memory) => memory,
                    None => {
                        let (addr, keys) = verbs.register(MESSAGE_MAX, Contents::Pattern(0))?;
                        (addr, keys.lkey, keys.rkey)
                    }
                };
                Ok::<_, StreamError>((verbs.create_qp(cq, cap)?, memory))
            })?;
            self.drivers.jobs.regions.insert(host, memory);
            Ok::<_, StreamError>(End {
                qp,
                memory,
                posted: VecDeque::new(),
                come: 0,
                waiting: VecDeque::new(),
            })
        };
        let ends = [end(hosts.0)?, end(hosts.1)?];
        let options = self.drivers.jobs.all[job as usize].spec.options;
        self.connect(ends[0].qp, ends[1].qp, &options)?;
        self.drivers.jobs.lanes.push(Lane { job, ends });
        for end in [0, 1] {
            for _ in 0..depth {
                self.post_receive_for_jobs(number, end);
            }
        }
        Ok(number)
    }

    /// Posts what waits, as far as the queue has room.
    fn post_for_jobs(&mut self, number: u32, end: usize) -> Result<(), WcStatus> {
        let now = self.fabric.now();
        let drivers = &mut self.drivers;
        let lane = &mut drivers.jobs.lanes[number as usize];
        let (remote, rkey) = (lane.ends[1 - end].memory.0, lane.ends[1 - end].memory.2);
        let end_of = &mut lane.ends[end];
        let Some(transport) = &mut drivers.transports[end_of.qp.host.index()] else {
            return Err(WcStatus::WrFlushErr);
        };
        let mut verbs = Verbs { now, transport };
        while end_of.posted.len() < DEPTH as usize
            && let Some(message) = end_of.waiting.pop_front()
        {
            let sges = [Sge {
                addr: end_of.memory.0,
                length: message.bytes,
                lkey: end_of.memory.1,
            }];
            let sges = &sges[..usize::from(message.bytes > 0)];
            let wr_id = OF_JOBS | u64::from(number) << 1 | end as u64;
            let opcode = WrOpcode::RdmaWriteWithImm;
            let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(sges));
            (wr.remote_addr, wr.rkey) = (remote, rkey);
            if verbs.post_send(end_of.qp.index, &wr).is_err() {
                return Err(WcStatus::WrFlushErr);
            }
            end_of.posted.push_back(message);
        }
        Ok(())
    }

    fn post_receive_for_jobs(&mut self, number: u32, end: usize) {
        let now = self.fabric.now();
        let qp = self.drivers.jobs.lanes[number as usize].ends[end].qp;
        let wr_id = OF_JOBS | u64::from(number) << 1 | end as u64;
        if let Some(transport) = &mut self.drivers.transports[qp.host.index()] {
            // A QP that has failed takes none: its messages have, too.
            let _ = Verbs { now, transport }.post_recv(qp.index, &RecvWr { wr_id, sges: &[] });
        }
    }

    /// A work request of a job has completed.
    pub(crate) fn on_job_completion(&mut self, cqe: &Cqe) {
        let (number, end) = ((cqe.wr_id >> 1) as u32, (cqe.wr_id & 1) as usize);
        let lane = &mut self.drivers.jobs.lanes[number as usize];
        let (job, here) = (lane.job, lane.ends[end].qp.host);
        let is_receive = matches!(cqe.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        if cqe.status != WcStatus::Success {
            // Receives are flushed when their QP fails, and that has a completion of its own or a peer with one.
            if !is_receive {
                self.fail_job(job, cqe.status);
            }
            return;
        }
        if is_receive {
            let peer = &mut lane.ends[1 - end];
            let Some(&message) = peer.posted.get(peer.come) else {
                return;
            };
            peer.come += 1;
            let of_job = &mut self.drivers.jobs.all[job as usize];
            of_job.arrived += 1;
            of_job.bytes += u64::from(message.bytes);
            self.post_receive_for_jobs(number, end);
            return self.tell_job(here, job, Some(Event::Arrived(message.tag)));
        }
        let to = lane.ends[1 - end].qp.host;
        let sender = &mut lane.ends[end];
        let Some(message) = sender.posted.pop_front() else {
            return;
        };
        sender.come = sender.come.saturating_sub(1);
        self.on_message_end(job, number, (here, to), message);
        if let Err(status) = self.post_for_jobs(number, end) {
            self.fail_job(job, status);
        }
        self.tell_job(here, job, Some(Event::Sent(message.tag)));
    }

    fn on_message_end(
        &mut self,
        number: u32,
        lane: u32,
        (from, to): (HostId, HostId),
        posted: Posted,
    ) {
        let now = self.fabric.now();
        let job = &mut self.drivers.jobs.all[number as usize];
        if !job.spec.workload.keeps_messages() {
            return;
        }
        job.messages.push(Message {
            from,
            to,
            bytes: posted.bytes,
            start: posted.since,
            took: now.since(posted.since),
        });
        let key = (number, from, to);
        self.drivers.jobs.free.entry(key).or_default().push(lane);
    }

    /// A host has crashed: connections to it are of no use, and what they carried is lost.
    pub(crate) fn drop_jobs_of(&mut self, host: HostId) {
        let Sim { drivers, .. } = self;
        drivers.jobs.regions.remove(&host);
        let is_there = |_: &_, lanes: &mut Vec<u32>| {
            lanes.retain(|&lane| {
                let ends = &drivers.jobs.lanes[lane as usize].ends;
                ends.iter().all(|end| end.qp.host != host)
            });
            !lanes.is_empty()
        };
        let mut free = core::mem::take(&mut drivers.jobs.free);
        free.retain(is_there);
        drivers.jobs.free = free;
        for lane in &drivers.jobs.lanes {
            let mine = lane.ends.iter().find(|end| end.qp.host == host);
            if mine.is_some_and(|end| !end.posted.is_empty() || !end.waiting.is_empty()) {
                let job = &mut drivers.jobs.all[lane.job as usize];
                job.failure.get_or_insert(WcStatus::WrFlushErr);
            }
        }
    }
}
