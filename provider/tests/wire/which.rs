//! Which of the two wires packets travel by.

use std::process::Command;

use urxe::{ConnectOptions, Context, Qkey, QpType, RecvWr, SendWr, Wire};

use super::peer::{Peer, ping, ping_on};
use super::{end, end_at, records};
use crate::common::{End, address, bytes, connect, exchange};

/// Both ends wrote and read records, or neither did.
#[track_caller]
fn went_through(is_memory: bool, ends: [&End; 2]) {
    for end in ends {
        let records = records(end);
        assert!(
            records.iter().all(|&count| (count > 0) == is_memory),
            "{records:?}"
        );
        let sockets = end.counter("rx_calls");
        assert!(is_memory || sockets > 0, "{sockets} calls brought packets");
    }
}

#[test]
fn contexts_of_one_process_use_memory_on_one_address_and_on_two() {
    let one = address();
    for addrs in [[one, one], [address(), address()]] {
        let (a, b) = (end_at(addrs[0]), end_at(addrs[1]));
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        exchange(&a, &b, 1);
        went_through(true, [&a, &b]);
    }
}

/// A context is its own neighbour.
#[test]
fn qps_of_one_context_use_memory() {
    let a = end();
    let b = a.pd.qp(&a.cq).create().expect("a QP");
    connect(&a.qp, &b, &ConnectOptions::default());
    let target = a.memory(8);
    let part = [target.sge(..)];
    let recv = RecvWr::new(1, &part);
    b.post_recv(&recv).expect("room");
    let send = SendWr::send_inline(2, b"myself").signaled();
    a.qp.post_send(&send).expect("room");
    let mut got = [a.succeed().wr_id, a.succeed().wr_id];
    got.sort_unstable();
    assert_eq!((got, bytes(&target, 6)), ([1, 2], b"myself".to_vec()));
    went_through(true, [&a, &a]);
}

/// Owners of two addresses and two of one address, each with two QPs, and no connection: a datagram's address handle is enough.
#[test]
fn datagrams_use_memory_between_neighbours() {
    const QKEY: Qkey = Qkey(0x1111_1111);
    let shared = address();
    let open = |addr, wire| {
        let context = Context::builder(addr).wire(wire).open();
        let end = End::with(context.expect("shared"), |qp| qp.qp_type(QpType::Ud));
        let other = end.pd.qp(&end.cq).qp_type(QpType::Ud).create();
        let other = other.expect("a QP");
        for qp in [&end.qp, &other] {
            qp.start_datagrams(QKEY).expect("starts");
        }
        (end, other)
    };
    let from = open(address(), Wire::Auto);
    let to = [
        open(shared, Wire::Auto),
        open(shared, Wire::Auto),
        open(address(), Wire::Sockets),
    ];
    let ways = [from.0.pd.create_ah_to(shared), {
        let last = to[2].0.context.address();
        from.0.pd.create_ah_to(last)
    }]
    .map(|ah| ah.expect("a path"));
    for round in 0..20 {
        for (number, (end, other)) in to.iter().enumerate() {
            let memory = end.memory(64);
            let part = [memory.sge(..)];
            for qp in [&end.qp, other] {
                qp.post_recv(&RecvWr::new(round, &part)).expect("room");
                let text = [number as u8, round as u8];
                let ah = &ways[number / 2];
                let send = SendWr::send_inline(1, &text).ud_addr(ah, qp.qp_num(), QKEY);
                from.0.qp.post_send(&send).expect("room");
                let wc = end.succeed();
                assert_eq!((wc.wr_id, wc.src_qp), (round, from.0.qp.qp_num()));
                assert_eq!(bytes(&memory, 42)[40..], text);
            }
        }
    }
    // The first of each owner may be sent before the owner was found.
    let read = to.each_ref().map(|(end, _)| records(end)[1]);
    assert!(read[..2].iter().all(|&count| count >= 38), "{read:?}");
    assert_eq!(read[2], 0);
}

#[test]
fn one_side_that_wants_sockets_is_enough() {
    let with = |wire| {
        let context = Context::builder(address()).wire(wire).open();
        End::on(context.expect("free"))
    };
    for wires in [
        [Wire::Auto, Wire::Sockets],
        [Wire::Sockets, Wire::Auto],
        [Wire::Sockets, Wire::Sockets],
    ] {
        let [a, b] = wires.map(with);
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        exchange(&a, &b, 1);
        went_through(false, [&a, &b]);
    }
}

/// What does not share its address is in no registry.
#[test]
fn a_context_that_does_not_share_uses_sockets() {
    let alone = Context::builder(address()).share(false).open();
    let (a, b) = (End::on(alone.expect("free")), end());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    exchange(&a, &b, 1);
    went_through(false, [&a, &b]);
}

/// Connects with a process and has some messages sent back. Returns the records that its context wrote and read.
fn meet(end: &End, peer: &mut Peer) -> [u64; 2] {
    peer.connect(&end.qp, &ConnectOptions::default());
    (0..20).for_each(|number| ping(end, number));
    ["tx_records", "rx_records"].map(|name| peer.count(name))
}

#[test]
fn processes_use_memory_unless_the_environment_says_otherwise() {
    let mut peer = Peer::start();
    let a = end();
    assert!(meet(&a, &mut peer).iter().all(|&count| count >= 20));
    assert!(records(&a).iter().all(|&count| count >= 20));
    peer.end();

    let mut peer = Peer::start_by(Peer::command().env("URXE_WIRE", "sockets"), address());
    let a = end();
    assert_eq!((meet(&a, &mut peer), records(&a)), ([0; 2], [0; 2]));

    let mut peer = Peer::start_by(Peer::command().env("URXE_WIRE", "copper"), address());
    let said = peer.ask("");
    for part in ["URXE_WIRE", "copper", "auto", "sockets"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
}

/// Many QPs, to several processes on one address: each has its own ring, and each gets its own packets.
#[test]
fn several_processes_with_several_qps() {
    let (shared, a) = (address(), end());
    let mut peers: Vec<Peer> = (0..4)
        .map(|_| Peer::start_by(&mut Peer::command(), shared))
        .collect();
    let mut qps = Vec::new();
    for _ in 0..5 {
        for peer in &mut peers {
            let qp = a.pd.qp(&a.cq).create().expect("a QP");
            peer.connect(&qp, &ConnectOptions::default());
            qps.push(qp);
        }
    }
    for round in 0..20 {
        for (number, qp) in qps.iter().enumerate() {
            ping_on(&a, qp, round << 32 | number as u64);
        }
    }
    for peer in &mut peers {
        assert!(peer.count("rx_records") >= 100);
        assert_eq!(peer.count("rcvd_messages"), 100);
    }
    assert_eq!(a.counter("rings_full") + a.counter("ack_timeout"), 0);
}

/// Containers that have the network in common, but not the folder of the registry.
#[test]
fn containers_that_share_no_memory_use_sockets() {
    let script = "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"";
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "sh", "-c", script, "sh", "true"]);
    match probe.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return println!("skipped: no folder of its own: {}", why.trim());
        }
        Err(error) => return println!("skipped: no `unshare` command: {error}"),
    }
    let peer = Peer::command();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(peer.get_program()).args(peer.get_args());
    command.env_remove("URXE_WIRE");
    let mut peer = Peer::start_by(&mut command, address());
    let a = end();
    assert_eq!((meet(&a, &mut peer), records(&a)), ([0; 2], [0; 2]));
}
