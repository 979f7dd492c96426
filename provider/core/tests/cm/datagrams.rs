//! Datagram services: asked for and answered.

use urxe_core::cm::{
    CmEvent, DatagramAnswer, DatagramRequest, Patience, Reply, Scope, VendorOptions,
};
use urxe_wire::cm::{PortSpace, SidrStatus};
use urxe_wire::{Qkey, Qpn};

use crate::wire::{PORT, Wire, path};

#[test]
fn datagram_services_are_found_or_not() {
    let mut wire = Wire::perfect();
    let ask = |port| DatagramRequest {
        path: path(1),
        space: PortSpace::UDP,
        local_port: 40_001,
        remote_port: port,
        patience: Patience::default(),
        private_data: b"where",
    };
    let now = wire.now;
    let id = wire.agents[1].resolve(now, &ask(PORT)).expect("room");
    let question = wire.agents[1].front().expect("a SIDR_REQ").mad.to_vec();
    let CmEvent::Request(passive, incoming) = wire.event(0) else {
        panic!("no request")
    };
    assert_eq!(
        (incoming.transport, incoming.private_data.len()),
        (None, 180)
    );
    // Asked again while the application thinks: nothing to say.
    wire.agents[0].handle_mad(now, path(0), &question);
    assert!(wire.agents[0].front().is_none());
    let here = DatagramAnswer {
        qpn: Qpn::new(0x777),
        qkey: Qkey(0x0123_4567),
        vendor: VendorOptions::default(),
        private_data: b"here",
    };
    wire.agents[0]
        .accept_datagram(passive, &here)
        .expect("asked");
    let CmEvent::Reply(found, reply) = wire.event(1) else {
        panic!("no reply")
    };
    assert_eq!(found, id);
    match *reply {
        Reply::Datagram {
            status,
            qpn,
            qkey,
            private_data,
        } => {
            assert_eq!(status, SidrStatus::VALID);
            assert_eq!((qpn, qkey, private_data.len()), (here.qpn, here.qkey, 136));
        }
        Reply::Connection { .. } => panic!("another reply"),
    }
    // Asked again after the answer: the same answer, no new request.
    let now = wire.now;
    wire.agents[0].handle_mad(now, path(0), &question);
    assert!(wire.agents[0].front().is_some() && wire.agents[0].poll_event().is_none());

    let none = wire.agents[1].resolve(now, &ask(9)).expect("room");
    match wire.event(1) {
        CmEvent::Reply(id, reply) if id == none => {
            let refused = matches!(
                *reply,
                Reply::Datagram {
                    status: SidrStatus::UNSUPPORTED,
                    ..
                }
            );
            assert!(refused, "{reply:?}");
        }
        other => panic!("{other:?}"),
    }
    let now = wire.now;
    for (host, id) in [(1, id), (1, none), (0, passive)] {
        wire.agents[host].destroy(now, id);
    }
    wire.run(10);
    wire.assert_empty("datagrams");
}

/// A service that comes late is found, if its refusals are not believed.
#[test]
fn a_service_that_is_late_is_found() {
    let mut wire = Wire::perfect();
    let ask = DatagramRequest {
        path: path(1),
        space: PortSpace::UDP,
        local_port: 40_001,
        remote_port: PORT + 1,
        patience: Patience {
            refusals: 2,
            ..Patience::default()
        },
        private_data: b"where",
    };
    let now = wire.now;
    wire.agents[1].resolve(now, &ask).expect("room");
    wire.run(5);
    assert!(wire.agents[1].poll_event().is_none(), "not believed");
    wire.agents[0]
        .listen(PortSpace::UDP, PORT + 1, Scope::Any, 10)
        .expect("free");
    assert!(matches!(wire.event(0), CmEvent::Request(..)));
}
