//! The ACK of the last message is said again where it may have been lost and its QP goes, and nowhere else.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::*;
use crate::support::*;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::{AttrMask, QpAttr};
use urxe_core::qp::state::QpState;
use urxe_core::work::{SendFlags, WrOpcode};

/// Side 0 sends a message, and the packet of that number is lost of what a side sends. What both sent until it was over.
fn exchanged(p: &mut Pair, side: usize, nth: usize) -> Rc<RefCell<Vec<(usize, String)>>> {
    receive(p, 1, 1);
    let log = lose(p, side, nth);
    post(p, 1, WrOpcode::Send, 700, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(p, 0), [(1, WcStatus::Success)]);
    log
}

/// What side 1 says in the end, and whether it is about to.
fn last_words(p: &mut Pair) -> (bool, Vec<String>) {
    let index = p.nodes[1].qp;
    let owes = p.nodes[1].shard.owe_last_ack(index);
    let log = record(p);
    p.run();
    (owes, lines(&log, 1))
}

#[test]
fn where_a_packet_was_lost_the_last_ack_leaves_again() {
    // A packet of the message; its ACK.
    for (side, nth) in [(0, 1), (1, 0)] {
        let mut p = Pair::new(&Settings::default(), 1);
        let log = exchanged(&mut p, side, nth);
        let last = lines(&log, 1).pop().expect("it was acknowledged");
        assert_eq!(last, "Acknowledge 102");
        for _ in 0..3 {
            assert_eq!(last_words(&mut p), (true, vec![last.clone()]));
        }
        // The peer drops them, and goes on.
        assert_eq!(statuses(&mut p, 0), []);
        receive(&mut p, 1, 2);
        post(&mut p, 2, WrOpcode::Send, 8, SendFlags::SIGNALED);
        p.run();
        assert_eq!(statuses(&mut p, 0), [(2, WcStatus::Success)]);
    }
}

#[test]
fn a_peer_that_lost_the_ack_gets_it_after_all() {
    let mut p = Pair::new(&Settings::default(), 1);
    exchanged(&mut p, 0, 1);
    receive(&mut p, 1, 2);
    lose(&mut p, 1, 0);
    post(&mut p, 2, WrOpcode::Send, 8, SendFlags::SIGNALED);
    p.transmit();
    p.step();
    assert_eq!(statuses(&mut p, 0), [], "the ACK was lost");
    let index = p.nodes[1].qp;
    assert!(p.nodes[1].shard.owe_last_ack(index));
    p.transmit();
    p.nodes[1].shard.destroy_qp(index);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(2, WcStatus::Success)]);
}

#[test]
fn where_nothing_was_lost_nothing_is_said_again() {
    let mut p = Pair::new(&Settings::default(), 1);
    exchanged(&mut p, 0, usize::MAX - 1);
    assert_eq!(last_words(&mut p), (false, vec![]));
}

#[test]
fn nothing_is_said_of_what_needs_no_ack() {
    // Nothing has come from the peer.
    let mut p = Pair::new(&Settings::default(), 1);
    assert_eq!(last_words(&mut p), (false, vec![]));
    // A READ has its answer, and that was lost once.
    lose(&mut p, 1, 0);
    post(&mut p, 1, WrOpcode::RdmaRead, 8, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
    assert_eq!(last_words(&mut p), (false, vec![]));
    // A QP that has failed acknowledges nothing.
    let mut p = Pair::new(&Settings::default(), 1);
    exchanged(&mut p, 0, 1);
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    p.nodes[1].modify(&attr, AttrMask::STATE);
    assert_eq!(last_words(&mut p), (false, vec![]));
}
