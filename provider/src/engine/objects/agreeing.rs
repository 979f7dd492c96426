//! Handshakes that go before requests for connections, where those have keys of their own.

use core::net::IpAddr;

use urxe_core::Driver;
use urxe_core::cm::{CommId, Handshake, Hello, HelloBytes};
use urxe_core::qpn_table::QpnChunk;
use urxe_seal::{Initiator, Pair, PairEnds};
use urxe_wire::Qpn;
use urxe_wire::cm::{PortSpace, RejReason, service_id};

use super::handshakes::{Agreement, Stage};
use crate::engine::Engine;
use crate::engine::drive::shard_state::ShardState;
use crate::error::Error;

impl ShardState {
    /// Takes the messages of handshakes that arrived.
    pub(in crate::engine) fn serve_handshakes(&mut self) {
        let mut any = false;
        while let Some(handshake) = self.shard.poll_cm_handshake() {
            any = true;
            match handshake {
                Handshake::Hello(hello) => self.on_hello(&hello),
                Handshake::Answer(id, bytes) => self.on_answer(id, &bytes),
            }
        }
        if any {
            self.transmit(Driver::Visitor);
        }
    }

    fn on_hello(&mut self, hello: &Hello) {
        let answer = self.answer_to(hello);
        self.shard.cm(|agent| match answer {
            Ok(answer) => agent.answer_hello(hello, &answer),
            Err(Some(reason)) => agent.refuse_hello(hello, reason),
            Err(None) => {}
        });
    }

    /// The answer, or why it is refused; `None` if it is lost.
    fn answer_to(&mut self, hello: &Hello) -> Result<HelloBytes, Option<RejReason>> {
        let (now, remote) = (self.parts.now, hello.path.remote);
        let keeper = self.carrier.keeper();
        let keeper = keeper.ok_or(Some(RejReason::INVALID_TRANSPORT_TYPE))?;
        if !keeper.has_pairs() {
            self.counters.seal_refused_handshake += 1;
            keeper.say_of_pairs(remote, &format!(
                "connections of {remote} are refused: they are to have keys of their own, and this process has none for connections (`pairs` in URXE_SECURITY)"
            ));
            return Err(Some(RejReason::VENDOR_OPTION_NOT_SUPPORTED));
        }
        if let Some(answer) = self.cm.handshakes.again(hello) {
            return Ok(answer);
        }
        let ends = PairEnds {
            initiator: remote,
            responder: hello.path.local,
            service_id: hello.service_id,
        };
        // Without random numbers it is as if it were lost.
        let answered = keeper.answer_pair(&ends, &hello.bytes, now);
        match answered.map_err(|_| None)? {
            Ok((pair, answer)) => {
                self.cm.handshakes.keep(hello, answer, pair, now);
                Ok(answer)
            }
            Err(refusal) => {
                self.counters.seal_refused_handshake += 1;
                keeper.say_of_pairs(
                    remote,
                    &format!("the handshake of a connection of {remote} is refused: {refusal}"),
                );
                Err(Some(RejReason::VENDOR_OPTION_NOT_SUPPORTED))
            }
        }
    }

    fn on_answer(&mut self, id: CommId, bytes: &HelloBytes) {
        let Some(place) = self.shard.cm(|agent| id.place(agent)).flatten() else {
            return;
        };
        let Some(Stage::Asked(initiator)) = self.cm.handshakes.at(place, id) else {
            return;
        };
        // The right one may still come.
        let Ok(pair) = initiator.finish(bytes) else {
            self.counters.seal_refused_handshake += 1;
            return;
        };
        if let Some(keeper) = self.carrier.keeper() {
            keeper.hide(&pair);
        }
        self.cm.handshakes.set(place, id, Stage::Agreed(pair));
        let now = self.parts.now;
        self.shard.cm(|agent| agent.proceed(now, id));
    }

    /// A request arrived: what its handshake left is the connection's from now on. False, and it is refused, if it needs a handshake and had none.
    pub(in crate::engine) fn take_pair_of(&mut self, id: CommId, remote: IpAddr) -> bool {
        let keeper = self.carrier.keeper();
        let Some(keeper) = keeper.filter(|keeper| keeper.has_pairs()) else {
            return true;
        };
        let asked = self.parts.shard.cm(|agent| {
            let place = id.place(agent)?;
            Some((place, agent.asked_by(id).ok()?))
        });
        let Some((place, from)) = asked.flatten() else {
            return true;
        };
        if let Some(pair) = self.cm.handshakes.take_answered(from) {
            self.cm.handshakes.set(place, id, Stage::Agreed(pair));
            return true;
        }
        self.counters.seal_refused_handshake += 1;
        keeper.say_of_pairs(remote, &format!(
            "connections of {remote} are refused: they have no keys of their own (`pairs` in URXE_SECURITY)"
        ));
        let now = self.parts.now;
        self.shard.cm(|agent| {
            // If the peer has given up meanwhile there is nothing to refuse.
            let _ = agent.reject(
                now,
                id,
                RejReason::VENDOR_OPTION_NOT_SUPPORTED,
                WITHOUT_PAIRS,
            );
            agent.destroy(now, id);
        });
        false
    }

    /// A peer refused a connection: says why, if it is for its keys.
    pub(in crate::engine) fn on_rejected(&mut self, id: CommId, reason: RejReason, data: &[u8]) {
        let Some(place) = self.shard.cm(|agent| id.place(agent)).flatten() else {
            return;
        };
        let stage = self.cm.handshakes.at(place, id);
        let is_in_handshake = matches!(stage, Some(Stage::Asked(_)));
        let path = self.shard.cm(|agent| agent.path(id)).flatten();
        let (Some(path), Some(keeper)) = (path, self.carrier.keeper()) else {
            return;
        };
        let peer = path.remote;
        let text = match reason {
            // What a version without handshakes says.
            RejReason::INVALID_TRANSPORT_TYPE | RejReason::VENDOR_OPTION_NOT_SUPPORTED
                if is_in_handshake =>
            {
                format!(
                    "{peer} refuses connections of this process: they are to have keys of their own, which it does not have for connections, or not by this version (`pairs` in URXE_SECURITY)"
                )
            }
            RejReason::VENDOR_OPTION_NOT_SUPPORTED if data.starts_with(WITHOUT_PAIRS) => format!(
                "{peer} refuses connections of this process: it takes those only that have keys of their own (`pairs` in URXE_SECURITY)"
            ),
            _ => return,
        };
        keeper.say_of_pairs(peer, &text);
    }
}

/// What a refused request without a handshake is told.
const WITHOUT_PAIRS: &[u8] = b"urxe: no pair";

impl ShardState {
    /// A QP is gone, or is to be another connection's: the keys of its pair, if it has one, are overwritten.
    pub(in crate::engine) fn unbind_pair(&mut self, qpn: Qpn) {
        if let Some(keeper) = self.carrier.keeper() {
            keeper.unbind_pair(qpn);
        }
    }

    /// The connection that was begun with it waits for the answer.
    pub(in crate::engine) fn note_asked(&mut self, id: CommId, initiator: Option<Initiator>) {
        let place = self.shard.cm(|agent| id.place(agent)).flatten();
        if let (Some(place), Some(initiator)) = (place, initiator) {
            let stage = Stage::Asked(Box::new(initiator));
            self.cm.handshakes.set(place, id, stage);
        }
    }

    /// The connection will not be.
    pub(in crate::engine) fn forget_handshake(&mut self, id: CommId) {
        if let Some(place) = self.shard.cm(|agent| id.place(agent)).flatten() {
            self.cm.handshakes.clear(place);
        }
    }
}

impl Engine {
    /// True if the QP is one of this engine's.
    pub(crate) fn has_qpns_of(&self, qpn: Qpn) -> Result<bool, Error> {
        Ok(self.enter()?.shard.has_chunk(QpnChunk::of(qpn)))
    }

    /// Begins the handshake of a connection that is to be asked for, if there is to be one.
    pub(crate) fn begin_pair(
        &self,
        (initiator, responder): (IpAddr, IpAddr),
        (space, port): (PortSpace, u16),
    ) -> Result<Option<(Initiator, HelloBytes)>, Error> {
        let ends = PairEnds {
            initiator,
            responder,
            service_id: service_id(space, port),
        };
        if !self.has_pairs {
            return Ok(None);
        }
        let mut state = self.enter()?;
        let now = state.now;
        let begun = state.carrier.keeper();
        begun.map(|it| it.begin_pair(&ends, now)).transpose()
    }

    /// What the handshake of a connection left, once, and the QP that its request named.
    pub(crate) fn take_pair(&self, id: CommId) -> Result<Agreement, Error> {
        let mut state = self.enter()?;
        let known = state.shard.cm(|agent| {
            let place = id.place(agent)?;
            Some((place, agent.qpn(id)))
        });
        let Some((place, qpn)) = known.flatten() else {
            return Ok(Agreement::Missing);
        };
        let pair = state.cm.handshakes.take(place, id);
        Ok(pair.map_or(Agreement::Missing, |pair| Agreement::Made(pair, qpn)))
    }

    /// From now on packets of the QP and its peer are under the keys of the pair.
    pub(crate) fn bind_pair(
        &self,
        pair: &Pair,
        ends: (IpAddr, IpAddr),
        qpns: (Qpn, Qpn),
    ) -> Result<bool, Error> {
        let mut state = self.enter()?;
        let keeper = state.carrier.keeper();
        let is_bound = keeper.is_some_and(|it| it.bind_pair(pair, ends, qpns));
        state.counters.seal_pairs += u64::from(is_bound);
        Ok(is_bound)
    }
}
