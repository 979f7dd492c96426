//! Connections by address and port: between contexts of one process, through real sockets.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{PATIENCE, address};
use urxe::cm::{
    self, CmError, CmOption, ConnParam, ConnectBuilder, Event, EventChannel, EventKind, Id,
    Manager, Opener, PortSpace, RejReason, UDP_QKEY,
};
use urxe::{Access, Context, Cq, Error, Pd, Qp, QpState, QpType, RecvWr, SendWr, WcStatus};

/// The contexts of one end.
struct Contexts(Vec<Context>);

impl Opener for Contexts {
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        let has = |context: &&Context| context.addresses().any(|other| other == addr);
        let context = self.0.iter().find(has).cloned();
        context.ok_or_else(|| CmError::NoDevice(addr).into())
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        Ok(self.0.clone())
    }
}

/// A host: an address, and a channel for its identifiers.
struct Host {
    addr: IpAddr,
    context: Context,
    channel: EventChannel,
}

impl Host {
    fn new(addr: IpAddr) -> Host {
        Host::of(Context::open(addr).expect("the address is free"))
    }

    fn of(context: Context) -> Host {
        let manager = Manager::new(Arc::new(Contexts(vec![context.clone()])));
        Host {
            addr: context.address(),
            channel: EventChannel::with_manager(&manager).expect("a channel"),
            context,
        }
    }

    fn pair() -> [Host; 2] {
        [(); 2].map(|()| address()).map(Host::new)
    }

    fn listen(&self, space: PortSpace) -> (Id, SocketAddr) {
        let id = Id::new(&self.channel, space).expect("an identifier");
        id.bind_addr(SocketAddr::new(self.addr, 0)).expect("binds");
        id.listen(16).expect("listens");
        let addr = id.local_addr().expect("bound");
        (id, addr)
    }

    /// An identifier that knows the way.
    fn resolved(&self, space: PortSpace, to: SocketAddr) -> Id {
        let id = Id::new(&self.channel, space).expect("an identifier");
        let from = Some(SocketAddr::new(self.addr, 0));
        id.resolve_addr(from, to, PATIENCE).expect("resolves");
        assert_eq!(self.next().kind, EventKind::AddrResolved);
        id.resolve_route(PATIENCE).expect("resolves");
        assert_eq!(self.next().kind, EventKind::RouteResolved);
        assert_eq!(id.device().as_ref(), Some(&self.context));
        id
    }

    fn next(&self) -> Event {
        let event = self.channel.wait(Some(PATIENCE)).expect("waits");
        event.expect("an event within the time of patience")
    }

    fn expect(&self, kind: EventKind) -> Event {
        let event = self.next();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    fn no_event(&self) {
        let event = self.channel.try_next().expect("looks");
        assert!(event.is_none(), "{event:?}");
    }
}

/// A QP with what belongs to it.
struct End {
    qp: Qp,
    cq: Cq,
    pd: Pd,
}

impl End {
    fn new(host: &Host, qp_type: QpType) -> End {
        let pd = host.context.alloc_pd().expect("a domain");
        let cq = host.context.create_cq(16).expect("a queue");
        let qp = pd.qp(&cq).qp_type(qp_type).signal_all();
        let qp = qp.create().expect("a QP");
        End { qp, cq, pd }
    }
}

/// One message each way.
fn talk(a: &End, b: &End) {
    for (from, to) in [(a, b), (b, a)] {
        let memory = to.pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE);
        let memory = memory.expect("memory");
        let sge = [memory.sge(..)];
        let recv = RecvWr::new(7, &sge);
        to.qp.post_recv(&recv).expect("room");
        let send = SendWr::send_inline(1, b"a message");
        from.qp.post_send(&send).expect("room");
        let wc = from.cq.poll_one().expect("polls");
        wc.ok().expect("sent");
        let wc = to.cq.poll_one().expect("polls");
        assert_eq!((wc.ok().expect("received").byte_len, wc.wr_id), (9, 7));
    }
}

/// A listener's identifier, its peer's, and their QPs, connected.
fn connected(server: &Host, client: &Host) -> (Id, Id, End, End, Id) {
    let (listener, addr) = server.listen(PortSpace::Tcp);
    let active = client.resolved(PortSpace::Tcp, addr);
    let ours = End::new(client, QpType::Rc);
    active.attach_qp(&ours.qp).expect("attaches");
    active.connect(&ConnParam::default()).expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    let passive = request.id.clone();
    let theirs = End::new(server, QpType::Rc);
    passive.attach_qp(&theirs.qp).expect("attaches");
    passive.accept(&ConnParam::default()).expect("accepts");
    client.expect(EventKind::Established);
    server.expect(EventKind::Established);
    (passive, active, theirs, ours, listener)
}

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
            common::wait_until("the port is free", || listener.bind_addr(to).is_ok());
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
fn datagrams_find_their_qp() {
    let [server, client] = Host::pair();
    let (_listener, addr) = server.listen(PortSpace::Udp);
    let active = client.resolved(PortSpace::Udp, addr);
    active
        .connect(&ConnParam {
            private_data: b"where?".to_vec(),
            ..ConnParam::default()
        })
        .expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    assert_eq!(&request.private_data()[..6], b"where?");
    let theirs = End::new(&server, QpType::Ud);
    request.id.attach_qp(&theirs.qp).expect("attaches");
    let answer = ConnParam {
        private_data: b"here".to_vec(),
        ..ConnParam::default()
    };
    request.id.accept(&answer).expect("accepts");
    let found = client.expect(EventKind::Established);
    let to = found.ud().expect("where it is").clone();
    assert_eq!((to.qp_num, to.qkey), (theirs.qp.qp_num(), UDP_QKEY));
    assert_eq!(&to.private_data[..4], b"here");

    let ours = End::new(&client, QpType::Ud);
    active.attach_qp(&ours.qp).expect("attaches");
    let memory = theirs.pd.reg_owned(vec![0; 104], Access::LOCAL_WRITE);
    let memory = memory.expect("memory");
    let sge = [memory.sge(..)];
    let recv = RecvWr::new(3, &sge);
    theirs.qp.post_recv(&recv).expect("room");
    let ah = ours.pd.create_ah(&to.ah_attr).expect("a handle");
    let send = SendWr::send_inline(1, b"hello").ud_addr(&ah, to.qp_num, to.qkey);
    ours.qp.post_send(&send).expect("room");
    let wc = theirs.cq.poll_one().expect("polls");
    assert_eq!(wc.ok().expect("received").byte_len, 45);

    // A refused peer hears it by the status of the answer.
    let second = client.resolved(PortSpace::Udp, addr);
    second.connect(&ConnParam::default()).expect("asks");
    let request = server.expect(EventKind::ConnectRequest);
    request.id.reject(b"no").expect("refuses");
    let refused = client.expect(EventKind::Unreachable);
    assert_eq!(
        (refused.status, &refused.private_data()[..2]),
        (2, &b"no"[..])
    );
    // And no listener at all is another status.
    let third = client.resolved(PortSpace::Udp, SocketAddr::new(server.addr, 9));
    third.connect(&ConnParam::default()).expect("asks");
    assert_eq!(client.expect(EventKind::Unreachable).status, 1);
}

#[test]
fn groups_are_joined_with_an_event() {
    let [host, other] = Host::pair();
    let id = Id::new(&host.channel, PortSpace::Udp).expect("an identifier");
    id.bind_addr(SocketAddr::new(host.addr, 0)).expect("binds");
    let end = End::new(&host, QpType::Ud);
    id.attach_qp(&end.qp).expect("attaches");
    let group: IpAddr = "239.81.7.7".parse().expect("literal");
    id.join_multicast(group, 77).expect("joins");
    let joined = host.expect(EventKind::MulticastJoin);
    let to = joined.ud().expect("what to send with").clone();
    assert_eq!(
        (to.token, to.qkey, to.qp_num.get()),
        (77, UDP_QKEY, 0xff_ffff)
    );
    assert_eq!((to.ah_attr.remote, to.ah_attr.local), (group, host.addr));
    let error = id.join_multicast(group, 0).expect_err("twice");
    assert_eq!(error.errno(), 98, "{error}");

    // Another host sends to it without being a member.
    let sender = End::new(&other, QpType::Ud);
    sender.qp.start_datagrams(UDP_QKEY).expect("starts");
    let memory = end.pd.reg_owned(vec![0; 104], Access::LOCAL_WRITE);
    let memory = memory.expect("memory");
    end.qp
        .post_recv(&RecvWr::new(3, &[memory.sge(..)]))
        .expect("room");
    let ah = sender.pd.create_ah_to(group).expect("a handle");
    let send = SendWr::send_inline(1, b"to all").ud_addr(&ah, to.qp_num, to.qkey);
    sender.qp.post_send(&send).expect("room");
    assert_eq!(end.cq.poll_one().expect("polls").byte_len, 46);

    id.leave_multicast(group).expect("leaves");
    assert_eq!(id.leave_multicast(group).expect_err("twice").errno(), 22);
    let error = id.join_multicast(other.addr, 0).expect_err("no group");
    assert_eq!(error.errno(), 22, "{error}");
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

#[test]
fn events_follow_their_identifier() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, ours, _listener) = connected(&server, &client);
    let elsewhere = EventChannel::with_manager(client.channel.manager()).expect("a channel");
    passive.disconnect().expect("disconnects");
    // Wherever it was when it was told: it comes along.
    active.migrate(&elsewhere).expect("moves");
    let event = elsewhere.wait(Some(PATIENCE)).expect("waits");
    let event = event.expect("an event");
    assert_eq!((event.kind, &event.id), (EventKind::Disconnected, &active));
    drop((event, active, ours));
    // An identifier that is gone gets no more events.
    assert!(
        elsewhere
            .wait(Some(Duration::from_millis(700)))
            .expect("waits")
            .is_none()
    );
    client.no_event();
    server.expect(EventKind::Disconnected);
    server.expect(EventKind::TimewaitExit);
}

#[test]
fn both_ends_may_end_at_once_and_a_dropped_identifier_tells_its_peer() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    active.disconnect().expect("disconnects");
    passive.disconnect().expect("disconnects");
    client.expect(EventKind::Disconnected);
    server.expect(EventKind::Disconnected);
    client.expect(EventKind::TimewaitExit);
    server.expect(EventKind::TimewaitExit);
    drop((passive, active));
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    drop(active);
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// A process that ends can wait for its peers' answers.
#[test]
fn peers_hear_of_the_end_before_the_process_ends() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    let contexts = [client.context.clone()];
    assert_eq!(cm::finish_disconnects(&contexts, PATIENCE), 0);
    active.disconnect().expect("disconnects");
    assert_eq!(cm::finish_disconnects(&contexts, PATIENCE), 0);
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// A program that waits for messages alone hears of the end as well.
#[test]
fn what_was_posted_completes_when_the_connection_ends() {
    let [server, client] = Host::pair();
    let (passive, active, theirs, _ours, _listener) = connected(&server, &client);
    theirs.qp.post_recv(&RecvWr::new(7, &[])).expect("room");
    active.disconnect().expect("disconnects");
    let wc = theirs.cq.poll_one().expect("polls");
    assert_eq!((wc.status, wc.wr_id), (WcStatus::WrFlushErr, 7));
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// What a program has received is acknowledged before the connection ends: the sender's message has not failed.
#[test]
fn what_was_received_completes_at_the_sender_before_the_end() {
    let [server, client] = Host::pair();
    for _ in 0..20 {
        let (passive, _active, theirs, ours, _listener) = connected(&server, &client);
        theirs.qp.post_recv(&RecvWr::new(7, &[])).expect("room");
        let send = SendWr::send_inline(1, b"").signaled();
        ours.qp.post_send(&send).expect("room");
        let wc = theirs.cq.poll_one().expect("polls");
        assert_eq!(wc.status, WcStatus::Success);
        // Its QP lives on: the identifier alone ends the connection.
        drop(passive);
        let wc = ours.cq.poll_one().expect("polls");
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, 1));
        client.expect(EventKind::Disconnected);
    }
}

#[test]
fn a_number_rests_while_packets_of_its_connection_may_be_under_way() {
    let [server, client] = Host::pair();
    let (_passive, active, _theirs, ours, _listener) = connected(&server, &client);
    let number = ours.qp.qp_num();
    active.disconnect().expect("disconnects");
    client.expect(EventKind::Disconnected);
    drop(ours);
    // More QPs than a chunk has numbers: none of them gets that one.
    let pd = client.context.alloc_pd().expect("a domain");
    let cq = client.context.create_cq(16).expect("a queue");
    let make = || {
        pd.qp(&cq)
            .max_send_wr(1)
            .max_recv_wr(1)
            .create()
            .expect("a QP")
    };
    let early: Vec<Qp> = (0..64).map(|_| make()).collect();
    assert!(early.iter().all(|qp| qp.qp_num() != number));
    client.expect(EventKind::TimewaitExit);
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
}

/// Over IPv6 a host has one loopback address: both ends share it.
#[test]
fn over_ipv6_too() {
    let addr: IpAddr = "::1".parse().expect("literal");
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
