//! Receiver not ready, and no peer at all.

use urxe::{Fault, QpState, WrOpcode};

use crate::arm::Setup;
use crate::verbs::{on_all_with, on_lossless_with, on_wire_with, remote, wr};

#[test]
fn sends_wait_for_receives_that_come_later_and_keep_their_order() {
    let setup = Setup {
        rnr_retry: 7,
        ..Setup::default()
    };
    on_all_with(setup, |v| {
        let (from, data) = v.filled(0, 10 * 700, 1);
        let to = v.memory(1, 10 * 700);
        for n in 0..10 {
            let sges = [from.sge(n * 700..(n + 1) * 700)];
            v.send(0, &wr(n as u64, WrOpcode::Send, &sges));
        }
        for n in 0..10 {
            for _ in 0..20 {
                v.arm.advance();
            }
            v.recv(1, n as u64, &[to.sge(n * 700..(n + 1) * 700)]);
            v.received_ok(1, n as u64);
        }
        for n in 0..10 {
            v.sent_ok(0, n);
        }
        assert!(v.bytes(&to) == data, "the bytes differ");
    });
}

#[test]
fn rnr_retry_is_how_often_a_request_is_tried_again() {
    for rnr_retry in [0, 1, 3] {
        let setup = Setup {
            rnr_retry,
            ..Setup::default()
        };
        on_lossless_with(setup, |v| {
            let to = v.memory(1, 8);
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &[], &to, 0));
            v.send(0, &wr(2, WrOpcode::Send, &[]));
            v.send(0, &wr(3, WrOpcode::Send, &[]));
            v.sent_ok(0, 1);
            v.sent_fails(0, 2, Fault::RnrExhausted);
            v.sent_fails(0, 3, Fault::Flushed);
            assert_eq!(v.state(0), QpState::Err);
            // The responder has nothing to do with it.
            assert_eq!(v.state(1), QpState::Rts);
        });
    }
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    for retry_cnt in [0, 1, 7] {
        let setup = Setup {
            retry_cnt,
            ..Setup::default()
        };
        on_wire_with(setup, |v| {
            let to = v.memory(1, 8);
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &[], &to, 0));
            v.sent_ok(0, 1);
            assert!(v.arm.silence(1), "the wire can");
            v.send(0, &remote(2, WrOpcode::RdmaWrite, &[], &to, 0));
            v.send(0, &remote(3, WrOpcode::RdmaWrite, &[], &to, 0));
            v.recv(0, 4, &[]);
            v.sent_fails(0, 2, Fault::AckTimeout);
            v.sent_fails(0, 3, Fault::Flushed);
            v.received_fails(0, 4, Fault::Flushed);
        });
    }
}
