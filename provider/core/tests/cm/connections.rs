//! How connections are made, refused, repeated and ended.

use urxe_core::cm::{CmError, CmEvent, CommId, Reply, Scope};
use urxe_core::qp::attr::Mtu;
use urxe_wire::cm::{CmMessage, MraMessage, PortSpace, RejReason};
use urxe_wire::{Psn, Qpn};

use crate::wire::{MS, PORT, Wire, agent, answer, path, request};

#[test]
fn terms_cross_over_and_connections_end() {
    let mut wire = Wire::perfect();
    let active = wire.asks(0x1234);
    let CmEvent::Request(passive, incoming) = wire.event(0) else {
        panic!("no request")
    };
    assert_eq!((incoming.local_port, incoming.remote_port), (PORT, 40_000));
    assert_eq!(incoming.path, path(0));
    assert_eq!(incoming.space, PortSpace::TCP);
    let proposed = incoming.terms;
    // What the peer wants to start is what this side has to serve.
    assert_eq!(
        (proposed.responder_resources, proposed.initiator_depth),
        (2, 4)
    );
    assert_eq!(proposed.starting_psn, Psn::new(0x1234 * 3));
    assert_eq!(
        (incoming.private_data.len(), &incoming.private_data[..5]),
        (56, &b"hello"[..])
    );
    assert_eq!(
        (incoming.path_mtu, incoming.ack_timeout),
        (Mtu::Mtu1024, 17)
    );
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert_eq!(
        wire.agents[0].accept(now, passive, &answer(0x5678)),
        Err(CmError::State)
    );
    let CmEvent::Reply(_, reply) = wire.event(1) else {
        panic!("no reply")
    };
    let Reply::Connection {
        terms,
        private_data,
    } = *reply
    else {
        panic!("another reply")
    };
    assert_eq!((terms.responder_resources, terms.initiator_depth), (2, 4));
    assert_eq!(
        (private_data.len(), &private_data[..7]),
        (196, &b"welcome"[..])
    );
    wire.agents[1].establish(active).expect("replied");
    assert!(matches!(wire.event(0), CmEvent::Established(id, _) if id == passive));

    let now = wire.now;
    wire.agents[1].disconnect(now, active).expect("there");
    for (host, id) in [(0, passive), (1, active)] {
        let event = wire.event(host);
        let is_it =
            matches!(event, CmEvent::Disconnected { id: i, timed_out: false, .. } if i == id);
        assert!(is_it, "{event:?}");
    }
    for (host, id) in [(0, passive), (1, active)] {
        assert_eq!(wire.event(host), CmEvent::TimewaitExit(id));
        // 4.096 us times 2^17, in milliseconds as Linux rounds.
        assert!(wire.now.since_ns(now) >= 512 * MS);
        let now = wire.now;
        wire.agents[host].destroy(now, id);
    }
    wire.assert_empty("the end");
}

/// A process that is about to end says once more what may have been lost, and not only when it is time to.
#[test]
fn the_end_can_be_told_again_before_it_is_time() {
    let mut wire = Wire::perfect();
    let [passive, active] = wire.connected([1, 2]);
    wire.lost = 1000;
    let now = wire.now;
    wire.agents[1].disconnect(now, active).expect("there");
    wire.run(10);
    assert_eq!(wire.agents[1].disconnecting(), 1);
    assert!(wire.agents[0].poll_event().is_none(), "it was lost");
    wire.lost = 0;
    assert_eq!(wire.agents[1].repeat_disconnects(), 1);
    wire.run(1);
    let event = wire.agents[0].poll_event();
    let is_it = matches!(event, Some(CmEvent::Disconnected { id, .. }) if id == passive);
    assert!(is_it, "{event:?}");
    assert_eq!(wire.agents[1].disconnecting(), 0, "it is acknowledged");
    assert_eq!(wire.agents[1].repeat_disconnects(), 0);
}

/// A peer that waits for our first message never repeats a lost RTU by itself: the REP that comes again asks for it, also where
/// nothing was ever heard from that address.
#[test]
fn a_lost_rtu_is_asked_for() {
    let mut wire = Wire::perfect();
    let active = wire.asks(0x1234);
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert!(matches!(wire.event(1), CmEvent::Reply(..)));
    wire.agents[1].establish(active).expect("replied");
    wire.lost = 1000;
    wire.run(4000);
    assert!(wire.agents[0].poll_event().is_none(), "it was lost");
    wire.lost = 0;
    let event = wire.event(0);
    assert!(matches!(event, CmEvent::Established(id, _) if id == passive));
    assert!(wire.now.since_ns(now) < 4200 * MS);
}

#[test]
fn whoever_asks_in_vain_gives_up() {
    let mut wire = Wire::new(1, 1000, 0, 1);
    let id = wire.asks(2);
    let start = wire.now;
    assert_eq!(wire.event(1), CmEvent::Unreachable(id));
    // Sixteen times 2 * 256 + 4096 ms.
    assert_eq!(wire.now.since_ns(start) / MS, 16 * 4608);
    assert_eq!(wire.agents[1].take_counts().retries, 15);
    let now = wire.now;
    wire.agents[1].destroy(now, id);
    wire.assert_empty("given up");
}

#[test]
fn data_that_arrives_says_that_the_peer_is_ready() {
    let mut wire = Wire::perfect();
    let _active = wire.asks(0x1234);
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    wire.agents[0].on_data_of(Qpn::new(0x9999));
    assert!(wire.agents[0].poll_event().is_none());
    wire.agents[0].on_data_of(Qpn::new(0x5678));
    let event = wire.agents[0].poll_event();
    assert!(matches!(event, Some(CmEvent::Established(id, _)) if id == passive));
    // The message that says so comes later, and is nothing new.
    assert!(matches!(wire.event(1), CmEvent::Reply(..)));
    wire.agents[1].establish(_active).expect("replied");
    wire.run(100);
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(wire.agents[0].take_counts().duplicates, 1);
}

#[test]
fn a_repeated_request_is_one_request() {
    let mut wire = Wire::perfect();
    wire.asks(0x1234);
    let req = wire.agents[1].front().expect("a REQ").mad.to_vec();
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    let again = |wire: &mut Wire| {
        let now = wire.now;
        wire.agents[0].handle_mad(now, path(0), &req);
        let sent = wire.agents[0].front().map(|out| out.mad.to_vec());
        while wire.agents[0].front().is_some() {
            wire.agents[0].pop();
        }
        sent.and_then(|mad| Some(CmMessage::parse(&mad).ok()?.1))
    };
    // While the application thinks: it arrived, wait.
    match again(&mut wire) {
        Some(CmMessage::Mra(mra)) => {
            assert_eq!((mra.message, mra.service_timeout), (MraMessage::REQ, 24));
        }
        other => panic!("{other:?}"),
    }
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    wire.agents[0].pop();
    assert!(
        matches!(again(&mut wire), Some(CmMessage::Rep(_))),
        "the same answer"
    );
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(
        (
            wire.agents[0].len(),
            wire.agents[0].take_counts().duplicates
        ),
        (1, 2)
    );
}

#[test]
fn an_mra_makes_the_peer_wait() {
    let mut wire = Wire::perfect();
    wire.asks(0x1234);
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    // The second REQ is answered by an MRA: 65.5 s and some more without a third.
    wire.run(6000);
    assert_eq!(wire.agents[1].take_counts().retries, 1);
    wire.run(60_000);
    assert_eq!(wire.agents[1].take_counts().retries, 0);
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert!(matches!(wire.event(1), CmEvent::Reply(..)));
}

#[test]
fn a_peer_that_forgot_is_told_that_its_qp_is_stale() {
    let mut wire = Wire::perfect();
    let [passive, _] = wire.connected([0x5678, 0x1234]);
    // The other host starts again, and uses the same QP.
    wire.agents[1] = agent(1, 99);
    let id = wire.asks(0x1234);
    let event = wire.event(1);
    let is_stale = |event: &CmEvent| matches!(event, CmEvent::Rejected(i, RejReason::STALE_CONNECTION, _) if *i == id);
    assert!(is_stale(&event), "{event:?}");
    // The old connection ends: its peer says that there is none.
    let event = wire.event(0);
    let ended = matches!(event, CmEvent::Disconnected { id, .. } if id == passive);
    assert!(ended, "{event:?}");
    wire.run(1000);
    // Then it can be had.
    let id = wire.asks(0x1234);
    loop {
        match wire.event(0) {
            CmEvent::TimewaitExit(_) => {}
            CmEvent::Request(..) => break,
            other => panic!("{other:?}"),
        }
    }
    let now = wire.now;
    wire.agents[1].destroy(now, id);
}

/// A request to a port without a listener so far, with so many refusals that are tried again.
fn asks_early(wire: &mut Wire, refusals: u8) -> CommId {
    let mut early = request(0x1234, b"hello");
    early.remote_port = PORT + 1;
    early.patience.refusals = refusals;
    wire.agents[1].connect(wire.now, &early).expect("room")
}

/// The REQ is sent again after 10, 20, 40 ms, and comes to a listener that is late.
#[test]
fn who_is_refused_asks_again_for_a_while() {
    let mut wire = Wire::perfect();
    let active = asks_early(&mut wire, 3);
    wire.run(25);
    assert!(wire.agents[1].poll_event().is_none(), "not believed");
    wire.agents[0]
        .listen(PortSpace::TCP, PORT + 1, Scope::AnyV4, 10)
        .expect("free");
    let start = wire.now;
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    // The third time, 10 + 20 ms after the first.
    assert!(wire.now.since_ns(start) < 10 * MS);
    assert!(wire.agents[0].take(passive));
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    let event = wire.event(1);
    assert!(matches!(event, CmEvent::Reply(id, _) if id == active));
}

/// In the end a refusal is one, and what was sent meanwhile does not count as lost messages.
#[test]
fn nobody_listens_in_the_end() {
    for refusals in [0, 3] {
        let mut wire = Wire::perfect();
        let start = wire.now;
        let active = asks_early(&mut wire, refusals);
        let CmEvent::Rejected(id, reason, _) = wire.event(1) else {
            panic!("not refused")
        };
        assert_eq!((id, reason), (active, RejReason::INVALID_SERVICE_ID));
        let waited = wire.now.since_ns(start) / MS;
        let least = if refusals == 0 { 0 } else { 10 + 20 + 40 };
        assert!(
            waited >= least && waited < least + 10,
            "{refusals}: {waited} ms"
        );
        let now = wire.now;
        wire.agents[1].destroy(now, active);
        wire.assert_empty("refused");
    }
}
