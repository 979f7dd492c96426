//! QPNs that rest, and ids that identify their owner.

use urxe_core::cm::{Agent, AgentConfig, CommId, ConnectRequest, Destination};
use urxe_core::qpn_table::QpnChunk;
use urxe_core::{Foreign, Handled, Time};
use urxe_wire::Qpn;
use urxe_wire::cm::{CmMessage, Dreq, RejReason};

use crate::strangers::forged;
use crate::wire::{MS, Wire, agent, path, request};

#[test]
fn numbers_of_qps_rest() {
    let mut wire = Wire::perfect();
    let [passive, active] = wire.connected([0x5678, 0x1234]);
    assert!(!wire.agents[1].on_qp_destroyed(Qpn::new(0x9999)));
    // The program destroys its QP first, and the connection lives on.
    assert!(wire.agents[1].on_qp_destroyed(Qpn::new(0x1234)));
    wire.run(10_000);
    assert_eq!(wire.agents[1].poll_released(), None);
    let now = wire.now;
    wire.agents[1].destroy(now, active);
    wire.run(400);
    assert_eq!(
        wire.agents[1].poll_released(),
        None,
        "packets may be under way"
    );
    wire.run(200);
    assert_eq!(wire.agents[1].poll_released(), Some(Qpn::new(0x1234)));
    assert_eq!(wire.agents[1].poll_released(), None, "once");
    // At the other end the identifier is still there, and the QP goes last.
    assert!(
        !wire.agents[0].on_qp_destroyed(Qpn::new(0x5678)),
        "it is over"
    );
    let now = wire.now;
    wire.agents[0].destroy(now, passive);
    assert!(wire.agents.iter().all(Agent::is_empty));
}

#[test]
fn ids_say_whose_they_are() {
    let mut host = Agent::new(AgentConfig {
        guid: 1,
        owner: QpnChunk(0xabc),
        is_shared: true,
        secret: 77,
    });
    let id = host.connect(
        Time(MS),
        &ConnectRequest {
            path: path(0),
            ..request(5, b"")
        },
    );
    assert_eq!(id.expect("room").0 >> 20, 0xabc);
    // A message about another owner's connection, or for a port without a listener here, is another owner's.
    let mut stranger = agent(1, 8);
    stranger
        .connect(Time(MS), &request(100, b""))
        .expect("room");
    let req = stranger.front().expect("a REQ").mad.to_vec();
    assert!(matches!(
        host.handle_mad(Time(MS), path(0), &req),
        Handled::OfAnother(Foreign::Message(Destination::Service(_)))
    ));
    let dreq = forged([CommId(0xabd0_0000), CommId(7)], |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Dreq::default()
        })
    });
    assert_eq!(
        host.handle_mad(Time(MS), path(0), &dreq),
        Handled::OfAnother(Foreign::Message(Destination::Owner(QpnChunk(0xabd))))
    );
    host.pop();
    assert!(host.front().is_none());
    // Unless it has no owner.
    host.handle_unowned(Time(MS), path(0), &req);
    let refused = host.front().expect("an answer").mad.to_vec();
    let refused = CmMessage::parse(&refused).expect("a message").1;
    match refused {
        CmMessage::Rej(rej) => assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID),
        other => panic!("{other:?}"),
    }
}
