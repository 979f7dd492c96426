//! Received messages. A message about a connection must name both ids and come from the address
//! of its peer; any other message changes nothing.

use urxe_wire::MadHeader;
use urxe_wire::cm::{
    CmMessage, Drep, Dreq, Lap, Mra, MraMessage, Rej, RejMessage, RejReason, Rep, Rtu, SidrRep,
    SidrStatus,
};

use super::agent::Agent;
use super::conn::{Holder, State, exponent_ns};
use super::event::CmEvent;
use super::message::{self, Refusal, SERVICE_TIMEOUT};
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

    /// The connection that a message is about.
    fn about(&mut self, path: MadPath, local: u32, remote: u32) -> Option<usize> {
        let place = self.conns.find(CommId(local)).filter(|&place| {
            self.conns.at(place).is_some_and(|conn| {
                conn.path.remote == path.remote
                    && conn.path.local == path.local
                    && conn.remote_id == remote
                    && !conn.is_datagram()
            })
        });
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
        let found = self.conns.find(id).filter(|&place| {
            self.conns.at(place).is_some_and(|conn| {
                conn.path.remote == path.remote && conn.path.local == path.local
            })
        });
        let Some(place) = found else {
            return self.refuse_rep(path, header, rep);
        };
        let conn = self.conns.at(place).expect("found");
        match conn.state {
            State::ReqSent if rep.local_comm_id != 0 => {
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
        let refusal = Refusal {
            local: rep.remote_comm_id,
            remote: rep.local_comm_id,
            message: RejMessage::REP,
            reason: RejReason::INVALID_COMM_ID,
            guid: None,
            private_data: &[],
        };
        if let Ok(mad) = message::rej(&refusal, header.transaction_id) {
            self.answer(path, mad);
        }
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
        let place = self.conns.find(CommId(mra.remote_comm_id));
        let fits = place
            .and_then(|place| self.conns.at(place))
            .is_some_and(|conn| {
                let waits = match mra.message {
                    MraMessage::REQ => conn.state == State::ReqSent,
                    MraMessage::REP => {
                        conn.state == State::RepSent && conn.remote_id == mra.local_comm_id
                    }
                    _ => false,
                };
                waits && conn.path.remote == path.remote && conn.path.local == path.local
            });
        let Some(place) = place.filter(|_| fits) else {
            self.counts.stray += 1;
            return;
        };
        self.conns.prove(place);
        let wait = exponent_ns(mra.service_timeout.min(SERVICE_TIMEOUT));
        let conn = self.conns.at_mut(place).expect("found");
        // The message arrived: it need not be sent again before that time.
        let wait = wait + conn.timewait_ns;
        self.arm(place, now + wait);
    }

    fn on_rej(&mut self, now: Time, path: MadPath, rej: &Rej) {
        let Some(place) = self.rejected(path, rej) else {
            self.counts.stray += 1;
            return;
        };
        let conn = self.conns.at(place).expect("found");
        let (id, state, is_held) = (conn.id, conn.state, conn.holder != Holder::Nobody);
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
    fn rejected(&self, path: MadPath, rej: &Rej) -> Option<usize> {
        let fits = |&place: &usize| {
            self.conns.at(place).is_some_and(|conn| {
                conn.path.remote == path.remote
                    && conn.path.local == path.local
                    && !conn.is_datagram()
                    && (conn.remote_id == rej.local_comm_id || conn.state == State::ReqSent)
            })
        };
        if rej.remote_comm_id != 0 {
            return self.conns.find(CommId(rej.remote_comm_id)).filter(fits);
        }
        if rej.reason != RejReason::TIMEOUT || rej.local_comm_id == 0 {
            return None;
        }
        let [a, b, c, d, e, f, g, h, ..] = rej.additional_info;
        let guid = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        self.conns
            .find_remote(path.remote, guid, rej.local_comm_id)
            .filter(fits)
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
        let is_held = conn.holder != Holder::Nobody;
        match conn.state {
            State::RepSent | State::RepReceived | State::Established | State::DreqSent => {
                if is_held {
                    self.events.push_back(CmEvent::Disconnected {
                        id: CommId(local),
                        timed_out: false,
                        private_data: dreq.private_data.into(),
                    });
                }
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
            State::RepSent | State::RepReceived | State::Established => conn.probed,
            _ => false,
        };
        if !is_over {
            self.counts.stray += 1;
            return;
        }
        if conn.holder != Holder::Nobody {
            self.events.push_back(CmEvent::Disconnected {
                id: conn.id,
                timed_out: false,
                private_data: drep.private_data.into(),
            });
        }
        self.enter_timewait(now, place);
    }

    fn on_sidr_rep(&mut self, now: Time, path: MadPath, rep: &SidrRep) {
        let id = CommId(rep.request_id);
        let found = self.conns.find(id).filter(|&place| {
            self.conns.at(place).is_some_and(|conn| {
                conn.state == State::SidrSent
                    && conn.path.remote == path.remote
                    && conn.path.local == path.local
                    && conn.service_id == rep.service_id
            })
        });
        let Some(place) = found else {
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
