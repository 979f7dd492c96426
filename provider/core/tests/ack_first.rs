//! Where an ACK leaves that is owed when the program answers.

#[path = "support/script.rs"]
mod script;
mod support;

use script::{line, receive};
use support::{Pair, RECV_CQ, SEND_CQ, Settings, Verdict};
use urxe_core::AckMode;
use urxe_core::cq::CqId;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};

fn send(p: &mut Pair, side: usize) {
    let mut wr = SendWr::new(1, WrOpcode::Send, WrData::Inline(b"x"));
    wr.flags = SendFlags::SIGNALED;
    p.post_send(side, &wr);
}

/// What side 1 sends when it answers a message at once, and which completions then come
/// to side 0 in which order.
fn answer(acknowledges_first: bool, armed: Option<CqId>) -> Vec<String> {
    let mut p = Pair::new(&Settings::default(), 1);
    p.acks = AckMode::Defer;
    if acknowledges_first {
        let qp = p.nodes[1].qp;
        p.nodes[1].shard.acknowledge_first(qp);
    }
    p.nodes[1].cqs.armed = armed;
    receive(&mut p, 0, 1);
    receive(&mut p, 1, 1);
    send(&mut p, 0);
    p.transmit();
    p.step();
    assert_eq!(p.nodes[1].take(RECV_CQ).len(), 1, "it arrived");
    send(&mut p, 1);
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        if from == 1 {
            sink.borrow_mut().push(line(bytes));
        }
        Verdict::Pass
    }));
    p.transmit();
    log.take()
}

#[test]
fn an_ack_goes_before_the_answer_while_the_program_waits_for_events() {
    assert_eq!(
        answer(true, Some(SEND_CQ)),
        ["Acknowledge 100", "SEND Only 200 A"]
    );
}

#[test]
fn an_ack_waits_while_the_program_polls() {
    assert_eq!(answer(true, None), ["SEND Only 200 A"]);
    assert_eq!(answer(true, Some(RECV_CQ)), ["SEND Only 200 A"]);
    assert_eq!(answer(false, Some(SEND_CQ)), ["SEND Only 200 A"]);
}

/// Without an answer there is no reason to hurry: the ACK is held back as always.
#[test]
fn an_ack_alone_is_held_back() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.acks = AckMode::Defer;
    let qp = p.nodes[1].qp;
    p.nodes[1].shard.acknowledge_first(qp);
    p.nodes[1].cqs.armed = Some(SEND_CQ);
    receive(&mut p, 1, 1);
    send(&mut p, 0);
    p.transmit();
    p.step();
    p.transmit();
    assert_eq!(p.sent[1], 0);
    p.acks = AckMode::Now;
    p.transmit();
    assert_eq!(p.sent[1], 1);
}
