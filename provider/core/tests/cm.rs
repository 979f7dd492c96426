//! The communication manager on a virtual wire that loses, repeats and reorders: both sides
//! agree on what became of a connection, and nothing is left.

mod support;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};

use support::Rng;
use urxe_core::Handled;
use urxe_core::Time;
use urxe_core::cm::{
    Agent, AgentConfig, Answer, CmError, CmEvent, CommId, ConnectRequest, DatagramAnswer,
    DatagramRequest, MadPath, Patience, Reply, Scope, Terms, Transport, VendorOptions,
};
use urxe_core::qp::attr::Mtu;
use urxe_core::qpn_table::QpnChunk;
use urxe_wire::cm::{CmMessage, Dreq, Lap, MraMessage, PortSpace, RejReason, Rep, Rtu, SidrStatus};
use urxe_wire::{MadHeader, Psn, Qkey, Qpn};

const MS: u64 = 1_000_000;
const PORT: u16 = 7174;

fn addr(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

fn agent(host: usize, seed: u64) -> Agent {
    Agent::new(AgentConfig {
        guid: 0x0275_7278_0000_0000 + host as u64,
        owner: QpnChunk(host as u16 * 7 + 3),
        is_shared: false,
        secret: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ host as u64,
    })
}

fn path(from: usize) -> MadPath {
    MadPath {
        local: addr(from),
        remote: addr(1 - from),
        tos: 0,
    }
}

fn terms(qpn: u32) -> Terms {
    Terms {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn * 3),
        responder_resources: 4,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 6,
        srq: false,
        vendor: VendorOptions::default(),
    }
}

fn request(qpn: u32, private_data: &[u8]) -> ConnectRequest<'_> {
    ConnectRequest {
        path: path(1),
        space: PortSpace::TCP,
        local_port: 40_000,
        remote_port: PORT,
        terms: terms(qpn),
        transport: Transport::Rc,
        path_mtu: Mtu::Mtu1024,
        ack_timeout: 17,
        patience: Patience::default(),
        private_data,
    }
}

fn answer(qpn: u32) -> Answer<'static> {
    Answer {
        terms: terms(qpn),
        private_data: b"welcome",
    }
}

type Flight = Reverse<(u64, u64, usize, Vec<u8>)>;

/// Two hosts and what is between them. Host 0 listens, host 1 asks.
struct Wire {
    agents: [Agent; 2],
    now: Time,
    flights: BinaryHeap<Flight>,
    count: u64,
    random: Rng,
    /// Of a thousand messages: lost, and arriving twice.
    lost: u64,
    twice: u64,
    delay_ns: u64,
}

impl Wire {
    fn new(seed: u64, lost: u64, twice: u64, delay_ns: u64) -> Wire {
        let mut agents = [agent(0, seed), agent(1, seed)];
        agents[0]
            .listen(PortSpace::TCP, PORT, Scope::AnyV4, 10_000)
            .expect("free");
        agents[0]
            .listen(PortSpace::UDP, PORT, Scope::Any, 10_000)
            .expect("free");
        Wire {
            agents,
            now: Time(5 * MS),
            flights: BinaryHeap::new(),
            count: 0,
            random: Rng(seed),
            lost,
            twice,
            delay_ns,
        }
    }

    fn perfect() -> Wire {
        Wire::new(1, 0, 0, 1000)
    }

    /// What the agents have to send is under way, or lost.
    fn collect(&mut self) {
        for host in 0..2 {
            while let Some(outgoing) = self.agents[host].front() {
                assert_eq!(outgoing.path.local, addr(host));
                assert_eq!(outgoing.path.remote, addr(1 - host));
                let bytes = outgoing.mad.to_vec();
                self.agents[host].pop();
                let copies = match self.random.below(1000) {
                    dice if dice < self.lost => 0,
                    dice if dice < self.lost + self.twice => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let delay = 1 + self.random.below(self.delay_ns.max(1));
                    self.count += 1;
                    let flight = (self.now.0 + delay, self.count, 1 - host, bytes.clone());
                    self.flights.push(Reverse(flight));
                }
            }
        }
    }

    /// Goes on to the next thing that happens; false if nothing does until `end`.
    fn step(&mut self, end: Time) -> bool {
        self.collect();
        let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
        let timers = self.agents.iter().filter_map(Agent::next_timeout);
        let timer = timers.map(|time| time.0).min();
        let next = [arrival, timer].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= end.0) else {
            self.now = end;
            return false;
        };
        self.now = Time(next.max(self.now.0));
        while let Some(Reverse(flight)) = self.flights.peek() {
            if flight.0 > self.now.0 {
                break;
            }
            let Reverse((_, _, to, bytes)) = self.flights.pop().expect("looked at");
            let handled = self.agents[to].handle_mad(self.now, path(to), &bytes);
            assert_eq!(handled, Handled::Here);
        }
        for agent in &mut self.agents {
            agent.handle_timeout(self.now);
        }
        true
    }

    /// Until an event of a host, which must come.
    fn event(&mut self, host: usize) -> CmEvent {
        let end = self.now + 200_000 * MS;
        loop {
            if let Some(event) = self.agents[host].poll_event() {
                return event;
            }
            assert!(self.step(end), "no event");
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.step(end) {}
    }

    fn asks(&mut self, qpn: u32) -> CommId {
        let asked = self.agents[1].connect(self.now, &request(qpn, b"hello"));
        asked.expect("room")
    }

    /// Both ids of a connection that is there.
    fn connected(&mut self, qpns: [u32; 2]) -> [CommId; 2] {
        let active = self.asks(qpns[1]);
        let CmEvent::Request(passive, incoming) = self.event(0) else {
            panic!("no request")
        };
        assert!(self.agents[0].take(passive));
        assert_eq!(incoming.terms.qpn, Qpn::new(qpns[1]));
        let now = self.now;
        self.agents[0]
            .accept(now, passive, &answer(qpns[0]))
            .expect("asked");
        let CmEvent::Reply(id, reply) = self.event(1) else {
            panic!("no reply")
        };
        let Reply::Connection { terms, .. } = *reply else {
            panic!("another reply")
        };
        assert_eq!((id, terms.qpn), (active, Qpn::new(qpns[0])));
        self.agents[1].establish(active).expect("replied");
        let CmEvent::Established(id, _) = self.event(0) else {
            panic!("not established")
        };
        assert_eq!(id, passive);
        [passive, active]
    }

    fn assert_empty(&mut self, what: &str) {
        for (host, agent) in self.agents.iter_mut().enumerate() {
            assert_eq!(agent.len(), 0, "{what}: connections left on host {host}");
            assert!(
                agent.next_timeout().is_none(),
                "{what}: a timer on host {host}"
            );
            assert!(
                agent.poll_event().is_none(),
                "{what}: an event on host {host}"
            );
        }
    }
}

#[test]
fn terms_cross_over_and_connections_end() {
    let mut wire = Wire::perfect();
    let active = wire.asks(0x1234);
    let CmEvent::Request(passive, incoming) = wire.event(0) else {
        panic!("no request")
    };
    assert_eq!((incoming.local_port, incoming.remote_port), (PORT, 40_000));
    assert_eq!(incoming.path, path(0));
    assert_eq!(incoming.space, PortSpace::TCP);
    let proposed = incoming.terms;
    // What the peer wants to start is what this side has to serve.
    assert_eq!(
        (proposed.responder_resources, proposed.initiator_depth),
        (2, 4)
    );
    assert_eq!(proposed.starting_psn, Psn::new(0x1234 * 3));
    assert_eq!(
        (incoming.private_data.len(), &incoming.private_data[..5]),
        (56, &b"hello"[..])
    );
    assert_eq!(
        (incoming.path_mtu, incoming.ack_timeout),
        (Mtu::Mtu1024, 17)
    );
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert_eq!(
        wire.agents[0].accept(now, passive, &answer(0x5678)),
        Err(CmError::State)
    );
    let CmEvent::Reply(_, reply) = wire.event(1) else {
        panic!("no reply")
    };
    let Reply::Connection {
        terms,
        private_data,
    } = *reply
    else {
        panic!("another reply")
    };
    assert_eq!((terms.responder_resources, terms.initiator_depth), (2, 4));
    assert_eq!(
        (private_data.len(), &private_data[..7]),
        (196, &b"welcome"[..])
    );
    wire.agents[1].establish(active).expect("replied");
    assert!(matches!(wire.event(0), CmEvent::Established(id, _) if id == passive));

    let now = wire.now;
    wire.agents[1].disconnect(now, active).expect("there");
    for (host, id) in [(0, passive), (1, active)] {
        let event = wire.event(host);
        let is_it =
            matches!(event, CmEvent::Disconnected { id: i, timed_out: false, .. } if i == id);
        assert!(is_it, "{event:?}");
    }
    for (host, id) in [(0, passive), (1, active)] {
        assert_eq!(wire.event(host), CmEvent::TimewaitExit(id));
        // 4.096 us times 2^17, in milliseconds as Linux rounds.
        assert!(wire.now.since_ns(now) >= 512 * MS);
        let now = wire.now;
        wire.agents[host].destroy(now, id);
    }
    wire.assert_empty("the end");
}

#[test]
fn whoever_asks_in_vain_gives_up() {
    let mut wire = Wire::new(1, 1000, 0, 1);
    let id = wire.asks(2);
    let start = wire.now;
    assert_eq!(wire.event(1), CmEvent::Unreachable(id));
    // Sixteen times 2 * 256 + 4096 ms.
    assert_eq!(wire.now.since_ns(start) / MS, 16 * 4608);
    assert_eq!(wire.agents[1].take_counts().retries, 15);
    let now = wire.now;
    wire.agents[1].destroy(now, id);
    wire.assert_empty("given up");
}

#[test]
fn data_that_arrives_says_that_the_peer_is_ready() {
    let mut wire = Wire::perfect();
    let _active = wire.asks(0x1234);
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    wire.agents[0].on_data_of(Qpn::new(0x9999));
    assert!(wire.agents[0].poll_event().is_none());
    wire.agents[0].on_data_of(Qpn::new(0x5678));
    let event = wire.agents[0].poll_event();
    assert!(matches!(event, Some(CmEvent::Established(id, _)) if id == passive));
    // The message that says so comes later, and is nothing new.
    assert!(matches!(wire.event(1), CmEvent::Reply(..)));
    wire.agents[1].establish(_active).expect("replied");
    wire.run(100);
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(wire.agents[0].take_counts().duplicates, 1);
}

#[test]
fn a_repeated_request_is_one_request() {
    let mut wire = Wire::perfect();
    wire.asks(0x1234);
    let req = wire.agents[1].front().expect("a REQ").mad.to_vec();
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    let again = |wire: &mut Wire| {
        let now = wire.now;
        wire.agents[0].handle_mad(now, path(0), &req);
        let sent = wire.agents[0].front().map(|out| out.mad.to_vec());
        while wire.agents[0].front().is_some() {
            wire.agents[0].pop();
        }
        sent.and_then(|mad| Some(CmMessage::parse(&mad).ok()?.1))
    };
    // While the application thinks: it arrived, wait.
    match again(&mut wire) {
        Some(CmMessage::Mra(mra)) => {
            assert_eq!((mra.message, mra.service_timeout), (MraMessage::REQ, 24));
        }
        other => panic!("{other:?}"),
    }
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    wire.agents[0].pop();
    assert!(
        matches!(again(&mut wire), Some(CmMessage::Rep(_))),
        "the same answer"
    );
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(
        (
            wire.agents[0].len(),
            wire.agents[0].take_counts().duplicates
        ),
        (1, 2)
    );
}

#[test]
fn an_mra_makes_the_peer_wait() {
    let mut wire = Wire::perfect();
    wire.asks(0x1234);
    let CmEvent::Request(passive, _) = wire.event(0) else {
        panic!("no request")
    };
    // The second REQ is answered by an MRA: 65.5 s and some more without a third.
    wire.run(6000);
    assert_eq!(wire.agents[1].take_counts().retries, 1);
    wire.run(60_000);
    assert_eq!(wire.agents[1].take_counts().retries, 0);
    let now = wire.now;
    wire.agents[0]
        .accept(now, passive, &answer(0x5678))
        .expect("asked");
    assert!(matches!(wire.event(1), CmEvent::Reply(..)));
}

#[test]
fn a_peer_that_forgot_is_told_that_its_qp_is_stale() {
    let mut wire = Wire::perfect();
    let [passive, _] = wire.connected([0x5678, 0x1234]);
    // The other host starts again, and uses the same QP.
    wire.agents[1] = agent(1, 99);
    let id = wire.asks(0x1234);
    let event = wire.event(1);
    let is_stale = |event: &CmEvent| matches!(event, CmEvent::Rejected(i, RejReason::STALE_CONNECTION, _) if *i == id);
    assert!(is_stale(&event), "{event:?}");
    // The old connection ends: its peer says that there is none.
    let event = wire.event(0);
    let ended = matches!(event, CmEvent::Disconnected { id, .. } if id == passive);
    assert!(ended, "{event:?}");
    wire.run(1000);
    // Then it can be had.
    let id = wire.asks(0x1234);
    loop {
        match wire.event(0) {
            CmEvent::TimewaitExit(_) => {}
            CmEvent::Request(..) => break,
            other => panic!("{other:?}"),
        }
    }
    let now = wire.now;
    wire.agents[1].destroy(now, id);
}

/// A message with both ids of a connection, as a third host or the peer could write it.
fn forged(ids: [CommId; 2], make: fn(u32, u32) -> CmMessage) -> Vec<u8> {
    let message = make(ids[1].0, ids[0].0);
    let header = MadHeader::cm(message.attribute_id(), 9);
    message.emit(&header).to_vec()
}

#[test]
fn messages_of_third_hosts_change_nothing() {
    let mut wire = Wire::perfect();
    let ids = wire.connected([0x5678, 0x1234]);
    let dreq = |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            remote_qpn: Qpn::new(0x5678),
            ..Dreq::default()
        })
    };
    let bytes = forged(ids, dreq);
    let third = MadPath {
        remote: Ipv4Addr::new(10, 0, 0, 77).into(),
        ..path(0)
    };
    let now = wire.now;
    wire.agents[0].handle_mad(now, third, &bytes);
    // It is told that there is no such connection with it; the connection stays.
    assert!(wire.agents[0].poll_event().is_none());
    assert_eq!(wire.agents[0].take_counts().stray, 1);
    let drep = wire.agents[0].front().expect("an answer").clone();
    assert_eq!(drep.path.remote, third.remote);
    let parsed = CmMessage::parse(&*drep.mad).expect("a message").1;
    assert!(matches!(parsed, CmMessage::Drep(_)));
    wire.agents[0].pop();

    // Another QP number, and a wrong id of the peer's.
    let wrong_qp = |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            remote_qpn: Qpn::new(0x9999),
            ..Dreq::default()
        })
    };
    wire.agents[0].handle_mad(now, path(0), &forged(ids, wrong_qp));
    wire.agents[0].handle_mad(now, path(0), &forged([ids[0], CommId(5)], dreq));
    assert!(wire.agents[0].poll_event().is_none());
    // Truncated, longer, another class.
    for mad in [
        &bytes[..255],
        &[&bytes[..], &[0]].concat()[..],
        &[0; 256][..],
        &[][..],
    ] {
        wire.agents[0].handle_mad(now, path(0), mad);
    }
    assert_eq!(wire.agents[0].take_counts().malformed, 4);
    // The right one ends it.
    wire.agents[0].handle_mad(now, path(0), &bytes);
    assert!(matches!(
        wire.agents[0].poll_event(),
        Some(CmEvent::Disconnected { .. })
    ));
}

#[test]
fn what_is_asked_about_nothing_is_answered() {
    let mut wire = Wire::perfect();
    let now = wire.now;
    let nobody = [CommId(0x1234_5678), CommId(7)];
    let answer_to = |wire: &mut Wire, bytes: &[u8]| {
        wire.agents[0].handle_mad(now, path(0), bytes);
        let out = wire.agents[0].front().map(|out| *out.mad);
        wire.agents[0].pop();
        out.map(|mad| CmMessage::parse(&mad).expect("a message").1)
    };
    let dreq = forged(nobody, |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Dreq::default()
        })
    });
    match answer_to(&mut wire, &dreq) {
        Some(CmMessage::Drep(drep)) => {
            assert_eq!((drep.local_comm_id, drep.remote_comm_id), (0x1234_5678, 7));
        }
        other => panic!("{other:?}"),
    }
    let rep = forged(nobody, |local, remote| {
        CmMessage::Rep(Rep {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rep::default()
        })
    });
    match answer_to(&mut wire, &rep) {
        Some(CmMessage::Rej(rej)) => assert_eq!(rej.reason, RejReason::INVALID_COMM_ID),
        other => panic!("{other:?}"),
    }
    let rtu = forged(nobody, |local, remote| {
        CmMessage::Rtu(Rtu {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rtu::default()
        })
    });
    assert_eq!(answer_to(&mut wire, &rtu), None);
    // Alternate paths: of a connection that is there, not supported.
    let ids = wire.connected([0x5678, 0x1234]);
    let lap = forged(ids, |local, remote| {
        CmMessage::Lap(Lap {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Lap::default()
        })
    });
    match answer_to(&mut wire, &lap) {
        Some(CmMessage::Apr(apr)) => assert_eq!(apr.status, 2),
        other => panic!("{other:?}"),
    }
}

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

#[test]
fn the_backlog_bounds_what_strangers_can_have_kept() {
    let mut host = agent(0, 5);
    let listener = host
        .listen(PortSpace::TCP, PORT, Scope::One(addr(0)), 10)
        .expect("free");
    assert_eq!(
        host.listen(PortSpace::TCP, PORT, Scope::AnyV4, 1),
        Err(CmError::InUse)
    );
    let mut strangers = agent(1, 6);
    let mut accepted = Vec::new();
    for n in 0..1000 {
        strangers
            .connect(Time(MS), &request(100 + n, b""))
            .expect("room");
        let mad = strangers.front().expect("a REQ").mad.to_vec();
        strangers.pop();
        host.handle_mad(Time(MS), path(0), &mad);
        while let Some(event) = host.poll_event() {
            accepted.push(event.id());
        }
    }
    assert_eq!(
        (host.len(), accepted.len(), host.take_counts().refused),
        (10, 10, 990)
    );
    // Answers to them are bounded too, whoever asks.
    for n in 0..5000 {
        strangers
            .connect(Time(MS), &request(2000 + n, b""))
            .expect("room");
        let mad = strangers.front().expect("a REQ").mad.to_vec();
        strangers.pop();
        host.handle_mad(Time(MS), path(0), &mad);
    }
    let mut waiting = 0;
    while host.front().is_some() {
        host.pop();
        waiting += 1;
    }
    assert_eq!(waiting, 1024);
    // One that is taken makes room for one.
    assert!(host.take(accepted[0]));
    strangers
        .connect(Time(MS), &request(9000, b""))
        .expect("room");
    let mad = strangers.front().expect("a REQ").mad.to_vec();
    host.handle_mad(Time(MS), path(0), &mad);
    assert!(matches!(host.poll_event(), Some(CmEvent::Request(..))));
    // Nobody listens any more: those that nobody took are refused.
    host.unlisten(Time(MS), listener);
    assert_eq!(host.len(), 1);
    host.destroy(Time(MS), accepted[0]);
    assert_eq!((host.len(), host.listener_count()), (0, 0));
}

#[test]
fn ten_thousand_connections_are_made_and_gone() {
    let mut wire = Wire::new(3, 0, 0, 1000);
    let count = 10_000;
    for n in 0..count {
        wire.asks(1000 + n);
    }
    let (mut made, mut ids) = (0, Vec::new());
    let end = wire.now + 3000 * MS;
    loop {
        let more = wire.step(end);
        let now = wire.now;
        while let Some(event) = wire.agents[0].poll_event() {
            match event {
                CmEvent::Request(id, incoming) => {
                    wire.agents[0].take(id);
                    let qpn = 100_000 + incoming.terms.qpn.get();
                    wire.agents[0].accept(now, id, &answer(qpn)).expect("asked");
                }
                CmEvent::Established(id, _) => {
                    ids.push((0, id));
                    made += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = wire.agents[1].poll_event() {
            let CmEvent::Reply(id, _) = event else {
                panic!("{event:?}")
            };
            wire.agents[1].establish(id).expect("replied");
            ids.push((1, id));
        }
        if !more {
            break;
        }
    }
    assert_eq!((made, ids.len()), (count, 2 * count as usize));
    let now = wire.now;
    for (host, id) in ids {
        wire.agents[host].destroy(now, id);
    }
    wire.run(2000);
    wire.assert_empty("all of them");
}

/// What an application saw of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    made: bool,
    /// Something said that it is over, or will not be.
    over: bool,
    destroyed: bool,
}

/// Rng applications: they accept, refuse, drop, disconnect whenever they like.
fn live(seed: u64) {
    let mut random = Rng(seed ^ 0xabcd);
    let (lost, twice) = (random.below(400), random.below(300));
    let delay = 1 + random.below(2000) * MS;
    let mut wire = Wire::new(seed, lost, twice, delay);
    let mut ends: [BTreeMap<CommId, End>; 2] = Default::default();
    // By the asking side's QP: both ids.
    let mut pairs: BTreeMap<u32, [Option<CommId>; 2]> = BTreeMap::new();
    let count = 12;
    for n in 0..count {
        let qpn = 1000 + n;
        let id = wire.asks(qpn);
        ends[1].insert(id, End::default());
        pairs.insert(qpn, [None, Some(id)]);
    }
    let end = wire.now + 1_000_000 * MS;
    while wire.step(end) {
        let now = wire.now;
        for host in 0..2 {
            while let Some(event) = wire.agents[host].poll_event() {
                let id = event.id();
                let dice = random.below(20);
                match event {
                    CmEvent::Request(id, incoming) => {
                        assert!(wire.agents[0].take(id), "seed {seed}");
                        let qpn = incoming.terms.qpn.get();
                        // One who has asked in vain may ask again, as another connection.
                        pairs.entry(qpn).or_default()[0] = Some(id);
                        ends[0].insert(id, End::default());
                        match dice {
                            0 => {
                                let reason = RejReason::CONSUMER_DEFINED;
                                wire.agents[0].reject(now, id, reason, b"").expect("asked");
                                ends[0].entry(id).or_default().over = true;
                            }
                            1 => {
                                wire.agents[0].destroy(now, id);
                                ends[0].entry(id).or_default().destroyed = true;
                            }
                            _ => {
                                let answered = wire.agents[0].accept(now, id, &answer(qpn + 5000));
                                answered.expect("asked");
                            }
                        }
                    }
                    CmEvent::Reply(id, _) => match dice {
                        0 => {
                            let reason = RejReason::CONSUMER_DEFINED;
                            wire.agents[1]
                                .reject(now, id, reason, b"")
                                .expect("replied");
                            ends[1].entry(id).or_default().over = true;
                        }
                        1 => {
                            wire.agents[1].destroy(now, id);
                            ends[1].entry(id).or_default().destroyed = true;
                        }
                        _ => {
                            wire.agents[1].establish(id).expect("replied");
                            ends[1].entry(id).or_default().made = true;
                        }
                    },
                    CmEvent::Established(..) => {
                        ends[0].entry(id).or_default().made = true;
                    }
                    CmEvent::Rejected(..) | CmEvent::Unreachable(_) => {
                        ends[host].entry(id).or_default().over = true;
                    }
                    CmEvent::Disconnected { timed_out, .. } => {
                        assert!(!timed_out, "seed {seed}: the peer is there");
                        ends[host].entry(id).or_default().over = true;
                    }
                    CmEvent::TimewaitExit(_) => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
                let known = ends[host].get(&id).copied().unwrap_or_default();
                if known.made && !known.over && !known.destroyed && random.below(3) == 0 {
                    if random.below(2) == 0 {
                        wire.agents[host].disconnect(now, id).expect("there");
                    } else {
                        wire.agents[host].destroy(now, id);
                        ends[host].entry(id).or_default().destroyed = true;
                    }
                }
            }
        }
    }
    check_agreement(seed, &ends, &pairs);
    let now = wire.now;
    for (host, ends) in ends.iter().enumerate() {
        for (id, end) in ends {
            if !end.destroyed {
                wire.agents[host].destroy(now, *id);
            }
        }
    }
    wire.run(300_000);
    for agent in &mut wire.agents {
        let event = agent.poll_event();
        assert!(
            event.is_none(),
            "seed {seed}: of one that was destroyed: {event:?}"
        );
    }
    wire.assert_empty(&format!("seed {seed}"));
}

/// In the end both know the same: it is there, or it is over.
fn check_agreement(
    seed: u64,
    ends: &[BTreeMap<CommId, End>; 2],
    pairs: &BTreeMap<u32, [Option<CommId>; 2]>,
) {
    for (qpn, ids) in pairs {
        let end = |host: usize| ids[host].and_then(|id| ends[host].get(&id).copied());
        let (passive, active) = (end(0).unwrap_or_default(), end(1).unwrap_or_default());
        let lives = |end: End| end.made && !end.over && !end.destroyed;
        assert_eq!(
            lives(passive),
            lives(active),
            "seed {seed}, QP {qpn}: {passive:?} {active:?}"
        );
        assert!(
            lives(active) || active.over || active.destroyed,
            "seed {seed}, QP {qpn}: {active:?} waits for ever"
        );
    }
}

#[test]
fn both_sides_agree_whatever_is_lost() {
    for seed in 0..400 {
        live(seed);
    }
}

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
    // What is about another's connection, or for a port where nobody listens, is another's.
    let mut stranger = agent(1, 8);
    stranger
        .connect(Time(MS), &request(100, b""))
        .expect("room");
    let req = stranger.front().expect("a REQ").mad.to_vec();
    assert_eq!(host.handle_mad(Time(MS), path(0), &req), Handled::OfAnother);
    let dreq = forged([CommId(0xabd0_0000), CommId(7)], |local, remote| {
        CmMessage::Dreq(Dreq {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Dreq::default()
        })
    });
    assert_eq!(
        host.handle_mad(Time(MS), path(0), &dreq),
        Handled::OfAnother
    );
    host.pop();
    assert!(host.front().is_none());
    // Unless it is nobody's.
    host.handle_unowned(Time(MS), path(0), &req);
    let refused = host.front().expect("an answer").mad.to_vec();
    let refused = CmMessage::parse(&refused).expect("a message").1;
    match refused {
        CmMessage::Rej(rej) => assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID),
        other => panic!("{other:?}"),
    }
}
