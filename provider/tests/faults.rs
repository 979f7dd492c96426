//! What goes wrong on the way, at the peer, or in the program: it is reported, by name,
//! and disturbs nothing else.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, End, address, connect, nobody, pair, wait_until};
use urxe::{
    AsyncEvent, Blame, ConnectOptions, Context, Endpoint, ErrorKind, Fault, Mtu, QpState, SendWr,
    WcStatus,
};

/// Retries that are over soon: 0.5 ms, three times.
fn hasty() -> ConnectOptions {
    ConnectOptions {
        timeout: 7,
        retry_cnt: 3,
        ..ConnectOptions::default()
    }
}

#[test]
fn who_does_not_share_is_alone_and_the_error_says_who_it_may_be() {
    let addr = address();
    let alone = || Context::builder(addr).share(false).open();
    let check = |error: urxe::Error| {
        assert_eq!(error.kind(), &ErrorKind::AddrInUse(addr));
        assert_eq!((error.blame(), error.errno()), (Blame::System, 98));
        let text = error.to_string();
        for part in ["4791", "rdma_rxe", "another", &addr.to_string()] {
            assert!(text.contains(part), "no {part} in: {text}");
        }
    };
    let first = alone().expect("free");
    check(Context::open(addr).expect_err("taken, and not to be shared"));
    check(alone().expect_err("taken"));
    drop(first);
    // Other tests start processes: until those exec, they have our sockets.
    let mut first = None;
    wait_until("it is free again", || {
        first = Context::open(addr).ok();
        first.is_some()
    });
    check(alone().expect_err("somebody is there"));
    drop(first);
    wait_until("it is free again", || alone().is_ok());
}

#[test]
fn a_peer_that_is_not_there_is_given_up_in_time() {
    let a = End::open();
    a.qp.connect(&nobody(Mtu::Mtu1024), &hasty())
        .expect("connects");
    a.qp.post_send(&SendWr::send_inline(1, b"hello?"))
        .expect("room");
    a.qp.post_send(&SendWr::send_inline(2, b"anybody?"))
        .expect("room");
    let start = Instant::now();
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::RetryExcErr));
    assert_eq!(wc.fault(), Fault::AckTimeout, "{wc}");
    let error = wc.ok().expect_err("it failed");
    assert_eq!(error.blame(), Blame::Peer);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(a.complete().status, WcStatus::WrFlushErr);
    assert_eq!(a.qp.state().expect("there"), QpState::Err);
}

/// Soon enough for a test, and long enough for a process that waits for a processor.
fn patient() -> ConnectOptions {
    ConnectOptions {
        timeout: 14,
        ..hasty()
    }
}

/// The target of the test below, in a process of its own: connects, and then sleeps.
#[test]
fn child_that_is_killed() {
    let Ok(remote) = std::env::var("URXE_TEST_CONNECT_TO") else {
        println!("nothing to do: this is a part of the next test");
        return;
    };
    let end = End::open();
    let memory = end.memory(64);
    end.qp
        .connect(&remote.parse().expect("an endpoint"), &patient())
        .expect("connects");
    println!(
        "\nENDPOINT {} {} {}",
        end.qp.endpoint(),
        memory.addr(),
        memory.rkey().0
    );
    std::io::stdout().flush().expect("stdout");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_peer_ends_as_retry_exceeded_and_a_sleeping_one_does_not() {
    let a = End::open();
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "faults::child_that_is_killed", "--nocapture"])
        .env("URXE_TEST_CONNECT_TO", a.qp.endpoint().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = lines
        .map(|line| line.expect("text"))
        .find_map(|line| line.strip_prefix("ENDPOINT ").map(str::to_owned))
        .expect("the child says where it is");
    let fields: Vec<&str> = line.split(' ').collect();
    let remote: Endpoint = fields[0].parse().expect("an endpoint");
    a.qp.connect(&remote, &patient()).expect("connects");
    let (addr, rkey) = (
        fields[1].parse().expect("a number"),
        fields[2].parse().expect("a number"),
    );
    let (local, back) = (a.memory(64), a.memory(64));
    local.write(0, &[7; 64]);
    // It sleeps in its own code, and all works.
    let (from, to) = ([local.sge(..)], [back.sge(..)]);
    let rkey = urxe::Rkey(rkey);
    a.qp.post_send(&SendWr::rdma_write(1, &from, addr, rkey).signaled())
        .expect("room");
    a.succeed();
    a.qp.post_send(&SendWr::rdma_read(2, &to, addr, rkey).signaled())
        .expect("room");
    a.succeed();
    assert_eq!(common::bytes(&back, 64), [7; 64]);

    child.kill().expect("it runs");
    child.wait().expect("it ends");
    a.qp.post_send(&SendWr::rdma_write(3, &from, addr, rkey).signaled())
        .expect("room");
    assert_eq!(a.complete().status, WcStatus::RetryExcErr);
}

#[test]
fn garbage_changes_counters_and_nothing_else() {
    let (a, b) = pair();
    let to = b.memory(64);
    let stranger = UdpSocket::bind(SocketAddr::new(address(), 0)).expect("a socket");
    let target = SocketAddr::new(b.context.address(), 4791);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    const COUNT: u64 = 500;
    for n in 0..COUNT {
        let len = random() as usize % 200;
        let mut bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        // Some look quite right: an opcode of ours, the QP's number, its P_Key.
        if n % 2 == 0 && len >= 12 {
            let qpn = b.qp.qp_num().get().to_be_bytes();
            bytes[0] = (random() % 0x18) as u8;
            bytes[1] = 0;
            bytes[2..4].fill(0xff);
            bytes[5..8].copy_from_slice(&qpn[1..]);
        }
        stranger.send_to(&bytes, target).expect("loopback takes it");
        if n % 100 == 0 {
            // Between them a real message.
            b.recv(n, &to);
            a.qp.post_send(&SendWr::send_inline(n, b"real").signaled())
                .expect("room");
            assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (n, n));
        }
    }
    let dropped = || {
        let reasons = ["malformed", "no_qp", "address", "service"];
        let counts = reasons.map(|reason| b.counter(&format!("drop_{reason}")));
        counts.iter().sum::<u64>()
    };
    // One may have been received and not yet been judged.
    wait_until("all are dropped", || dropped() >= COUNT);
    assert_eq!(dropped(), COUNT, "{:?}", b.context.counters());
    assert_eq!(b.qp.state().expect("there"), QpState::Rts);
    assert!(
        b.context
            .poll_async_event()
            .is_none_or(|e| matches!(e, AsyncEvent::CommEst(_)))
    );
}

#[test]
fn a_completion_queue_that_is_too_small_is_reported() {
    let a = End::open();
    let small = a.context.create_cq(2).expect("a CQ");
    let qp = a.pd.qp(&small).signal_all().create().expect("a QP");
    let b = End::open();
    connect(&qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(8);
    for n in 0..4 {
        b.recv(n, &to);
        qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
    }
    let event = || {
        a.context
            .wait_async_event(Some(common::PATIENCE))
            .expect("waits")
    };
    assert_eq!(event(), Some(AsyncEvent::CqErr(small.id())));
    assert_eq!(event(), Some(AsyncEvent::QpFatal(qp.qp_num())));
    assert_eq!(qp.state().expect("there"), QpState::Err);
    // The two that fit are there, and then the truth.
    let mut wcs = [urxe::Wc::default(); 4];
    assert_eq!(small.poll(&mut wcs).expect("two"), 2);
    assert!(wcs[0].is_success() && wcs[1].is_success());
    assert_eq!(
        small.poll(&mut wcs).expect_err("lost ones").kind(),
        &ErrorKind::CqOverrun
    );
}

#[test]
fn a_peers_mistake_is_an_event() {
    let (a, b) = pair();
    let local = a.memory(8);
    let sges = [local.sge(..)];
    let wr = SendWr::rdma_write(1, &sges, 0x1000, urxe::Rkey(0x77)).signaled();
    a.qp.post_send(&wr).expect("room");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
    let event = |end: &End| {
        let next = || {
            end.context
                .wait_async_event(Some(common::PATIENCE))
                .expect("waits")
        };
        std::iter::from_fn(next).find(|event| !matches!(event, AsyncEvent::CommEst(_)))
    };
    assert_eq!(event(&b), Some(AsyncEvent::QpAccessErr(b.qp.qp_num())));
}

#[test]
fn objects_of_different_contexts_do_not_mix() {
    let (a, b) = (End::open(), End::open());
    let foreign = a.pd.qp(&b.cq).create().expect_err("its CQ is b's");
    assert_eq!(
        foreign.kind(),
        &ErrorKind::ForeignObject("completion queue")
    );
    let foreign = a
        .context
        .create_cq_with_channel(4, &b.channel)
        .expect_err("b's channel");
    assert_eq!(
        foreign.kind(),
        &ErrorKind::ForeignObject("completion channel")
    );
    let elsewhere = b.context.address();
    let error =
        a.qp.connect_from(elsewhere, &b.qp.endpoint(), &ConnectOptions::default())
            .expect_err("not a's address");
    assert_eq!(error.kind(), &ErrorKind::ForeignAddress(elsewhere));
    for cqe in [0, usize::MAX] {
        assert!(matches!(a.context.create_cq(cqe), Err(e) if e.blame() == Blame::Caller));
    }
}

#[test]
fn no_address_no_device() {
    for addr in ["192.0.2.77", "0.0.0.0", "::", "224.0.0.1"] {
        let error = Context::open(addr.parse().expect("an address")).expect_err("not ours");
        assert_eq!(
            (error.blame(), error.errno()),
            (Blame::Caller, 99),
            "{addr}"
        );
    }
}
