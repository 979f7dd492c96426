//! A neighbour that is stopped loses nothing, and is given up only when it is gone.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use urxe::{ConnectOptions, Endpoint, Fault, Qkey, QpType, SendWr, Wc, WcStatus};

use super::peer::{Peer, ping};
use super::process::damage_rings;
use super::{end, records};
use crate::common::{End, alone, bytes, wait_until};

/// One retry, a tenth of a second after the packet: on a network the peer would soon be given up.
fn hasty() -> ConnectOptions {
    ConnectOptions {
        timeout: 14,
        retry_cnt: 1,
        ..ConnectOptions::default()
    }
}

/// The peer has opened its ring.
fn is_open(end: &End, peer: &mut Peer) {
    wait_until("packets go through memory", || {
        let before = peer.count("rx_records");
        ping(end, 0);
        peer.count("rx_records") > before
    });
    assert!(records(end)[1] > 0);
}

/// WRITEs that were accepted while the peer did not run are all there when it does; the QPs to others go on meanwhile.
#[test]
fn what_was_sent_to_a_stopped_process_arrives() {
    const STOPPED: Duration = Duration::from_secs(10);
    const WRITES: u64 = 4000;
    let (mut stopped, mut other) = (Peer::start(), Peer::start());
    let (a, b) = (end(), end());
    for (end, peer) in [(&a, &mut stopped), (&b, &mut other)] {
        peer.connect(&end.qp, &hasty());
        is_open(end, peer);
    }
    // One more QP of the same sender, to the peer that runs.
    let beside = End::on(a.context.clone());
    other.connect(&beside.qp, &hasty());
    let (target, rkey) = stopped.memory();
    let many = a.pd.qp(&a.cq).max_send_wr(WRITES as u32);
    let many = many.create().expect("a QP");
    stopped.connect(&many, &hasty());

    stopped.stop();
    let start = Instant::now();
    for number in 0..WRITES {
        let bytes = number.to_le_bytes();
        let write = SendWr::rdma_write_inline(1, &bytes, target + 8 * number, rkey);
        let is_last = number == WRITES - 1;
        let write = if is_last { write.signaled() } else { write };
        many.post_send(&write).expect("room");
    }
    let mut done = 0;
    let mut wcs = [Wc::default(); 16];
    while start.elapsed() < STOPPED {
        ping(&beside, done);
        ping(&b, done);
        let count = a.cq.poll(&mut wcs).expect("polls");
        assert_eq!(count, 0, "it cannot acknowledge: {}", wcs[0]);
        done += 1;
    }
    stopped.signal(Signal::CONT);
    a.succeed();
    let back = a.memory(8 * WRITES as usize);
    let sges = [back.sge(..)];
    let read = SendWr::rdma_read(2, &sges, target, rkey).signaled();
    many.post_send(&read).expect("room");
    a.succeed();
    for (number, bytes) in bytes(&back, 8 * WRITES as usize).chunks(8).enumerate() {
        assert_eq!(bytes, (number as u64).to_le_bytes());
    }
    ping(&a, 1);
    assert_eq!(
        (a.counter("rings_full"), a.counter("retry_exceeded_err")),
        (0, 0)
    );
    assert!(done > 10, "{done} round trips of the others");
}

/// Nothing slows down a sender of datagrams: those that a neighbour does not take in time go through the kernel, and are lost there at the
/// earliest. Its ring has room for some four megabytes.
#[test]
fn datagrams_that_a_ring_has_no_room_for_go_through_sockets() {
    const QKEY: Qkey = Qkey(1);
    const COUNT: u64 = 6000;
    let (mut peer, mut other) = (Peer::start(), Peer::start());
    let a = End::with(end().context.clone(), |qp| qp.qp_type(QpType::Ud));
    a.qp.start_datagrams(QKEY).expect("starts");
    let beside = End::on(a.context.clone());
    other.connect(&beside.qp, &hasty());
    is_open(&beside, &mut other);
    // What it does not expect it drops; this is about the way there.
    let to: Endpoint = (peer
        .ask(&format!("connect {}", beside.qp.endpoint()))
        .parse())
    .expect("one");
    let ah = a.pd.create_ah_to(to.addr).expect("a path");
    let text = a.memory(1024);
    let sges = [text.sge(..)];
    let send = |number: u64| {
        let wr = SendWr::send(number, &sges).ud_addr(&ah, to.qpn, QKEY);
        a.qp.post_send(&wr.signaled()).expect("room");
        assert_eq!(a.succeed().wr_id, number);
    };
    // A ring that its reader had not opened would be taken back.
    let before = peer.count("rx_records");
    wait_until("datagrams go through memory", || {
        send(0);
        peer.count("rx_records") > before
    });
    peer.stop();
    let before = ["tx_records", "rings_full"].map(|name| a.counter(name));
    (0..COUNT).for_each(send);
    let after = ["tx_records", "rings_full"].map(|name| a.counter(name));
    let written = after[0] - before[0];
    assert!((3000..COUNT).contains(&written), "{written} records");
    assert_eq!(after[1], before[1], "none is lost here");
    ping(&beside, 1);
    peer.signal(Signal::CONT);
    wait_until("it takes what is in the ring", || {
        peer.count("rx_records") >= written
    });
}

/// A process that was killed does not count as one that is stopped.
#[test]
fn a_process_that_is_killed_while_it_is_stopped_is_given_up() {
    let (mut peer, a) = (Peer::start(), end());
    peer.connect(&a.qp, &hasty());
    is_open(&a, &mut peer);
    peer.stop();
    let send = SendWr::send_inline(1, b"hello?").signaled();
    a.qp.post_send(&send).expect("room");
    // Longer than its retries would take.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let mut wc = [Wc::default()];
        assert_eq!(a.cq.poll(&mut wc).expect("polls"), 0, "{}", wc[0]);
    }
    peer.kill();
    assert_eq!(a.complete().status, WcStatus::RetryExcErr);
}

/// Requests to a process that is killed do not wait for their retries, which would take minutes; answers that came before it count.
#[test]
fn requests_to_a_killed_process_fail_at_once() {
    let patient = ConnectOptions {
        timeout: 20,
        retry_cnt: 7,
        ..ConnectOptions::default()
    };
    let (mut killed, mut lives) = (Peer::start(), Peer::start());
    let (a, b) = (end(), end());
    let more = [End::on(a.context.clone()), End::on(b.context.clone())];
    for end in [&a, &b].into_iter().chain(&more) {
        killed.connect(&end.qp, &patient);
        is_open(end, &mut killed);
    }
    let beside = End::on(a.context.clone());
    lives.connect(&beside.qp, &patient);
    is_open(&beside, &mut lives);
    killed.stop();
    for end in [&a, &b, &more[0]] {
        let send = SendWr::send_inline(7, b"hello?").signaled();
        end.qp.post_send(&send).expect("room");
    }
    killed.kill();
    for end in [&a, &b, &more[0]] {
        let wc = end.complete();
        assert_eq!((wc.wr_id, wc.status), (7, WcStatus::RetryExcErr));
        assert_eq!(wc.fault(), Fault::PeerGone, "{wc:?}");
    }
    // One without requests has nothing to tell, and others are not meant.
    assert_eq!(more[1].qp.state(), Ok(urxe::QpState::Rts));
    ping(&beside, 1);
}

/// A reader closes a ring that is damaged. That is not its end: packets go through sockets from then on.
#[test]
fn a_neighbour_that_closed_its_ring_has_not_ended() {
    alone(
        "wire::stopped::a_neighbour_that_closed_its_ring_has_not_ended",
        || {
            let patient = ConnectOptions {
                timeout: 18,
                retry_cnt: 7,
                ..ConnectOptions::default()
            };
            let (mut peer, a) = (Peer::start(), end());
            peer.connect(&a.qp, &patient);
            is_open(&a, &mut peer);
            peer.stop();
            damage_rings();
            let send = SendWr::send_inline(1, b"hello?").signaled();
            a.qp.post_send(&send).expect("room");
            // Longer than it takes to give up a process that has ended.
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(3) {
                let mut wc = [Wc::default()];
                assert_eq!(a.cq.poll(&mut wc).expect("polls"), 0, "{}", wc[0]);
            }
            peer.signal(Signal::CONT);
            a.succeed();
        },
    );
}
