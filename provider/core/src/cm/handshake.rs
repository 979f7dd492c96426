//! What the ends of a connection say to each other before the request, where their packets are sealed under keys of their own. The agent carries
//! it unread, and sends it again like any message.
//!
//! The first message is a REQ with a transport service that no device has (reliable datagrams): a peer that knows nothing of this refuses it at once. It
//! has the request's addresses and service, so it finds the listener where several processes share an address. The answer is an MRA, which is
//! what a REQ is answered by when its answer takes longer: it finds the connection by its id.

use urxe_wire::MadHeader;
use urxe_wire::cm::{CmMessage, Mra, MraMessage, RejMessage, RejReason, Req};

use super::agent::Agent;
use super::conn::State;
use super::event::{Handshake, Hello, HelloFrom};
use super::message::{self, HELLO_TRANSPORT};
use super::requests::read_header;
use super::terms::{CmError, CommId, HELLO_LEN, HelloBytes, MadPath};
use crate::time::Time;

/// First messages that wait for [`Agent::poll_handshake`], at most: beyond it they are lost, and come again.
const WAITING_MAX: usize = 256;

impl Agent {
    /// From now on it takes first messages of handshakes, which it otherwise refuses as what they look like.
    pub fn take_handshakes(&mut self) {
        self.takes_handshakes = true;
    }

    /// The next message of a handshake.
    pub fn poll_handshake(&mut self) -> Option<Handshake> {
        self.handshakes.pop_front()
    }

    /// True if there is one.
    pub fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// True if it is the first message of a handshake.
    pub(super) fn is_hello(&self, req: &Req) -> bool {
        self.takes_handshakes && req.transport_service_type == HELLO_TRANSPORT
    }

    /// Takes a first message, for which there is a listener.
    pub(super) fn take_hello(
        &mut self,
        path: MadPath,
        header: &MadHeader,
        req: &Req,
    ) -> Result<(), RejReason> {
        let read = read_header(path, &req.private_data);
        let (_, bytes) = read.ok_or(RejReason::INVALID_GID)?;
        let bytes: Box<HelloBytes> = bytes.try_into().map_err(|_| RejReason::INVALID_GID)?;
        if self.handshakes.len() >= WAITING_MAX {
            return Ok(());
        }
        self.handshakes.push_back(Handshake::Hello(Hello {
            path,
            from: HelloFrom {
                remote: path.remote,
                guid: req.local_ca_guid,
                id: req.local_comm_id,
            },
            service_id: req.service_id,
            bytes,
            transaction_id: header.transaction_id,
        }));
        Ok(())
    }

    /// Answers a first message. Nothing of it is kept here: it may come again, and gets the same answer.
    pub fn answer_hello(&mut self, hello: &Hello, bytes: &HelloBytes) {
        let private_data = message::filled(0, bytes).expect("an MRA has more room");
        let mra = Mra {
            remote_comm_id: hello.from.id,
            message: MraMessage::REQ,
            service_timeout: message::SERVICE_TIMEOUT,
            private_data,
            ..Mra::default()
        };
        let mad = CmMessage::Mra(mra).emit_mad(hello.transaction_id);
        self.answer(hello.path, mad);
    }

    /// Refuses a first message.
    pub fn refuse_hello(&mut self, hello: &Hello, reason: RejReason) {
        self.counts.refused += 1;
        let rej = message::rej(0, hello.from.id, RejMessage::REQ, reason);
        let mad = CmMessage::Rej(rej).emit_mad(hello.transaction_id);
        self.answer(hello.path, mad);
    }

    /// An MRA to a connection that waits for the answer to its first message. True if it is one.
    pub(super) fn take_answer(&mut self, path: MadPath, mra: &Mra) -> bool {
        let found = self.find_on(path, mra.remote_comm_id);
        let waits = found.filter(|(_, conn)| conn.is_in_handshake());
        let (Some((_, conn)), MraMessage::REQ) = (waits, mra.message) else {
            return false;
        };
        let id = conn.id;
        if let Some(bytes) = mra.private_data.first_chunk::<HELLO_LEN>()
            && self.handshakes.len() < WAITING_MAX
        {
            let answer = Handshake::Answer(id, Box::new(*bytes));
            self.handshakes.push_back(answer);
        }
        true
    }

    /// The handshake is over: sends the request. Of a connection that is not (any more) in one, nothing happens.
    pub fn proceed(&mut self, now: Time, id: CommId) {
        let Some(place) = self.conns.find(id) else {
            return;
        };
        let later = self.conns.at_mut(place).and_then(|conn| conn.later.take());
        if let Some(mad) = later {
            self.send_and_wait(now, place, *mad);
        }
    }

    /// The peer's numbers for a connection that it asked for.
    ///
    /// # Errors
    /// [`CmError::State`] if it did not, or was answered.
    pub fn asked_by(&self, id: CommId) -> Result<HelloFrom, CmError> {
        let (_, conn) = self.in_state(id, &[State::ReqReceived])?;
        Ok(HelloFrom {
            remote: conn.path.remote,
            guid: conn.remote_guid,
            id: conn.remote_id,
        })
    }
}
