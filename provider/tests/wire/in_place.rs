//! Streams, of which packets are made in the memory that the neighbour reads.

use urxe::{ConnectOptions, Context, Mr, RecvWr, SendWr, WcOpcode, WcStatus, Wire};

use super::{end, patient, records, seed};
use crate::capture::Capture;
use crate::common::{End, address, bytes, connect, exchange, pattern};

const LEN: usize = 1 << 20;

fn in_place(end: &End) -> u64 {
    end.counter("tx_in_place")
}

/// One more end of a context, connected to one of another.
fn more(a: &End, b: &End) -> (End, End) {
    let ends = (End::on(a.context.clone()), End::on(b.context.clone()));
    connect(&ends.0.qp, &ends.1.qp, &patient());
    ends
}

fn filled(end: &End, contents: &[u8]) -> Mr {
    let memory = end.memory(contents.len());
    memory.write(0, contents);
    memory
}

fn write(end: &End, number: u64, from: &Mr, len: usize, to: &Mr) {
    let sges = [from.sge(..len)];
    let write = SendWr::rdma_write(number, &sges, to.addr(), to.rkey());
    end.qp.post_send(&write.signaled()).expect("room");
}

#[test]
fn streams_of_each_operation_arrive() {
    let (a, b) = (end(), end());
    connect(&a.qp, &b.qp, &patient());
    let (out, target) = (a.memory(LEN), b.memory(LEN));
    for round in 0..6 {
        let mut dice = seed(round + 1);
        let len = LEN - dice.below(9000) as usize;
        let contents = pattern(round, len);
        out.write(0, &contents);
        let sges = [out.sge(..len)];
        write(&a, 1, &out, len, &target);
        a.succeed();
        assert!(bytes(&target, len) == contents, "round {round}, WRITE");
        // Back again by a READ: its responses are a stream, too.
        let back = a.memory(len);
        let into = [back.sge(..)];
        let read = SendWr::rdma_read(2, &into, target.addr(), target.rkey());
        a.qp.post_send(&read.signaled()).expect("room");
        a.succeed();
        assert!(bytes(&back, len) == contents, "round {round}, READ");
        target.write(0, &vec![0; len]);
        b.qp.post_recv(&RecvWr::new(3, &[target.sge(..)]))
            .expect("room");
        a.qp.post_send(&SendWr::send(4, &sges).signaled())
            .expect("room");
        a.succeed();
        assert_eq!(b.succeed().byte_len as usize, len);
        assert!(bytes(&target, len) == contents, "round {round}, SEND");
    }
    for end in [&a, &b] {
        let [written, _] = records(end);
        assert!((20..=written).contains(&in_place(end)));
        // At least those that are taken to find out whether that is faster.
        let [_, read] = records(end);
        assert!((4..=read).contains(&end.counter("rx_in_place")));
    }
}

/// Streams to several neighbours by turns, beside short messages to all; one of them is gone in the middle.
#[test]
fn streams_to_several_neighbours_and_to_one_that_goes() {
    let (a, b, c, d) = (end(), end(), end(), end());
    let mut dice = seed(7);
    let contents = pattern(5, LEN);
    // Itself, too.
    let ends: Vec<_> = [&b, &c, &d, &a].map(|to| more(&a, to)).into();
    let outs: Vec<_> = ends
        .iter()
        .map(|(from, _)| filled(from, &contents))
        .collect();
    let targets: Vec<_> = ends.iter().map(|(_, to)| to.memory(LEN)).collect();
    let beside: Vec<_> = [&b, &c, &d, &a].map(|to| more(&a, to)).into();
    let mut lens = [0; 4];
    for round in 0..40 {
        for (place, (from, _)) in ends.iter().enumerate() {
            lens[place] = 1 + dice.below(LEN as u64) as usize;
            write(from, 1, &outs[place], lens[place], &targets[place]);
        }
        let (from, to) = &beside[dice.below(4) as usize];
        exchange(from, to, round);
        for (from, _) in &ends {
            from.succeed();
        }
        for (place, target) in targets.iter().enumerate() {
            let len = lens[place];
            assert!(
                bytes(target, len) == contents[..len],
                "round {round}, to {place}"
            );
            target.write(0, &vec![0; len]);
        }
    }
    assert!(in_place(&a) > 100);

    let mut ends = ends.into_iter().zip(targets);
    let (Some(((to_b, at_b), b_target)), Some(((to_c, at_c), c_target))) =
        (ends.next(), ends.next())
    else {
        unreachable!("there are four");
    };
    for _ in 0..8 {
        write(&to_c, 2, &outs[1], LEN, &c_target);
        write(&to_b, 3, &outs[0], LEN, &b_target);
    }
    let (kept_b, kept_c): (Vec<_>, Vec<_>) =
        beside.into_iter().enumerate().partition(|(n, _)| *n != 1);
    // All of it at once: its QPs, its memory, its context.
    drop((kept_c, at_c, c_target, c));
    let mut failed = 0;
    for _ in 0..8 {
        assert_eq!(to_b.succeed().wr_id, 3);
        failed += u32::from(!to_c.complete().is_success());
    }
    assert!(failed > 0, "nobody answered the last of them");
    assert!(bytes(&b_target, LEN) == contents);
    exchange(&kept_b[0].1.0, &kept_b[0].1.1, 9);
    drop(at_b);
}

/// A region that goes while a stream is sent from it fails that request; what others sent beside it arrives.
#[test]
fn a_region_that_goes_ends_one_stream_and_no_other() {
    let (a, b) = (end(), end());
    connect(&a.qp, &b.qp, &patient());
    let (other, its) = more(&a, &b);
    let (target, its_target) = (b.memory(LEN), its.memory(LEN));
    let contents = pattern(3, LEN);
    let (stays, out, goes) = (
        filled(&a, &contents),
        filled(&other, &contents),
        filled(&a, &contents),
    );
    write(&a, 0, &stays, LEN, &target);
    a.succeed();
    for number in 0..100 {
        write(&a, number, &goes, LEN, &target);
    }
    write(&other, 200, &out, LEN, &its_target);
    drop(goes);
    let mut number = 0;
    let failed = loop {
        let wc = a.complete();
        assert_eq!(wc.wr_id, number);
        if !wc.is_success() {
            break wc;
        }
        number += 1;
    };
    assert_eq!(failed.status, WcStatus::LocProtErr, "{failed}");
    assert_eq!(other.succeed().opcode, WcOpcode::RdmaWrite);
    assert!(bytes(&its_target, LEN) == contents);
    exchange(&other, &its, 1);
    assert!(in_place(&a) > 0);
}

/// What a capture shows has ICRCs: such packets are made elsewhere, and arrive as well.
#[test]
fn a_stream_that_is_captured_arrives() {
    let capture = Capture::new("in-place");
    let context = Context::builder(address()).wire(Wire::Auto);
    let a = End::on(context.pcap(&capture.0).open().expect("free"));
    let b = end();
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (out, target) = (a.memory(LEN), b.memory(LEN));
    out.write(0, &pattern(8, LEN));
    for _ in 0..4 {
        write(&a, 1, &out, LEN, &target);
        a.succeed();
    }
    assert!(bytes(&target, LEN) == pattern(8, LEN));
    assert_eq!(in_place(&a), 0);
    assert!(records(&a)[0] > 0);
}
