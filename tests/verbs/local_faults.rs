//! What is wrong with the program's own lists and queues.

use urxe::{Access, Fault, PostError, QpState, Sge, WrData, WrOpcode};
use urxe_core::work::{RecvWr, SendWr};

use crate::arm::Setup;
use crate::verbs::{on_lossless, on_lossless_with, remote, wr};

#[test]
fn a_bad_local_key_fails_the_request_and_sends_nothing() {
    on_lossless(|v| {
        let (from, _) = v.filled(0, 64, 1);
        let gone = v.memory(0, 64);
        v.arm.deregister(&gone);
        let foreign = v.foreign_memory(0, 64);
        let to = v.memory(1, 64);
        let beyond = Sge {
            length: 65,
            ..from.whole()
        };
        let before = Sge {
            addr: from.addr - 1,
            ..from.whole()
        };
        let rkey = Sge {
            lkey: urxe::Lkey(from.rkey.0),
            ..from.whole()
        };
        for (sge, fault) in [
            (gone.whole(), Fault::LocalKey),
            (rkey, Fault::LocalKey),
            (foreign.whole(), Fault::LocalPd),
            (beyond, Fault::LocalBounds),
            (before, Fault::LocalBounds),
        ] {
            let sges = [sge];
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 0));
            v.send(0, &remote(2, WrOpcode::RdmaWrite, &[], &to, 0));
            v.sent_fails(0, 1, fault);
            v.sent_fails(0, 2, Fault::Flushed);
            assert_eq!(v.state(1), QpState::Rts, "the peer heard nothing");
            v.reconnect();
        }
        assert_eq!(v.bytes(&to), [0; 64]);
    });
}

#[test]
fn a_local_fault_waits_for_the_requests_before_it() {
    on_lossless(|v| {
        let (from, data) = v.filled(0, 5000, 2);
        let to = v.memory(1, 5000);
        let good = [from.whole()];
        let bad = [Sge {
            length: 5001,
            ..from.whole()
        }];
        v.send(0, &remote(1, WrOpcode::RdmaWrite, &good, &to, 0));
        v.send(0, &remote(2, WrOpcode::RdmaWrite, &bad, &to, 0));
        v.sent_ok(0, 1);
        v.sent_fails(0, 2, Fault::LocalBounds);
        assert!(v.bytes(&to) == data);
    });
}

#[test]
fn sending_needs_no_right_and_receiving_needs_local_write() {
    on_lossless(|v| {
        let plain = v.memory_with(0, 64, Access::NONE);
        let to = v.memory(1, 64);
        v.recv(1, 1, &[to.whole()]);
        v.send(0, &wr(1, WrOpcode::Send, &[plain.whole()]));
        v.received_ok(1, 1);
        v.sent_ok(0, 1);
        let plain = v.memory_with(1, 64, Access::NONE);
        v.recv(1, 2, &[plain.whole()]);
        v.send(0, &wr(2, WrOpcode::Send, &[]));
        // Nothing is written, so nothing is wrong.
        v.received_ok(1, 2);
        v.sent_ok(0, 2);
        v.recv(1, 3, &[plain.whole()]);
        let (from, _) = v.filled(0, 1, 3);
        v.send(0, &wr(3, WrOpcode::Send, &[from.whole()]));
        v.received_fails(1, 3, Fault::LocalAccess);
        v.sent_fails(0, 3, Fault::NakRemoteOperational);
    });
}

#[test]
fn a_full_queue_and_a_list_too_long_are_refused_and_leave_the_queue_as_it_was() {
    let mut setup = Setup::default();
    (setup.cap.max_send_wr, setup.cap.max_recv_wr) = (4, 3);
    on_lossless_with(setup, |v| {
        let (send_wr, recv_wr) = (v.setup.cap.max_send_wr, v.setup.cap.max_recv_wr);
        let region = v.memory(1, 8);
        let sges = [region.whole(); 5];
        let five = RecvWr {
            wr_id: 9,
            sges: &sges,
        };
        let too_many = PostError::TooManySges { given: 5, max: 4 };
        assert_eq!(v.arm.post_recv(1, &five), Err(too_many));
        let mine = [v.memory(0, 8).whole(); 5];
        assert_eq!(
            v.arm.post_send(0, &wr(9, WrOpcode::Send, &mine)),
            Err(too_many)
        );
        for id in 0..recv_wr {
            v.recv(1, id.into(), &[]);
        }
        let one_more = RecvWr {
            wr_id: 9,
            sges: &[],
        };
        assert_eq!(
            v.arm.post_recv(1, &one_more),
            Err(PostError::QueueFull(recv_wr))
        );
        // The peer takes none of these yet.
        v.go(1, QpState::Reset);
        for id in 0..send_wr {
            v.send(0, &wr(id.into(), WrOpcode::Send, &[]));
        }
        let one_more = wr(9, WrOpcode::Send, &[]);
        assert_eq!(
            v.arm.post_send(0, &one_more),
            Err(PostError::QueueFull(send_wr))
        );
        v.connect_side(1);
        for id in 0..send_wr.into() {
            v.recv(1, id, &[]);
            v.received_ok(1, id);
            v.sent_ok(0, id);
        }
        v.forget_comm_est(1);
        v.nothing_more();
    });
}

#[test]
fn the_longest_message_is_two_to_the_31() {
    on_lossless(|v| {
        let half = Sge {
            addr: 0,
            length: 1 << 30,
            lkey: urxe::Lkey(1),
        };
        let one = Sge { length: 1, ..half };
        let sges = [half, half, one];
        let wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
        let error = v.arm.post_send(0, &wr).expect_err("refused");
        assert_eq!(error, PostError::MessageTooLong((1 << 31) + 1));
        v.nothing_more();
    });
}

#[test]
fn a_completion_queue_that_overruns_is_an_event_and_fails_its_qp() {
    let setup = Setup {
        cqe: 4,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        let to = v.memory(1, 8);
        let (from, _) = v.filled(0, 8, 4);
        let sges = [from.whole()];
        // No thread polls while these complete.
        for id in 0..16 {
            v.send(0, &remote(id, WrOpcode::RdmaWrite, &sges, &to, 0));
        }
        let events = v.overrun(0);
        assert_eq!(events[..2], ["CqErr", "QpFatal"], "{events:?}");
        assert_eq!(v.state(0), QpState::Err);
    });
}
