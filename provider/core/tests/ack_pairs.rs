//! To a peer that takes the ACK of a pair first, a lone answer and the ACK before it leave as one train.

use std::iter::once;

use crate::script::{line, receive, sge};
use crate::support::{IOVA, Pair, Settings};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_core::{AckMode, ends_pair};
use urxe_wire::{Opcode, Service};

const TRAINS: RunLimits = RunLimits {
    segments_max: 64,
    bytes_max: RunLimits::UDP_PAYLOAD_MAX,
};

/// Messages that asked until an ACK may be the end of a pair.
const ASKED: u64 = 32;

fn post(p: &mut Pair, side: usize, opcode: WrOpcode, length: u32) {
    let sges = [sge(p, side, 0x8000, length)];
    let mut wr = SendWr::new(1, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1 - side].keys.rkey;
    wr.flags = SendFlags::SIGNALED;
    p.post_send(side, &wr);
}

/// Side 1 has got such a message, and its peer takes pairs.
fn asked(message: (WrOpcode, u32)) -> Pair {
    let mut p = Pair::new(&Settings::default(), 1);
    for side in [0, 0, 1, 1] {
        receive(&mut p, side, 1);
    }
    let qp = p.nodes[1].qp;
    p.nodes[1].shard.set_takes_pairs(qp, true);
    // Its messages ask for ACKs, one like the other.
    p.acks = AckMode::Now;
    for _ in 1..ASKED {
        post(&mut p, 0, WrOpcode::RdmaWrite, 8);
    }
    p.run();
    p.acks = AckMode::Defer;
    post(&mut p, 0, message.0, message.1);
    p.transmit();
    while p.step() {}
    p
}

/// The trains that side 1 sends now.
fn trains(p: &mut Pair, acks: AckMode, limits: RunLimits) -> Vec<Vec<String>> {
    let mut batch = TxBatch::new(256 << 10, limits);
    let now = p.now;
    let more = p.nodes[1].with_env(now, |s, env| s.poll_transmit(env, &mut batch, acks));
    assert!(!more, "all fits");
    let runs = batch.runs().iter();
    runs.map(|run| {
        let packets = batch.bytes()[run.range.clone()].chunks(run.segment_size);
        packets.map(line).collect()
    })
    .collect()
}

#[test]
fn a_lone_answer_and_its_ack_are_one_train() {
    use WrOpcode::*;
    for message in [Send, RdmaWrite] {
        for (answer, name) in [
            (Send, "SEND Only 200 A"),
            (SendWithImm, "SEND Only with Immediate 200 A"),
            (RdmaWrite, "RDMA WRITE Only 200 A"),
            (RdmaWriteWithImm, "RDMA WRITE Only with Immediate 200 A"),
        ] {
            for length in [5, 8, 100, 256] {
                let mut p = asked((message, 8));
                post(&mut p, 1, answer, length);
                let sent = trains(&mut p, AckMode::Defer, TRAINS);
                assert_eq!(sent, [[name, "Acknowledge 11f"]], "{message:?} {length}");
                assert!(!p.nodes[1].shard.has_work(), "nothing is owed any more");
            }
        }
    }
}

#[test]
fn packets_of_one_length_and_their_ack_are_one_train() {
    let mut p = asked((WrOpcode::Send, 8));
    post(&mut p, 1, WrOpcode::Send, 3 * 256);
    let sent = trains(&mut p, AckMode::Defer, TRAINS);
    let [train] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((train.len(), &train[3][..]), (4, "Acknowledge 11f"));
}

/// Whatever is no pair has the ACK first.
#[test]
fn what_is_no_pair_follows_the_ack() {
    use WrOpcode::*;
    for (answers, what) in [
        (&[(RdmaWrite, 512)][..], "a longer first packet"),
        (&[(Send, 300)], "a shorter last packet"),
        (&[(Send, 17 * 256)], "a long message"),
        (&[(Send, 8), (Send, 8)], "two messages"),
        (&[(RdmaWrite, 64), (Send, 8)], "data and news of it"),
        (&[(RdmaRead, 8)], "a READ"),
        (&[(AtomicFetchAndAdd, 8)], "an atomic"),
        (&[(Send, 4)], "no longer than an ACK"),
        (&[(Send, 0)], "no bytes"),
    ] {
        let mut p = asked((Send, 8));
        for &(opcode, length) in answers {
            post(&mut p, 1, opcode, length);
        }
        let sent = trains(&mut p, AckMode::Defer, TRAINS).concat();
        assert_eq!(sent[0], "Acknowledge 11f", "{what}: {sent:?}");
        let acks = sent.iter().filter(|line| line.starts_with("Ack")).count();
        assert_eq!(acks, 1, "{what}: {sent:?}");
    }
    let mut p = asked((Send, 8));
    post(&mut p, 1, Send, 8);
    let sent = trains(&mut p, AckMode::Defer, RunLimits::SINGLE).concat();
    assert_eq!(sent, ["Acknowledge 11f", "SEND Only 200 A"], "no trains");
}

/// An ACK that is as long as the answer is in the same train.
#[test]
fn an_ack_and_a_shorter_answer_are_one_train_in_order() {
    for length in [0, 4] {
        let mut p = asked((WrOpcode::Send, 8));
        post(&mut p, 1, WrOpcode::Send, length);
        let sent = trains(&mut p, AckMode::Defer, TRAINS);
        assert_eq!(sent, [["Acknowledge 11f", "SEND Only 200 A"]]);
    }
}

#[test]
fn an_ack_that_is_not_true_yet_is_in_no_pair() {
    let mut p = asked((WrOpcode::Send, 8));
    post(&mut p, 1, WrOpcode::Send, 8);
    let sent = trains(&mut p, AckMode::Withhold, TRAINS);
    assert_eq!(sent, [["SEND Only 200 A"]]);
}

/// An ACK says that READ responses before it are there, so it never overtakes one.
#[test]
fn only_an_ack_behind_a_request_is_first() {
    let packet = |opcode: Opcode, len: usize| {
        let mut bytes = vec![0; len];
        bytes[0] = opcode.0;
        bytes
    };
    let ack = packet(Opcode::RC_ACKNOWLEDGE, 20);
    for code in 0..=255 {
        let Some(info) = Opcode(code).info() else {
            continue;
        };
        let is_request = info.service == Service::Rc && !info.is_response();
        let first = packet(Opcode(code), 40);
        assert_eq!(
            ends_pair(&ack, once(&first[..])),
            is_request,
            "{}",
            info.name
        );
        assert!(!ends_pair(&first, once(&ack[..])), "{}", info.name);
    }
    let send = packet(Opcode::RC_SEND_ONLY, 24);
    assert!(!ends_pair(
        &packet(Opcode::RC_ACKNOWLEDGE, 24),
        once(&send[..])
    ));
    let response = packet(Opcode::RC_READ_RESPONSE_ONLY, 24);
    assert!(ends_pair(&ack, [&send[..], &send].into_iter()));
    assert!(!ends_pair(&ack, [&send[..], &response].into_iter()));
    assert!(!ends_pair(&[], once(&send[..])) && !ends_pair(&ack, once(&[][..])));
}
