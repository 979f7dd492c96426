//! What is kept of handshakes that go before requests for connections, where those have keys of their own, until the QPs of both ends are known.

use std::collections::VecDeque;

use urxe_core::Time;
use urxe_core::cm::{CommId, Hello, HelloBytes, HelloFrom};
use urxe_core::table::cut;
use urxe_seal::{Initiator, Pair};
use urxe_wire::Qpn;

/// First messages that were answered, and no request came so far: the oldest makes room. Each is some 300 bytes.
const ANSWERED_MAX: usize = 1024;
/// So long a request may come: it is sent again for 65 s.
const ANSWERED_NS: u64 = 120_000_000_000;

/// Those of one engine.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    answered: VecDeque<Answered>,
    /// By place of the connection.
    stages: Vec<Option<(CommId, Stage)>>,
}

#[derive(Debug)]
struct Answered {
    from: HelloFrom,
    hello: Box<HelloBytes>,
    answer: Box<HelloBytes>,
    pair: Pair,
    at: Time,
}

/// How far the handshake of a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The peer was asked.
    Asked(Box<Initiator>),
    /// Both ends have the keys, and the QPs do not.
    Agreed(Pair),
}

impl Handshakes {
    /// The answer to a message that came before.
    pub(super) fn again(&self, hello: &Hello) -> Option<HelloBytes> {
        let is_it =
            |answered: &&Answered| answered.from == hello.from && answered.hello == hello.bytes;
        self.answered.iter().find(is_it).map(|it| *it.answer)
    }

    pub(super) fn keep(&mut self, hello: &Hello, answer: HelloBytes, pair: Pair, now: Time) {
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered {
            from: hello.from,
            hello: hello.bytes.clone(),
            answer: Box::new(answer),
            pair,
            at: now,
        });
    }

    /// The request came. The newest handshake counts: a connection's number may have been another's before.
    pub(super) fn take_answered(&mut self, from: HelloFrom) -> Option<Pair> {
        let place = self.answered.iter().rposition(|it| it.from == from)?;
        Some(self.answered.remove(place)?.pair)
    }

    /// Forgets those of which no request came. Returns when there is more to forget.
    pub(in crate::engine) fn forget_old(&mut self, now: Time) -> Option<Time> {
        while let Some(oldest) = self.answered.front() {
            if oldest.at + ANSWERED_NS > now {
                return Some(oldest.at + ANSWERED_NS);
            }
            self.answered.pop_front();
        }
        None
    }

    pub(super) fn set(&mut self, place: usize, id: CommId, stage: Stage) {
        if self.stages.len() <= place {
            self.stages.resize_with(place + 1, || None);
        }
        self.stages[place] = Some((id, stage));
    }

    pub(super) fn at(&mut self, place: usize, id: CommId) -> Option<&mut Stage> {
        let (of, stage) = self.stages.get_mut(place)?.as_mut()?;
        (*of == id).then_some(stage)
    }

    /// What the handshake of a connection left; once.
    pub(super) fn take(&mut self, place: usize, id: CommId) -> Option<Pair> {
        match self.stages.get_mut(place).and_then(Option::take) {
            Some((of, Stage::Agreed(pair))) if of == id => Some(pair),
            _ => None,
        }
    }

    /// The connection is gone.
    pub(in crate::engine) fn clear(&mut self, place: usize) {
        if let Some(stage) = self.stages.get_mut(place) {
            *stage = None;
        }
    }

    pub(in crate::engine) fn shrink(&mut self, places: usize) {
        cut(&mut self.stages, places);
        self.answered.shrink_to_fit();
    }
}

/// What came of the handshake of a connection.
#[derive(Debug)]
pub(crate) enum Agreement {
    /// There was none, or it is another's by now.
    Missing,
    /// Keys, and the QP that the request named, if this side asked.
    Made(Pair, Option<Qpn>),
}

#[cfg(test)]
mod tests {
    use urxe_core::cm::{
        Agent, AgentConfig, ConnectRequest, HELLO_LEN, Handshake, MadPath, Patience, Scope, Terms,
        Transport,
    };
    use urxe_core::qp::attr::Mtu;
    use urxe_core::qpn_table::QpnChunk;
    use urxe_seal::{KeyFile, Keys, PairEnds, respond};
    use urxe_wire::cm::PortSpace;

    use super::*;

    fn agent(guid: u64) -> Agent {
        let mut agent = Agent::new(AgentConfig {
            guid,
            owner: QpnChunk(3),
            is_shared: false,
            secret: guid,
        });
        agent.take_handshakes();
        agent
    }

    fn path(local: u8, remote: u8) -> MadPath {
        MadPath {
            local: [10, 0, 0, local].into(),
            remote: [10, 0, 0, remote].into(),
            tos: 0,
        }
    }

    /// What a peer says first, as it arrives.
    fn hello(guid: u64, bytes: &HelloBytes) -> Box<Hello> {
        let (mut peer, mut listener) = (agent(guid), agent(1));
        let space = PortSpace::TCP;
        listener.listen(space, 9, Scope::Any, 1).expect("free");
        let request = ConnectRequest {
            path: path(2, 1),
            space,
            local_port: 1,
            remote_port: 9,
            terms: Terms {
                qpn: Qpn::new(5),
                ..Terms::default()
            },
            transport: Transport::Rc,
            path_mtu: Mtu::Mtu1024,
            ack_timeout: 14,
            patience: Patience::default(),
            private_data: &[],
            hello: Some(bytes),
        };
        peer.connect(Time::ZERO, &request).expect("room");
        let mad = peer.front().expect("a message").mad.clone();
        listener.handle_mad(Time::ZERO, path(1, 2), &*mad);
        match listener.poll_handshake() {
            Some(Handshake::Hello(hello)) => Box::new(hello),
            other => panic!("{other:?}"),
        }
    }

    fn pair() -> Pair {
        let keys = Keys::new(&KeyFile::new(1, [7; 32], 0));
        let ends = PairEnds {
            initiator: [10, 0, 0, 2].into(),
            responder: [10, 0, 0, 1].into(),
            service_id: 1,
        };
        let (_, hello) = Initiator::new(&keys, 0, &ends, [1; 36]);
        let (pair, _) = respond(&keys, 0, &ends, &hello, [2; 36]).expect("genuine");
        pair
    }

    const ANSWER: HelloBytes = [2; HELLO_LEN];

    #[test]
    fn a_flood_evicts_itself_and_what_is_old_is_forgotten() {
        let mut handshakes = Handshakes::default();
        let first = hello(1, &[1; HELLO_LEN]);
        handshakes.keep(&first, ANSWER, pair(), Time::ZERO);
        assert_eq!(handshakes.again(&first), Some(ANSWER));
        let changed = hello(1, &[3; HELLO_LEN]);
        assert_eq!(handshakes.again(&changed), None, "another message");
        let later = Time(ANSWERED_NS / 2);
        for guid in 0..2 * ANSWERED_MAX as u64 {
            let hello = hello(guid + 2, &[1; HELLO_LEN]);
            handshakes.keep(&hello, ANSWER, pair(), later);
            assert!(handshakes.answered.len() <= ANSWERED_MAX);
        }
        assert_eq!(handshakes.again(&first), None, "the oldest made room");
        let last = hello(2 * ANSWERED_MAX as u64 + 1, &[1; HELLO_LEN]);
        assert!(handshakes.take_answered(last.from).is_some());
        assert!(handshakes.take_answered(last.from).is_none(), "once");
        let due = handshakes.forget_old(later);
        assert_eq!(due, Some(later + ANSWERED_NS));
        assert_eq!(handshakes.forget_old(later + ANSWERED_NS), None);
        assert!(handshakes.answered.is_empty());
    }

    #[test]
    fn what_a_handshake_left_is_the_connections_once() {
        let mut handshakes = Handshakes::default();
        let [one, other] = [CommId(5), CommId(6)];
        handshakes.set(3, one, Stage::Agreed(pair()));
        assert!(handshakes.at(3, other).is_none() && handshakes.at(2, one).is_none());
        assert!(handshakes.take(3, one).is_some());
        assert!(handshakes.take(3, one).is_none());
        // The place is another connection's by now: what was left there goes.
        handshakes.set(3, one, Stage::Agreed(pair()));
        assert!(handshakes.take(3, other).is_none());
        assert!(handshakes.at(3, one).is_none());
        handshakes.set(3, one, Stage::Agreed(pair()));
        handshakes.clear(3);
        assert!(handshakes.take(3, one).is_none());
    }
}
