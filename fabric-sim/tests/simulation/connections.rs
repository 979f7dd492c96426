//! Connections by address (RDMA-CM) between programs on simulated hosts.

use std::net::SocketAddr;
use std::time::Duration;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, ask, now, sleep, tell};
use fabric_sim::{HostId, Span, Time};
use urxe::cm::{
    self, CmError, CmOption, ConnectBuilder, Connection, EventChannel, EventKind, Id, PortSpace,
    RejReason,
};
use urxe::{Access, Context, Mr, RecvWr, SendWr};

const SERVER: HostId = HostId(0);
const PATIENCE: Duration = Duration::from_secs(100);

fn at() -> SocketAddr {
    "10.0.0.1:7471".parse().expect("an address")
}

/// Memory of the connection, with a receive for a message.
fn ready(connection: &Connection) -> Mr {
    let memory = connection
        .pd()
        .reg_owned(vec![0; 64], Access::LOCAL_WRITE)
        .expect("registers");
    let sges = [memory.sge(..)];
    let recv = RecvWr::new(1, &sges);
    connection.qp().post_recv(&recv).expect("posts");
    memory
}

fn say(connection: &Connection, text: &[u8]) {
    let send = SendWr::send_inline(2, text);
    connection.qp().post_send(&send).expect("posts");
}

fn hear(connection: &Connection, memory: &Mr) -> Vec<u8> {
    let wc = connection.wait(PATIENCE).expect("a message");
    let wc = wc.expect("in time");
    assert_eq!(wc.wr_id, 1);
    let mut text = vec![0; wc.byte_len as usize];
    memory.read(0, &mut text);
    text
}

/// Answers so many clients, one after the other.
fn serve(clients: usize) {
    let listener = cm::listen(at()).expect("listens");
    let listener = listener.with_private_data(b"welcome");
    for _ in 0..clients {
        let connection = listener.accept().expect("a client");
        let memory = ready(&connection);
        say(&connection, b"hello");
        let text = hear(&connection, &memory);
        assert_eq!(&text, connection.private_data());
        let event = connection.events().wait(Some(PATIENCE)).expect("waits");
        let kind = event.expect("it ends").kind;
        assert_eq!(kind, EventKind::Disconnected);
    }
}

fn visit(name: &'static [u8]) {
    let connection = ConnectBuilder::new(at())
        .private_data(name)
        .timeout(PATIENCE)
        .connect()
        .expect("connects");
    assert_eq!(connection.private_data(), b"welcome");
    let memory = ready(&connection);
    assert_eq!(hear(&connection, &memory), b"hello");
    let send = SendWr::send_inline(3, name).signaled();
    connection.qp().post_send(&send).expect("posts");
    let sent = connection.wait(PATIENCE).expect("it is acknowledged");
    assert_eq!(sent.expect("in time").wr_id, 3);
    match connection.disconnect() {
        Ok(()) => {}
        // It waits ten seconds, in which the messages of both may be lost again and again.
        Err(error) => assert_eq!(error.cm(), Some(CmError::TimedOut)),
    }
}

#[fabric_sim::test(seeds = 100, twice)]
fn connections_come_and_go_under_faults(sim: &mut Simulation) {
    sim.limit(Span::from_ms(1_000_000));
    sim.fault(Fault::loss(0.05));
    sim.fault(Fault::duplicate(0.05, Span::from_us(2)));
    sim.host(SERVER, || serve(2));
    sim.host(HostId(1), || visit(b"one"));
    sim.host(HostId(2), || visit(b"two"));
    sim.run()?.assert_sometimes("retransmit");
}

#[test]
fn a_connection_takes_as_long_as_its_messages() {
    let mut sim = Simulation::new(1);
    sim.host(SERVER, || serve(1));
    sim.host(HostId(1), || visit(b"one"));
    let report = sim.run().expect("they end");
    let took = report.ended_at().since(Time::ZERO);
    assert!(took < Span::from_us(200), "{took}");
}

#[test]
fn a_peer_that_is_refused_learns_why() {
    let mut sim = Simulation::new(2);
    sim.host(SERVER, || {
        let channel = EventChannel::new().expect("a channel");
        let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
        id.bind_addr(at()).expect("binds");
        id.listen(1).expect("listens");
        let again = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
        let error = again.bind_addr(at()).expect_err("it is taken");
        assert_eq!(error.cm(), Some(CmError::PortInUse(at())));
        tell("listens", "");
        let event = channel.wait(None).expect("waits").expect("for ever");
        assert_eq!(event.kind, EventKind::ConnectRequest);
        event.id.reject(b"not today").expect("rejects");
        sleep(Duration::from_millis(1));
    });
    sim.host(HostId(1), || {
        ask("listens");
        let error = cm::connect(at()).expect_err("refused");
        let reason = RejReason::CONSUMER_DEFINED;
        assert_eq!(error.cm(), Some(CmError::Rejected(reason)));
        assert!(now() < Duration::from_millis(1), "{:?}", now());
        // The host has no listener there. It is asked again for a while: a program that starts may be about to listen.
        let other = SocketAddr::new(at().ip(), 7472);
        let error = cm::connect(other).expect_err("there is no listener");
        let reason = RejReason::INVALID_SERVICE_ID;
        assert_eq!(error.cm(), Some(CmError::Rejected(reason)));
        assert!(now() < Duration::from_secs(1), "{:?}", now());
    });
    sim.run().expect("they end");
}

#[test]
fn a_host_without_contexts_is_waited_for_in_virtual_time() {
    let mut sim = Simulation::new(3);
    sim.host(HostId(1), || {
        let patience = Duration::from_secs(3);
        let error = ConnectBuilder::new(at()).timeout(patience).connect();
        let error = error.expect_err("no program answers");
        assert_eq!(error.cm(), Some(CmError::TimedOut));
        let over = now().checked_sub(patience).expect("not sooner");
        assert!(over < Duration::from_millis(1), "{over:?}");
        let not_here = "10.0.0.7:1".parse().expect("an address");
        let error = cm::listen(not_here).expect_err("another host's");
        assert!(matches!(error.cm(), Some(CmError::NoDevice(_))), "{error}");
    });
    sim.run().expect("it ends");
}

#[test]
fn a_host_with_several_contexts_has_each_its_connections() {
    let mut sim = Simulation::new(4);
    sim.host(SERVER, || {
        // It is asked first, and knows none of the connections.
        let own = Context::open(at().ip()).expect("opens");
        serve(1);
        drop(own);
    });
    sim.host(HostId(1), || {
        let own = Context::open("10.0.0.2".parse().expect("an address")).expect("opens");
        visit(b"one");
        drop(own);
    });
    sim.run().expect("they end");
}

#[test]
fn a_server_that_starts_again_has_its_port_again() {
    let mut sim = Simulation::new(5);
    sim.limit(Span::from_ms(100_000));
    sim.fault(Fault::crash(SERVER).between(Span::from_us(500), Span::from_us(800)));
    sim.service(SERVER, || serve(1));
    sim.host(HostId(1), || {
        let first = ConnectBuilder::new(at()).private_data(b"x").connect();
        let first = first.expect("connects");
        first.id().set_option(CmOption::Tos(0)).expect("a setting");
        let memory = ready(&first);
        assert_eq!(hear(&first, &memory), b"hello");
        sleep(Duration::from_millis(1));
        visit(b"again");
    });
    let report = sim.run().expect("it comes back");
    assert!(report.saw("crash"));
}
