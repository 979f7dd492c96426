//! Connections of jobs. The host that needs one first begins it, and gives the other end its number and first PSNs; that end is made
//! when the first packet for it arrives.
//!
//! So a connection takes no time, and yet nothing happens at a host at a moment that another one decides.

use std::collections::VecDeque;
use std::sync::Arc;

use urxe_core::mr::RegisterError;
use urxe_core::qp::attr::QpCap;
use urxe_core::table::QpIndex;
use urxe_core::work::RecvWr;
use urxe_core::{CreateQpError, WcStatus};
use urxe_wire::{Psn, Qpn};

use crate::congestion::Steering;
use crate::envelope::decode;
use crate::fabric::{LITE_BODY, Mode};
use crate::frame::{Frame, Payload};
use crate::host::connect::{QpHandle, pin_planes};
use crate::host::drive::StreamError;
use crate::host::job::{Door, End, Invitation, News, Note, OF_JOBS, Posted};
use crate::host::memory::Contents;
use crate::host::sim::Sim;
use crate::topology::HostId;
use crate::workload::MESSAGE_MAX;

/// Messages of a connection that are posted at a time, each way.
pub(super) const DEPTH: u32 = 16;

impl Sim {
    /// Sets up what peers need to know of a host, while the simulation is whole.
    pub(super) fn open_door(&mut self, host: HostId) -> Result<(), RegisterError> {
        if self.drivers.jobs.doors[host.index()].is_some() {
            return Ok(());
        }
        let mut verbs = self.verbs_of(host);
        let numbers = verbs.set_qpns_aside();
        let (addr, keys) = verbs.register(MESSAGE_MAX, Contents::Pattern(0))?;
        let doors = Arc::make_mut(&mut self.drivers.jobs.doors);
        doors[host.index()] = Some(Door {
            numbers: (numbers.start, numbers.end),
            addr,
            rkey: keys.rkey,
            lkey: keys.lkey,
        });
        Ok(())
    }

    /// The number of the other end of a new connection. No two hosts give one number at a host.
    fn next_number(&mut self, from: HostId, to: HostId) -> Result<Qpn, StreamError> {
        if self.fabric.parts.is_none() {
            self.open_door(from)?;
            self.open_door(to)?;
        }
        let jobs = &mut self.drivers.jobs;
        let hosts = jobs.hosts.len() as u64;
        let begun = jobs.hosts[from.index()].begun.entry(to).or_default();
        let door = jobs.doors[to.index()].ok_or(CreateQpError::NoQpn)?;
        let (first, end) = door.numbers;
        let number = u64::from(first) + u64::from(*begun) * hosts + u64::from(from.0);
        if number >= u64::from(end) {
            return Err(CreateQpError::NoQpn.into());
        }
        *begun += 1;
        Ok(Qpn::new(number as u32))
    }

    /// Messages of a job that a connection takes at a time.
    fn depth_of(&self, job: u32) -> u32 {
        if self.keeps_messages(job) { 1 } else { DEPTH }
    }

    /// Begins a connection. Returns the place of this end.
    pub(super) fn begin_lane(
        &mut self,
        job: u32,
        (from, to): (HostId, HostId),
    ) -> Result<u32, StreamError> {
        let cap = cap(self.depth_of(job));
        let qpn = self.next_number(from, to)?;
        let mut verbs = self.verbs_of(from);
        let cq = verbs.stream_cq();
        let qp = verbs.create_qp(cq, cap)?;
        let psns = (verbs.draw_psn(), verbs.draw_psn());
        // Where the other end is in its table is known there alone.
        let index = QpIndex(u32::MAX);
        let peer = QpHandle {
            host: to,
            index,
            qpn,
        };
        self.set_up(job, (qp, peer), psns, true)?;
        let place = self.add_end(job, (qp, peer), VecDeque::new());
        let invitation = Invitation {
            job,
            peer: qp,
            psns: (psns.1, psns.0),
            coming: VecDeque::new(),
        };
        self.tell_peer(to, qpn, News::Invited(invitation));
        Ok(place)
    }

    /// A packet for such an end has come: if it was told of the connection, and is not there yet, it is made.
    pub(super) fn admit(&mut self, host: HostId, qpn: u32) {
        let Some(at_host) = self.drivers.jobs.hosts.get_mut(host.index()) else {
            return;
        };
        let Some(invitation) = at_host.invitations.remove(&qpn) else {
            return;
        };
        let (job, peer) = (invitation.job, invitation.peer);
        // Without a place for it the peer sends until its retries are used up, and its message fails.
        let Ok(qp) = self.accept(host, Qpn::new(qpn), &invitation) else {
            return;
        };
        let place = self.add_end(job, (qp, peer), invitation.coming);
        if !self.keeps_messages(job) {
            let at_host = &mut self.drivers.jobs.hosts[host.index()];
            let free = at_host.free.entry((job, peer.host));
            free.or_insert_with(|| vec![place]);
        }
    }

    fn accept(
        &mut self,
        host: HostId,
        qpn: Qpn,
        invitation: &Invitation,
    ) -> Result<QpHandle, StreamError> {
        let cap = cap(self.depth_of(invitation.job));
        let mut verbs = self.verbs_of(host);
        let cq = verbs.stream_cq();
        let qp = verbs.create_qp_as(cq, cap, qpn)?;
        let ends = (qp, invitation.peer);
        self.set_up(invitation.job, ends, invitation.psns, false)?;
        Ok(qp)
    }

    /// Connects one end with a peer.
    fn set_up(
        &mut self,
        job: u32,
        (qp, peer): (QpHandle, QpHandle),
        psns: (Psn, Psn),
        is_first: bool,
    ) -> Result<(), StreamError> {
        let options = self.drivers.jobs.all[job as usize].spec.options;
        let mut verbs = self.verbs_of(qp.host);
        verbs.connect(qp.index, peer, psns, &options)?;
        verbs.set_congestion_control(qp.index, options.congestion)?;
        pin_planes(&mut self.fabric, (qp, peer), &options, is_first);
        if let Some(steering) = options.steering {
            let road = self.road(qp.host, peer.host, &options);
            let algorithm = steering.begin(road);
            let mut verbs = self.verbs_of(qp.host);
            verbs.steer_by(qp, peer, algorithm);
            if let Steering::Rccc(params) = steering {
                let way = (params, road, options.mtu.bytes());
                verbs.pace(qp, peer, psns.1, way);
            }
        }
        Ok(())
    }

    fn add_end(
        &mut self,
        job: u32,
        (qp, peer): (QpHandle, QpHandle),
        coming: VecDeque<Posted>,
    ) -> u32 {
        let at_host = &mut self.drivers.jobs.hosts[qp.host.index()];
        let place = at_host.ends.len() as u32;
        at_host.ends.push(End {
            job,
            qp,
            peer: (peer.host, peer.qpn),
            posted: VecDeque::new(),
            waiting: VecDeque::new(),
            coming,
        });
        at_host.places.insert(qp.qpn.get(), place);
        for _ in 0..self.depth_of(job) {
            self.post_receive_for_jobs(qp.host, place);
        }
        place
    }

    pub(super) fn post_receive_for_jobs(&mut self, host: HostId, place: u32) {
        let qp = self.drivers.jobs.hosts[host.index()].ends[place as usize].qp;
        let wr_id = OF_JOBS | u64::from(place);
        // A QP that has failed takes none: its messages have, too.
        let _ = self
            .verbs_of(host)
            .post_recv(qp.index, &RecvWr { wr_id, sges: &[] });
    }

    /// Tells the other end of a connection something that it knows before the next packet comes.
    pub(super) fn tell_peer(&mut self, to: HostId, qpn: Qpn, news: News) {
        let note = Note { to, qpn, news };
        match self.letter_to(to) {
            Some(letter) => letter.notes.push(note),
            None => self.on_note(note),
        }
    }

    pub(super) fn on_note(&mut self, note: Note) {
        let at_host = &mut self.drivers.jobs.hosts[note.to.index()];
        let qpn = note.qpn.get();
        match note.news {
            News::Invited(invitation) => {
                at_host.invitations.insert(qpn, invitation);
            }
            News::Posted(posted) => {
                let place = at_host.places.get(&qpn);
                // Without either its host has crashed since.
                if let Some(invitation) = at_host.invitations.get_mut(&qpn) {
                    invitation.coming.push_back(posted);
                } else if let Some(&place) = place {
                    at_host.ends[place as usize].coming.push_back(posted);
                }
            }
        }
    }

    /// A frame has come to a host that was invited: the end that it is for is made if it is not there.
    #[inline]
    pub(super) fn admit_for(&mut self, host: HostId, frame: &Frame) {
        let at_host = self.drivers.jobs.hosts.get(host.index());
        if at_host.is_some_and(|at_host| !at_host.invitations.is_empty())
            && let Some(qpn) = self.number_in(host, frame)
        {
            self.admit(host, qpn);
        }
    }

    /// The destination QP of a frame.
    fn number_in(&self, host: HostId, frame: &Frame) -> Option<u32> {
        let (body, len) = match frame.payload {
            Payload::Roce { body, len } => (self.fabric.bodies.get(body), len as usize),
            Payload::Grant { qpn, .. } => return Some(qpn),
            _ => return None,
        };
        let packet = match self.fabric.config().mode {
            Mode::Bytes => {
                let (envelope, packet) = decode(&body[..frame.len as usize - 4])?;
                (envelope.dst == host).then_some(packet)?
            }
            Mode::Lite => &body[..LITE_BODY.min(len)],
        };
        let &[_, _, _, _, _, a, b, c] = packet.first_chunk()?;
        Some(u32::from_be_bytes([0, a, b, c]))
    }

    /// A host has crashed: connections to it are of no use, and what they carried is lost.
    pub(crate) fn drop_jobs_of(&mut self, host: HostId) {
        let now = self.fabric.now();
        let jobs = &mut self.drivers.jobs;
        let Some(at_host) = jobs.hosts.get_mut(host.index()) else {
            return;
        };
        at_host.places.clear();
        at_host.free.clear();
        at_host.invitations.clear();
        for end in core::mem::take(&mut at_host.ends) {
            if !end.posted.is_empty() || !end.waiting.is_empty() {
                jobs.all[end.job as usize].fail(WcStatus::WrFlushErr, (now, host));
            }
        }
        for other in &mut jobs.hosts {
            other.free.retain(|&(_, peer), _| peer != host);
        }
        // Peers may send to it before it is back, and their connections last until then.
        if Arc::make_mut(&mut jobs.doors)[host.index()]
            .take()
            .is_some()
            && let Err(error) = self.open_door(host)
        {
            let name = self.fabric.topology().name(host);
            panic!("{name} has crashed, and has no memory for its jobs: {error}");
        }
    }
}

fn cap(depth: u32) -> QpCap {
    QpCap {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    }
}
