//! ACKs of WRITEs that the application answers when it finds them in its memory.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::{self, line};
use crate::support::{IOVA, Pair, SEND_CQ, Settings, Verdict};
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_core::{ANSWER_NS, AckMode};

/// Two sides, of which side 1 has a thread that fetches packets for an application that
/// looks at its memory; and what side 1 sends.
struct Scene {
    p: Pair,
    sent: Rc<RefCell<Vec<String>>>,
}

impl Scene {
    fn new() -> Scene {
        let mut p = Pair::new(&Settings::default(), 1);
        p.acks = AckMode::Answered;
        let sent = Rc::new(RefCell::new(Vec::new()));
        let sink = sent.clone();
        p.filter = Some(Box::new(move |from, bytes| {
            if from == 1 {
                sink.borrow_mut().push(line(bytes));
            }
            Verdict::Pass
        }));
        Scene { p, sent }
    }

    fn post_write(&mut self, side: usize) {
        let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Inline(b"x"));
        wr.remote_addr = IOVA + 0x1000;
        wr.rkey = self.p.nodes[1 - side].keys.rkey;
        wr.flags = SendFlags::SIGNALED;
        self.p.post_send(side, &wr);
        self.p.transmit();
    }

    /// A WRITE of side 0 arrives; returns what side 1 sends for that.
    fn write_arrives(&mut self) -> Vec<String> {
        self.post_write(0);
        self.p.step();
        self.p.transmit();
        self.sent.take()
    }

    /// Time goes by, and the thread looks again.
    fn wait(&mut self, ns: u64) -> Vec<String> {
        self.p.now = self.p.now + ns;
        self.p.transmit();
        self.sent.take()
    }

    /// Side 1 answers; returns what it sends.
    fn answer(&mut self) -> Vec<String> {
        self.post_write(1);
        let sent = self.sent.take();
        self.p.run_until(self.p.now + ANSWER_NS / 10);
        self.sent.take();
        sent
    }
}

/// A peer that got the ACK alone would go and look at its memory, and its thread would have
/// to be woken for the answer.
#[test]
fn the_ack_of_a_write_travels_with_its_answer() {
    let mut s = Scene::new();
    for n in 0..10 {
        assert!(s.write_arrives().is_empty(), "{n}");
        let sent = s.answer();
        assert_eq!(sent.len(), 2, "{n}: {sent:?}");
        assert!(sent[0].starts_with("Acknowledge"), "{n}: {sent:?}");
        assert!(sent[1].starts_with("RDMA WRITE Only"), "{n}: {sent:?}");
        assert_eq!(s.p.nodes[0].take(SEND_CQ).len(), 1, "{n}");
    }
}

#[test]
fn the_ack_leaves_when_no_answer_comes_and_then_none_is_expected() {
    let mut s = Scene::new();
    assert!(s.write_arrives().is_empty());
    assert!(s.wait(ANSWER_NS - 1).is_empty());
    assert_eq!(s.wait(1), ["Acknowledge 100"]);
    s.p.run_until(s.p.now + 2 * ANSWER_NS);
    for psn in ["101", "102", "103"] {
        assert_eq!(s.write_arrives(), [format!("Acknowledge {psn}")]);
        s.p.run_until(s.p.now + 2 * ANSWER_NS);
    }
    // It begins to answer: the ACK should have waited.
    assert_eq!(s.write_arrives(), ["Acknowledge 104"]);
    assert_eq!(s.answer().len(), 1);
    assert!(s.write_arrives().is_empty());
    assert_eq!(s.answer().len(), 2);
}

/// A program that gets messages polls for them, or sleeps: nothing is to be learnt from its
/// memory.
#[test]
fn the_ack_of_a_message_does_not_wait() {
    let mut s = Scene::new();
    script::receive(&mut s.p, 1, 1);
    let mut wr = SendWr::new(1, WrOpcode::Send, WrData::Inline(b"x"));
    wr.flags = SendFlags::SIGNALED;
    s.p.post_send(0, &wr);
    s.p.transmit();
    s.p.step();
    s.p.transmit();
    assert_eq!(s.sent.take(), ["Acknowledge 100"]);
}
