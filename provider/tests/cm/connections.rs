//! Connections that are made and used.

use super::{End, Host, connected, talk};
use crate::common::{PATIENCE, address, v6_in_turn};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use urxe::cm::{
    self, CmError, CmOption, ConnParam, ConnectBuilder, EventKind, Id, PortSpace, RejReason,
};
use urxe::{Access, Context, QpState, QpType, Recovery, RecvWr, SendWr};

#[test]
fn a_connection_is_made_used_and_ended() {
    let [server, client] = Host::pair();
    let (listener, addr) = server.listen(PortSpace::Tcp);
    let active = client.resolved(PortSpace::Tcp, addr);
    let ours = End::new(&client, QpType::Rc);
    active.attach_qp(&ours.qp).expect("attaches");
    let param = ConnParam {
        private_data: b"may I?".to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        rnr_retry_count: 6,
        retry_count: 4,
        ..ConnParam::default()
    };
    active.connect(&param).expect("asks");

    let request = server.expect(EventKind::ConnectRequest);
    assert_eq!(request.listen_id.as_ref(), Some(&listener));
    let proposed = request.conn().expect("terms");
    assert_eq!(proposed.private_data.len(), 56);
    assert_eq!(&proposed.private_data[..6], b"may I?");
    // What the peer wants to start is what this side has to serve.
    let depths = (proposed.responder_resources, proposed.initiator_depth);
    assert_eq!(depths, (5, 3));
    let retries = (proposed.retry_count, proposed.rnr_retry_count);
    assert_eq!(retries, (4, 6));
    assert_eq!(proposed.qp_num, ours.qp.qp_num());
    let passive = request.id.clone();
    assert_eq!(passive.local_addr(), Some(addr));
    assert_eq!(passive.peer_addr(), active.local_addr());
    assert_eq!(passive.device().as_ref(), Some(&server.context));
    let theirs = End::new(&server, QpType::Rc);
    passive.attach_qp(&theirs.qp).expect("attaches");
    let answer = ConnParam {
        private_data: b"please do".to_vec(),
        ..ConnParam::default()
    };
    passive.accept(&answer).expect("accepts");

    let answered = client.expect(EventKind::Established);
    assert_eq!(answered.id, active);
    assert_eq!(answered.private_data().len(), 196);
    assert_eq!(&answered.private_data()[..9], b"please do");
    assert_eq!(server.expect(EventKind::Established).id, passive);
    for (end, serves, starts) in [(&ours, 3, 5), (&theirs, 5, 3)] {
        let attr = end.qp.query().expect("its attributes");
        assert_eq!(attr.qp_state, QpState::Rts);
        assert_eq!(
            (attr.max_dest_rd_atomic, attr.max_rd_atomic),
            (serves, starts)
        );
        assert_eq!(
            (attr.retry_cnt, attr.timeout, attr.min_rnr_timer),
            (4, 17, 0)
        );
    }
    assert_eq!(theirs.qp.query().expect("attributes").rnr_retry, 6);
    talk(&ours, &theirs);

    active.disconnect().expect("disconnects");
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
    assert_eq!(client.expect(EventKind::Disconnected).id, active);
    for end in [&ours, &theirs] {
        assert_eq!(end.qp.state(), Ok(QpState::Err));
    }
    passive.disconnect().expect("it is over already");
    client.expect(EventKind::TimewaitExit);
    server.expect(EventKind::TimewaitExit);
    server.no_event();
    client.no_event();
}

#[test]
fn a_program_can_drive_its_qps_itself() {
    let [server, client] = Host::pair();
    let (_listener, addr) = server.listen(PortSpace::Tcp);
    let active = client.resolved(PortSpace::Tcp, addr);
    let ours = End::new(&client, QpType::Rc);
    let init = |id: &Id, end: &End| {
        id.set_qp(end.qp.qp_num(), false);
        let (attr, mask) = id.init_qp_attr(QpState::Init).expect("known");
        end.qp.modify(&attr, mask).expect("INIT");
    };
    let ready = |id: &Id, end: &End| {
        for state in [QpState::Rtr, QpState::Rts] {
            let (attr, mask) = id.init_qp_attr(state).expect("known");
            end.qp.modify(&attr, mask).expect("the next state");
        }
    };
    init(&active, &ours);
    let error = active.init_qp_attr(QpState::Rtr).map(drop);
    // What the peer accepts is not known, but what was proposed is.
    assert!(error.is_err(), "no peer yet");
    active.connect(&ConnParam::default()).expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    let theirs = End::new(&server, QpType::Rc);
    init(&request.id, &theirs);
    ready(&request.id, &theirs);
    request.id.accept(&ConnParam::default()).expect("accepts");
    client.expect(EventKind::ConnectResponse);
    ready(&active, &ours);
    active.establish().expect("tells");
    server.expect(EventKind::Established);
    talk(&ours, &theirs);
    // A second answer has nothing to answer.
    assert!(active.establish().is_err());
    client.no_event();
}

#[test]
fn three_lines_connect() {
    let [a, b] = [(); 2].map(|()| address());
    let listener = cm::listen(SocketAddr::new(a, 0)).expect("listens");
    let to = listener.local_addr();
    let server = std::thread::spawn(move || {
        let accepted = listener.accept_timeout(PATIENCE).expect("accepts");
        let connection = accepted.expect("a peer");
        assert_eq!(connection.private_data(), b"knock");
        let memory = connection.pd().reg_owned(vec![0; 8], Access::LOCAL_WRITE);
        let memory = memory.expect("memory");
        let sge = [memory.sge(..)];
        let recv = RecvWr::new(1, &sge);
        connection.qp().post_recv(&recv).expect("room");
        connection
            .cq()
            .poll_one()
            .expect("polls")
            .ok()
            .expect("received");
        let event = connection.events().wait(Some(PATIENCE)).expect("waits");
        assert_eq!(event.map(|event| event.kind), Some(EventKind::Disconnected));
    });
    let connection = ConnectBuilder::new(to)
        .from(SocketAddr::new(b, 0))
        .private_data(b"knock")
        .timeout(PATIENCE)
        .connect()
        .expect("connects");
    let send = SendWr::send_inline(1, b"hello").signaled();
    connection.qp().post_send(&send).expect("room");
    connection
        .cq()
        .poll_one()
        .expect("polls")
        .ok()
        .expect("sent");
    connection.disconnect().expect("the peer knows");
    server.join().expect("it went well");
    let error = ConnectBuilder::new(SocketAddr::new(a, 9))
        .from(SocketAddr::new(b, 0))
        .connect()
        .expect_err("nobody listens");
    assert_eq!(
        error.cm(),
        Some(CmError::Rejected(RejReason::INVALID_SERVICE_ID))
    );
    assert_eq!(error.errno(), 111);
    assert!(error.to_string().contains("no program listens"), "{error}");
}

/// The most common mistake: the server does not run yet.
#[test]
fn a_host_without_any_program_is_told_from_one_that_is_silent() {
    let [a, b] = [(); 2].map(|()| address());
    // Long enough to show which of the two it is.
    let connect = ConnectBuilder::new(SocketAddr::new(b, 9))
        .from(SocketAddr::new(a, 0))
        .timeout(Duration::from_secs(60));
    let error = connect.clone().connect().expect_err("there is no program");
    assert_eq!(error.cm(), Some(CmError::NoPeer(b)));
    assert_eq!(error.errno(), 111);
    // A program that has the port and says nothing.
    let silent = UdpSocket::bind((b, 4791)).expect("it is free");
    let connect = connect.timeout(Duration::from_millis(700));
    let error = connect.connect().expect_err("it is silent");
    assert_eq!(error.cm(), Some(CmError::TimedOut));
    drop(silent);
}

/// Over IPv6 a host has one loopback address: both ends share it.
#[test]
fn over_ipv6_too() {
    let (addr, _turn) = v6_in_turn();
    let [server, client] = match [(); 2].map(|()| Context::open(addr)) {
        [Ok(a), Ok(b)] => [a, b].map(Host::of),
        [Err(error), _] | [_, Err(error)] => {
            println!("skipped: there is no {addr} here: {error}");
            return;
        }
    };
    let (passive, active, theirs, ours, listener) = connected(&server, &client);
    assert_eq!(passive.peer_addr(), active.local_addr());
    assert_eq!(passive.local_addr(), listener.local_addr());
    talk(&ours, &theirs);
    active.disconnect().expect("disconnects");
    server.expect(EventKind::Disconnected);
    client.expect(EventKind::Disconnected);
}

/// Half of the packets are lost on their way out of one end: it takes long, and works.
#[test]
fn what_is_lost_is_sent_again() {
    let lossy = Context::builder(address())
        .faults(Some("drop=40%,seed=11".parse().expect("a fault")))
        .open()
        .expect("free");
    let (server, client) = (Host::new(address()), Host::of(lossy));
    let (_listener, addr) = server.listen(PortSpace::Tcp);
    let mut ends = Vec::new();
    for _ in 0..8 {
        let id = client.resolved(PortSpace::Tcp, addr);
        // A twentieth of what Linux waits: 2 * 1 + 256 ms.
        id.set_option(CmOption::ResponseTimeout(16))
            .expect("an option");
        id.set_option(CmOption::AckTimeout(8)).expect("an option");
        let end = End::new(&client, QpType::Rc);
        id.attach_qp(&end.qp).expect("attaches");
        id.connect(&ConnParam::default()).expect("asks");
        ends.push((id, end));
    }
    let (mut guests, mut established) = (Vec::new(), 0);
    while established < 8 || guests.len() < 8 {
        while let Some(event) = server.channel.try_next().expect("looks") {
            if event.kind == EventKind::ConnectRequest {
                let end = End::new(&server, QpType::Rc);
                event.id.attach_qp(&end.qp).expect("attaches");
                event.id.accept(&ConnParam::default()).expect("accepts");
                guests.push((event.id, end));
            }
        }
        let event = client.channel.wait(Some(Duration::from_millis(10)));
        if let Some(event) = event.expect("waits") {
            assert_eq!(event.kind, EventKind::Established, "{event:?}");
            established += 1;
        }
    }
    let retries = |host: &Host| {
        let counters = host.context.counters().expect("counters");
        let found = counters.iter().find(|(name, _)| *name == "cm_retries");
        found.map_or(0, |(_, count)| *count)
    };
    assert!(retries(&client) + retries(&server) > 0, "nothing was lost");
}

/// As an option of the connection (ECE), unless one of them was asked not to.
#[test]
fn two_sides_agree_to_tell_each_other_what_is_lost() {
    let open = |recovery| {
        let context = Context::builder(address()).recovery(recovery);
        Host::of(context.open().expect("the address is free"))
    };
    let none = urxe::Ece::default();
    for recovery in [Recovery::Selective, Recovery::Keep] {
        let (server, client) = (open(recovery), open(Recovery::Selective));
        let (passive, active, theirs, ours, _listener) = connected(&server, &client);
        let offered = ours.qp.query_ece();
        assert_ne!(offered, none);
        assert_eq!(passive.remote_ece(), offered, "the request offers it");
        let answered = match recovery {
            Recovery::Selective => offered,
            _ => none,
        };
        assert_eq!(theirs.qp.query_ece(), answered);
        assert_eq!(active.remote_ece(), answered);
        talk(&ours, &theirs);
    }
}
