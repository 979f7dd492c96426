//! Lone packets to a neighbour leave by a connected socket, and nothing shows of it but the counter and the time that it saves.

use std::net::{IpAddr, UdpSocket};
use std::thread;

use crate::capture::Capture;
use crate::common::{End, address, connect, v6_in_turn, wait_until};
use urxe::{ConnectOptions, Context, ContextBuilder, FaultSpec, SendWr, Wire};

const ROUNDS: u64 = 500;

fn on_sockets(addr: IpAddr) -> ContextBuilder {
    Context::builder(addr).wire(Wire::Sockets).shards(1)
}

/// So long that a packet which is lost or refused is seen.
fn patient() -> ConnectOptions {
    ConnectOptions {
        timeout: 23,
        ..ConnectOptions::default()
    }
}

fn two(build: impl Fn(ContextBuilder) -> ContextBuilder) -> (End, End) {
    let open = || {
        let context = build(on_sockets(address())).open();
        End::on(context.expect("the address is free"))
    };
    let (a, b) = (open(), open());
    connect(&a.qp, &b.qp, &patient());
    (a, b)
}

/// Messages of 64 bytes there and back.
fn converse(a: &End, b: &End, rounds: u64) {
    let (at_a, at_b) = (a.memory(64), b.memory(64));
    b.recv(0, &at_b);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..rounds {
                b.succeed();
                b.recv(n, &at_b);
                let bytes = [n as u8; 64];
                let answer = SendWr::send_inline(n, &bytes);
                b.qp.post_send(&answer).expect("room");
            }
        });
        for n in 0..rounds {
            a.recv(n, &at_a);
            let bytes = [n as u8; 64];
            let message = SendWr::send_inline(n, &bytes);
            a.qp.post_send(&message).expect("room");
            assert_eq!(a.succeed().wr_id, n);
            assert_eq!(at_a.load_u64(0), u64::from_ne_bytes([n as u8; 8]));
        }
    });
    // The last receive of this conversation is for the next one.
    let rest = SendWr::send_inline(rounds, b"rest");
    a.qp.post_send(&rest).expect("room");
    b.succeed();
}

/// No packet was refused, and each left. (A peer that has no processor for a moment is sent the last one again.)
fn assert_nothing_lost(ends: [&End; 2]) {
    for end in ends {
        for name in ["drop_icrc", "tx_errors"] {
            assert_eq!(end.counter(name), 0, "{name}");
        }
    }
}

#[test]
fn lone_packets_leave_by_it() {
    let (a, b) = two(|context| context);
    for _ in 0..3 {
        converse(&a, &b, ROUNDS);
    }
    assert_nothing_lost([&a, &b]);
    for end in [&a, &b] {
        let direct = end.counter("tx_direct");
        assert!(direct > ROUNDS, "{direct} packets");
    }
}

/// Several pairs of QPs, to one address and to several: the one that is spoken to for a while has it.
#[test]
fn with_several_peers_nothing_is_lost() {
    let a = End::on(on_sockets(address()).open().expect("free"));
    let others: Vec<End> = (0..3)
        .map(|_| End::on(on_sockets(address()).open().expect("free")))
        .collect();
    for b in &others {
        let qp = a.pd.qp(&a.cq).create().expect("a QP");
        connect(&qp, &b.qp, &patient());
        let a = End {
            qp,
            context: a.context.clone(),
            pd: a.pd.clone(),
            channel: a.channel.clone(),
            cq: a.cq.clone(),
        };
        converse(&a, b, ROUNDS);
        assert_nothing_lost([&a, b]);
    }
    assert!(a.counter("tx_direct") > 0);
}

#[test]
fn over_ipv6_too() {
    let (addr, _turn) = v6_in_turn();
    let open = || End::on(on_sockets(addr).open().expect("loopback has IPv6"));
    let (a, b) = (open(), open());
    connect(&a.qp, &b.qp, &patient());
    converse(&a, &b, ROUNDS);
    assert!(a.counter("tx_direct") > 0);
    assert_nothing_lost([&a, &b]);
}

/// The peer's process ends, and another takes its address: the socket's error costs no message.
#[test]
fn a_peer_that_comes_again_is_reached() {
    let a = End::on(on_sockets(address()).open().expect("free"));
    let addr = address();
    for _ in 0..3 {
        let b = End::on(on_sockets(addr).open().expect("free"));
        let qp = a.pd.qp(&a.cq).create().expect("a QP");
        connect(&qp, &b.qp, &ConnectOptions::default());
        let end = End {
            qp,
            context: a.context.clone(),
            pd: a.pd.clone(),
            channel: a.channel.clone(),
            cq: a.cq.clone(),
        };
        converse(&end, &b, ROUNDS);
        drop(b);
        // To no socket: the kernel tells, and what is sent then does not arrive either.
        for n in 0..4 {
            _ = end
                .qp
                .post_send(&SendWr::send_inline(n, b"gone").signaled());
        }
        wait_until("it is sent again", || end.counter("retransmitted_pkts") > 0);
        drop(end.qp);
        while a.cq.poll(&mut [urxe::Wc::default()]).expect("polls") > 0 {}
    }
    assert!(a.counter("tx_direct") > 0);
    assert_eq!(a.counter("tx_errors"), 0);
}

/// All ports that a participant's lone packets may come from are taken by another program: then they come from the usual one.
#[test]
fn without_a_port_they_leave_as_ever() {
    let (mine, peers) = (address(), address());
    let taken: Vec<UdpSocket> = (0xf000..0xf200)
        .map(|port| UdpSocket::bind((mine, port)).expect("free"))
        .collect();
    let open = |addr| End::on(on_sockets(addr).open().expect("free"));
    let (a, b) = (open(mine), open(peers));
    connect(&a.qp, &b.qp, &patient());
    converse(&a, &b, ROUNDS);
    assert_eq!(a.counter("tx_direct"), 0);
    assert!(b.counter("tx_direct") > 0, "its ports are free");
    assert_nothing_lost([&a, &b]);
    drop(taken);
}

/// Not: what is captured, meets faults, or goes to a peer that the registry does not know.
#[test]
fn what_must_be_seen_as_it_is_does_not() {
    let capture = Capture::new("direct");
    let dupes: FaultSpec = "dup=1%".parse().expect("faults");
    let builds: [(&str, &dyn Fn(ContextBuilder) -> ContextBuilder); 3] = [
        ("captured", &|context| context.pcap(&capture.0)),
        ("faults", &|context| context.faults(Some(dupes))),
        ("alone", &|context| context.share(false)),
    ];
    for (what, build) in builds {
        let (a, b) = two(build);
        converse(&a, &b, ROUNDS);
        assert_eq!(
            [&a, &b].map(|end| end.counter("tx_direct")),
            [0; 2],
            "{what}"
        );
    }
}
