//! What third hosts say, and what is said about nothing.

use std::net::Ipv4Addr;

use urxe_core::cm::{CmEvent, CommId, MadPath};
use urxe_wire::cm::{CmMessage, Drep, Dreq, Lap, RejReason, Rep, Rtu};
use urxe_wire::{MadHeader, Qpn};

use crate::wire::{MS, Wire, agent, path, request};

/// A message with both ids of a connection, as a third host or the peer could write it.
pub(crate) fn forged(ids: [CommId; 2], make: fn(u32, u32) -> CmMessage) -> Vec<u8> {
    let message = make(ids[1].0, ids[0].0);
    let header = MadHeader::cm(message.attribute_id(), 9);
    message.emit(&header).to_vec()
}

#[test]
fn messages_of_third_hosts_change_nothing() {
    let mut wire = Wire::perfect();
    let ids = wire.connected([0x5678, 0x1234]);
    let dreq = |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            remote_qpn: Qpn::new(0x5678),
            ..Dreq::default()
        })
    };
    let bytes = forged(ids, dreq);
    let third = MadPath {
        remote: Ipv4Addr::new(10, 0, 0, 77).into(),
        ..path(0)
    };
    let now = wire.now;
    wire.agents[0].handle_mad(now, third, &bytes);
    // It is told that there is no such connection with it; the connection stays.
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(wire.agents[0].take_counts().stray, 1);
    let drep = wire.agents[0].front().expect("an answer").clone();
    assert_eq!(drep.path.remote, third.remote);
    let parsed = CmMessage::parse(&*drep.mad).expect("a message").1;
    assert!(matches!(parsed, CmMessage::Drep(_)));
    wire.agents[0].pop();

    // Another QP number, and a wrong id of the peer's.
    let wrong_qp = |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            remote_qpn: Qpn::new(0x9999),
            ..Dreq::default()
        })
    };
    wire.agents[0].handle_mad(now, path(0), &forged(ids, wrong_qp));
    wire.agents[0].handle_mad(now, path(0), &forged([ids[0], CommId(5)], dreq));
    assert!(wire.agents[0].poll_event().is_none());
    // Truncated, longer, another class.
    for mad in [
        &bytes[..255],
        &[&bytes[..], &[0]].concat()[..],
        &[0; 256][..],
        &[][..],
    ] {
        wire.agents[0].handle_mad(now, path(0), mad);
    }
    assert_eq!(wire.agents[0].take_counts().malformed, 4);
    // The right one ends it.
    wire.agents[0].handle_mad(now, path(0), &bytes);
    assert!(matches!(
        wire.agents[0].poll_event(),
        Some(CmEvent::Disconnected { .. })
    ));
}

#[test]
fn what_is_asked_about_nothing_is_answered() {
    let mut wire = Wire::perfect();
    let now = wire.now;
    let nobody = [CommId(0x1234_5678), CommId(7)];
    let answer_to = |wire: &mut Wire, bytes: &[u8]| {
        wire.agents[0].handle_mad(now, path(0), bytes);
        let out = wire.agents[0].front().map(|out| *out.mad);
        wire.agents[0].pop();
        out.map(|mad| CmMessage::parse(&mad).expect("a message").1)
    };
    let dreq = forged(nobody, |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Dreq::default()
        })
    });
    match answer_to(&mut wire, &dreq) {
        Some(CmMessage::Drep(drep)) => {
            assert_eq!((drep.local_comm_id, drep.remote_comm_id), (0x1234_5678, 7));
        }
        other => panic!("{other:?}"),
    }
    let rep = forged(nobody, |local, remote| {
        CmMessage::Rep(Rep {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rep::default()
        })
    });
    match answer_to(&mut wire, &rep) {
        Some(CmMessage::Rej(rej)) => assert_eq!(rej.reason, RejReason::INVALID_COMM_ID),
        other => panic!("{other:?}"),
    }
    let rtu = forged(nobody, |local, remote| {
        CmMessage::Rtu(Rtu {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rtu::default()
        })
    });
    assert_eq!(answer_to(&mut wire, &rtu), None);
    // Alternate paths: of a connection that is there, not supported.
    let ids = wire.connected([0x5678, 0x1234]);
    let lap = forged(ids, |local, remote| {
        CmMessage::Lap(Lap {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Lap::default()
        })
    });
    match answer_to(&mut wire, &lap) {
        Some(CmMessage::Apr(apr)) => assert_eq!(apr.status, 2),
        other => panic!("{other:?}"),
    }
}

/// Address, GUID and QP of a peer are no secret: a request that names them in its name ends nothing, however often it
/// comes.
#[test]
fn a_forged_request_ends_no_connection() {
    let mut wire = Wire::perfect();
    let [passive, active] = wire.connected([0x5678, 0x1234]);
    let mut peer = agent(1, 99);
    let reasked = peer.connect(wire.now, &request(0x1234, b"")).expect("room");
    let forged = peer.front().expect("a REQ").mad.to_vec();
    for _ in 0..1000 {
        wire.now = wire.now + MS;
        let now = wire.now;
        wire.agents[0].handle_mad(now, path(0), &forged);
        wire.run(1);
        for (host, agent) in wire.agents.iter_mut().enumerate() {
            let event = agent.poll_event();
            assert!(event.is_none(), "host {host}: {event:?}");
        }
    }
    assert_ne!(reasked, active);
    // Both are as they were: what ends them is an end.
    let now = wire.now;
    wire.agents[1].disconnect(now, active).expect("there");
    let event = wire.event(0);
    assert!(matches!(event, CmEvent::Disconnected { id, .. } if id == passive));
}

/// Nor does an acknowledgement of an end that was not asked for.
#[test]
fn an_unasked_drep_ends_no_connection() {
    let mut wire = Wire::perfect();
    let ids = wire.connected([0x5678, 0x1234]);
    let drep = forged(ids, |local, remote| {
        CmMessage::Drep(Drep {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Drep::default()
        })
    });
    let now = wire.now;
    wire.agents[0].handle_mad(now, path(0), &drep);
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(wire.agents[0].take_counts().stray, 1);
}
