//! Connections by address and port: between contexts of one process, through real sockets.

mod connections;
mod datagrams;
mod ends;
mod listening;
mod order;
mod removal;
mod shards;
mod waiting;

use crate::common::{PATIENCE, address};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use urxe::cm::{
    CmError, ConnParam, Event, EventChannel, EventKind, Id, Manager, Opener, PortSpace,
};
use urxe::{Access, Context, Cq, Error, Pd, Qp, QpType, RecvWr, SendWr};

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
