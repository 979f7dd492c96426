//! The states of a QP: what each takes, does and forgets.

use urxe::{AttrMask, Fault, ModifyError, PostError, QpAttr, QpState, WrOpcode};
use urxe_core::work::RecvWr;

use crate::arm::{self, Setup};
use crate::verbs::{Verbs, on_all, on_lossless, on_lossless_with, remote, wr};

/// Brings a side from RESET to RTR or INIT.
fn bring(v: &mut Verbs, side: usize, to: QpState) {
    for (attr, mask) in arm::steps(&*v.arm, &v.setup, side) {
        v.arm.modify(side, &attr, mask).expect("modifies");
        if attr.qp_state == to {
            return;
        }
    }
    panic!("no step to {to:?}");
}

#[test]
fn what_may_be_posted_in_which_state() {
    on_lossless(|v| {
        v.go(0, QpState::Reset);
        let (send, recv) = (PostError::SendState, PostError::RecvState);
        let wr = wr(1, WrOpcode::Send, &[]);
        let rwr = RecvWr {
            wr_id: 2,
            sges: &[],
        };
        assert_eq!(v.arm.post_recv(0, &rwr), Err(recv(QpState::Reset)));
        assert_eq!(v.arm.post_send(0, &wr), Err(send(QpState::Reset)));
        bring(v, 0, QpState::Init);
        assert_eq!(v.arm.post_recv(0, &rwr), Ok(()));
        assert_eq!(v.arm.post_send(0, &wr), Err(send(QpState::Init)));
        v.go(0, QpState::Reset);
        bring(v, 0, QpState::Rtr);
        assert_eq!(v.arm.post_recv(0, &rwr), Ok(()));
        assert_eq!(v.arm.post_send(0, &wr), Err(send(QpState::Rtr)));
        v.go(0, QpState::Err);
        v.received_fails(0, 2, Fault::Flushed);
        assert_eq!(v.arm.post_recv(0, &rwr), Ok(()));
        assert_eq!(v.arm.post_send(0, &wr), Ok(()));
        v.received_fails(0, 2, Fault::Flushed);
        v.sent_fails(0, 1, Fault::Flushed);
    });
}

#[test]
fn receives_posted_in_init_are_there_when_messages_come() {
    on_all(|v| {
        for side in 0..2 {
            v.go(side, QpState::Reset);
        }
        bring(v, 1, QpState::Init);
        v.recv(1, 1, &[]);
        let [_, rtr, rts] = arm::steps(&*v.arm, &v.setup, 1);
        v.arm.modify(1, &rtr.0, rtr.1).expect("to RTR");
        bring(v, 0, QpState::Rts);
        v.send(0, &wr(1, WrOpcode::Send, &[]));
        // A responder needs no RTS.
        v.received_ok(1, 1);
        v.sent_ok(0, 1);
        assert_eq!(v.event(1), "CommEst");
        v.arm.modify(1, &rts.0, rts.1).expect("to RTS");
        v.nothing_more();
    });
}

#[test]
fn a_peer_that_is_not_in_rtr_yet_is_waited_for() {
    let setup = Setup {
        // Eight times an eighth of a second: this side may be held up for long before the peer is in RTR.
        timeout: 14,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        v.go(1, QpState::Reset);
        bring(v, 1, QpState::Init);
        v.recv(1, 1, &[]);
        v.send(0, &wr(1, WrOpcode::Send, &[]));
        v.arm.advance();
        v.go(1, QpState::Reset);
        v.connect_side(1);
        v.recv(1, 2, &[]);
        v.received_ok(1, 2);
        v.sent_ok(0, 1);
    });
}

#[test]
fn to_err_flushes_both_queues_in_order() {
    on_lossless(|v| {
        v.go(1, QpState::Reset);
        for id in 0..5 {
            v.recv(0, 10 + id, &[]);
            v.send(0, &wr(id, WrOpcode::Send, &[]));
        }
        v.go(0, QpState::Err);
        for id in 0..5 {
            v.sent_fails(0, id, Fault::Flushed);
            v.received_fails(0, 10 + id, Fault::Flushed);
        }
        assert_eq!(v.state(0), QpState::Err);
    });
}

#[test]
fn reset_forgets_without_completions_and_the_qp_can_be_used_again() {
    on_lossless(|v| {
        v.go(1, QpState::Reset);
        for id in 0..5 {
            v.recv(0, 10 + id, &[]);
            v.send(0, &wr(id, WrOpcode::Send, &[]));
        }
        v.go(0, QpState::Reset);
        assert_eq!(v.arm.query(0).qp_access_flags, urxe::Access::NONE);
        v.setup.psn = [0x77_7777, 5];
        v.connect();
        // Nothing of what was posted before is left, in either queue.
        v.nothing_more();
    });
}

#[test]
fn err_leaves_only_by_reset() {
    on_lossless(|v| {
        v.go(0, QpState::Err);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
            let attr = QpAttr {
                qp_state: state,
                ..QpAttr::default()
            };
            let result = v.arm.modify(0, &attr, AttrMask::STATE);
            assert!(
                matches!(result, Err(ModifyError::Transition { .. })),
                "{state:?}: {result:?}"
            );
        }
        v.go(0, QpState::Err);
        v.reconnect();
        v.nothing_more();
    });
}

#[test]
fn a_modify_that_is_refused_changes_nothing() {
    on_lossless(|v| {
        v.go(0, QpState::Reset);
        let [init, rtr, _] = arm::steps(&*v.arm, &v.setup, 0);
        let before = v.arm.query(0);
        // A required attribute is missing.
        let missing = AttrMask(init.1.0 & !AttrMask::PORT.0);
        assert!(v.arm.modify(0, &init.0, missing).is_err());
        // One that the transition does not take.
        assert!(v.arm.modify(0, &init.0, init.1 | AttrMask::SQ_PSN).is_err());
        // A transition that does not exist.
        assert!(v.arm.modify(0, &rtr.0, rtr.1).is_err());
        // A value out of range.
        let port = QpAttr {
            port_num: 2,
            ..init.0
        };
        assert!(v.arm.modify(0, &port, init.1).is_err());
        assert_eq!(v.arm.query(0), before);
    });
}

#[test]
fn sqd_finishes_what_was_started_says_so_and_goes_on_at_rts() {
    on_all(|v| {
        let (from, data) = v.filled(0, 6000, 1);
        let to = v.memory(1, 6000);
        let sges = [from.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 0));
        v.arm.advance();
        let attr = QpAttr {
            qp_state: QpState::Sqd,
            en_sqd_async_notify: true,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
        v.arm.modify(0, &attr, mask).expect("to SQD");
        assert_eq!(v.event(0), "SqDrained");
        // Posted now, it does not start; what the peer sends is still taken.
        v.send(0, &remote(2, WrOpcode::RdmaWrite, &sges, &to, 0));
        v.pass_a_message(1);
        v.sent_ok(0, 1);
        assert!(v.bytes(&to) == data, "what was started is done");
        v.go(0, QpState::Rts);
        v.sent_ok(0, 2);
        v.nothing_more();
    });
}

#[test]
fn sqd_without_notification_raises_no_event() {
    on_all(|v| {
        v.go(0, QpState::Sqd);
        v.pass_a_message(1);
        v.go(0, QpState::Rts);
        v.nothing_more();
    });
}

#[test]
fn the_first_packet_in_rtr_is_an_event_and_later_ones_are_not() {
    on_all(|v| {
        for side in 0..2 {
            v.go(side, QpState::Reset);
        }
        bring(v, 1, QpState::Rtr);
        bring(v, 0, QpState::Rts);
        for id in 0..3 {
            v.recv(1, id, &[]);
            v.send(0, &wr(id, WrOpcode::Send, &[]));
        }
        for id in 0..3 {
            v.received_ok(1, id);
            v.sent_ok(0, id);
        }
        assert_eq!(v.event(1), "CommEst");
        let [_, _, rts] = arm::steps(&*v.arm, &v.setup, 1);
        v.arm.modify(1, &rts.0, rts.1).expect("to RTS");
        v.nothing_more();
    });
}

#[test]
fn a_destroyed_qp_makes_no_completions_and_its_peer_notices() {
    let setup = Setup {
        timeout: 1,
        retry_cnt: 1,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        v.recv(1, 1, &[]);
        v.arm.destroy(1);
        v.send(0, &wr(1, WrOpcode::Send, &[]));
        v.sent_fails(0, 1, Fault::AckTimeout);
        assert!(v.is_empty(1, arm::Queue::Recv));
    });
}
