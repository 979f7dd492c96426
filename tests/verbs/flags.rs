//! Signaled, solicited, fence.

use urxe::{Fault, SendFlags, WrOpcode};

use crate::arm::Setup;
use crate::verbs::{on_all, on_all_with, on_lossless, remote, wr, wrong};

#[test]
fn only_signaled_requests_complete() {
    on_all(|v| {
        let to = v.memory(1, 8);
        let (from, _) = v.filled(0, 8, 1);
        for id in 0..9 {
            let sges = [from.whole()];
            let mut wr = remote(id, WrOpcode::RdmaWrite, &sges, &to, 0);
            if id % 3 != 2 {
                wr.flags = SendFlags::NONE;
            }
            v.send(0, &wr);
        }
        for id in [2, 5, 8] {
            v.sent_ok(0, id);
        }
        v.nothing_more();
    });
}

#[test]
fn a_qp_that_signals_all_needs_no_flag() {
    let setup = Setup {
        sq_sig_all: true,
        ..Setup::default()
    };
    on_all_with(setup, |v| {
        let to = v.memory(1, 8);
        for id in 0..4 {
            let mut wr = remote(id, WrOpcode::RdmaWrite, &[], &to, 0);
            wr.flags = SendFlags::NONE;
            v.send(0, &wr);
        }
        for id in 0..4 {
            v.sent_ok(0, id);
        }
    });
}

#[test]
fn unsignaled_requests_free_their_places_and_complete_when_they_fail() {
    on_lossless(|v| {
        let to = v.memory(1, 8);
        let (from, _) = v.filled(0, 8, 2);
        let mut bad = to;
        bad.rkey = wrong(to.rkey);
        // More than the queue holds: what is signaled now and then makes room.
        let sges = [from.whole()];
        for id in 0..200 {
            let mut wr = remote(id, WrOpcode::RdmaWrite, &sges, &to, 0);
            if id % 50 != 49 {
                wr.flags = SendFlags::NONE;
            }
            v.send(0, &wr);
            if id % 50 == 49 {
                v.sent_ok(0, id);
            }
        }
        let mut wr = remote(200, WrOpcode::RdmaWrite, &sges, &bad, 0);
        wr.flags = SendFlags::NONE;
        v.send(0, &wr);
        v.send(0, &wr);
        v.sent_fails(0, 200, Fault::NakRemoteAccess);
        v.sent_fails(0, 200, Fault::Flushed);
    });
}

#[test]
fn solicited_marks_the_receive_of_that_message_only() {
    on_all(|v| {
        let (from, _) = v.filled(0, 2500, 3);
        let to = v.memory(1, 2500);
        for id in 0..4 {
            v.recv(1, id, &[to.whole()]);
        }
        let sges = [from.whole()];
        for (id, opcode, solicited) in [
            (0, WrOpcode::Send, true),
            (1, WrOpcode::Send, false),
            (2, WrOpcode::SendWithImm, true),
            (3, WrOpcode::RdmaWriteWithImm, true),
        ] {
            let mut wr = remote(id, opcode, &sges, &to, 0);
            if solicited {
                wr.flags = wr.flags | SendFlags::SOLICITED;
            }
            v.send(0, &wr);
        }
        let marks = [0, 1, 2, 3].map(|id| v.received_ok(1, id).solicited);
        assert_eq!(marks, [true, false, true, true]);
    });
}

#[test]
fn a_failed_receive_is_solicited_whatever_was_sent() {
    on_lossless(|v| {
        let to = v.memory(1, 8);
        v.recv(1, 1, &[to.whole()]);
        v.go(1, urxe::QpState::Err);
        let wc = v.received(1);
        assert!(wc.solicited && !wc.is_success());
    });
}

#[test]
fn a_fenced_write_does_not_spoil_what_a_read_before_it_brings() {
    on_all(|v| {
        let (there, data) = v.filled(1, 3000, 4);
        let here = v.memory(0, 3000);
        let (new, _) = v.filled(0, 3000, 5);
        let sges = [here.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 0));
        let sges = [new.whole()];
        let mut wr = remote(2, WrOpcode::RdmaWrite, &sges, &there, 0);
        wr.flags = wr.flags | SendFlags::FENCE;
        v.send(0, &wr);
        v.sent_ok(0, 1);
        v.sent_ok(0, 2);
        assert!(v.bytes(&here) == data, "the read came after the write");
    });
}

#[test]
fn completions_come_in_the_order_of_the_posts_whatever_takes_longer() {
    on_all(|v| {
        let (there, _) = v.filled(1, 3000, 6);
        let here = v.memory(0, 3000);
        for id in 0..12 {
            v.recv(1, id, &[]);
        }
        for id in 0..24 {
            match id % 4 {
                0 => {
                    let sges = [here.whole()];
                    v.send(0, &remote(id, WrOpcode::RdmaRead, &sges, &there, 0));
                }
                1 => v.send(0, &remote(id, WrOpcode::RdmaWrite, &[], &there, 0)),
                2 => {
                    let sges = [here.sge(0..8)];
                    v.send(
                        0,
                        &remote(id, WrOpcode::AtomicFetchAndAdd, &sges, &there, 8),
                    );
                }
                _ => v.send(0, &wr(id, WrOpcode::Send, &[])),
            }
        }
        for id in 0..24 {
            v.sent_ok(0, id);
        }
    });
}
