//! A program that sees all packets and can send any: what it comes to against sealed packets, and against plain ones.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use urxe::{ConnectOptions, Security, SendWr};
use urxe_core::mix::SplitMix64;
use urxe_seal::{Identity, KeyFile, Keys, Mode, OVERHEAD, Path, Sealer};
use urxe_udp::{Dest, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};
use urxe_wire::{IcrcSeed, PathHeader};

use super::ends::{Key, open};
use super::sniffer::{Seen, Sniffer};
use crate::common::{End, address, connect, in_namespace, ip};

const SECRET: &[u8] = b"nobody else is to read this text";
/// From where the attacker sends, at the peer's address.
const OWN_PORT: u16 = 40_000;

/// Packets to send: few in ordinary runs, `URXE_ATTACKS` says otherwise.
fn attacks() -> u64 {
    let set = std::env::var("URXE_ATTACKS").ok();
    set.map_or(20_000, |count| count.parse().expect("a number"))
}

fn seed() -> u64 {
    let set = std::env::var("URXE_SEED").ok();
    set.map_or(0x5ea1, |seed| seed.parse().expect("a number"))
}

/// A victim, its genuine peer, and what passed between them.
pub(crate) struct Scene {
    pub(crate) peer: End,
    pub(crate) victim: End,
    pub(crate) memory: urxe::Mr,
    seen: Vec<Seen>,
    attacker: UdpSocket,
    port: u16,
    /// What keeps the connection.
    _kept: Box<dyn std::any::Any>,
}

impl Scene {
    fn new(security: Security, key: &Key) -> Scene {
        Scene::with(security, || {
            let [peer, victim] = [0, 1].map(|_| End::on(open(address(), security, key)));
            connect(&peer.qp, &victim.qp, &ConnectOptions::default());
            (peer, victim, Box::new(()))
        })
    }

    /// One of ends that the connection manager connected.
    pub(crate) fn connected(security: Security, key: &Key) -> Scene {
        Scene::with(security, || {
            let ends = super::pairs::connected(security, key);
            let [(peer, one), (victim, other)] = ends.map(super::pairs::Joined::into_parts);
            (peer, victim, Box::new((one, other)))
        })
    }

    fn with(
        security: Security,
        connect: impl FnOnce() -> (End, End, Box<dyn std::any::Any>),
    ) -> Scene {
        ip("link set lo up");
        let mut sniffer = Sniffer::new();
        let (peer, victim, kept) = connect();
        let memory = victim.memory(4096);
        let port = match security {
            Security::Off => urxe_wire::ROCE_V2_PORT,
            _ => urxe_seal::PORT,
        };
        let at = SocketAddr::new(peer.context.address(), OWN_PORT);
        let attacker = UdpSocket::bind(at, &UdpConfig::default()).expect("a port of the host");
        let mut scene = Scene {
            peer,
            victim,
            memory,
            seen: Vec::new(),
            attacker,
            port,
            _kept: kept,
        };
        for _ in 0..8 {
            scene.write(SECRET);
            scene.read();
        }
        scene.seen = sniffer.take(port);
        // The datagram by which an owner of the address finds its socket is no packet, and is not counted.
        scene
            .seen
            .retain(|seen| !seen.payload.starts_with(b"\xffURX"));
        assert!(scene.seen.len() > 16, "{} packets", scene.seen.len());
        scene
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let near = self.peer.memory(bytes.len());
        near.write(0, bytes);
        let (addr, rkey) = (self.memory.addr(), self.memory.rkey());
        let sges = [near.sge(..)];
        let write = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
        self.peer.qp.post_send(&write).expect("room");
        self.peer.succeed();
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let near = self.peer.memory(SECRET.len());
        let (addr, rkey) = (self.memory.addr(), self.memory.rkey());
        let sges = [near.sge(..)];
        let read = SendWr::rdma_read(1, &sges, addr, rkey).signaled();
        self.peer.qp.post_send(&read).expect("room");
        self.peer.succeed();
        let mut bytes = vec![0; SECRET.len()];
        near.read(0, &mut bytes);
        bytes
    }

    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [&self.peer, &self.victim].map(|end| end.context.address())
    }

    /// What went to the victim.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Seen> {
        let [peer, victim] = self.addresses();
        let seen = self.seen.iter();
        seen.filter(move |seen| seen.source == peer && seen.dest == victim)
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        let to = Dest::new(SocketAddr::new(self.addresses()[1], self.port));
        let outcome = self.attacker.send(SendBatch {
            bytes,
            transmits: &[Transmit::single(0..bytes.len(), to)],
        });
        assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
    }

    /// The victim's memory, as the victim sees it.
    pub(crate) fn victims_memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        self.memory.read(0, &mut bytes);
        bytes
    }
}

/// The counters that say why, by name.
pub(crate) fn refused(end: &End) -> Vec<(&'static str, u64)> {
    let counters = end.context.counters().expect("counters");
    let is_it = |(name, _): &(&str, u64)| {
        name.starts_with("seal_refused_") && *name != "seal_refused_by_peer"
    };
    counters.into_iter().filter(is_it).collect()
}

/// One packet of a kind that an attacker tries, and the counter that may say so.
struct Attacker {
    random: SplitMix64,
    requests: Vec<Vec<u8>>,
    responses: Vec<Vec<u8>>,
    plain: Vec<u8>,
    strangers: [Sealer; 2],
    path: Path,
}

const KINDS: u64 = 14;

impl Attacker {
    fn new(scene: &Scene) -> Attacker {
        let [peer, victim] = scene.addresses();
        let requests: Vec<_> = scene.requests().map(|seen| seen.payload.clone()).collect();
        let responses = scene.seen.iter().filter(|seen| seen.source == victim);
        let sealer = |id, secret| {
            let keys = Keys::new(&KeyFile::new(id, [secret; 32], 0));
            Sealer::new(keys, Mode::Seal, Identity::new([5; 12]), 0)
        };
        let mut plain = vec![0; 12 + 16 + 32 + 4];
        // RDMA WRITE ONLY, with the numbers that are in the clear.
        plain[..12].copy_from_slice(&requests[0][..12]);
        plain[0] = 0x0a;
        plain[12..20].copy_from_slice(&scene.memory.addr().to_be_bytes());
        plain[20..24].copy_from_slice(&scene.memory.rkey().0.to_be_bytes());
        plain[24..28].copy_from_slice(&32_u32.to_be_bytes());
        Attacker {
            random: SplitMix64::new(seed()),
            requests,
            responses: responses.map(|seen| seen.payload.clone()).collect(),
            plain,
            strangers: [sealer(2, 7), sealer(1, 8)],
            path: Path {
                source: peer,
                dest: victim,
            },
        }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.bits() % end as u64) as usize
    }

    fn packet(&mut self, number: u64) -> Vec<u8> {
        let chosen = self.below(self.requests.len());
        let mut packet = self.requests[chosen].clone();
        let len = packet.len();
        let noise = self.random.bits().to_be_bytes();
        match number % KINDS {
            // As it was.
            0 => {}
            // Each place in turn.
            1..=4 => {
                let bit = (number / KINDS * 4 + number % KINDS - 1) as usize % (len * 8);
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            // QPN, PSN, and where an rkey is.
            5 => packet[5..8].copy_from_slice(&noise[..3]),
            6 => packet[9..12].copy_from_slice(&noise[..3]),
            7 => packet[28 + 8..28 + 12].copy_from_slice(&noise[..4]),
            // Another epoch; a counter that was not used.
            8 => packet[13] = packet[13].wrapping_add(1 + noise[0] % 255),
            9 => packet[20..28].copy_from_slice(&noise),
            10 => packet.truncate(self.below(len)),
            11 => packet.extend((0..=self.below(4000)).map(|n| n as u8)),
            // Of the other direction.
            12 => {
                let chosen = self.below(self.responses.len());
                packet = self.responses[chosen].clone();
            }
            // With another key, or none.
            _ => {
                let plain = self.plain.clone();
                match self.below(3) {
                    2 => packet = plain,
                    which => {
                        packet = vec![0; plain.len() + OVERHEAD];
                        let path = self.path;
                        self.strangers[which].on(path).seal(&plain, &mut packet);
                    }
                }
            }
        }
        packet
    }
}

/// Nothing that an attacker sends is taken, and each packet is counted with its reason.
#[test]
fn no_forged_packet_is_accepted() {
    in_namespace("sealed::attacks::no_forged_packet_is_accepted", || {
        for security in [Security::Seal, Security::Auth] {
            attack(security);
        }
    });
}

fn attack(security: Security) {
    let key = Key::new(1, 7);
    let scene = Scene::new(security, &key);
    let is_readable = scene.seen.iter().any(|seen| contains(&seen.payload));
    assert_eq!(is_readable, security == Security::Auth);
    let before = scene.victims_memory();
    let opened = scene.victim.counter("seal_opened");
    let mut attacker = Attacker::new(&scene);
    let (total, mut sent) = (attacks() / 2, 0);
    let (start, mut empty) = (Instant::now(), 0);
    while sent < total {
        for _ in 0..64.min(total - sent) {
            let packet = attacker.packet(sent);
            // The kernel takes one without a byte, and the victim finds nothing in it to refuse.
            empty += u64::from(packet.is_empty());
            scene.send(&packet);
            sent += 1;
        }
        let limit = Instant::now() + Duration::from_secs(20);
        let counted = || refused(&scene.victim).iter().map(|(_, n)| n).sum::<u64>();
        while counted() < sent - empty {
            let mut wc = [urxe::Wc::default()];
            assert_eq!(scene.victim.cq.poll(&mut wc).expect("polls"), 0);
            assert!(
                Instant::now() < limit,
                "{} of {sent}: {:?}",
                counted(),
                scene.victim.context.counters()
            );
        }
    }
    let reasons = refused(&scene.victim);
    println!(
        "{security}: {sent} packets in {:?} (seed {}): {reasons:?}",
        start.elapsed(),
        seed()
    );
    let total: u64 = reasons.iter().map(|(_, count)| count).sum();
    assert_eq!(total, sent - empty, "each is counted once");
    for name in ["format", "key", "epoch", "forged", "replayed"] {
        let name = format!("seal_refused_{name}");
        let count = reasons.iter().find(|(reason, _)| **reason == *name);
        assert!(count.is_some_and(|(_, count)| *count > 0), "{name}");
    }
    assert_eq!(
        scene.victim.counter("seal_opened"),
        opened,
        "none was opened"
    );
    assert!(scene.victims_memory() == before, "the memory has changed");
    // Both ends go on as if nothing had been.
    scene.write(b"still the only one who can write");
    assert_eq!(scene.read(), b"still the only one who can write");
    assert_eq!(scene.peer.counter("seal_refused_by_peer"), 0);
}

fn contains(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part == SECRET)
}

/// The same against plain packets, as the paper ReDMArk (USENIX Security 2021) has it: what passes can be read, and a host that has seen one packet can
/// write memory in the peer's name, and ends the connection.
#[test]
fn plain_packets_can_be_read_and_forged() {
    in_namespace(
        "sealed::attacks::plain_packets_can_be_read_and_forged",
        || {
            let key = Key::new(1, 7);
            let scene = Scene::new(Security::Off, &key);
            assert!(scene.seen.iter().any(|seen| contains(&seen.payload)));
            // RDMA WRITE ONLY; its numbers but the next one's are all in it.
            let last = scene.requests().last().expect("requests").payload.clone();
            let is_write = |seen: &&Seen| seen.payload[0] == 0x0a;
            let mut forged = scene
                .requests()
                .filter(is_write)
                .last()
                .expect("a WRITE")
                .payload
                .clone();
            let psn = u32::from_be_bytes([0, last[9], last[10], last[11]]);
            forged[9..12].copy_from_slice(&((psn + 1) & 0xff_ffff).to_be_bytes()[1..]);
            forged[28..28 + SECRET.len()].copy_from_slice(b"whoever wrote this is not a peer");
            send_plain(&scene, &mut forged);
            let limit = Instant::now() + Duration::from_secs(20);
            while !scene
                .victims_memory()
                .starts_with(b"whoever wrote this is not a peer")
            {
                assert!(Instant::now() < limit, "the forged WRITE did not arrive");
                std::thread::yield_now();
            }
            // An opcode that cannot come here: the victim's QP fails, and with it the connection.
            forged[0] = 0x08;
            forged[9..12].copy_from_slice(&((psn + 2) & 0xff_ffff).to_be_bytes()[1..]);
            send_plain(&scene, &mut forged);
            while scene.victim.qp.state().expect("it is there") != urxe::QpState::Err {
                assert!(Instant::now() < limit, "the connection lives");
                std::thread::yield_now();
            }
        },
    );
}

fn send_plain(scene: &Scene, packet: &mut [u8]) {
    let [peer, victim] = scene.addresses().map(|addr| match addr {
        IpAddr::V4(addr) => addr.octets(),
        IpAddr::V6(_) => unreachable!("tests have IPv4 addresses"),
    });
    let seed = IcrcSeed::new(&PathHeader::V4 {
        src: peer,
        dst: victim,
        sport: OWN_PORT,
        dport: urxe_wire::ROCE_V2_PORT,
    });
    seed.seal(0, packet);
    scene.send(packet);
}
