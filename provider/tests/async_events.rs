//! Every asynchronous event, brought about over real sockets and interfaces: one test for
//! each, and one that fails when a kind of event has none.

use std::process::Command;

use crate::common::{self, End, PATIENCE, connect, ip, pair};
use crate::fake_peer::{self, FakePeer};
use urxe::{
    Access, AsyncEvent, AttrMask, ConnectOptions, Context, EventType, Gid, PortState, QpAttr,
    QpState, RecvWr, Rkey, SendWr, SrqAttr,
};
use urxe_wire::Opcode;

/// Kinds that are brought about here, with the test that does.
const RAISED: &[(EventType, &str)] = &[
    (EventType::CqErr, "cq_err_and_qp_fatal"),
    (EventType::QpFatal, "cq_err_and_qp_fatal"),
    (EventType::QpReqErr, "qp_req_err"),
    (EventType::QpAccessErr, "qp_access_err"),
    (EventType::CommEst, "comm_est"),
    (EventType::SqDrained, "sq_drained"),
    (EventType::PortActive, "the_port_follows_its_interface"),
    (EventType::PortErr, "the_port_follows_its_interface"),
    (EventType::GidChange, "the_port_follows_its_interface"),
    (EventType::SrqLimitReached, "srq_limit_and_last_wqe_reached"),
    (
        EventType::QpLastWqeReached,
        "srq_limit_and_last_wqe_reached",
    ),
];

/// Kinds that only a test inside the library can bring about.
const INSIDE: &[(EventType, &str)] = &[(
    EventType::DeviceFatal,
    "a_panic_in_the_engine_is_an_event_and_then_an_error",
)];

#[test]
fn every_kind_has_a_test_or_a_reason_to_have_none() {
    let (here, inside) = (
        include_str!("async_events.rs"),
        include_str!("../src/engine/mod.rs"),
    );
    for &kind in EventType::ALL {
        let tests = RAISED.iter().map(|(k, name)| (k, name, here));
        let tests = tests.chain(INSIDE.iter().map(|(k, name)| (k, name, inside)));
        let found = tests.filter(|(k, name, text)| {
            **k == kind && text.contains(&format!("#[test]\n{}fn {name}()", indent(text)))
        });
        let never = kind.why_never().is_some();
        assert_eq!(
            found.count() + usize::from(never),
            1,
            "{kind:?} ({}) needs one test, or a reason to have none",
            kind.verbs_name()
        );
    }
    for (number, &kind) in EventType::ALL.iter().enumerate() {
        assert_eq!(kind as usize, number, "the numbers of enum ibv_event_type");
        assert!(kind.verbs_name().starts_with("IBV_EVENT_"), "{kind:?}");
    }
}

/// Tests inside the library stand in a module.
fn indent(text: &str) -> &'static str {
    if text.contains("mod tests {") && !text.contains("const RAISED") {
        "    "
    } else {
        ""
    }
}

/// The next event of this kind; others are passed over.
#[track_caller]
fn await_event(context: &Context, kind: EventType) -> AsyncEvent {
    loop {
        let event = context.wait_async_event(Some(PATIENCE)).expect("waits");
        let event = event.unwrap_or_else(|| panic!("no {kind:?}"));
        assert!(!event.to_string().is_empty());
        if event.event_type() == kind {
            return event;
        }
    }
}

#[test]
fn cq_err_and_qp_fatal() {
    let (a, b) = (End::open(), End::open());
    let small = a.context.create_cq(1).expect("a CQ");
    let qp = a.pd.qp(&small).signal_all().create().expect("a QP");
    connect(&qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(8);
    for n in 0..2 {
        b.recv(n, &to);
        qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
    }
    let event = await_event(&a.context, EventType::CqErr);
    assert_eq!(event, AsyncEvent::CqErr(small.id()));
    let event = await_event(&a.context, EventType::QpFatal);
    assert_eq!(event, AsyncEvent::QpFatal(qp.qp_num()));
}

/// An operation that the QP does not allow, and one that is out of sequence.
#[test]
fn qp_req_err() {
    let (a, b) = (End::open(), End::open());
    let options = ConnectOptions {
        access: Access::LOCAL_WRITE,
        ..ConnectOptions::default()
    };
    connect(&a.qp, &b.qp, &options);
    let (from, target) = (a.memory(8), b.memory(8));
    let sges = [from.sge(..)];
    a.qp.post_send(&SendWr::rdma_write(1, &sges, target.addr(), target.rkey()))
        .expect("room");
    let event = await_event(&b.context, EventType::QpReqErr);
    assert_eq!(event, AsyncEvent::QpReqErr(b.qp.qp_num()));
    assert_eq!(b.qp.state().expect("there"), QpState::Err);

    let c = End::open();
    let peer = FakePeer::of(&c, &ConnectOptions::default());
    let first = urxe::Psn::new(fake_peer::PSN);
    peer.send(Opcode::RC_SEND_LAST, first, 8, |_| ());
    let event = await_event(&c.context, EventType::QpReqErr);
    assert_eq!(event, AsyncEvent::QpReqErr(c.qp.qp_num()));
    let detail = c.qp.last_error().expect("there").expect("it failed");
    assert!(detail.expected.contains("start of a message"), "{detail}");
}

#[test]
fn qp_access_err() {
    let (a, b) = pair();
    let from = a.memory(8);
    let sges = [from.sge(..)];
    a.qp.post_send(&SendWr::rdma_write(1, &sges, 0x1000, Rkey(0x77)))
        .expect("room");
    let event = await_event(&b.context, EventType::QpAccessErr);
    assert_eq!(event, AsyncEvent::QpAccessErr(b.qp.qp_num()));
    let detail = b.qp.last_error().expect("there").expect("it failed");
    assert!(
        detail.found.contains("0x00000077, which none has"),
        "{detail}"
    );
}

/// Once, and only if the QP is not in RTS yet.
#[test]
fn comm_est() {
    let (a, b) = (End::open(), End::open());
    to_rtr(&b, &a);
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())
        .expect("connects");
    let to = b.memory(8);
    for n in 0..2 {
        b.recv(n, &to);
        a.qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
    }
    let event = await_event(&b.context, EventType::CommEst);
    assert_eq!(event, AsyncEvent::CommEst(b.qp.qp_num()));
    b.succeed();
    b.succeed();
    assert_eq!(b.context.poll_async_event(), None);
    // The other one was in RTS when it was acknowledged.
    assert_eq!(a.context.poll_async_event(), None);
}

/// Brings `end` to RTR towards `peer`.
fn to_rtr(end: &End, peer: &End) {
    let remote = peer.qp.endpoint();
    let mut attr = QpAttr {
        qp_state: QpState::Init,
        qp_access_flags: common::ALL,
        ..QpAttr::default()
    };
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    end.qp.modify(&attr, init).expect("RESET to INIT");
    attr.qp_state = QpState::Rtr;
    attr.path_mtu = remote.mtu;
    attr.dest_qp_num = remote.qpn;
    attr.rq_psn = remote.psn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr = Some(urxe::AddressVector {
        local: end.context.address(),
        remote: remote.addr,
        traffic_class: 0,
        hop_limit: 64,
    });
    let rtr = AttrMask::STATE
        | AttrMask::AV
        | AttrMask::PATH_MTU
        | AttrMask::DEST_QPN
        | AttrMask::RQ_PSN
        | AttrMask::MAX_DEST_RD_ATOMIC
        | AttrMask::MIN_RNR_TIMER;
    end.qp.modify(&attr, rtr).expect("INIT to RTR");
}

/// While a request is under way: not before the peer answered it.
#[test]
fn sq_drained() {
    let a = End::open();
    let patient = ConnectOptions {
        timeout: 20,
        ..ConnectOptions::default()
    };
    let mut peer = FakePeer::of(&a, &patient);
    a.qp.post_send(&SendWr::send_inline(1, b"x").signaled())
        .expect("room");
    let psn = peer.next().psn;
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    a.qp.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY)
        .expect("RTS to SQD");
    // Waits until the queue is drained.
    a.qp.post_send(&SendWr::send_inline(2, b"y").signaled())
        .expect("room");
    let refused = a.qp.modify_state(QpState::Rts).expect_err("still draining");
    assert!(refused.to_string().contains("draining"), "{refused}");
    assert_eq!(a.context.poll_async_event(), None);
    peer.answer(psn, urxe_wire::Syndrome(0x1f));
    let event = await_event(&a.context, EventType::SqDrained);
    assert_eq!(event, AsyncEvent::SqDrained(a.qp.qp_num()));
    assert_eq!(a.succeed().wr_id, 1);
    a.qp.modify_state(QpState::Rts).expect("drained");
    assert_eq!(peer.next().psn, psn.next());
}

#[test]
fn srq_limit_and_last_wqe_reached() {
    let (a, b) = (End::open(), End::open());
    let attr = SrqAttr {
        max_wr: 8,
        max_sge: 1,
        srq_limit: 0,
    };
    let srq = b.pd.create_srq(&attr).expect("an SRQ");
    let qp = b.pd.qp(&b.cq).srq(&srq).create().expect("a QP");
    connect(&a.qp, &qp, &ConnectOptions::default());
    let to = b.memory(8);
    let sges = [to.sge(..)];
    for n in 0..2 {
        srq.post_recv(&RecvWr::new(n, &sges)).expect("room");
    }
    srq.arm_limit(2).expect("within its size");
    a.qp.post_send(&SendWr::send_inline(1, b"x")).expect("room");
    assert!(matches!(
        await_event(&b.context, EventType::SrqLimitReached),
        AsyncEvent::SrqLimitReached(_)
    ));
    qp.modify_state(QpState::Err).expect("from everywhere");
    let event = await_event(&b.context, EventType::QpLastWqeReached);
    assert_eq!(event, AsyncEvent::QpLastWqeReached(qp.qp_num()));
}

/// An interface goes down and up, and loses its address and gets it back.
#[test]
fn the_port_follows_its_interface() {
    common::in_namespace(
        "async_events::the_port_follows_its_interface",
        in_the_namespace,
    );
}

fn in_the_namespace() {
    ip("addr add 10.79.0.1/24 dev urxe0");
    ip("link set urxe0 up");
    ip("link set urxe1 up");
    common::wait_until("the carrier is noticed", || {
        let output = Command::new("ip").args(["link", "show", "urxe0"]).output();
        String::from_utf8_lossy(&output.expect("ip runs").stdout).contains("state UP")
    });
    let addr = "10.79.0.1".parse().expect("an address");
    let context = Context::open(addr).expect("free");
    let state = || context.query_port(1).expect("the port").state;
    let gid = || context.query_gid(1, 0).expect("the first");
    assert_eq!((state(), gid()), (PortState::Active, Gid::from(addr)));
    let next = || context.wait_async_event(Some(PATIENCE)).expect("waits");
    // Changes that do not concern the context are no events.
    ip("addr add 10.79.1.1/24 dev urxe1");
    ip("addr add 10.79.0.2/24 dev urxe0");
    // The cable is pulled at the other end: no carrier.
    ip("link set urxe1 down");
    assert_eq!(next(), Some(AsyncEvent::PortErr(1)));
    assert_eq!(state(), PortState::Down);
    ip("link set urxe1 up");
    assert_eq!(next(), Some(AsyncEvent::PortActive(1)));
    ip("link set urxe0 down");
    assert_eq!(next(), Some(AsyncEvent::PortErr(1)));
    assert_eq!(state(), PortState::Down);
    ip("link set urxe0 up");
    assert_eq!(next(), Some(AsyncEvent::PortActive(1)));
    assert_eq!(state(), PortState::Active);
    ip("addr del 10.79.0.1/24 dev urxe0");
    assert_eq!(next(), Some(AsyncEvent::GidChange(1)));
    assert_eq!((state(), gid()), (PortState::Active, Gid([0; 16])));
    ip("addr add 10.79.0.1/24 dev urxe0");
    assert_eq!(next(), Some(AsyncEvent::GidChange(1)));
    assert_eq!(gid(), Gid::from(addr));
    ip("link del urxe0");
    let last = [next(), next()];
    assert!(last.contains(&Some(AsyncEvent::PortErr(1))), "{last:?}");
    assert!(last.contains(&Some(AsyncEvent::GidChange(1))), "{last:?}");
    // Loopback, which a new namespace has switched off.
    ip("link set lo up");
    let context = Context::open("127.0.0.9".parse().expect("an address")).expect("free");
    let next = || context.wait_async_event(Some(PATIENCE)).expect("waits");
    ip("link set lo down");
    assert_eq!(next(), Some(AsyncEvent::PortErr(1)));
    ip("link set lo up");
    assert_eq!(next(), Some(AsyncEvent::PortActive(1)));
}
