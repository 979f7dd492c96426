//! Handshakes that go before requests, carried unread.

use urxe_core::cm::{
    Agent, CmEvent, CommId, ConnectRequest, HELLO_LEN, Handshake, Hello, HelloBytes, Patience,
};
use urxe_core::{Handled, Time};
use urxe_wire::cm::{CmMessage, RejReason, Rep};

use crate::strangers::forged;
use crate::wire::{MS, Wire, addr, agent, answer, path, request};

const HELLO: HelloBytes = [0x11; HELLO_LEN];
const ANSWER: HelloBytes = [0x22; HELLO_LEN];

fn asks(wire: &mut Wire, patience: Patience) -> CommId {
    let request = ConnectRequest {
        hello: Some(&HELLO),
        patience,
        ..request(0x1234, b"hello")
    };
    let asked = wire.agents[1].connect(wire.now, &request);
    asked.expect("room")
}

/// Answers what comes, on both sides; returns how often each had something.
fn serve(wire: &mut Wire) -> [u32; 2] {
    let mut served = [0; 2];
    let now = wire.now;
    for (agent, served) in wire.agents.iter_mut().zip(&mut served) {
        while let Some(handshake) = agent.poll_handshake() {
            *served += 1;
            match handshake {
                Handshake::Hello(hello) => {
                    assert_eq!((*hello.bytes, hello.from.remote), (HELLO, addr(1)));
                    agent.answer_hello(&hello, &ANSWER);
                }
                Handshake::Answer(id, bytes) => {
                    assert_eq!(*bytes, ANSWER);
                    agent.proceed(now, id);
                }
            }
        }
    }
    served
}

#[test]
fn a_request_follows_its_handshake() {
    let mut wire = Wire::perfect();
    wire.agents[0].take_handshakes();
    let active = asks(&mut wire, Patience::default());
    let end = wire.now + 100 * MS;
    let mut served = [0; 2];
    while wire.step(end) && !wire.agents[0].has_events() {
        let [one, other] = serve(&mut wire);
        served = [served[0] + one, served[1] + other];
    }
    assert_eq!(served, [1, 1]);
    let Some(CmEvent::Request(passive, incoming)) = wire.agents[0].poll_event() else {
        panic!("no request")
    };
    assert_eq!(incoming.private_data[..5], *b"hello");
    let from = wire.agents[0].asked_by(passive).expect("it was");
    assert_eq!((from.remote, from.id), (addr(1), active.0));
    assert_eq!(wire.agents[1].qpn(active), Some(incoming.terms.qpn));
    let now = wire.now;
    // Nothing more comes of it.
    wire.agents[1].proceed(now, active);
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert!(matches!(wire.event(1), CmEvent::Reply(id, _) if id == active));
}

#[test]
fn handshakes_are_repeated_until_they_arrive() {
    for seed in 0..40 {
        let mut wire = Wire::new(seed, 300, 300, 50 * MS);
        wire.agents[0].take_handshakes();
        asks(&mut wire, Patience::default());
        let end = wire.now + 200_000 * MS;
        while !wire.agents[0].has_events() {
            assert!(wire.step(end), "seed {seed}: no request");
            serve(&mut wire);
        }
        let request = wire.agents[0].poll_event();
        assert!(
            matches!(request, Some(CmEvent::Request(..))),
            "seed {seed}: {request:?}"
        );
        wire.run(1000);
        serve(&mut wire);
        assert!(!wire.agents[0].has_events(), "seed {seed}: one request");
    }
}

/// An agent that knows nothing of handshakes, as those of earlier versions, refuses at once.
#[test]
fn a_peer_without_handshakes_refuses_at_once() {
    let mut wire = Wire::perfect();
    let active = asks(&mut wire, Patience::default());
    let before = wire.now;
    let CmEvent::Rejected(id, reason, _) = wire.event(1) else {
        panic!("not refused")
    };
    assert_eq!((id, reason), (active, RejReason::INVALID_TRANSPORT_TYPE));
    assert!(wire.now.since_ns(before) < MS);
    assert!(wire.agents[0].is_empty() && !wire.agents[0].has_events());
    // One that knows them may refuse one.
    let mut wire = Wire::perfect();
    wire.agents[0].take_handshakes();
    asks(&mut wire, Patience::default());
    let end = wire.now + MS;
    while wire.step(end) {}
    let Some(Handshake::Hello(hello)) = wire.agents[0].poll_handshake() else {
        panic!("no handshake")
    };
    wire.agents[0].refuse_hello(&hello, RejReason::VENDOR_OPTION_NOT_SUPPORTED);
    let CmEvent::Rejected(_, reason, _) = wire.event(1) else {
        panic!("not refused")
    };
    assert_eq!(reason, RejReason::VENDOR_OPTION_NOT_SUPPORTED);
}

#[test]
fn a_listener_that_comes_late_is_asked_again() {
    let mut wire = Wire::perfect();
    wire.agents[0] = agent(0, 5);
    wire.agents[0].take_handshakes();
    let patience = Patience {
        refusals: 3,
        ..Patience::default()
    };
    asks(&mut wire, patience);
    let CmEvent::Rejected(_, reason, _) = wire.event(1) else {
        panic!("not refused")
    };
    assert_eq!(reason, RejReason::INVALID_SERVICE_ID);
    assert_eq!(wire.agents[0].take_counts().refused, 4);
}

#[test]
fn a_reply_counts_only_behind_the_request() {
    let mut wire = Wire::perfect();
    wire.agents[0].take_handshakes();
    let active = asks(&mut wire, Patience::default());
    let rep = forged([CommId(7), active], |local, remote| {
        CmMessage::Rep(Rep {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rep::default()
        })
    });
    let handled = wire.agents[1].handle_mad(wire.now, path(1), &rep);
    assert_eq!(handled, Handled::Here);
    assert!(!wire.agents[1].has_events());
    assert_eq!(wire.agents[1].take_counts().stray, 1);
}

/// However many come, and are not looked at: so many are kept, and no connection.
#[test]
fn a_flood_of_handshakes_leaves_little() {
    let mut listener = Wire::perfect().agents.into_iter().next().expect("two");
    listener.take_handshakes();
    let mut hellos = 0;
    for seed in 0..1000 {
        let mut peer = agent(1, seed);
        let request = ConnectRequest {
            hello: Some(&HELLO),
            ..request(0x1234, b"")
        };
        peer.connect(Time(MS), &request).expect("room");
        let mad = peer.front().expect("a hello").mad.to_vec();
        listener.handle_mad(Time(MS), path(0), &mad);
    }
    let mut last: Option<Hello> = None;
    while let Some(Handshake::Hello(hello)) = listener.poll_handshake() {
        hellos += 1;
        last = Some(hello);
    }
    assert_eq!(hellos, 256);
    assert!(Agent::is_empty(&listener));
    for _ in 0..5000 {
        listener.answer_hello(last.as_ref().expect("some"), &ANSWER);
    }
    let mut answers = 0;
    while listener.front().is_some() {
        listener.pop();
        answers += 1;
    }
    assert_eq!(answers, 1024);
}
