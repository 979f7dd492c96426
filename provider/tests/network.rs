//! Contexts on a network of the test's own, in its time: no socket, no thread, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use urxe::network::{self, Adapter, Entered, Network, Packet, Pause, Stopped};
use urxe::{
    Access, ConnectOptions, Context, Cq, ErrorKind, Mr, Qp, RecvWr, SendWr, Wc, WcOpcode, WcStatus,
};

/// How long a packet is on its way.
const WAY_NS: u64 = 1_000;
/// What each pause of a program takes, unless it waits for something.
const STEP_NS: u64 = 100;

struct Sent {
    arrives: u64,
    from: IpAddr,
    port: u16,
    to: IpAddr,
    tos: u8,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    now: u64,
    drawn: u64,
    seed: u64,
    chunks: u16,
    adapters: BTreeMap<IpAddr, Vec<Adapter>>,
    on_way: VecDeque<Sent>,
    /// Numbers of the packets that get lost.
    lost: Vec<usize>,
    sent: usize,
    is_stopped: bool,
    /// Counters of contexts that were closed.
    closed: Vec<Vec<(&'static str, u64)>>,
    /// Takes no packets.
    is_full: bool,
}

/// All hosts of the test: a host that pauses moves the time for all.
#[derive(Default)]
struct Hosts(Mutex<State>);

/// The network as one host sees it.
struct Host {
    all: Arc<Hosts>,
    addr: IpAddr,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({})", self.addr)
    }
}

impl Hosts {
    fn new(seed: u64) -> Arc<Hosts> {
        let state = State {
            seed,
            ..State::default()
        };
        Arc::new(Hosts(Mutex::new(state)))
    }

    fn enter(self: &Arc<Self>, addr: &str) -> Entered {
        let addr = addr.parse().expect("an address");
        let all = self.clone();
        network::enter(Arc::new(Host { all, addr }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with it")
    }

    fn adapters(&self) -> Vec<Adapter> {
        self.state().adapters.values().flatten().cloned().collect()
    }

    /// When something happens next.
    fn next(&self) -> Option<u64> {
        let arrives = self.state().on_way.front().map(|sent| sent.arrives);
        let dues = self.adapters().into_iter().filter_map(|a| a.due_ns());
        dues.chain(arrives).min()
    }

    /// Moves the time, and does what happens until then.
    fn advance(&self, until: u64) {
        while let Some(at) = self.next().filter(|at| *at <= until) {
            let sent = {
                let mut state = self.state();
                state.now = state.now.max(at);
                let is_due = |sent: &Sent| sent.arrives <= at;
                let is_due = state.on_way.front().is_some_and(is_due);
                is_due.then(|| state.on_way.pop_front()).flatten()
            };
            match sent {
                Some(sent) => self.deliver(&sent),
                None => {
                    for adapter in self.adapters() {
                        if adapter.due_ns().is_some_and(|due| due <= at) {
                            adapter.on_time();
                        }
                    }
                }
            }
        }
        let mut state = self.state();
        state.now = state.now.max(until);
    }

    fn deliver(&self, sent: &Sent) {
        let packet = Packet {
            source: sent.from,
            source_port: sent.port,
            dest: sent.to,
            tos: sent.tos,
            bytes: &sent.bytes,
        };
        let here = self.state().adapters.get(&sent.to).cloned();
        here.unwrap_or_default().iter().any(|a| a.receive(&packet));
    }
}

impl Network for Host {
    fn now_ns(&self) -> u64 {
        self.all.state().now
    }

    fn random(&self) -> u64 {
        let mut state = self.all.state();
        state.drawn += 1;
        let mixed = (state.seed << 32 ^ state.drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    fn interface_mtu(&self, addr: IpAddr) -> Option<u32> {
        (addr == self.addr).then_some(1500)
    }

    fn attach(&self, adapter: Adapter) {
        let mut state = self.all.state();
        state.adapters.entry(self.addr).or_default().push(adapter);
    }

    fn detached(&self, counters: &[(&'static str, u64)]) {
        self.all.state().closed.push(counters.to_vec());
    }

    fn grant_qpns(&self) -> Option<u16> {
        let mut state = self.all.state();
        state.chunks += 1;
        Some(state.chunks)
    }

    fn has_room(&self) -> bool {
        !self.all.state().is_full
    }

    fn send(&self, packet: &Packet<'_>) {
        let mut state = self.all.state();
        let number = state.sent;
        state.sent += 1;
        if state.lost.contains(&number) {
            return;
        }
        let arrives = state.now + WAY_NS;
        state.on_way.push_back(Sent {
            arrives,
            from: packet.source,
            port: packet.source_port,
            to: packet.dest,
            tos: packet.tos,
            bytes: packet.bytes.to_vec(),
        });
    }

    fn pause(&self, why: &Pause) -> Result<(), Stopped> {
        if self.all.state().is_stopped {
            return Err(Stopped);
        }
        let now = self.now_ns();
        match why {
            Pause::Event { event, deadline_ns } => {
                while !event.is_ready() && deadline_ns.is_none_or(|end| self.now_ns() < end) {
                    let next = self.all.next().into_iter().chain(*deadline_ns).min();
                    self.all
                        .advance(next.expect("nothing will ever happen again"));
                }
            }
            Pause::Return => {}
            _ => self.all.advance(now + STEP_NS),
        }
        Ok(())
    }
}

struct End {
    context: Context,
    cq: Cq,
    qp: Qp,
    memory: Mr,
}

impl End {
    fn open(hosts: &Arc<Hosts>, addr: &str) -> End {
        let _here = hosts.enter(addr);
        let context = Context::open(addr.parse().expect("an address")).expect("opens");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(64).expect("a CQ");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.reg_owned(vec![0; 1 << 16], access).expect("registers");
        let qp = pd.qp(&cq).create().expect("a QP");
        End {
            context,
            cq,
            qp,
            memory,
        }
    }

    fn pair(hosts: &Arc<Hosts>) -> (End, End) {
        let (a, b) = (End::open(hosts, "10.0.0.1"), End::open(hosts, "10.0.0.2"));
        let options = ConnectOptions::default();
        a.qp.connect(&b.qp.endpoint(), &options).expect("connects");
        b.qp.connect(&a.qp.endpoint(), &options).expect("connects");
        (a, b)
    }

    /// Writes `len` bytes into the peer's memory.
    fn write(&self, peer: &End, len: usize) -> Wc {
        let sges = [self.memory.sge(..len)];
        let wr = SendWr::rdma_write(1, &sges, peer.memory.addr(), peer.memory.rkey()).signaled();
        self.qp.post_send(&wr).expect("posts");
        self.cq.poll_one().expect("polls")
    }
}

#[test]
fn a_program_runs_in_the_time_of_its_network() {
    let hosts = Hosts::new(1);
    let (a, b) = End::pair(&hosts);
    assert_eq!(a.context.active_mtu().bytes(), 1024, "of 1500 bytes");
    b.qp.post_recv(&RecvWr::new(7, &[b.memory.sge(..64)]))
        .expect("posts");
    a.memory.write(0, b"through no socket");
    let before = hosts.state().now;
    a.qp.post_send(&SendWr::send(1, &[a.memory.sge(..17)]).signaled())
        .expect("posts");
    let wc = b.cq.poll_one().expect("polls");
    assert_eq!((wc.wr_id, wc.status), (7, WcStatus::Success));
    assert_eq!(wc.opcode, WcOpcode::Recv);
    let mut text = [0; 17];
    b.memory.read(0, &mut text);
    assert_eq!(&text, b"through no socket");
    let passed = hosts.state().now - before;
    assert!(
        (WAY_NS..WAY_NS + 5 * STEP_NS).contains(&passed),
        "{passed} ns"
    );
    assert_eq!(
        a.cq.poll_one().map(|wc| wc.status),
        Ok(WcStatus::Success),
        "the acknowledgement comes, too"
    );
}

#[test]
fn losses_are_mended_by_timers_of_the_network() {
    let hosts = Hosts::new(2);
    let (a, b) = End::pair(&hosts);
    hosts.state().lost = vec![0, 3];
    a.memory.write(0, &[0xa5; 5000]);
    let before = hosts.state().now;
    assert_eq!(a.write(&b, 5000).status, WcStatus::Success);
    let mut there = vec![0; 5001];
    b.memory.read(0, &mut there);
    assert!(there[..5000].iter().all(|&byte| byte == 0xa5) && there[5000] == 0);
    assert!(
        hosts.state().now - before > WAY_NS * 4,
        "something was sent again"
    );
}

#[test]
fn a_sleep_ends_with_the_event_or_with_the_time() {
    let hosts = Hosts::new(3);
    let (a, b) = End::pair(&hosts);
    let channel = a.context.create_comp_channel().expect("a channel");
    let before = hosts.state().now;
    let none = channel.wait_timeout(Duration::from_secs(5)).expect("waits");
    assert!(none.is_none());
    assert_eq!(hosts.state().now - before, 5_000_000_000);

    let cq = a
        .context
        .create_cq_with_channel(8, &channel)
        .expect("a CQ with events");
    let qp = a.qp.pd().qp(&cq).create().expect("a QP");
    let peer = b.qp.pd().qp(&b.cq).create().expect("a QP");
    let options = ConnectOptions::default();
    qp.connect(&peer.endpoint(), &options).expect("connects");
    peer.connect(&qp.endpoint(), &options).expect("connects");
    cq.req_notify(false).expect("arms");
    let sges = [a.memory.sge(..100)];
    let wr = SendWr::rdma_write(9, &sges, b.memory.addr(), b.memory.rkey()).signaled();
    qp.post_send(&wr).expect("posts");
    let before = hosts.state().now;
    let raised = channel.wait().expect("an event");
    assert!(raised == cq);
    let passed = hosts.state().now - before;
    assert!(
        (WAY_NS..10 * WAY_NS).contains(&passed),
        "a sleep of {passed} ns"
    );
    let mut wc = [Wc::default()];
    assert_eq!(cq.poll(&mut wc), Ok(1));
    assert_eq!((wc[0].wr_id, wc[0].status), (9, WcStatus::Success));
}

#[test]
fn numbers_and_keys_follow_from_the_seed() {
    let numbers = |seed| {
        let (a, b) = End::pair(&Hosts::new(seed));
        [&a, &b].map(|end| (end.qp.endpoint(), end.memory.rkey(), end.memory.lkey()))
    };
    let first = numbers(4);
    assert_eq!(first, numbers(4));
    assert_ne!(first, numbers(5));
}

#[test]
fn contexts_of_one_host_share_its_address() {
    let hosts = Hosts::new(6);
    let (a, b) = End::pair(&hosts);
    let second = End::open(&hosts, "10.0.0.2");
    let third = End::open(&hosts, "10.0.0.1");
    let options = ConnectOptions::default();
    let connect = |x: &End, y: &End| x.qp.connect(&y.qp.endpoint(), &options).expect("connects");
    connect(&second, &third);
    connect(&third, &second);
    assert_eq!(a.write(&b, 10).status, WcStatus::Success);
    assert_eq!(third.write(&second, 20).status, WcStatus::Success);
    drop((a, b));
    let counted = |name| {
        let state = hosts.state();
        let all = state.closed.iter().flatten();
        all.filter(|c| c.0 == name).map(|c| c.1).collect::<Vec<_>>()
    };
    assert_eq!(counted("sent_messages"), [1, 0]);
    assert_eq!(second.write(&third, 20).status, WcStatus::Success);
}

#[test]
fn a_full_network_is_given_nothing() {
    let hosts = Hosts::new(7);
    let (a, b) = End::pair(&hosts);
    hosts.state().is_full = true;
    let sges = [a.memory.sge(..100)];
    let wr = SendWr::rdma_write(1, &sges, b.memory.addr(), b.memory.rkey()).signaled();
    a.qp.post_send(&wr).expect("posts");
    let now = hosts.state().now;
    hosts.advance(now + 10_000);
    assert_eq!(hosts.state().sent, 0);
    hosts.state().is_full = false;
    hosts.adapters().iter().for_each(Adapter::on_room);
    assert_eq!(a.cq.poll_one().map(|wc| wc.status), Ok(WcStatus::Success));
}

/// No thread of the receiving host looks again: the ACK waits for room, and for nothing else.
#[test]
fn an_ack_that_found_no_room_leaves_when_there_is_some() {
    let hosts = Hosts::new(11);
    let (a, b) = End::pair(&hosts);
    let sges = [a.memory.sge(..100)];
    let wr = SendWr::rdma_write(1, &sges, b.memory.addr(), b.memory.rkey()).signaled();
    a.qp.post_send(&wr).expect("posts");
    hosts.state().is_full = true;
    let sent = hosts.state().sent;
    let now = hosts.state().now;
    hosts.advance(now + 2 * WAY_NS);
    let without_room = hosts.state().sent;
    hosts.state().is_full = false;
    hosts.adapters().iter().for_each(Adapter::on_room);
    let with_room = hosts.state().sent;
    assert_eq!((without_room, with_room), (sent, sent + 1));
}

#[test]
fn what_there_is_not_is_refused() {
    let hosts = Hosts::new(8);
    let here = hosts.enter("10.0.0.1");
    let strange: IpAddr = "10.0.0.2".parse().expect("an address");
    let error = Context::open(strange).expect_err("the host does not have it");
    assert_eq!(error.kind(), &ErrorKind::NoAddress(strange));
    drop(here);
    let end = End::open(&hosts, "10.0.0.1");
    let ud = end.qp.pd().qp(&end.cq).qp_type(urxe::QpType::Ud).create();
    let ud = ud.expect("a UD QP");
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let error = ud.attach_mcast(group.into()).expect_err("no groups there");
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

#[test]
fn the_calls_of_a_stopped_host_fail() {
    let hosts = Hosts::new(9);
    let (a, b) = End::pair(&hosts);
    hosts.state().is_stopped = true;
    let failed = ErrorKind::EngineFailed;
    let polled = a.cq.poll(&mut [Wc::default()]);
    assert_eq!(polled.map_err(|e| e.kind().clone()), Err(failed.clone()));
    let wr = SendWr::rdma_write(1, &[], b.memory.addr(), b.memory.rkey()).signaled();
    let posted = a.qp.post_send(&wr);
    assert_eq!(posted.map_err(|e| e.kind().clone()), Err(failed));
}

#[test]
fn outside_a_network_there_are_sockets() {
    let hosts = Hosts::new(10);
    let here = hosts.enter("10.0.0.1");
    assert!(network::current().is_some());
    drop(here);
    assert!(network::current().is_none());
    let context = Context::open("127.81.0.77".parse().expect("an address"));
    let context = context.expect("loopback has it");
    assert!(hosts.adapters().is_empty());
    drop(context);
}
