//! Two agents and a virtual wire between them that loses, repeats and delays.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use urxe_core::cm::{
    Agent, AgentConfig, Answer, CmEvent, CommId, ConnectRequest, MadPath, Patience, Reply, Scope,
    Terms, Transport, VendorOptions,
};
use urxe_core::qp::attr::Mtu;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::{Handled, Time};
use urxe_wire::cm::PortSpace;
use urxe_wire::{Psn, Qpn};

use crate::support::Rng;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const PORT: u16 = 7174;

pub(crate) fn addr(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

pub(crate) fn agent(host: usize, seed: u64) -> Agent {
    Agent::new(AgentConfig {
        guid: 0x0275_7278_0000_0000 + host as u64,
        owner: QpnChunk(host as u16 * 7 + 3),
        is_shared: false,
        secret: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ host as u64,
    })
}

pub(crate) fn path(from: usize) -> MadPath {
    MadPath {
        local: addr(from),
        remote: addr(1 - from),
        tos: 0,
    }
}

pub(crate) fn terms(qpn: u32) -> Terms {
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

pub(crate) fn request(qpn: u32, private_data: &[u8]) -> ConnectRequest<'_> {
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
        hello: None,
    }
}

pub(crate) fn answer(qpn: u32) -> Answer<'static> {
    Answer {
        terms: terms(qpn),
        private_data: b"welcome",
    }
}

pub(crate) type Flight = Reverse<(u64, u64, usize, Vec<u8>)>;

/// Two hosts and what is between them. Host 0 listens, host 1 asks.
pub(crate) struct Wire {
    pub(crate) agents: [Agent; 2],
    pub(crate) now: Time,
    pub(crate) flights: BinaryHeap<Flight>,
    pub(crate) count: u64,
    pub(crate) random: Rng,
    /// Of a thousand messages: lost, and arriving twice.
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    pub(crate) delay_ns: u64,
}

impl Wire {
    pub(crate) fn new(seed: u64, lost: u64, twice: u64, delay_ns: u64) -> Wire {
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

    pub(crate) fn perfect() -> Wire {
        Wire::new(1, 0, 0, 1000)
    }

    /// What the agents have to send is under way, or lost.
    pub(crate) fn collect(&mut self) {
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
    pub(crate) fn step(&mut self, end: Time) -> bool {
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
    pub(crate) fn event(&mut self, host: usize) -> CmEvent {
        let end = self.now + 200_000 * MS;
        loop {
            if let Some(event) = self.agents[host].poll_event() {
                return event;
            }
            assert!(self.step(end), "no event");
        }
    }

    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.step(end) {}
    }

    pub(crate) fn asks(&mut self, qpn: u32) -> CommId {
        let asked = self.agents[1].connect(self.now, &request(qpn, b"hello"));
        asked.expect("room")
    }

    /// Both ids of a connection that is there.
    pub(crate) fn connected(&mut self, qpns: [u32; 2]) -> [CommId; 2] {
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

    pub(crate) fn assert_empty(&mut self, what: &str) {
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
