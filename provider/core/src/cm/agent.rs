//! The agent, and the calls of the application.

use std::collections::VecDeque;

use urxe_wire::cm::{
    CmMessage, MraMessage, PortSpace, RejMessage, RejReason, SidrStatus, service_id,
};
use urxe_wire::{MAD_LEN, Qpn};

use super::bounds::Unasked;
use super::conn::{Conn, Holder, State, exponent_ns};
use super::conns::Conns;
use super::event::{CmEvent, Handshake};
use super::farewell::Changes;
use super::index::Hasher;
use super::listeners::{ListenerId, Listeners, Scope};
use super::message::{self, Mad};
use super::terms::{
    Answer, CmError, CommId, ConnectRequest, DatagramAnswer, DatagramRequest, MadPath, Patience,
};
use crate::qpn_table::QpnChunk;
use crate::table::QpIndex;
use crate::time::Time;
use crate::timer::TimerWheel;

/// Answers to strangers that wait to be sent, at most: beyond it they get none, and ask again.
const ANSWERS_MAX: usize = 1024;

/// How an agent is.
#[derive(Clone, Copy, Debug)]
pub struct AgentConfig {
    /// Number of the device, different for each in the network.
    pub guid: u64,
    /// Its connections' ids have the upper bits of this chunk.
    pub owner: QpnChunk,
    /// Others have the same addresses: what is not for this agent may be theirs.
    pub is_shared: bool,
    /// Random: ids and transactions follow from it.
    pub secret: u64,
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The addresses of both sides.
    pub path: MadPath,
    /// The management datagram.
    pub mad: Box<[u8; MAD_LEN]>,
}

/// What was counted since it was last taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams to QP 1 that are no message of the connection manager.
    pub malformed: u64,
    /// Messages about connections that are not there, or not at that point.
    pub stray: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// Messages sent again because no answer came.
    pub retries: u64,
    /// Requests refused: no listener, or a full backlog.
    pub refused: u64,
    /// Connections given up before their time as there were too many, the oldest first: half open, or at rest.
    pub evicted: u64,
}

/// All connections and listeners of one owner of an address.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) conns: Conns,
    pub(super) listeners: Listeners,
    pub(super) timers: TimerWheel,
    pub(super) out: VecDeque<Outgoing>,
    pub(super) events: VecDeque<CmEvent>,
    pub(super) handshakes: VecDeque<Handshake>,
    pub(super) takes_handshakes: bool,
    pub(super) counts: Counts,
    pub(super) unasked: Unasked,
    /// QPNs that rest no longer.
    pub(super) released: Vec<Qpn>,
    pub(super) changes: Changes,
}

impl Agent {
    /// One without connections.
    pub fn new(config: AgentConfig) -> Agent {
        let hasher = Hasher::new(config.secret);
        Agent {
            config,
            conns: Conns::new(config.owner, config.secret, hasher),
            listeners: Listeners::new(hasher),
            timers: TimerWheel::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            handshakes: VecDeque::new(),
            takes_handshakes: false,
            counts: Counts::default(),
            unasked: Unasked::default(),
            released: Vec::new(),
            changes: Changes::default(),
        }
    }

    /// Waits for requests. At most `backlog` of them wait for [`Agent::take`].
    ///
    /// # Errors
    /// [`CmError::InUse`].
    pub fn listen(
        &mut self,
        space: PortSpace,
        port: u16,
        scope: Scope,
        backlog: u32,
    ) -> Result<ListenerId, CmError> {
        let added = self.listeners.add(service_id(space, port), scope, backlog);
        added.ok_or(CmError::InUse)
    }

    /// Stops listening. Requests that were not taken are refused. Looks at all connections.
    pub fn unlisten(&mut self, now: Time, id: ListenerId) {
        if !self.listeners.remove(id) {
            return;
        }
        let waits = |conn: &Conn| conn.holder == Holder::Listener(id);
        for place in self.conns.places(waits) {
            if let Some(conn) = self.conns.at_mut(place) {
                conn.holder = Holder::Application;
                let id = conn.id;
                self.destroy(now, id);
            }
        }
    }

    /// The application has a request: the backlog does not count it any more.
    pub fn take(&mut self, id: CommId) -> bool {
        let Some(conn) = self.conns.find(id).and_then(|p| self.conns.at_mut(p)) else {
            return false;
        };
        if let Holder::Listener(listener) = conn.holder {
            conn.holder = Holder::Application;
            self.listeners.release(listener);
        }
        true
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// [`CmError::Full`], [`CmError::PrivateData`].
    pub fn connect(&mut self, now: Time, request: &ConnectRequest<'_>) -> Result<CommId, CmError> {
        let mut conn = Conn::new(request.path, State::ReqSent);
        let life = request.ack_timeout.saturating_sub(1);
        conn.timeout_ns = 2 * exponent_ns(life) + exponent_ns(request.patience.response_timeout);
        conn.timewait_ns = exponent_ns(request.ack_timeout);
        conn.service_id = service_id(request.space, request.remote_port);
        let (guid, qpn) = (self.config.guid, request.terms.qpn);
        let write = |conn: &mut Conn| {
            let req = message::req(conn, guid, request)?;
            let Some(bytes) = request.hello else {
                return Ok(req);
            };
            conn.later = Some(Box::new(req));
            message::hello(conn, guid, request, bytes)
        };
        self.begin(now, conn, request.patience, qpn, write)
    }

    /// Asks where a datagram QP is.
    ///
    /// # Errors
    /// [`CmError::Full`], [`CmError::PrivateData`].
    pub fn resolve(&mut self, now: Time, request: &DatagramRequest<'_>) -> Result<CommId, CmError> {
        let mut conn = Conn::new(request.path, State::SidrSent);
        conn.timeout_ns = exponent_ns(request.patience.response_timeout);
        conn.service_id = service_id(request.space, request.remote_port);
        let write = |conn: &mut Conn| message::sidr_req(conn, request);
        self.begin(now, conn, request.patience, Qpn::new(0), write)
    }

    fn begin(
        &mut self,
        now: Time,
        mut conn: Conn,
        patience: Patience,
        qpn: Qpn,
        write: impl FnOnce(&mut Conn) -> Result<Mad, CmError>,
    ) -> Result<CommId, CmError> {
        // The program chose that address.
        conn.proven = true;
        conn.max_retries = patience.max_retries.min(15);
        conn.max_refusals = patience.refusals.min(15);
        let place = self.insert(conn)?;
        let high = self.config.secret << 32;
        let conn = self.conns.at_mut(place).expect("just put in");
        let id = conn.id;
        conn.transaction_id = high | u64::from(id.0);
        let mad = write(conn).inspect_err(|_| self.remove(place))?;
        self.conns.know_qp(place, qpn);
        self.send_and_wait(now, place, mad);
        Ok(id)
    }

    /// The way of a connection's messages.
    pub fn path(&self, id: CommId) -> Option<MadPath> {
        let conn = self.conns.at(self.conns.find(id)?)?;
        Some(conn.path)
    }

    /// This side's QP of a connection, once it is known.
    pub fn qpn(&self, id: CommId) -> Option<Qpn> {
        let conn = self.conns.at(self.conns.find(id)?)?;
        Some(conn.local_qpn).filter(|qpn| qpn.get() != 0)
    }

    /// True if it is a request for a connection that waits for its answer.
    pub fn is_request(&self, id: CommId) -> bool {
        self.in_state(id, &[State::ReqReceived]).is_ok()
    }

    /// Accepts a request; the QP is in RTS already.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PrivateData`].
    pub fn accept(&mut self, now: Time, id: CommId, answer: &Answer<'_>) -> Result<(), CmError> {
        let (place, conn) = self.in_state(id, &[State::ReqReceived])?;
        let mad = message::rep(conn, self.config.guid, answer)?;
        self.conns.know_qp(place, answer.terms.qpn);
        self.set_state(place, State::RepSent);
        self.send_and_wait(now, place, mad);
        Ok(())
    }

    /// Answers where the datagram QP is.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PrivateData`].
    pub fn accept_datagram(
        &mut self,
        id: CommId,
        answer: &DatagramAnswer<'_>,
    ) -> Result<(), CmError> {
        let (place, conn) = self.in_state(id, &[State::SidrReceived])?;
        let mad = message::sidr_rep(conn, answer)?;
        self.send_last(place, mad, State::SidrDone);
        Ok(())
    }

    /// Refuses a request, or a reply to ours.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PrivateData`].
    pub fn reject(
        &mut self,
        now: Time,
        id: CommId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let wanted = [State::ReqReceived, State::RepReceived, State::SidrReceived];
        let (place, conn) = self.in_state(id, &wanted)?;
        let mad = match conn.state {
            State::SidrReceived => message::sidr_refusal(
                conn.remote_id,
                conn.service_id,
                SidrStatus::REJECT,
                private_data,
                conn.transaction_id,
            )?,
            state => {
                let about = match state {
                    State::RepReceived => RejMessage::REP,
                    _ => RejMessage::REQ,
                };
                let mut rej = message::rej(conn.id.0, conn.remote_id, about, reason);
                rej.private_data = message::filled(0, private_data)?;
                CmMessage::Rej(rej).emit_mad(conn.transaction_id)
            }
        };
        if conn.state == State::RepReceived {
            self.send_last(place, mad, State::Timewait);
            self.enter_timewait(now, place);
        } else {
            self.send_last(place, mad, State::Dead);
        }
        Ok(())
    }

    /// The QP is in RTS: tells the other side.
    ///
    /// # Errors
    /// [`CmError::State`] if there was no reply.
    pub fn establish(&mut self, id: CommId) -> Result<(), CmError> {
        let (place, conn) = self.in_state(id, &[State::RepReceived])?;
        let mad = message::rtu(conn);
        self.send_last(place, mad, State::Established);
        Ok(())
    }

    /// A packet of the connection arrived, so the other side is ready.
    ///
    /// # Errors
    /// [`CmError::State`] if no connection waits for that.
    pub fn on_data(&mut self, id: CommId) -> Result<(), CmError> {
        let (place, _) = self.in_state(id, &[State::RepSent, State::Established])?;
        self.note_established(place, Box::default());
        Ok(())
    }

    /// [`Agent::on_data`] by the number of the QP that received a packet.
    pub fn on_data_of(&mut self, qpn: Qpn) {
        let waits = |conn: &Conn| conn.state == State::RepSent;
        if let Some(place) = self.conns.find_qp(qpn, waits) {
            self.note_established(place, Box::default());
        }
    }

    /// Ends a connection. Of one that ended, nothing happens.
    ///
    /// # Errors
    /// [`CmError::State`] if there never was one.
    pub fn disconnect(&mut self, now: Time, id: CommId) -> Result<(), CmError> {
        let ended = [State::DreqSent, State::Timewait, State::Dead];
        if self.in_state(id, &ended).is_ok() {
            return Ok(());
        }
        let (place, conn) = self.in_state(id, &State::CONNECTED)?;
        let mad = message::dreq(conn, conn.remote_qpn);
        self.set_state(place, State::DreqSent);
        self.send_and_wait(now, place, mad);
        Ok(())
    }

    /// The application has no interest any more: ends what there is, and tells the other side.
    pub fn destroy(&mut self, now: Time, id: CommId) {
        let Some(place) = self.conns.find(id) else {
            return;
        };
        let Some(conn) = self.conns.at_mut(place) else {
            return;
        };
        conn.holder = Holder::Nobody;
        let about = match conn.state {
            State::ReqSent => Some((RejMessage::REQ, RejReason::TIMEOUT)),
            State::ReqReceived => Some((RejMessage::REQ, RejReason::CONSUMER_DEFINED)),
            State::RepSent | State::RepReceived => {
                Some((RejMessage::REP, RejReason::CONSUMER_DEFINED))
            }
            _ => None,
        };
        let (state, dreq) = (conn.state, message::dreq(conn, conn.remote_qpn));
        if let Some((message, reason)) = about {
            if state == State::RepSent && !self.may_send_unasked(now, place) {
                return self.remove(place);
            }
            self.refuse(place, message, reason);
            if state == State::RepSent {
                // The refusal may be lost, and a peer that has the reply already would not learn of it:
                // it is asked to disconnect, if nothing is heard from it.
                self.set_state(place, State::DreqSent);
                self.await_answer(now, place, dreq);
                return;
            }
            return self.remove(place);
        }
        match state {
            State::SidrReceived => {
                // Without private data there is no failure.
                let _ = self.reject(now, id, RejReason::CONSUMER_DEFINED, &[]);
                self.remove(place);
            }
            State::SidrSent | State::SidrDone | State::Dead => self.remove(place),
            State::Timewait | State::DreqSent => self.queue_up(place),
            _ => {
                self.set_state(place, State::DreqSent);
                self.send_and_wait(now, place, dreq);
            }
        }
    }

    /// The other side hears that its request or reply comes to nothing.
    fn refuse(&mut self, place: usize, message: RejMessage, reason: RejReason) {
        let Some(conn) = self.conns.at(place) else {
            return;
        };
        let mut rej = message::rej(conn.id.0, conn.remote_id, message, reason);
        if reason == RejReason::TIMEOUT {
            // The device that gives up, by which its connection is found.
            rej.info_length = 8;
            rej.additional_info[..8].copy_from_slice(&self.config.guid.to_be_bytes());
        }
        self.send(conn.path, CmMessage::Rej(rej).emit_mad(conn.transaction_id));
    }

    /// A QP is being destroyed. True if its number must rest: it is given back by
    /// [`Agent::poll_released`].
    pub fn on_qp_destroyed(&mut self, qpn: Qpn) -> bool {
        let mut rests = false;
        let lives = |conn: &Conn| !conn.qp_gone && conn.state != State::Dead;
        while let Some(place) = self.conns.find_qp(qpn, lives) {
            self.conns.at_mut(place).expect("found").qp_gone = true;
            rests = true;
        }
        rests
    }

    /// A QPN that rests no longer.
    pub fn poll_released(&mut self) -> Option<Qpn> {
        self.released.pop()
    }

    /// The next message to send.
    pub fn front(&self) -> Option<&Outgoing> {
        self.out.front()
    }

    /// Removes the datagram at the front: it was sent.
    pub fn pop(&mut self) {
        self.out.pop_front();
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// True if there is one.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// Connections and what is left of them.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Listeners.
    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    pub(super) fn place(&self, id: CommId) -> Option<usize> {
        self.conns.find(id)
    }

    pub(super) fn in_state(&self, id: CommId, wanted: &[State]) -> Result<(usize, &Conn), CmError> {
        let place = self.conns.find(id).ok_or(CmError::State)?;
        let conn = self.conns.at(place).ok_or(CmError::State)?;
        let is_wanted = wanted.contains(&conn.state);
        is_wanted.then_some((place, conn)).ok_or(CmError::State)
    }

    pub(super) fn set_state(&mut self, place: usize, state: State) {
        if let Some(conn) = self.conns.at_mut(place) {
            conn.state = state;
            conn.deadline = None;
        }
        self.note_change(place, false);
        self.queue_up(place);
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.timers.cancel(QpIndex(place as u32));
        self.note_change(place, true);
        let Some(conn) = self.conns.remove(place) else {
            return;
        };
        if let Holder::Listener(listener) = conn.holder {
            self.listeners.release(listener);
        }
        if conn.qp_gone {
            self.release(conn.local_qpn);
        }
    }

    /// A destroyed QP's number can be given out again, if no other connection had it.
    fn release(&mut self, qpn: Qpn) {
        if self.conns.find_qp(qpn, |conn| conn.qp_gone).is_none() {
            self.released.push(qpn);
        }
    }

    /// It is over: without a holder, it is gone.
    pub(super) fn end(&mut self, place: usize) {
        self.set_state(place, State::Dead);
        let Some(conn) = self.conns.at_mut(place) else {
            return;
        };
        conn.sent = None;
        if conn.holder == Holder::Nobody {
            return self.remove(place);
        }
        let qpn = conn.local_qpn;
        if core::mem::take(&mut conn.qp_gone) {
            self.release(qpn);
        }
    }

    /// Sends a message that nothing answers; it is kept for when the other side repeats its own.
    pub(super) fn send_last(&mut self, place: usize, mad: Mad, state: State) {
        self.set_state(place, state);
        if let Some(conn) = self.conns.at_mut(place) {
            conn.sent = Some(Box::new(mad));
            let path = conn.path;
            self.send(path, mad);
        }
    }

    pub(super) fn send(&mut self, path: MadPath, mad: Mad) {
        self.out.push_back(Outgoing {
            path,
            mad: Box::new(mad),
        });
    }

    /// An answer to a peer without any state here.
    pub(super) fn answer(&mut self, path: MadPath, mad: Mad) {
        if self.out.len() < ANSWERS_MAX {
            self.send(path, mad);
        }
    }

    pub(super) fn note_established(&mut self, place: usize, private_data: Box<[u8]>) {
        let Some(conn) = self.conns.at(place) else {
            return;
        };
        if conn.state == State::RepSent {
            let id = conn.id;
            self.conns.prove(place);
            self.set_state(place, State::Established);
            self.events
                .push_back(CmEvent::Established(id, private_data));
        }
    }

    /// A repeated message gets the answer that it got before; while the application thinks,
    /// that it was received.
    pub(super) fn repeat(&mut self, place: usize) {
        self.counts.duplicates += 1;
        let Some(conn) = self.conns.at(place) else {
            return;
        };
        let mad = match conn.state {
            State::ReqReceived => message::mra(conn, MraMessage::REQ),
            State::RepReceived => message::mra(conn, MraMessage::REP),
            _ => match &conn.sent {
                Some(sent) => **sent,
                None => return,
            },
        };
        let path = conn.path;
        self.answer(path, mad);
    }
}
