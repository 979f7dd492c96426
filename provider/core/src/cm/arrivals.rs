//! Received messages. A message about a connection must name both ids and come from the address
//! of its peer; any other message changes nothing.

use urxe_wire::MadHeader;
use urxe_wire::cm::{
    CmMessage, Drep, Dreq, Lap, Mra, MraMessage, Rej, RejMessage, RejReason, Rep, Rtu, SidrRep,
    SidrStatus,
};

use super::agent::Agent;
use super::conn::{Conn, State, exponent_ns};
use super::event::CmEvent;
use super::message::{self, SERVICE_TIMEOUT};
use super::route::{self, Destination};
use super::terms::{CommId, MadPath, Reply};
use crate::shard::{Foreign, Handled};
use crate::time::Time;

impl Agent {
    /// Takes a management datagram: the payload of a packet to QP 1. Where others share the
    /// address it may be theirs.
    pub fn handle_mad(&mut self, now: Time, path: MadPath, bytes: &[u8]) -> Handled {
        let Ok((header, message)) = CmMessage::parse(bytes) else {
            self.counts.malformed += 1;
            return Handled::Here;
        };
        if self.config.is_shared && !self.is_mine(path, &message) {
            let destination = route::of_message(&message);
            return Handled::OfAnother(Foreign::Message(destination));
        }
        self.dispatch(now, path, &header, &message);
        Handled::Here
    }

    /// Takes a message that was [`Handled::OfAnother`] and turned out to have no owner: its sender
    /// still gets an answer.
    pub fn handle_unowned(&mut self, now: Time, path: MadPath, bytes: &[u8]) {
        if let Ok((header, message)) = CmMessage::parse(bytes) {
            self.dispatch(now, path, &header, &message);
        }
    }

    fn is_mine(&self, path: MadPath, message: &CmMessage) -> bool {
        match message {
            CmMessage::Req(req) => self.expects_req(path, req),
            CmMessage::SidrReq(req) => self.expects_sidr_req(path, req),
            message => match route::of_message(message) {
                Destination::Owner(owner) => owner == self.config.owner,
                _ => true,
            },
        }
    }

    fn dispatch(&mut self, now: Time, path: MadPath, header: &MadHeader, message: &CmMessage) {
        self.counts.received += 1;
        match message {
            CmMessage::Req(req) => self.on_req(now, path, header, req),
            CmMessage::SidrReq(req) => self.on_sidr_req(path, header, req),
            CmMessage::Rep(rep) => self.on_rep(path, header, rep),
            CmMessage::Rtu(rtu) => self.on_rtu(path, rtu),
            CmMessage::Mra(mra) => self.on_mra(now, path, mra),
            CmMessage::Rej(rej) => self.on_rej(now, path, rej),
            CmMessage::Dreq(dreq) => self.on_dreq(now, path, header, dreq),
            CmMessage::Drep(drep) => self.on_drep(now, path, drep),
            CmMessage::SidrRep(rep) => self.on_sidr_rep(now, path, rep),
            CmMessage::Lap(lap) => self.on_lap(path, header, lap),
            CmMessage::Apr(_) => self.counts.stray += 1,
        }
    }

    /// The connection at a place, if messages of it come this way.
    fn on_path(&self, path: MadPath, place: Option<usize>) -> Option<(usize, &Conn)> {
        let conn = self.conns.at(place?)?;
        let is_on_path = conn.path.remote == path.remote && conn.path.local == path.local;
        is_on_path.then_some((place?, conn))
    }

    /// The connection with this id, if messages of it come this way.
    pub(super) fn find_on(&self, path: MadPath, local: u32) -> Option<(usize, &Conn)> {
        self.on_path(path, self.conns.find(CommId(local)))
    }

    /// The connection that a message is about.
    fn about(&mut self, path: MadPath, local: u32, remote: u32) -> Option<usize> {
        let is_it = |conn: &Conn| conn.remote_id == remote && !conn.is_datagram();
        let found = self.find_on(path, local).filter(|(_, conn)| is_it(conn));
        let place = found.map(|(place, _)| place);
        match place {
            Some(place) => self.conns.prove(place),
            None => self.counts.stray += 1,
        }
        place
    }

    fn state(&self, place: usize) -> State {
        self.conns.at(place).map_or(State::Dead, |conn| conn.state)
    }

    fn on_rep(&mut self, path: MadPath, header: &MadHeader, rep: &Rep) {
        let id = CommId(rep.remote_comm_id);
        let Some((place, conn)) = self.find_on(path, id.0) else {
            return self.refuse_rep(path, header, rep);
        };
        match conn.state {
            State::ReqSent if rep.local_comm_id != 0 && !conn.is_in_handshake() => {
                self.conns
                    .know_remote(place, rep.local_comm_id, rep.local_ca_guid, rep.local_qpn);
                self.conns.prove(place);
                self.set_state(place, State::RepReceived);
                let reply = Reply::Connection {
                    terms: message::terms_of_rep(rep, header.attribute_modifier),
                    private_data: rep.private_data.into(),
                };
                self.events.push_back(CmEvent::Reply(id, Box::new(reply)));
            }
            State::RepReceived | State::Established if conn.remote_id == rep.local_comm_id => {
                self.repeat(place);
            }
            _ => self.counts.stray += 1,
        }
    }

    /// No connection waits for the reply (any more): the peer need not try again.
    fn refuse_rep(&mut self, path: MadPath, header: &MadHeader, rep: &Rep) {
        self.counts.stray += 1;
        let (local, remote) = (rep.remote_comm_id, rep.local_comm_id);
        let reason = RejReason::INVALID_COMM_ID;
        let rej = message::rej(local, remote, RejMessage::REP, reason);
        self.answer(path, CmMessage::Rej(rej).emit_mad(header.transaction_id));
    }

    fn on_rtu(&mut self, path: MadPath, rtu: &Rtu) {
        let Some(place) = self.about(path, rtu.remote_comm_id, rtu.local_comm_id) else {
            return;
        };
        match self.state(place) {
            State::RepSent => self.note_established(place, rtu.private_data.into()),
            State::Established => self.counts.duplicates += 1,
            _ => self.counts.stray += 1,
        }
    }

    /// The other side thinks about it: waits that much longer.
    fn on_mra(&mut self, now: Time, path: MadPath, mra: &Mra) {
        if self.take_answer(path, mra) {
            return;
        }
        let waits = |conn: &Conn| match mra.message {
            MraMessage::REQ => conn.state == State::ReqSent,
            MraMessage::REP => conn.state == State::RepSent && conn.remote_id == mra.local_comm_id,
            _ => false,
        };
        let found = self.find_on(path, mra.remote_comm_id);
        let Some((place, conn)) = found.filter(|(_, conn)| waits(conn)) else {
            self.counts.stray += 1;
            return;
        };
        // The message arrived: it need not be sent again before that time.
        let wait = exponent_ns(mra.service_timeout.min(SERVICE_TIMEOUT)) + conn.timewait_ns;
        self.conns.prove(place);
        self.arm(place, now + wait);
    }

    fn on_rej(&mut self, now: Time, path: MadPath, rej: &Rej) {
        let Some((place, conn)) = self.rejected(path, rej) else {
            self.counts.stray += 1;
            return;
        };
        let (id, state, is_held) = (conn.id, conn.state, conn.is_held());
        let ends = match state {
            State::ReqSent | State::RepSent | State::ReqReceived => false,
            State::RepReceived | State::DreqSent => true,
            _ => {
                self.counts.stray += 1;
                return;
            }
        };
        let is_early = state == State::ReqSent && rej.reason == RejReason::INVALID_SERVICE_ID;
        if is_early && self.ask_again(now, place) {
            return;
        }
        if is_held {
            let private_data = rej.private_data.into();
            self.events
                .push_back(CmEvent::Rejected(id, rej.reason, private_data));
        }
        if ends || rej.reason == RejReason::STALE_CONNECTION {
            self.enter_timewait(now, place);
        } else {
            self.end(place);
        }
    }

    /// The connection that a REJ is for. If our REQ is refused, the peer's id is not known here; and a
    /// peer that gave up before an answer came does not know our id, but names its own.
    fn rejected(&self, path: MadPath, rej: &Rej) -> Option<(usize, &Conn)> {
        let place = match rej.remote_comm_id {
            0 if rej.reason == RejReason::TIMEOUT && rej.local_comm_id != 0 => {
                let guid = u64::from_be_bytes(*rej.additional_info.first_chunk()?);
                self.conns.find_remote(path.remote, guid, rej.local_comm_id)
            }
            0 => None,
            id => self.conns.find(CommId(id)),
        };
        let is_it =
            |conn: &Conn| conn.remote_id == rej.local_comm_id || conn.state == State::ReqSent;
        self.on_path(path, place)
            .filter(|(_, conn)| !conn.is_datagram() && is_it(conn))
    }

    fn on_dreq(&mut self, now: Time, path: MadPath, header: &MadHeader, dreq: &Dreq) {
        let (local, remote) = (dreq.remote_comm_id, dreq.local_comm_id);
        let drep = message::drep(local, remote, header.transaction_id);
        let Some(place) = self.about(path, local, remote) else {
            // It is over here: the other side need not ask again.
            return self.answer(path, drep);
        };
        let conn = self.conns.at(place).expect("found");
        if conn.local_qpn != dreq.remote_qpn {
            self.counts.stray += 1;
            return;
        }
        match conn.state {
            State::RepSent | State::RepReceived | State::Established | State::DreqSent => {
                self.tell_end(place, false, &dreq.private_data);
                self.send_last(place, drep, State::Timewait);
                self.enter_timewait(now, place);
            }
            State::Timewait | State::Dead => {
                self.counts.duplicates += 1;
                self.answer(path, drep);
            }
            _ => self.counts.stray += 1,
        }
    }

    fn on_drep(&mut self, now: Time, path: MadPath, drep: &Drep) {
        let Some(place) = self.about(path, drep.remote_comm_id, drep.local_comm_id) else {
            return;
        };
        let conn = self.conns.at(place).expect("found");
        let is_over = match conn.state {
            State::DreqSent => true,
            // It was asked whether it still knows the connection, and does not.
            state => State::CONNECTED.contains(&state) && conn.probed,
        };
        if !is_over {
            self.counts.stray += 1;
            return;
        }
        self.tell_end(place, false, &drep.private_data);
        self.enter_timewait(now, place);
    }

    fn on_sidr_rep(&mut self, now: Time, path: MadPath, rep: &SidrRep) {
        let id = CommId(rep.request_id);
        let waits =
            |conn: &Conn| conn.state == State::SidrSent && conn.service_id == rep.service_id;
        let found = self.find_on(path, id.0);
        let Some((place, _)) = found.filter(|(_, conn)| waits(conn)) else {
            self.counts.stray += 1;
            return;
        };
        if rep.status == SidrStatus::UNSUPPORTED && self.ask_again(now, place) {
            return;
        }
        let reply = Reply::Datagram {
            status: rep.status,
            qpn: rep.qpn,
            qkey: rep.qkey,
            private_data: rep.private_data.into(),
        };
        self.events.push_back(CmEvent::Reply(id, Box::new(reply)));
        let state = match rep.status {
            SidrStatus::VALID => State::SidrDone,
            _ => State::Dead,
        };
        self.set_state(place, state);
    }

    fn on_lap(&mut self, path: MadPath, header: &MadHeader, lap: &Lap) {
        let (local, remote) = (lap.remote_comm_id, lap.local_comm_id);
        if self.about(path, local, remote).is_some() {
            let apr = message::apr_not_supported(local, remote, header.transaction_id);
            self.answer(path, apr);
        }
    }
}
