//! Strangers and peers that send an agent whatever they like: the body of a fuzz target and of
//! a property test. The bytes are a script.

use std::net::{IpAddr, Ipv4Addr};

use urxe_core::Time;
use urxe_core::cm::{
    Agent, AgentConfig, Answer, CmEvent, CommId, ConnectRequest, HELLO_LEN, Handshake, MadPath,
    Patience, Reply, Scope, Terms, Transport, VendorOptions,
};
use urxe_core::qp::attr::Mtu;
use urxe_core::qpn_table::QpnChunk;
use urxe_wire::cm::{CmMessage, IpCmHeader, PortSpace, RejReason, Req, SidrReq, service_id};
use urxe_wire::{MadHeader, Pkey, Psn, Qpn};

use crate::support::bytes::Script;

const PORT: u16 = 7174;
/// What strangers can have kept, at most.
const BACKLOG: u32 = 8;
/// Connections that the application begins, at most.
const OWN: usize = 8;

fn addr(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn terms(qpn: u32) -> Terms {
    Terms {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn),
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        vendor: VendorOptions::default(),
    }
}

/// What a run reached: events by kind, and messages that were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) requests: u32,
    pub(crate) replies: u32,
    pub(crate) established: u32,
    pub(crate) ended: u32,
    pub(crate) answers: u32,
    pub(crate) handshakes: u32,
}

struct Run {
    agent: Agent,
    now: Time,
    held: Vec<CommId>,
    /// Connections as they were seen on the wire: the agent's id, the other side's, and its
    /// address.
    seen: Vec<(u32, u32, u8)>,
    reached: Reached,
    next_qpn: u32,
}

/// Runs a script, and checks what must hold whatever happens.
pub(crate) fn run(script: &[u8]) -> Reached {
    let mut agent = Agent::new(AgentConfig {
        guid: 1,
        owner: QpnChunk(0x123),
        is_shared: false,
        secret: 5,
    });
    agent.take_handshakes();
    for space in [PortSpace::TCP, PortSpace::UDP] {
        agent
            .listen(space, PORT, Scope::Any, BACKLOG)
            .expect("free");
    }
    let mut run = Run {
        agent,
        now: Time(1),
        held: Vec::new(),
        seen: vec![(0, 0, 2)],
        reached: Reached::default(),
        next_qpn: 100,
    };
    let mut script = Script(script);
    while run.step(&mut script).is_some() {
        run.settle();
    }
    let reached = run.reached;
    run.end();
    reached
}

impl Run {
    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        match script.byte()? % 16 {
            0 => self.noise(script),
            1 | 2 => self.ask(script)?,
            3..=9 => self.write(script)?,
            10..=14 => self.act(script)?,
            _ => {
                let exponent = script.byte()? % 40;
                self.now = self.now + (1 << exponent);
                self.agent.handle_timeout(self.now);
            }
        }
        Some(())
    }

    /// Whatever comes, of whatever length.
    fn noise(&mut self, script: &mut Script<'_>) {
        let mut mad = [0; 300];
        let len = usize::from(script.byte().unwrap_or(0)) + 45;
        script.fill(&mut mad);
        self.arrive(2, &mad[..len]);
    }

    /// A request that may be good.
    fn ask(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (kind, from, id) = (script.byte()?, script.byte()? % 4 + 2, script.word()? % 64);
        let header = IpCmHeader::new(addr(from), 40_000, addr(1)).expect("both IPv4");
        let message = if kind % 4 == 0 {
            let mut req = SidrReq {
                request_id: id,
                pkey: Pkey::DEFAULT,
                service_id: service_id(PortSpace::UDP, PORT),
                ..SidrReq::default()
            };
            req.private_data[..36].copy_from_slice(&header.emit());
            CmMessage::SidrReq(req)
        } else {
            let mut req = Req {
                local_comm_id: id,
                service_id: service_id(PortSpace::TCP, PORT + u16::from(kind == 255)),
                local_ca_guid: u64::from(from),
                local_qpn: Qpn::new(script.word()? % 64),
                pkey: Pkey::DEFAULT,
                path_mtu: kind % 7,
                max_cm_retries: kind % 16,
                local_cm_response_timeout: 20,
                // What goes before a request.
                transport_service_type: 2 * u8::from(kind % 16 == 3),
                ..Req::default()
            };
            req.private_data[..36].copy_from_slice(&header.emit());
            req.private_data[36] = kind >> 4;
            CmMessage::Req(req)
        };
        self.arrive(from, &message.emit_mad(u64::from(id)));
        Some(())
    }

    /// A message about a connection: any attribute, ids that were seen or not.
    fn write(&mut self, script: &mut Script<'_>) -> Option<()> {
        let attribute = 0x10 + u16::from(script.byte()? % 12);
        let mut mad = [0; 256];
        mad[..24].copy_from_slice(&MadHeader::cm(attribute, 1).emit());
        let (own, remote, from) = self.seen[usize::from(script.byte()?) % self.seen.len()];
        // Often the real peer, with its id.
        let (remote, from) = match script.byte()? {
            0..32 => (script.word()? % 64, from),
            32..64 => (remote, script.byte()? % 4 + 2),
            _ if remote == 0 => (script.word()? % 64, from),
            _ => (remote, from),
        };
        mad[24..28].copy_from_slice(&remote.to_be_bytes());
        mad[28..32].copy_from_slice(&own.to_be_bytes());
        if attribute == 0x18 {
            mad[24..28].copy_from_slice(&own.to_be_bytes());
        }
        let len = usize::from(script.byte()? % 40).saturating_sub(20);
        script.fill(&mut mad[32..32 + len]);
        if attribute == 0x15 && len == 0 {
            // Perhaps the right QP, so that some are heard.
            let qpn = self.next_qpn - u32::from(script.byte()? % 4);
            mad[32..35].copy_from_slice(&qpn.to_be_bytes()[1..]);
        }
        self.arrive(from, &mad);
        Some(())
    }

    /// The application does something.
    fn act(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (what, which) = (script.byte()?, usize::from(script.byte()?));
        self.next_qpn += 1;
        let qpn = self.next_qpn;
        if what.is_multiple_of(4) && self.agent.len() < OWN {
            let request = ConnectRequest {
                path: MadPath {
                    local: addr(1),
                    remote: addr(what / 4 % 4 + 2),
                    tos: 0,
                },
                space: PortSpace::TCP,
                local_port: 1,
                remote_port: 2,
                terms: terms(qpn),
                transport: Transport::Rc,
                path_mtu: Mtu::Mtu1024,
                ack_timeout: 14,
                patience: Patience::default(),
                private_data: b"x",
                hello: (which % 3 == 1).then_some(&[7; HELLO_LEN]),
            };
            let id = self
                .agent
                .connect(self.now, &request)
                .expect("there is room");
            self.held.push(id);
            return Some(());
        }
        if self.held.is_empty() {
            return Some(());
        }
        let id = self.held[which % self.held.len()];
        let (agent, now) = (&mut self.agent, self.now);
        // Most are refused: the connection is not at that point.
        let _ = match what % 8 {
            1 | 2 => agent.accept(
                now,
                id,
                &Answer {
                    terms: terms(qpn),
                    private_data: b"y",
                },
            ),
            3 => agent.establish(id),
            5 => agent.disconnect(now, id),
            6 => agent.reject(now, id, RejReason::CONSUMER_DEFINED, b"z"),
            _ => {
                agent.destroy(now, id);
                self.held.retain(|held| *held != id);
                Ok(())
            }
        };
        Some(())
    }

    fn arrive(&mut self, from: u8, mad: &[u8]) {
        let path = MadPath {
            local: addr(1),
            remote: addr(from),
            tos: 0,
        };
        self.agent.handle_mad(self.now, path, mad);
    }

    /// Sends what is to be sent, hears what is to be heard, and looks.
    fn settle(&mut self) {
        while let Some(handshake) = self.agent.poll_handshake() {
            self.reached.handshakes += 1;
            match handshake {
                Handshake::Hello(hello) if hello.bytes[0] & 1 == 0 => {
                    let reason = RejReason::VENDOR_OPTION_NOT_SUPPORTED;
                    self.agent.refuse_hello(&hello, reason);
                }
                Handshake::Hello(hello) => self.agent.answer_hello(&hello, &hello.bytes),
                Handshake::Answer(id, _) => {
                    assert!(self.held.contains(&id), "{id:?} asked for nothing");
                    self.agent.proceed(self.now, id);
                }
            }
        }
        while let Some(outgoing) = self.agent.front() {
            assert_eq!(outgoing.path.local, addr(1));
            let (_, message) = CmMessage::parse(&*outgoing.mad).expect("it is a message");
            let (own, remote) = match message {
                CmMessage::Req(m) => (m.local_comm_id, 0),
                CmMessage::Rep(m) => (m.local_comm_id, m.remote_comm_id),
                CmMessage::Mra(m) => (m.local_comm_id, m.remote_comm_id),
                CmMessage::Rtu(m) => (m.local_comm_id, m.remote_comm_id),
                _ => (0, 0),
            };
            let IpAddr::V4(to) = outgoing.path.remote else {
                panic!("nobody has such an address")
            };
            if own != 0 {
                self.seen.retain(|seen| seen.0 != own);
                self.seen.push((own, remote, to.octets()[3]));
            }
            if self.seen.len() > 16 {
                self.seen.remove(0);
            }
            self.reached.answers += 1;
            self.agent.pop();
        }
        while let Some(event) = self.agent.poll_event() {
            self.hear(&event);
        }
        let released = self.agent.poll_released();
        assert_eq!(released, None, "no QP was destroyed");
        let most = self.held.len() + 2 * BACKLOG as usize;
        // What ended without a holder rests for a while.
        assert!(
            self.agent.len() <= most + 64,
            "{} connections",
            self.agent.len()
        );
    }

    fn hear(&mut self, event: &CmEvent) {
        match event {
            CmEvent::Request(id, incoming) => {
                assert_eq!(incoming.local_port, PORT);
                assert!(self.agent.take(*id));
                self.held.push(*id);
                self.reached.requests += 1;
                // An application of limited patience.
                if self.held.len() > 32 {
                    let oldest = self.held.remove(0);
                    self.agent.destroy(self.now, oldest);
                }
            }
            CmEvent::Reply(_, reply) => {
                assert!(
                    matches!(**reply, Reply::Connection { .. }),
                    "datagrams were not asked for"
                );
                self.reached.replies += 1;
            }
            CmEvent::Established(..) => self.reached.established += 1,
            _ => self.reached.ended += 1,
        }
        assert!(self.held.contains(&event.id()), "{event:?} of nobody's");
    }

    /// Whatever was done to it, nothing is left in the end.
    fn end(mut self) {
        for id in std::mem::take(&mut self.held) {
            self.agent.destroy(self.now, id);
        }
        for _ in 0..64 {
            let Some(due) = self.agent.next_timeout() else {
                break;
            };
            self.now = Time(due.0.max(self.now.0) + 10_000_000_000);
            self.agent.handle_timeout(self.now);
            while self.agent.front().is_some() {
                self.agent.pop();
            }
            assert!(self.agent.poll_event().is_none(), "an event of nobody's");
        }
        assert_eq!(self.agent.len(), 0, "connections are left");
    }
}
