//! Strangers in masses: whatever they ask for and however often, a friend gets in, and what is kept of them is bounded.

use std::net::IpAddr;

use urxe_core::Time;
use urxe_core::cm::{Agent, CmEvent, CommId, MadPath, Scope};
use urxe_wire::cm::{CmMessage, CmPath, Dreq, IpCmHeader, PortSpace, Rep, Req, Rtu, service_id};
use urxe_wire::{Pkey, Qpn};

use crate::wire::{MS, PORT, addr, agent, answer, path, request};

const MANY: u32 = 200_000;
/// Between two of them: 33,000 a second.
const EACH_NS: u64 = 30_000;
/// Half open, and at rest, as docs/CM.md says.
const HALF_OPEN_MAX: usize = 16_384;
const RESTING_MAX: usize = 16_384;
const ALL_MAX: usize = 65_536;
/// Messages that answer no packet, to addresses that never answered.
const UNASKED_MAX: u64 = 16;

/// A host that accepts all requests, and forgets peers that are gone.
struct Host {
    agent: Agent,
    now: Time,
    next_qpn: u32,
    /// Ends a connection as soon as it is there.
    is_brief: bool,
    established: u32,
    largest: usize,
}

impl Host {
    fn new() -> Host {
        let mut agent = agent(0, 5);
        agent
            .listen(PortSpace::TCP, PORT, Scope::AnyV4, 1024)
            .expect("free");
        Host {
            agent,
            now: Time(5 * MS),
            next_qpn: 100,
            is_brief: false,
            established: 0,
            largest: 0,
        }
    }

    /// A message arrives; what it is answered.
    fn takes(&mut self, from: IpAddr, mad: &[u8]) -> Vec<CmMessage> {
        self.now = self.now + EACH_NS;
        self.agent.handle_timeout(self.now);
        let path = MadPath {
            remote: from,
            ..path(0)
        };
        self.agent.handle_mad(self.now, path, mad);
        self.lives();
        self.sent()
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    }

    /// The program does its part.
    fn lives(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            let (id, now) = (event.id(), self.now);
            match event {
                CmEvent::Request(_, incoming) => {
                    // Our QP waits that long for an ACK.
                    assert!((1..=24).contains(&incoming.ack_timeout));
                    assert!(self.agent.take(id));
                    self.next_qpn = self.next_qpn % 1_000_000 + 2;
                    let accepted = self.agent.accept(now, id, &answer(self.next_qpn));
                    accepted.expect("it was asked");
                }
                CmEvent::Established(..) => {
                    self.established += 1;
                    if self.is_brief {
                        self.agent.destroy(now, id);
                    }
                }
                _ => self.agent.destroy(now, id),
            }
        }
        self.largest = self.largest.max(self.agent.len());
    }

    fn sent(&mut self) -> Vec<(IpAddr, CmMessage)> {
        let mut sent = Vec::new();
        while let Some(out) = self.agent.front() {
            let message = CmMessage::parse(&*out.mad).expect("a message").1;
            sent.push((out.path.remote, message));
            self.agent.pop();
        }
        sent
    }

    /// Nothing arrives for a while; how many messages leave.
    fn waits(&mut self, ms: u64) -> usize {
        let end = self.now + ms * MS;
        let mut sent = 0;
        while let Some(due) = self.agent.next_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.agent.handle_timeout(self.now);
            self.lives();
            sent += self.sent().len();
        }
        self.now = end;
        sent
    }

    /// A genuine peer connects, and disconnects; all within moments.
    fn serves(&mut self, friend: &mut Agent) {
        let (start, before) = (self.now, self.established);
        let id = friend.connect(self.now, &request(0x1234 + before, b"hello"));
        let id = id.expect("room");
        let host = addr(1);
        while let Some(out) = friend.front() {
            let mad = out.mad.to_vec();
            friend.pop();
            // What is sent to others meanwhile is not the friend's.
            for message in self.takes(host, &mad) {
                friend.handle_mad(self.now, path(1), &message.emit_mad(1));
            }
            while let Some(event) = friend.poll_event() {
                match event {
                    CmEvent::Reply(..) => friend.establish(id).expect("replied"),
                    CmEvent::Disconnected { .. } => {}
                    other => panic!("{other:?} after {} strangers", self.established),
                }
            }
        }
        assert_eq!(self.established, before + 1, "the friend is not there");
        assert!(self.now.since_ns(start) < 1000 * MS);
        friend.destroy(self.now, id);
        let dreq = friend.front().map(|out| out.mad.to_vec());
        if let Some(dreq) = dreq {
            friend.pop();
            for message in self.takes(host, &dreq) {
                friend.handle_mad(self.now, path(1), &message.emit_mad(1));
            }
        }
        // What it has left rests with it.
        friend.handle_timeout(self.now);
    }
}

/// The stranger's address: one socket has one.
fn stranger() -> IpAddr {
    IpAddr::from([10, 0, 9, 9])
}

/// A request as long-winded as can be said.
fn greedy(number: u32) -> Req {
    let header = IpCmHeader::new(stranger(), 40_000, addr(0)).expect("both IPv4");
    let mut req = Req {
        local_comm_id: number + 1,
        service_id: service_id(PortSpace::TCP, PORT),
        local_ca_guid: 77,
        local_qpn: Qpn::new(number % 0xff_0000 + 2),
        pkey: Pkey::DEFAULT,
        path_mtu: 3,
        local_cm_response_timeout: 31,
        max_cm_retries: 15,
        primary_path: CmPath {
            local_ack_timeout: 31,
            ..CmPath::default()
        },
        ..Req::default()
    };
    req.private_data[..36].copy_from_slice(&header.emit());
    req
}

fn ask(host: &mut Host, req: Req) -> Option<Rep> {
    let mad = CmMessage::Req(req).emit_mad(9);
    let answers = host.takes(stranger(), &mad);
    answers.into_iter().find_map(|message| match message {
        CmMessage::Rep(rep) => Some(rep),
        _ => None,
    })
}

fn confirm(host: &mut Host, rep: &Rep) {
    let rtu = CmMessage::Rtu(Rtu {
        local_comm_id: rep.remote_comm_id,
        remote_comm_id: rep.local_comm_id,
        ..Rtu::default()
    });
    host.takes(stranger(), &rtu.emit_mad(9));
}

#[test]
fn two_hundred_thousand_polite_connections_shut_nobody_out() {
    let (mut host, mut friend) = (Host::new(), agent(1, 6));
    for number in 0..MANY {
        let rep = ask(&mut host, greedy(number)).expect("accepted");
        confirm(&mut host, &rep);
        let dreq = CmMessage::Dreq(Dreq {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            remote_qpn: rep.local_qpn,
            ..Dreq::default()
        });
        let answers = host.takes(stranger(), &dreq.emit_mad(9));
        assert!(matches!(answers[..], [CmMessage::Drep(_)]));
        if number % 1000 == 999 {
            host.serves(&mut friend);
        }
    }
    assert_eq!(host.established, MANY + MANY / 1000);
    assert!(host.largest <= RESTING_MAX + 2, "{}", host.largest);
    // What they say about packets under way is not believed for hours.
    host.waits(5000);
    assert_eq!(host.agent.len(), 0);
}

#[test]
fn two_hundred_thousand_unconfirmed_requests_shut_nobody_out() {
    let (mut host, mut friend) = (Host::new(), agent(1, 6));
    for number in 0..MANY {
        assert!(ask(&mut host, greedy(number)).is_some(), "accepted");
        if number % 1000 == 999 {
            host.serves(&mut friend);
        }
    }
    assert!(host.largest <= HALF_OPEN_MAX + MANY as usize / 1000 + 2);
    let evicted = host.agent.take_counts().evicted;
    assert!(evicted >= u64::from(MANY) - HALF_OPEN_MAX as u64);
    host.waits(16 * 4100 + 5000);
    assert_eq!(host.agent.len(), 0, "they are given up by themselves");
}

/// The peers confirm, the program disconnects, and the peers do not answer that.
#[test]
fn two_hundred_thousand_peers_that_do_not_part_shut_nobody_out() {
    let (mut host, mut friend) = (Host::new(), agent(1, 6));
    host.is_brief = true;
    for number in 0..MANY {
        let rep = ask(&mut host, greedy(number)).expect("accepted");
        confirm(&mut host, &rep);
        if number % 10_000 == 9999 {
            host.is_brief = false;
            host.serves(&mut friend);
            host.is_brief = true;
        }
    }
    assert!(host.largest <= ALL_MAX);
    host.waits(17 * 4100 + 5000);
    assert_eq!(host.agent.len(), 0);
}

/// A request may come from an invented address: its real owner gets no more than the size of the request.
#[test]
fn a_forged_request_draws_one_answer() {
    let mut host = Host::new();
    let forged = |number| Req {
        local_cm_response_timeout: 0,
        ..greedy(number)
    };
    let (start, count) = (host.now, 20_000);
    let mut sent = 0;
    for number in 0..count {
        let mad = CmMessage::Req(forged(number)).emit_mad(9);
        sent += host.takes(stranger(), &mad).len() as u64;
    }
    sent += host.waits(100_000) as u64;
    assert_eq!(host.agent.len(), 0);
    // Retransmissions are some at most, whatever was asked.
    let seconds = 6 + host.now.since_ns(start) / (1000 * MS) - 100;
    let most = u64::from(count) + UNASKED_MAX * (1 + seconds);
    println!("{sent} answers to {count} requests");
    assert!(sent <= most, "{sent} answers to {count} requests");
    assert!(sent * 100 <= u64::from(count) * 101);
}

/// What the request asks for again and again it gets again and again: one for one.
#[test]
fn a_repeated_request_draws_the_same_answer_each_time() {
    let mut host = Host::new();
    let mad = CmMessage::Req(greedy(1)).emit_mad(9);
    for _ in 0..1000 {
        let answers = host.takes(stranger(), &mad);
        assert!(matches!(answers[..], [CmMessage::Rep(_)]), "{answers:?}");
    }
    assert_eq!(host.agent.len(), 1);
}

/// A request that names the friend's QP, from its address, is no reason to refuse the friend: it says nothing of
/// whether the friend is in a connection.
#[test]
fn who_names_a_friends_qp_keeps_nobody_out() {
    let (mut host, mut friend) = (Host::new(), agent(1, 6));
    let header = IpCmHeader::new(addr(1), 40_000, addr(0)).expect("both IPv4");
    for number in 0..5000 {
        let mut req = Req {
            local_ca_guid: 0x0275_7278_0000_0001,
            local_qpn: Qpn::new(0x1234),
            ..greedy(number)
        };
        req.private_data[..36].copy_from_slice(&header.emit());
        let answers = host.takes(addr(1), &CmMessage::Req(req).emit_mad(9));
        assert!(matches!(answers[..], [CmMessage::Rep(_)]), "{answers:?}");
    }
    host.serves(&mut friend);
}

/// The program hears of each that is given up, and once.
#[test]
fn the_program_hears_of_those_that_are_given_up() {
    let mut host = Host::new();
    let mut asked: Vec<CommId> = Vec::new();
    for number in 0..HALF_OPEN_MAX as u32 + 10 {
        let rep = ask(&mut host, greedy(number)).expect("accepted");
        asked.push(CommId(rep.local_comm_id));
    }
    let stays = |id: &CommId| id.place(&host.agent).is_some();
    assert!(!asked[..10].iter().any(stays), "the oldest go");
    assert!(asked[10..].iter().all(stays), "the others stay");
}
