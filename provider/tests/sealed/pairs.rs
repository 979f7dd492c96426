//! Connections with keys of their own: no other member of the cluster writes in a peer's name, and both ends are told where one of them
//! has no such keys.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe::cm::{
    CmError, CmOption, ConnParam, EventChannel, EventKind, Id, Manager, Opener, PortSpace,
    RejReason,
};
use urxe::{Context, ContextBuilder, Error, FaultSpec, KeyFile, Security, SendWr, Wire};
use urxe_seal::{Envelope, Identity, Keys, Mode, OVERHEAD, Path, Sealer};

use super::attacks::Scene;
use super::ends::{Key, now, write};
use super::keys::exchange;
use crate::common::{End, PATIENCE, address, alone, in_namespace, steer_all_at, wait_until};

/// How contexts are opened.
#[derive(Clone, Debug)]
struct Opened {
    security: Security,
    key: PathBuf,
    wire: Wire,
    shards: u32,
    faults: Option<FaultSpec>,
}

impl Opened {
    fn new(security: Security, key: &Key) -> Opened {
        Opened {
            security,
            key: key.0.clone(),
            wire: Wire::Sockets,
            shards: 1,
            faults: None,
        }
    }

    fn builder(&self, addr: IpAddr) -> ContextBuilder {
        Context::builder(addr)
            .wire(self.wire)
            .security(self.security)
            .key_file(&self.key)
            .shards(self.shards)
            .faults(self.faults)
    }
}

impl Opener for Opened {
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        self.builder(addr).open()
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        Ok(Vec::new())
    }
}

/// One end of a connection; the identifier keeps it.
pub(crate) struct Joined {
    pub(crate) end: End,
    id: Id,
    channel: EventChannel,
}

impl Joined {
    /// The end, and what keeps it.
    pub(crate) fn into_parts(self) -> (End, (Id, EventChannel)) {
        (self.end, (self.id, self.channel))
    }
}

/// A process that listens.
struct Server {
    channel: EventChannel,
    id: Id,
}

impl Server {
    fn new(opened: &Opened, addr: IpAddr) -> Server {
        let manager = Manager::new(Arc::new(opened.clone()));
        let channel = EventChannel::with_manager(&manager).expect("a channel");
        let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
        id.bind_addr((addr, 0).into()).expect("it is ours");
        id.listen(0).expect("it listens");
        Server { channel, id }
    }

    fn event(&self) -> urxe::cm::Event {
        let event = self.channel.wait(Some(PATIENCE)).expect("waits");
        event.expect("an event")
    }

    fn accept(&self) -> Joined {
        let event = self.event();
        assert_eq!(event.kind, EventKind::ConnectRequest);
        let end = End::on(event.id.device().expect("it is bound"));
        event.id.attach_qp(&end.qp).expect("attached");
        event.id.accept(&ConnParam::default()).expect("accepts");
        let established = self.event();
        assert_eq!(established.kind, EventKind::Established);
        Joined {
            end,
            id: event.id,
            channel: self.channel.clone(),
        }
    }
}

/// A process that asks; with the event that it gets for it.
fn ask(opened: &Opened, addr: IpAddr, server: &Server) -> (Joined, EventKind, i32) {
    let manager = Manager::new(Arc::new(opened.clone()));
    let channel = EventChannel::with_manager(&manager).expect("a channel");
    let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
    let to = server.id.local_addr().expect("it is bound");
    id.resolve_addr(Some((addr, 0).into()), to, Duration::ZERO)
        .expect("an address");
    id.resolve_route(Duration::ZERO).expect("a route");
    if opened.faults.is_some() {
        // Of what is lost there is much.
        for option in [CmOption::ResponseTimeout(14), CmOption::AckTimeout(14)] {
            id.set_option(option).expect("in range");
        }
    }
    let end = End::on(id.device().expect("it is bound"));
    id.attach_qp(&end.qp).expect("attached");
    id.connect(&ConnParam::default()).expect("asks");
    loop {
        let event = channel.wait(Some(PATIENCE)).expect("waits");
        let event = event.expect("an event");
        if ![EventKind::AddrResolved, EventKind::RouteResolved].contains(&event.kind) {
            let joined = Joined { end, id, channel };
            return (joined, event.kind, event.status);
        }
    }
}

/// Both ends of a connection that was asked for by the first.
fn join(opened: [&Opened; 2], addrs: [IpAddr; 2]) -> [Joined; 2] {
    let server = Server::new(opened[1], addrs[1]);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (joined, kind, _) = ask(opened[0], addrs[0], &server);
            assert_eq!(kind, EventKind::Established);
            joined
        });
        let accepted = server.accept();
        [client.join().expect("no panic"), accepted]
    })
}

/// Ends of a connection for [`Scene`].
pub(crate) fn connected(security: Security, key: &Key) -> [Joined; 2] {
    let opened = Opened::new(security, key);
    join([&opened, &opened], [address(), address()])
}

fn exchange_between(ends: &[Joined; 2]) {
    exchange([&ends[0].end, &ends[1].end]);
}

fn each(ends: &[Joined; 2], name: &str) -> [u64; 2] {
    ends.each_ref().map(|joined| joined.end.counter(name))
}

fn refuses_nothing(ends: &[Joined; 2]) {
    for joined in ends {
        for (name, count) in super::attacks::refused(&joined.end) {
            assert_eq!(count, 0, "{name}");
        }
    }
}

#[test]
fn connections_have_keys_of_their_own() {
    let key = Key::new(0x3fa2, 7);
    for security in [
        [Security::AuthPairs; 2],
        [Security::SealPairs; 2],
        [Security::SealRequiredPairs; 2],
        [Security::AuthPairs, Security::SealPairs],
    ] {
        let opened = security.map(|security| Opened::new(security, &key));
        let ends = join([&opened[0], &opened[1]], [address(), address()]);
        exchange_between(&ends);
        assert_eq!(each(&ends, "seal_pairs"), [1, 1], "{security:?}");
        assert!(each(&ends, "seal_opened").iter().all(|count| *count > 150));
        refuses_nothing(&ends);
    }
}

/// A member of the cluster, which has the key file, and knows of a connection whatever can be known: it writes a packet in the peer's name.
fn forge(scene: &Scene, key: &Key) -> Vec<u8> {
    let [peer, victim] = scene.addresses();
    let last = scene.requests().last().expect("requests").payload.clone();
    let text = std::fs::read_to_string(&key.0).expect("it is a member");
    let keys = Keys::new(&text.parse::<KeyFile>().expect("a key file"));
    let mut sealer = Sealer::new(keys, Mode::Seal, Identity::new([0x77; 12]), now());
    let body = b"this is not what the peer wrote!";
    let mut plain = vec![0; 12 + 16 + body.len() + 4];
    // RDMA WRITE ONLY, behind what came last.
    plain[..12].copy_from_slice(&last[..12]);
    plain[0] = 0x0a;
    let psn = u32::from_be_bytes([0, last[9], last[10], last[11]]);
    plain[9..12].copy_from_slice(&((psn + 1) & 0xff_ffff).to_be_bytes()[1..]);
    plain[12..20].copy_from_slice(&scene.memory.addr().to_be_bytes());
    plain[20..24].copy_from_slice(&scene.memory.rkey().0.to_be_bytes());
    plain[24..28].copy_from_slice(&(body.len() as u32).to_be_bytes());
    plain[28..28 + body.len()].copy_from_slice(body);
    let mut sealed = vec![0; plain.len() + OVERHEAD];
    let path = Path {
        source: peer,
        dest: victim,
    };
    sealer.on(path).seal(&plain, &mut sealed);
    sealed
}

/// With the cluster's keys alone any member can do that; with those of a pair none can, and what it sends is counted.
#[test]
fn another_member_of_the_cluster_cannot_write_in_a_peers_name() {
    in_namespace(
        "sealed::pairs::another_member_of_the_cluster_cannot_write_in_a_peers_name",
        || {
            let key = Key::new(1, 7);
            for (security, is_taken) in [(Security::Seal, true), (Security::SealPairs, false)] {
                let scene = Scene::connected(security, &key);
                let epochs = scene
                    .requests()
                    .filter_map(|seen| Envelope::of(&seen.payload));
                let last = epochs.last().expect("packets").epoch;
                assert_eq!(last == 0, !is_taken, "{security}");
                let before = scene.victims_memory();
                let forged = forge(&scene, &key);
                scene.send(&forged);
                if is_taken {
                    wait_until("the forged WRITE arrives", || {
                        scene.victims_memory().starts_with(b"this is not what")
                    });
                    continue;
                }
                wait_until("it is refused", || {
                    let mut wc = [urxe::Wc::default()];
                    assert_eq!(scene.victim.cq.poll(&mut wc).expect("polls"), 0);
                    scene.victim.counter("seal_refused_pair") == 1
                });
                assert!(scene.victims_memory() == before, "the memory has changed");
                // Nor by packets of the pair that are sent again, or are changed.
                for seen in scene.requests().filter(|seen| seen.payload[13] == 0) {
                    scene.send(&seen.payload);
                    let mut changed = seen.payload.clone();
                    *changed.last_mut().expect("a tag") ^= 1;
                    scene.send(&changed);
                }
                scene.write(b"only its peer writes here.......");
                assert_eq!(scene.read(), b"only its peer writes here.......");
                assert!(scene.victim.counter("seal_refused_replayed") > 0);
            }
        },
    );
}

/// What either end is told when only one of them has keys for connections, in either direction: within a second, and not after timeouts.
#[test]
fn an_end_without_keys_for_connections_is_refused_in_words() {
    let key = Key::new(1, 7);
    for security in [
        [Security::SealPairs, Security::Seal],
        [Security::Seal, Security::SealPairs],
    ] {
        let opened = security.map(|security| Opened::new(security, &key));
        let server = Server::new(&opened[1], address());
        let start = Instant::now();
        let (joined, kind, status) = ask(&opened[0], address(), &server);
        let took = start.elapsed();
        assert_eq!(kind, EventKind::Rejected, "{security:?}");
        let reason = RejReason::VENDOR_OPTION_NOT_SUPPORTED;
        assert_eq!(status, i32::from(reason.0), "{security:?}");
        let text = CmError::Rejected(reason).to_string();
        assert!(text.contains("URXE_SECURITY"), "{text}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        let device = server.id.device().expect("it is bound");
        let refused = device.counters().expect("counters");
        let refused = refused
            .iter()
            .find(|(name, _)| *name == "seal_refused_handshake");
        assert_eq!(refused, Some(&("seal_refused_handshake", 1)));
        assert!(server.channel.try_next().expect("looks").is_none());
        drop(joined);
    }
}

/// Another key file is found out before there is any handshake.
#[test]
fn an_end_with_another_key_is_told() {
    let (key, other) = (Key::new(1, 7), Key::new(1, 8));
    let opened = [&key, &other].map(|key| Opened::new(Security::SealPairs, key));
    let server = Server::new(&opened[1], address());
    let start = Instant::now();
    let (_joined, kind, _) = ask(&opened[0], address(), &server);
    assert_eq!(kind, EventKind::Unreachable);
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Messages of the handshake that are lost, doubled, late and changed. What a seed draws depends on the contexts
/// that were opened before: here there are none.
#[test]
fn handshakes_survive_a_network_that_loses() {
    alone(
        "sealed::pairs::handshakes_survive_a_network_that_loses",
        || {
            let key = Key::new(1, 7);
            let seed = std::env::var("URXE_SEED").ok();
            let seed: u64 = seed.map_or(11, |seed| seed.parse().expect("a number"));
            for round in 0..4 {
                let faults = format!(
                    "drop=10%,dup=10%,reorder=10%,corrupt=5%,seed={}",
                    seed + round
                );
                println!("{faults}");
                let opened = Opened {
                    faults: Some(faults.parse().expect("a specification")),
                    ..Opened::new(Security::SealPairs, &key)
                };
                let ends = join([&opened, &opened], [address(), address()]);
                exchange_between(&ends);
                assert_eq!(each(&ends, "seal_pairs"), [1, 1]);
            }
        },
    );
}

#[test]
fn a_rotated_key_changes_nothing_for_connections_that_are() {
    let key = Key::new(1, 7);
    let ends = connected(Security::SealPairs, &key);
    exchange_between(&ends);
    let mut file = KeyFile::new(1, [7; 32], 0);
    file.rotate([8; 32], now() - 1000, now() - 500);
    file.rotate([9; 32], now(), now());
    assert!(file.epochs().all(|(epoch, _)| epoch > 1));
    write(&key.0, &file);
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        exchange_between(&ends);
    }
    refuses_nothing(&ends);
}

/// Several contexts at one address, of which each has connections with the others and with a peer elsewhere; and contexts of several shards.
#[test]
fn owners_of_one_address_have_their_own_pairs() {
    let key = Key::new(1, 7);
    for shards in [1, 2] {
        let opened = Opened {
            shards,
            ..Opened::new(Security::SealPairs, &key)
        };
        let addr = address();
        let mut all = Vec::new();
        for to in [addr, addr, address()] {
            all.push(join([&opened, &opened], [addr, to]));
        }
        for _ in 0..3 {
            all.iter().for_each(exchange_between);
        }
        for ends in &all {
            assert_eq!(each(ends, "seal_pairs"), [1, 1]);
            refuses_nothing(ends);
        }
        // One is over, and the others go on.
        let [one, other] = all.remove(0);
        one.id.disconnect().expect("connected");
        drop((one, other));
        all.iter().for_each(exchange_between);
    }
}

/// Another process of the address cannot open what it gets in an owner's place, and hands it over as it came.
#[test]
fn packets_that_a_neighbour_gets_are_handed_over_as_they_came() {
    let key = Key::new(1, 7);
    let opened = Opened::new(Security::SealPairs, &key);
    let addr = address();
    let neighbour = End::on(opened.builder(addr).open().expect("the address is free"));
    let ends = join([&opened, &opened], [address(), addr]);
    exchange_between(&ends);
    let before = ends[1].end.counter("taken_over");
    let handed_over = neighbour.counter("handed_over");
    for _ in 0..3 {
        steer_all_at(addr, urxe_seal::PORT, 0);
        exchange_between(&ends);
    }
    assert!(ends[1].end.counter("taken_over") > before);
    assert!(neighbour.counter("handed_over") > handed_over);
    for (name, count) in super::attacks::refused(&neighbour) {
        assert_eq!(count, 0, "{name}");
    }
    refuses_nothing(&ends);
}

/// What goes through memory is as it was, under whatever keys its connection has.
#[test]
fn neighbours_connect_with_keys_of_their_own_and_use_memory() {
    let key = Key::new(1, 7);
    let opened = Opened {
        wire: Wire::Auto,
        ..Opened::new(Security::SealPairs, &key)
    };
    let addr = address();
    let ends = join([&opened, &opened], [addr, addr]);
    exchange_between(&ends);
    assert_eq!(each(&ends, "seal_pairs"), [1, 1]);
    refuses_nothing(&ends);
}

/// QPs that are connected by hand have the cluster's keys, beside others that have their own.
#[test]
fn qps_that_are_connected_by_hand_stay_under_the_clusters_keys() {
    let key = Key::new(1, 7);
    let ends = connected(Security::SealPairs, &key);
    let by_hand = ends
        .each_ref()
        .map(|joined| End::on(joined.end.context.clone()));
    crate::common::connect(
        &by_hand[0].qp,
        &by_hand[1].qp,
        &urxe::ConnectOptions::default(),
    );
    for _ in 0..3 {
        exchange_between(&ends);
        exchange([&by_hand[0], &by_hand[1]]);
    }
    refuses_nothing(&ends);
    // A number of requests at once, of both kinds, so that trains of both leave together.
    let memories = [&ends[0].end, &by_hand[0]].map(|end| end.memory(64));
    for n in 0..32 {
        for (end, memory) in [&ends[0].end, &by_hand[0]].into_iter().zip(&memories) {
            let _ = memory;
            end.qp
                .post_send(&SendWr::rdma_write(n, &[], 0, urxe::Rkey(0)).signaled())
                .expect("room");
        }
    }
    for _ in 0..32 {
        ends[0].end.succeed();
        by_hand[0].succeed();
    }
    refuses_nothing(&ends);
}
