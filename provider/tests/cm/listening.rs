//! Listeners: who is taken, who is refused, and what a state or a port allows.

use super::{End, Host};
use crate::common::{PATIENCE, wait_until};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use urxe::cm::{CmOption, ConnParam, EventKind, Id, PortSpace, RejReason};
use urxe::{Error, QpState, QpType};

#[test]
fn a_refusal_says_why() {
    let [server, client] = Host::pair();
    let (listener, addr) = server.listen(PortSpace::Tcp);
    let ask = |to: SocketAddr| {
        let id = client.resolved(PortSpace::Tcp, to);
        let end = End::new(&client, QpType::Rc);
        id.attach_qp(&end.qp).expect("attaches");
        id.connect(&ConnParam::default()).expect("asks");
        (id, end)
    };
    let (_id, end) = ask(addr);
    let request = server.expect(EventKind::ConnectRequest);
    request.id.reject(b"not you").expect("refuses");
    let refused = client.expect(EventKind::Rejected);
    assert_eq!(refused.status, i32::from(RejReason::CONSUMER_DEFINED.0));
    assert_eq!(&refused.private_data()[..7], b"not you");
    assert_eq!(end.qp.state(), Ok(QpState::Err));
    drop(request);

    // An event that is thrown away refuses too.
    let _second = ask(addr);
    drop(server.expect(EventKind::ConnectRequest));
    let refused = client.expect(EventKind::Rejected);
    assert_eq!(refused.status, i32::from(RejReason::CONSUMER_DEFINED.0));

    // Of one that was not taken, too.
    let _third = ask(addr);
    let deadline = std::time::Instant::now() + PATIENCE;
    while urxe_wait(server.channel.as_fd()).is_none() {
        assert!(std::time::Instant::now() < deadline, "no request");
    }
    drop(listener);
    let refused = client.expect(EventKind::Rejected);
    assert_eq!(refused.status, i32::from(RejReason::CONSUMER_DEFINED.0));
    server.no_event();

    // The listener is gone.
    let _fourth = ask(addr);
    let refused = client.expect(EventKind::Rejected);
    assert_eq!(refused.status, i32::from(RejReason::INVALID_SERVICE_ID.0));
}

#[test]
fn a_peer_that_refused_is_none_to_lead_a_qp_to() {
    let [server, client] = Host::pair();
    let (_listener, addr) = server.listen(PortSpace::Tcp);
    let id = client.resolved(PortSpace::Tcp, addr);
    let end = End::new(&client, QpType::Rc);
    id.set_qp(end.qp.qp_num(), false);
    id.connect(&ConnParam::default()).expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    request.id.reject(&[]).expect("refuses");
    client.expect(EventKind::Rejected);
    let attributes = id.init_qp_attr(QpState::Rtr);
    assert!(attributes.is_err(), "{attributes:?}");
    let answer = request.id.accept(&ConnParam::default());
    assert!(answer.is_err(), "there is no request any more");
}

/// Waits until a descriptor is readable, at most a second.
fn urxe_wait(fd: std::os::fd::BorrowedFd<'_>) -> Option<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut list = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    (poll(&mut list, Some(&second)).expect("polls") == 1).then_some(())
}

#[test]
fn the_backlog_holds_and_no_more() {
    let [server, client] = Host::pair();
    let listener = Id::new(&server.channel, PortSpace::Tcp).expect("an identifier");
    listener
        .bind_addr(SocketAddr::new(server.addr, 0))
        .expect("binds");
    listener.listen(2).expect("listens");
    let addr = listener.local_addr().expect("bound");
    let ends: Vec<_> = (0..3)
        .map(|_| {
            let id = client.resolved(PortSpace::Tcp, addr);
            let end = End::new(&client, QpType::Rc);
            id.attach_qp(&end.qp).expect("attaches");
            id.connect(&ConnParam::default()).expect("asks");
            (id, end)
        })
        .collect();
    let refused = client.expect(EventKind::Rejected);
    assert_eq!(refused.status, i32::from(RejReason::NO_RESOURCES.0));
    assert_eq!(refused.id, ends[2].0);
    let _requests = [(); 2].map(|()| server.expect(EventKind::ConnectRequest));
    // Those that were taken do not count.
    let id = client.resolved(PortSpace::Tcp, addr);
    id.attach_qp(&ends[2].1.qp).expect_err("it is in ERR");
    ends[2].1.qp.modify_state(QpState::Reset).expect("resets");
    id.attach_qp(&ends[2].1.qp).expect("attaches");
    id.connect(&ConnParam::default()).expect("asks");
    server.expect(EventKind::ConnectRequest);
}

/// Requests that come while `listen` is under way, to a program that takes events in another thread: each is heard of.
#[test]
fn requests_come_as_soon_as_somebody_listens() {
    const REQUESTS: usize = 64;
    let [server, client] = Host::pair();
    let to = SocketAddr::new(server.addr, 4711);
    let qps: Vec<End> = (0..REQUESTS)
        .map(|_| End::new(&client, QpType::Rc))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let soon = Some(Duration::from_millis(10));
                let event = server.channel.wait(soon).expect("waits");
                if let Some(event) = event.filter(|e| e.kind == EventKind::ConnectRequest) {
                    // One that lost its listener meanwhile was refused already.
                    let _ = event.id.reject(b"");
                }
            }
        });
        let _over = Over(&is_over);
        for round in 0..200 {
            let ids: Vec<Id> = qps
                .iter()
                .map(|_| client.resolved(PortSpace::Tcp, to))
                .collect();
            for (id, end) in ids.iter().zip(&qps) {
                id.attach_qp(&end.qp).expect("a fresh one");
                id.connect(&ConnParam::default()).expect("asks");
            }
            let listener = Id::new(&server.channel, PortSpace::Tcp).expect("an identifier");
            // The thread that takes events may have one of the listener before.
            wait_until("the port is free", || listener.bind_addr(to).is_ok());
            // Requests that were refused come again: this is at one time or another of that.
            std::thread::sleep(Duration::from_micros(round % 20 * 500));
            listener.listen(0).expect("listens");
            for _ in 0..REQUESTS {
                client.expect(EventKind::Rejected);
            }
            drop(listener);
            drop(ids);
            for end in &qps {
                end.qp.modify_state(QpState::Reset).expect("resets");
            }
        }
    });
}

/// Tells another thread to end, also when this one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn states_and_ports_are_minded() {
    let [host, other] = Host::pair();
    let new = || Id::new(&host.channel, PortSpace::Tcp).expect("an identifier");
    let errno = |result: Result<(), Error>| result.expect_err("it must not work").errno();
    let (einval, in_use) = (22, 98);
    let id = new();
    assert_eq!(errno(id.resolve_route(PATIENCE)), einval);
    assert_eq!(errno(id.connect(&ConnParam::default())), einval);
    assert_eq!(errno(id.accept(&ConnParam::default())), einval);
    assert_eq!(errno(id.disconnect()), einval);
    assert_eq!(errno(id.set_option(CmOption::AckTimeout(32))), einval);
    let at = |port| SocketAddr::new(host.addr, port);
    id.bind_addr(at(7471)).expect("binds");
    assert_eq!(errno(id.bind_addr(at(7472))), einval);
    assert_eq!((id.port_num(), id.local_addr()), (1, Some(at(7471))));
    // Another one, one of another space, and one of another address.
    let second = new();
    assert_eq!(errno(second.bind_addr(at(7471))), in_use);
    let any: SocketAddr = "0.0.0.0:7471".parse().expect("literal");
    assert_eq!(errno(second.bind_addr(any)), in_use);
    let udp = Id::new(&host.channel, PortSpace::Udp).expect("an identifier");
    udp.bind_addr(at(7471)).expect("another space");
    let elsewhere = Id::new(&other.channel, PortSpace::Tcp).expect("an identifier");
    let there = SocketAddr::new(other.addr, 7471);
    elsewhere.bind_addr(there).expect("another address");
    id.listen(0).expect("listens");
    assert_eq!(errno(id.listen(0)), einval);
    drop(id);
    second.bind_addr(at(7471)).expect("it is free again");
    drop(second);

    // Two identifiers that share a port, of which one can listen.
    let [one, two] = [new(), new()];
    for id in [&one, &two] {
        id.set_option(CmOption::ReuseAddr(true)).expect("an option");
        id.bind_addr(at(7473)).expect("shares");
    }
    one.listen(1).expect("listens");
    assert_eq!(errno(two.listen(1)), in_use);
    // Ports that are given out differ.
    let ports: std::collections::HashSet<_> = (0..200)
        .map(|_| {
            let id = new();
            id.bind_addr(at(0)).expect("binds");
            let port = id.local_addr().expect("bound").port();
            (port, id)
        })
        .collect::<Vec<_>>()
        .iter()
        .map(|(port, _)| *port)
        .collect();
    assert_eq!(ports.len(), 200);
    // Too much private data is refused before anything is sent.
    let (_listener, addr) = host.listen(PortSpace::Tcp);
    let asks = other.resolved(PortSpace::Tcp, addr);
    let end = End::new(&other, QpType::Rc);
    assert_eq!(errno(asks.connect(&ConnParam::default())), einval, "no QP");
    asks.attach_qp(&end.qp).expect("attaches");
    let long = ConnParam {
        private_data: vec![1; 57],
        ..ConnParam::default()
    };
    assert_eq!(errno(asks.connect(&long)), einval);
    host.no_event();
    asks.connect(&ConnParam::default()).expect("less will do");
    host.expect(EventKind::ConnectRequest);
}
