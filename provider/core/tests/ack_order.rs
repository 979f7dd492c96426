//! A message is acknowledged before anything leaves that may answer it, as adapters acknowledge it when it arrives: so its
//! sender sees its completion before that of the answer.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::{line, receive, sge};
use crate::support::{IOVA, Pair, RECV_CQ, SEND_CQ, Settings, Verdict};
use urxe_core::AckMode;
use urxe_core::cq::WcOpcode;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};

/// Modes in which ACKs wait for answers.
const MODES: [AckMode; 4] = [
    AckMode::Now,
    AckMode::Patient,
    AckMode::Defer,
    AckMode::Answered,
];

fn post(p: &mut Pair, side: usize, opcode: WrOpcode, length: u32) {
    let sges = [sge(p, side, 0x8000, length)];
    let mut wr = SendWr::new(1, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1 - side].keys.rkey;
    wr.flags = SendFlags::SIGNALED;
    p.post_send(side, &wr);
}

/// Side 0 sends messages; side 1, with a caller in such a mode, answers at once. Returns what side 1 sends then, and
/// the completions of side 0 in their order.
fn exchange(
    acks: AckMode,
    messages: &[(WrOpcode, u32)],
    answer: (WrOpcode, u32),
) -> (Vec<String>, Vec<WcOpcode>) {
    let s = Settings {
        sq_sig_all: true,
        ..Settings::default()
    };
    let mut p = Pair::new(&s, 1);
    p.acks = acks;
    for side in [0, 0, 1, 1, 1] {
        receive(&mut p, side, 1);
    }
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        if from == 1 {
            sink.borrow_mut().push(line(bytes));
        }
        Verdict::Pass
    }));
    for &(opcode, length) in messages {
        post(&mut p, 0, opcode, length);
    }
    p.transmit();
    p.step();
    post(&mut p, 1, answer.0, answer.1);
    p.transmit();
    let sent = log.take();
    // Both queues of completions were told apart; here one log has both.
    let mut order = Vec::new();
    for _ in 0..4 {
        if !p.step() {
            break;
        }
        for cq in [SEND_CQ, RECV_CQ] {
            order.extend(p.nodes[0].take(cq).iter().map(|cqe| cqe.opcode));
        }
    }
    (sent, order)
}

#[test]
fn an_ack_goes_before_the_answer_whatever_both_are() {
    use WrOpcode::*;
    for acks in MODES {
        for message in [Send, SendWithImm, RdmaWrite, RdmaWriteWithImm] {
            for (answer, name) in [
                (Send, "SEND Only 200 A"),
                (SendWithImm, "SEND Only with Immediate 200 A"),
                (RdmaWrite, "RDMA WRITE Only 200 A"),
                (RdmaWriteWithImm, "RDMA WRITE Only with Immediate 200 A"),
                (RdmaRead, "RDMA READ Request 200 A"),
                (AtomicFetchAndAdd, "FetchAdd 200 A"),
            ] {
                let what = format!("{message:?} answered by {answer:?}, {acks:?}");
                let (sent, order) = exchange(acks, &[(message, 8)], (answer, 8));
                assert_eq!(sent, ["Acknowledge 100", name], "{what}");
                let first = order.first().copied();
                let expected = match message {
                    RdmaWrite | RdmaWriteWithImm => WcOpcode::RdmaWrite,
                    _ => WcOpcode::Send,
                };
                assert_eq!(first, Some(expected), "{what}: {order:?}");
            }
        }
    }
}

/// Of two messages one ACK is enough.
#[test]
fn two_messages_are_acknowledged_before_their_answer() {
    for acks in MODES {
        let (sent, order) = exchange(
            acks,
            &[(WrOpcode::RdmaWrite, 8), (WrOpcode::Send, 8)],
            (WrOpcode::Send, 8),
        );
        assert_eq!(sent, ["Acknowledge 101", "SEND Only 200 A"], "{acks:?}");
        let (write, send) = (WcOpcode::RdmaWrite, WcOpcode::Send);
        assert_eq!(order[..3], [write, send, WcOpcode::Recv], "{acks:?}");
    }
}

/// A long answer is not before it either.
#[test]
fn an_ack_goes_before_the_first_packet_of_a_long_answer() {
    for acks in MODES {
        let (sent, _) = exchange(acks, &[(WrOpcode::Send, 8)], (WrOpcode::RdmaWrite, 10_000));
        assert_eq!(sent[0], "Acknowledge 100", "{acks:?}");
        assert_eq!(sent[1], "RDMA WRITE First 200", "{acks:?}");
        let acks_sent = sent.iter().filter(|l| l.starts_with("Ack")).count();
        assert_eq!(acks_sent, 1);
    }
}

/// What was asked for before the message comes before its ACK.
#[test]
fn responses_the_ack_and_the_answer_are_in_order() {
    for acks in MODES {
        let (sent, _) = exchange(
            acks,
            &[(WrOpcode::RdmaRead, 300), (WrOpcode::Send, 8)],
            (WrOpcode::Send, 8),
        );
        let tail = &sent[sent.len() - 2..];
        assert_eq!(tail, ["Acknowledge 102", "SEND Only 200 A"], "{sent:?}");
        assert!(sent[0].starts_with("RDMA READ Response First"), "{sent:?}");
    }
}

/// Without an answer there is no reason to hurry: the ACK is held back.
#[test]
fn an_ack_alone_is_held_back() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.acks = AckMode::Defer;
    receive(&mut p, 1, 1);
    post(&mut p, 0, WrOpcode::Send, 8);
    p.transmit();
    p.step();
    p.transmit();
    assert_eq!(p.sent[1], 0);
    p.acks = AckMode::Now;
    p.transmit();
    assert_eq!(p.sent[1], 1);
}

/// A caller that has not shown the program all that came withholds the ACK, and what leaves meanwhile cannot be an answer.
#[test]
fn an_ack_that_is_not_true_yet_stays() {
    let (sent, _) = exchange(
        AckMode::Withhold,
        &[(WrOpcode::RdmaWrite, 8)],
        (WrOpcode::Send, 8),
    );
    assert_eq!(sent, ["SEND Only 200 A"]);
}
