//! Completions and events as streams in a tokio runtime.

mod common;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{End, PATIENCE, address, connect};
use tokio::time::timeout;
use urxe::network::{self, Adapter, Network, Packet, Pause, Stopped};
use urxe::{
    AsyncEvent, ConnectOptions, Context, CqStream, ErrorKind, Mr, Pd, Qp, RecvWr, SendWr, cm,
};

struct Side {
    pd: Pd,
    completions: CqStream,
    qp: Qp,
}

impl Side {
    fn open() -> Side {
        let context = Context::open(address()).expect("free");
        let pd = context.alloc_pd().expect("a PD");
        let completions = CqStream::new(&context, 256).expect("a CQ");
        let qp = pd.qp(completions.cq()).create().expect("a QP");
        Side {
            pd,
            completions,
            qp,
        }
    }

    fn memory(&self) -> Mr {
        self.pd.reg_owned(vec![0; 8], common::ALL).expect("memory")
    }

    async fn next(&mut self) -> urxe::Wc {
        let wc = timeout(PATIENCE, self.completions.next()).await;
        let wc = wc.expect("a completion comes").expect("polls");
        assert!(wc.is_success(), "{wc}");
        wc
    }
}

/// Two tasks on one thread: neither may block the other.
#[tokio::test]
async fn a_conversation_of_two_tasks() {
    let (a, b) = (Side::open(), Side::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    const ROUNDS: u64 = 300;
    let task = |mut side: Side, first: bool| async move {
        let (from, to) = (side.memory(), side.memory());
        let receive = |side: &Side| {
            let sges = [to.sge(..)];
            side.qp.post_recv(&RecvWr::new(1, &sges)).expect("room");
        };
        let send = |side: &Side, n: u64| {
            from.store_u64(0, n);
            let sges = [from.sge(..)];
            side.qp.post_send(&SendWr::send(2, &sges)).expect("room");
        };
        receive(&side);
        // The other one's first receive must be there too.
        tokio::task::yield_now().await;
        for n in 0..ROUNDS {
            if first {
                send(&side, n);
            }
            assert_eq!(side.next().await.wr_id, 1);
            assert_eq!(to.load_u64(0), n);
            receive(&side);
            if !first {
                send(&side, n);
            }
        }
        side
    };
    let (a, b) = tokio::join!(task(a, true), task(b, false));
    drop((a, b));
}

/// More than one poll takes, and none is lost or out of order.
#[tokio::test]
async fn a_stream_has_every_completion_in_order() {
    let (mut a, mut b) = (Side::open(), Side::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = b.memory();
    for n in 0..100 {
        b.qp.post_recv(&RecvWr::new(n, &[to.sge(..)]))
            .expect("room");
    }
    for n in 0..100 {
        let wr = SendWr::send_inline(n, b"message");
        let wr = if n % 7 == 0 { wr.signaled() } else { wr };
        a.qp.post_send(&wr).expect("room");
    }
    for n in 0..100 {
        assert_eq!(b.next().await.wr_id, n);
    }
    for n in (0..100).step_by(7) {
        assert_eq!(a.next().await.wr_id, n);
    }
    let nothing = timeout(Duration::from_millis(20), b.completions.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn events_of_a_channel_and_of_the_context() {
    let (a, b) = (End::open(), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let mut events = b.channel.clone().into_stream().expect("watched");
    let to = b.memory(8);
    for n in 0..3 {
        b.recv(n, &to);
        b.cq.req_notify(false).expect("has a channel");
        a.qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
        let cq = timeout(PATIENCE, events.next()).await.expect("an event");
        assert!(cq.expect("the queue") == b.cq);
        assert_eq!(b.succeed().wr_id, n);
    }
    // An access that b refuses.
    let mut events = b.context.async_events().expect("watched");
    let from = a.memory(8);
    let sges = [from.sge(..)];
    a.qp.post_send(&SendWr::rdma_write(1, &sges, 0x1000, urxe::Rkey(0x77)))
        .expect("room");
    let event = timeout(PATIENCE, events.next()).await.expect("an event");
    assert_eq!(event, Ok(AsyncEvent::QpAccessErr(b.qp.qp_num())));
}

#[tokio::test]
async fn an_overrun_is_an_error_of_the_stream() {
    let context = Context::open(address()).expect("free");
    let pd = context.alloc_pd().expect("a PD");
    let mut completions = CqStream::new(&context, 1).expect("a CQ");
    let qp = pd.qp(completions.cq()).signal_all().create().expect("a QP");
    let b = End::open();
    connect(&qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(8);
    let mut events = context.async_events().expect("watched");
    for n in 0..2 {
        b.recv(n, &to);
        qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
    }
    let event = timeout(PATIENCE, events.next()).await.expect("an event");
    assert_eq!(event, Ok(AsyncEvent::CqErr(completions.cq().id())));
    let first = timeout(PATIENCE, completions.next()).await.expect("there");
    assert!(first.expect("before the loss").is_success());
    let lost = timeout(PATIENCE, completions.next()).await.expect("there");
    assert_eq!(lost.expect_err("lost").kind(), &ErrorKind::CqOverrun);
}

#[tokio::test]
async fn a_connection_is_made_by_tasks() {
    use std::net::SocketAddr;
    use urxe::cm::{ConnParam, EventChannel, EventKind, Id, PortSpace};

    let (server, client) = (address(), address());
    let (ours, theirs) = (EventChannel::new(), EventChannel::new());
    let (ours, theirs) = (ours.expect("a channel"), theirs.expect("a channel"));
    let listener = Id::new(&theirs, PortSpace::Tcp).expect("an identifier");
    listener
        .bind_addr(SocketAddr::new(server, 0))
        .expect("binds");
    listener.listen(1).expect("listens");
    let to = listener.local_addr().expect("bound");
    let mut guests = theirs.into_stream().expect("a stream");
    let serve = tokio::spawn(async move {
        let request = timeout(PATIENCE, guests.next()).await.expect("a request");
        let request = request.expect("an event");
        assert_eq!(request.kind, EventKind::ConnectRequest);
        request.id.reject(b"not now").expect("refuses");
    });
    let id = Id::new(&ours, PortSpace::Tcp).expect("an identifier");
    let from = Some(SocketAddr::new(client, 0));
    id.resolve_addr(from, to, PATIENCE).expect("resolves");
    id.resolve_route(PATIENCE).expect("resolves");
    id.set_qp(urxe::Qpn::new(77), false);
    id.connect(&ConnParam::default()).expect("asks");
    let mut events = ours.into_stream().expect("a stream");
    for kind in [
        EventKind::AddrResolved,
        EventKind::RouteResolved,
        EventKind::Rejected,
    ] {
        let event = timeout(PATIENCE, events.next()).await.expect("an event");
        assert_eq!(event.expect("an event").kind, kind);
    }
    serve.await.expect("it went well");
}

/// Both ends of a connection by address in one thread: neither may block the other.
#[tokio::test]
async fn connections_by_address_of_two_tasks() {
    let any = |port| std::net::SocketAddr::new(address(), port);
    let listener = cm::listen(any(0)).expect("listens");
    let to = listener.local_addr();
    let client = cm::ConnectBuilder::new(to).from(any(0)).connect_async();
    let both = async { tokio::join!(listener.accept_async(), client) };
    let (server, client) = timeout(PATIENCE, both).await.expect("in time");
    let (server, client) = (server.expect("accepts"), client.expect("connects"));
    let mut messages = server.completions().expect("a stream");
    assert!(server.completions().is_err(), "one stream at a time");
    for wr_id in [1, 2] {
        let posted = server.qp().post_recv(&RecvWr::new(wr_id, &[]));
        posted.expect("room");
    }
    let send = SendWr::send_inline(1, b"");
    client.qp().post_send(&send).expect("room");
    let wc = timeout(PATIENCE, messages.next()).await.expect("in time");
    assert_eq!(wc.expect("polls").wr_id, 1);
    drop(client);
    let wc = timeout(PATIENCE, messages.next()).await.expect("in time");
    let error = server.check(wc.expect("polls")).expect_err("it has gone");
    assert_eq!(error.kind(), &ErrorKind::Cm(cm::CmError::Closed));
    // A host without a program.
    let silent = std::net::SocketAddr::new(address(), 9);
    let error = cm::ConnectBuilder::new(silent).from(any(0)).connect_async();
    let error = timeout(PATIENCE, error).await.expect("in time");
    let error = error.expect_err("nobody is there");
    assert_eq!(error.blame(), urxe::Blame::Peer, "{error}");
}

/// A network where time stands still and nothing arrives. It wakes no tasks.
#[derive(Debug)]
struct Still;

impl Network for Still {
    fn now_ns(&self) -> u64 {
        0
    }

    fn random(&self) -> u64 {
        7
    }

    fn interface_mtu(&self, _: IpAddr) -> Option<u32> {
        Some(1500)
    }

    fn attach(&self, _: Adapter) {}

    fn detached(&self, _: &[(&'static str, u64)]) {}

    fn grant_qpns(&self) -> Option<u16> {
        Some(1)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn send(&self, _: &Packet<'_>) {}

    fn pause(&self, _: &Pause) -> Result<(), Stopped> {
        Ok(())
    }
}

/// A stream there would never wake.
#[test]
fn a_network_without_tasks_refuses_streams() {
    let _here = network::enter(Arc::new(Still));
    let context = Context::open("10.0.0.1".parse().expect("an address")).expect("opens");
    let channel = context.create_comp_channel().expect("a channel");
    let refusals = [
        CqStream::new(&context, 16).map(drop),
        channel.into_stream().map(drop),
        context.async_events().map(drop),
    ];
    for refusal in refusals {
        let error = refusal.expect_err("nothing would wake it");
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}
