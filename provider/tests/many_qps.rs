//! Very many QPs. They are asked for before they are needed: nothing but time may differ. When they are gone, so is what
//! they took.

use crate::common::{End, connect, poll, wait_until};
use urxe::{ConnectOptions, Qp, RecvWr, SendWr};

/// More than there are before anything is done about it.
const QPS: usize = 300;

#[test]
fn every_one_of_many_qps_gets_its_message() {
    let (a, b) = (End::open(), End::open());
    let make = |end: &End| -> Vec<Qp> {
        let qp = || end.pd.qp(&end.cq).max_send_wr(4).max_recv_wr(4).create();
        (0..QPS).map(|_| qp().expect("a QP")).collect()
    };
    let (from, to) = (make(&a), make(&b));
    let sink = b.memory(8 * QPS);
    for (index, (from, to)) in from.iter().zip(&to).enumerate() {
        connect(from, to, &ConnectOptions::default());
        let place = sink.sge(8 * index..8 * index + 8);
        to.post_recv(&RecvWr::new(index as u64, &[place]))
            .expect("room");
    }
    // Through clones, after their originals are gone.
    let from: Vec<Qp> = from.iter().map(Qp::clone).collect();
    for (index, qp) in from.iter().enumerate() {
        let bytes = (index as u64 * 7).to_ne_bytes();
        qp.post_send(&SendWr::send_inline(index as u64, &bytes).signaled())
            .expect("room");
    }
    let mut seen = vec![[false; 2]; QPS];
    for _ in 0..QPS {
        for (side, end) in [&a, &b].into_iter().enumerate() {
            let wc = poll(&end.cq);
            assert!(wc.is_success(), "{wc}");
            let was = std::mem::replace(&mut seen[wc.wr_id as usize][side], true);
            assert!(!was, "two completions of {}", wc.wr_id);
        }
    }
    for index in 0..QPS {
        let mut bytes = [0; 8];
        sink.read(8 * index, &mut bytes);
        assert_eq!(u64::from_ne_bytes(bytes), index as u64 * 7);
    }
}

#[test]
fn packets_for_nobody_among_many_qps_are_counted() {
    let end = End::open();
    let qp = || end.pd.qp(&end.cq).max_send_wr(1).max_recv_wr(1).create();
    let _qps: Vec<Qp> = (0..QPS).map(|_| qp().expect("a QP")).collect();
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
    let before = end.counter("rcvd_pkts");
    for len in 0..40 {
        let packet = vec![0x5a; len];
        socket
            .send_to(&packet, (end.context.address(), 4791))
            .expect("sent");
    }
    wait_until("all of them to be counted", || {
        let _ = end.cq.poll(&mut []).expect("polling works");
        end.counter("rcvd_pkts") == before + 40
    });
}

/// None of them is ever connected, so nothing keeps the progress thread awake.
#[test]
fn when_thousands_of_qps_are_gone_memory_is_given_back() {
    if !cfg!(target_env = "gnu") {
        println!("skipped: only glibc is told to give memory back");
        return;
    }
    let end = End::open();
    for time in 1..=2 {
        let qp = || end.pd.qp(&end.cq).max_send_wr(1).max_recv_wr(1).create();
        let mut qps: Vec<Qp> = (0..2000).map(|_| qp().expect("a QP")).collect();
        // A few stay, some of them at the end of every table.
        qps.drain(10..1990);
        wait_until("memory to be given back", || {
            end.counter("heap_trims") >= time
        });
        assert!(end.counter("heap_trims") <= 4 * time);
        let others: Vec<Qp> = (0..QPS).map(|_| qp().expect("a QP")).collect();
        for pair in qps.chunks(2).chain(others.chunks(2)) {
            connect(&pair[0], &pair[1], &ConnectOptions::default());
        }
        let last = &others[QPS - 1];
        others[QPS - 2]
            .post_recv(&RecvWr::new(8, &[]))
            .expect("room");
        last.post_send(&SendWr::send_inline(7, b"").signaled())
            .expect("room");
        let mut ids = [poll(&end.cq), poll(&end.cq)].map(|wc| wc.wr_id);
        ids.sort_unstable();
        assert_eq!(ids, [7, 8]);
    }
}
