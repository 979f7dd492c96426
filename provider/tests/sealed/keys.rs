//! Peers with the same key, and with others.

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe::cm::{
    CmError, ConnParam, ConnectBuilder, EventChannel, EventKind, Id, Manager, Opener, PortSpace,
};
use urxe::{
    ConnectOptions, Context, Endpoint, Error, ErrorKind, Fault, KeyFile, QpType, Security, SendWr,
    WcStatus, Wire,
};

use super::attacks;
use super::ends::{Key, builder, now, open, write};
use crate::common::{End, PATIENCE, address, connect, pattern, wait_until};
use urxe_seal::VERSION;

/// Two connected ends.
fn pair(security: [Security; 2], keys: [&Key; 2]) -> [End; 2] {
    let ends = [0, 1].map(|n| End::on(open(address(), security[n], keys[n])));
    join(&ends);
    ends
}

fn join([a, b]: &[End; 2]) {
    connect(&a.qp, &b.qp, &ConnectOptions::default());
}

/// SENDs, a WRITE and a READ, each of many packets.
pub(crate) fn exchange([a, b]: [&End; 2]) {
    let len = 300_000;
    let (from, to) = (a.memory(len), b.memory(len));
    for (round, one) in [(1, a), (2, b)] {
        let data = pattern(round, len);
        let (near, far, other) = match round {
            1 => (&from, &to, b),
            _ => (&to, &from, a),
        };
        near.write(0, &data);
        other.recv(1, far);
        one.qp
            .post_send(&SendWr::send(2, &[near.sge(..)]).signaled())
            .expect("room");
        other.succeed();
        one.succeed();
        let mut got = vec![0; len];
        far.read(0, &mut got);
        assert!(got == data);
        far.write(0, &vec![0; len]);
        let sges = [near.sge(..)];
        let write = SendWr::rdma_write(3, &sges, far.addr(), far.rkey());
        one.qp.post_send(&write.signaled()).expect("room");
        one.succeed();
        near.write(0, &vec![0; len]);
        let read = SendWr::rdma_read(4, &sges, far.addr(), far.rkey());
        one.qp.post_send(&read.signaled()).expect("room");
        one.succeed();
        near.read(0, &mut got);
        assert!(got == data);
    }
}

#[test]
fn peers_with_one_key_are_sealed() {
    let key = Key::new(0x3fa2, 7);
    for security in [
        [Security::Auth; 2],
        [Security::Seal; 2],
        [Security::SealRequired; 2],
        [Security::Auth, Security::Seal],
    ] {
        let ends = pair(security, [&key, &key]);
        exchange(ends.each_ref());
        for end in &ends {
            assert!(end.counter("seal_opened") > 150, "{security:?}");
            assert_eq!(end.counter("drop_icrc"), 0);
        }
    }
}

#[test]
fn offload_or_not_and_small_buffers_all_the_same() {
    let key = Key::new(0x3fa2, 7);
    let ends = [0, 1].map(|_| {
        let context = builder(address(), Security::Seal, &key).offload(false);
        End::on(context.open().expect("the address is free"))
    });
    join(&ends);
    exchange(ends.each_ref());
}

/// What a peer that cannot understand this side comes to: an error in words at both, within a second.
fn refused(security: [Security; 2], keys: [&Key; 2], fault: Fault) {
    let ends = pair(security, keys);
    let start = Instant::now();
    let memory = ends.each_ref().map(|end| end.memory(64));
    ends[1].recv(1, &memory[1]);
    ends[0]
        .qp
        .post_send(&SendWr::send(2, &[memory[0].sge(..)]).signaled())
        .expect("room");
    let wc = ends[0].complete();
    assert_eq!(
        (wc.status, wc.fault()),
        (WcStatus::RetryExcErr, fault),
        "{security:?}"
    );
    let text = ends[0]
        .qp
        .last_error()
        .expect("it is there")
        .expect("it failed")
        .to_string();
    assert!(
        fault != Fault::PeerRefuses || text.contains("urxe key show-id"),
        "{text}"
    );
    // The one that only receives is told, too.
    if fault == Fault::PeerRefuses {
        wait_until("the other end fails", || {
            let mut wc = [urxe::Wc::default()];
            ends[1].cq.poll(&mut wc).expect("polls");
            let error = ends[1].qp.last_error().expect("it is there");
            error.is_some_and(|error| error.fault == fault)
        });
    }
    // Of a busy machine's seconds some more.
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn peers_with_other_keys_are_told() {
    let (key, other_id, other_secret) = (Key::new(1, 7), Key::new(2, 7), Key::new(1, 8));
    let both = [Security::Seal; 2];
    refused(both, [&key, &other_id], Fault::PeerRefuses);
    refused(both, [&key, &other_secret], Fault::PeerRefuses);
    refused([Security::Auth; 2], [&key, &other_id], Fault::PeerRefuses);
}

#[test]
fn peers_that_do_less_are_told_where_more_is_required() {
    let key = Key::new(1, 7);
    for security in [
        [Security::Auth, Security::SealRequired],
        [Security::SealRequired, Security::Auth],
    ] {
        refused(security, [&key, &key], Fault::PeerRefuses);
    }
}

/// A process that does less, at the address of one that does enough, fails alone.
#[test]
fn a_neighbour_of_a_peer_that_does_less_ends_no_connection() {
    let key = Key::new(1, 7);
    let addr = address();
    let good = [
        End::on(open(address(), Security::SealRequired, &key)),
        End::on(open(addr, Security::Seal, &key)),
    ];
    join(&good);
    exchange(good.each_ref());
    let strong = End::on(good[0].context.clone());
    let bad = [strong, End::on(open(addr, Security::Auth, &key))];
    join(&bad);
    let memory = bad[1].memory(64);
    bad[1]
        .qp
        .post_send(&SendWr::send(1, &[memory.sge(..)]).signaled())
        .expect("room");
    assert_eq!(bad[1].complete().status, WcStatus::RetryExcErr);
    assert!(good[0].counter("seal_refused_mode") > 0);
    exchange(good.each_ref());
}

/// A peer of a version that is yet to come: what all versions have in common is enough for both to say so.
#[test]
fn a_peer_of_another_version_is_told_and_heard() {
    const NEWER: u8 = VERSION + 1;
    let key = Key::new(0x3fa2, 7);
    let addr = address();
    let newer = UdpSocket::bind((addr, 14_791)).expect("the address is free");
    newer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let end = End::on(open(address(), Security::Seal, &key));
    let home = end.context.address();
    let peer = End::on(open(address(), Security::Seal, &key));
    let endpoint = Endpoint {
        addr,
        ..peer.qp.endpoint()
    };
    end.qp
        .connect(&endpoint, &ConnectOptions::default())
        .expect("connects");
    let start = Instant::now();
    let memory = end.memory(64);
    end.qp
        .post_send(&SendWr::send(2, &[memory.sge(..)]).signaled())
        .expect("room");
    let mut packet = [0; 2048];
    let len = newer.recv(&mut packet).expect("a packet");
    assert!(
        len > 44 && packet[12] == VERSION << 4 | 2,
        "{:02x}",
        packet[12]
    );
    // Its own version, in what it sends: this side says so.
    let mut of_newer = packet[..len].to_vec();
    of_newer[12] = NEWER << 4 | 2;
    newer.send_to(&of_newer, (home, 14_791)).expect("sends");
    let notice = loop {
        let mut answer = [0; 2048];
        let len = newer.recv(&mut answer).expect("an answer");
        if let Ok(notice) = <[u8; 24]>::try_from(&answer[..len]) {
            break notice;
        }
    };
    let expected = [0xff, b'n', b'o', 1, 1, VERSION, 0x3f, 0xa2];
    assert_eq!(notice[..8], expected);
    assert_eq!(notice[8..], of_newer[12..28]);
    wait_until("it is counted", || end.counter("seal_refused_version") == 1);
    // And it refuses what it got.
    let mut refusal = notice;
    refusal[5] = NEWER;
    refusal[8..].copy_from_slice(&packet[12..28]);
    newer.send_to(&refusal, (home, 14_791)).expect("sends");
    let wc = end.complete();
    assert_eq!(
        (wc.status, wc.fault()),
        (WcStatus::RetryExcErr, Fault::PeerRefuses)
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_peer_that_is_not_sealed_has_another_port() {
    let key = Key::new(1, 7);
    let sealed = End::on(open(address(), Security::Seal, &key));
    let plain = End::on(open(address(), Security::Off, &key));
    let ends = [sealed, plain];
    join(&ends);
    let memory = ends.each_ref().map(|end| end.memory(64));
    for (end, memory) in ends.iter().zip(&memory) {
        end.qp
            .post_send(&SendWr::send(2, &[memory.sge(..)]).signaled())
            .expect("room");
    }
    // Found out by its closed port, or, whichever is sooner, by the QP's own timeout.
    for end in &ends {
        let fault = end.complete().fault();
        assert!(
            [Fault::PeerRefuses, Fault::AckTimeout].contains(&fault),
            "{fault}"
        );
    }
}

#[test]
fn datagrams_and_groups_are_sealed() {
    let key = Key::new(1, 7);
    let qkey = urxe::Qkey(0x1111_1111);
    let open_at = |key: &Key| {
        let context = open(address(), Security::Seal, key);
        let end = End::with(context, |qp| qp.qp_type(QpType::Ud));
        end.qp.start_datagrams(qkey).expect("starts");
        end
    };
    let (a, b) = (open_at(&key), open_at(&key));
    let group = crate::common::group();
    b.qp.attach_mcast(group.into()).expect("attached");
    let memory = b.memory(4096);
    let ah = |to: IpAddr| a.pd.create_ah_to(to).expect("a path");
    for (to, qpn) in [
        (b.context.address(), b.qp.qp_num()),
        (group, urxe::Qpn::new(0xff_ffff)),
    ] {
        b.recv(1, &memory);
        let ah = ah(to);
        a.qp.post_send(&SendWr::send_inline(1, b"a datagram").ud_addr(&ah, qpn, qkey))
            .expect("room");
        let wc = b.succeed();
        assert_eq!(wc.byte_len, 50, "{to}");
        let mut got = [0; 10];
        memory.read(40, &mut got);
        assert_eq!(&got, b"a datagram");
    }
    assert!(b.counter("seal_opened") >= 2);
}

#[test]
fn keys_rotate_while_packets_flow() {
    let key = Key::new(1, 7);
    let ends = pair([Security::Seal; 2], [&key, &key]);
    exchange(ends.each_ref());
    let mut file = KeyFile::new(1, [7; 32], 0);
    file.rotate([8; 32], now(), now() + 2);
    write(&key.0, &file);
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        exchange(ends.each_ref());
    }
    // Both send in the new epoch: a file without the old one changes nothing.
    write(&key.0, &{
        let mut file = file;
        file.rotate([9; 32], now() + 1000, now() + 2000);
        assert_eq!(file.epochs().next().map(|(number, _)| number), Some(2));
        file
    });
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        exchange(ends.each_ref());
    }
    for end in &ends {
        for (name, count) in attacks::refused(end) {
            assert_eq!(count, 0, "{name}");
        }
    }
}

#[test]
fn shared_addresses_share_one_key() {
    let (key, other) = (Key::new(1, 7), Key::new(2, 7));
    let addr = address();
    let several = [0, 1, 2].map(|_| End::on(open(addr, Security::Seal, &key)));
    let error = builder(addr, Security::Seal, &other).open();
    let error = error.expect_err("the port is taken by those with another key");
    assert!(matches!(error.kind(), ErrorKind::AddrInUse(_)), "{error}");
    let peer = open(address(), Security::Seal, &key);
    for end in several {
        let ends = [end, End::on(peer.clone())];
        join(&ends);
        exchange(ends.each_ref());
    }
    // Plain contexts have a port and a registry of their own.
    let plain = Context::builder(addr).security(Security::Off).open();
    plain.expect("another port");
}

#[derive(Debug)]
struct Sealing(PathBuf);

impl Opener for Sealing {
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        let builder = Context::builder(addr).wire(Wire::Sockets);
        let builder = builder.security(Security::Seal).key_file(&self.0);
        builder.open()
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        Ok(Vec::new())
    }
}

#[test]
fn connections_by_address_are_sealed_and_refused() {
    let (key, other) = (Key::new(1, 7), Key::new(2, 7));
    let manager = |key: &Key| Manager::new(Arc::new(Sealing(key.0.clone())));
    let channel = EventChannel::with_manager(&manager(&key)).expect("a channel");
    let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
    id.bind_addr((address(), 0).into()).expect("it is ours");
    id.listen(0).expect("it listens");
    let to = id.local_addr().expect("it is bound");
    let connect = |key: &Key| {
        let builder = ConnectBuilder::new(to).manager(&manager(key));
        builder.from((address(), 0).into()).connect()
    };
    let start = Instant::now();
    let error = connect(&other).expect_err("another key");
    assert_eq!(error.cm(), Some(CmError::Unreachable));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| connect(&key));
        let event = channel
            .wait(Some(PATIENCE))
            .expect("waits")
            .expect("an event");
        assert_eq!(event.kind, EventKind::ConnectRequest);
        let context = event.id.device().expect("it is bound");
        let end = End::on(context);
        event.id.attach_qp(&end.qp).expect("attached");
        event.id.accept(&ConnParam::default()).expect("accepts");
        (client.join().expect("no panic"), end)
    });
    client.0.expect("the same key");
}

/// The kernel cannot see which neighbour a sealed goodbye is for: it may come back to the context that said it, and that ends at once.
#[test]
fn the_last_goodbye_of_a_context_reaches_its_neighbour() {
    let key = Key::new(1, 7);
    let addr = address();
    let manager = || Manager::new(Arc::new(Sealing(key.0.clone())));
    for round in 0..60 {
        let managers = [manager(), manager()];
        // Each of the two is once the one that comes first on the address.
        let opened = |manager: &Manager| {
            let channel = EventChannel::with_manager(manager).expect("a channel");
            let id = Id::new(&channel, PortSpace::Tcp).expect("an identifier");
            id.bind_addr((addr, 0).into()).expect("it is ours");
            id.listen(0).expect("it listens");
            (channel, id)
        };
        let first = opened(&managers[round % 2]);
        let (channel, id) = match round % 2 {
            0 => first,
            _ => opened(&managers[0]),
        };
        let builder = ConnectBuilder::new(id.local_addr().expect("it is bound"));
        let builder = builder.manager(&managers[1]).from((addr, 0).into());
        let client = std::thread::scope(|scope| {
            let client = scope.spawn(|| builder.connect());
            let event = channel.wait(Some(PATIENCE)).expect("waits");
            let event = event.expect("an event");
            assert_eq!(event.kind, EventKind::ConnectRequest);
            let end = End::on(event.id.device().expect("it is bound"));
            event.id.attach_qp(&end.qp).expect("attached");
            event.id.accept(&ConnParam::default()).expect("accepts");
            let client = client.join().expect("no panic").expect("accepted");
            event.id.disconnect().expect("connected");
            client
        });
        let [leaving, _staying] = managers;
        drop((channel, id, leaving));
        let event = client.events().wait(Some(PATIENCE)).expect("waits");
        let event = event.unwrap_or_else(|| panic!("round {round}: nothing was heard"));
        assert_eq!(event.kind, EventKind::Disconnected);
    }
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let builder = || Context::builder(address());
    let error = builder().security(Security::Seal).open();
    if std::env::var_os("URXE_KEY_FILE").is_none() {
        let error = error.expect_err("no key");
        assert_eq!(error.kind(), &ErrorKind::NoKeyFile);
        assert!(error.to_string().contains("urxe key new"), "{error}");
    }
    let error = builder()
        .key_file("/nonexistent/key")
        .security(Security::Auth)
        .open();
    assert!(matches!(
        error.expect_err("no file").kind(),
        ErrorKind::KeyFile(_)
    ));
}
