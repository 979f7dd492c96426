//! Unreliable connections: nothing is answered, what cannot be taken is dropped.

use urxe::{AttrMask, Fault, PostError, QpAttr, QpState, QpType, WcOpcode, WrOpcode};

use crate::arm::{Region, Setup};
use crate::verbs::{Verbs, on_lossless_with, opcode_and_len, remote, wr, wrong};

fn setup() -> Setup {
    Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    }
}

/// Whatever side 0 sent before has arrived or never will: a WRITE behind it has landed.
fn settle(v: &mut Verbs, flag: &Region) {
    let (one, _) = v.filled(0, 1, 0);
    v.arm.write(&one, 0, &[1]);
    v.arm.write(flag, 0, &[0]);
    let sges = [one.whole()];
    v.send(0, &remote(u64::MAX, WrOpcode::RdmaWrite, &sges, flag, 0));
    v.sent_ok(0, u64::MAX);
    let flag = *flag;
    v.until("the WRITE", |v| v.bytes(&flag)[0] == 1);
}

#[test]
fn messages_of_every_kind_and_length_arrive() {
    on_lossless_with(setup(), |v| {
        let mtu = v.setup.mtu.bytes() as usize;
        let (from, data) = v.filled(0, 4 * mtu, 1);
        let to = v.memory(1, 4 * mtu);
        for len in [0, 1, 3, mtu - 1, mtu, mtu + 1, 3 * mtu + 1] {
            let sges = [from.sge(0..len)];
            for opcode in [
                WrOpcode::Send,
                WrOpcode::SendWithImm,
                WrOpcode::RdmaWriteWithImm,
            ] {
                v.arm.write(&to, 0, &vec![0; to.len]);
                v.recv(1, 1, &[to.whole()]);
                let mut wr = remote(2, opcode, &sges, &to, 0);
                wr.imm = [1, 2, 3, 4];
                v.send(0, &wr);
                v.sent_ok(0, 2);
                let wc = v.received_ok(1, 1);
                let kind = match opcode {
                    WrOpcode::RdmaWriteWithImm => WcOpcode::RecvRdmaWithImm,
                    _ => WcOpcode::Recv,
                };
                assert_eq!(opcode_and_len(&wc), (kind, len as u32));
                assert_eq!(wc.imm_data.is_some(), opcode != WrOpcode::Send);
                assert!(v.bytes(&to)[..len] == data[..len], "{opcode:?} {len}");
            }
        }
    });
}

#[test]
fn without_a_receive_a_message_is_gone_and_its_sender_does_not_know() {
    on_lossless_with(setup(), |v| {
        let flag = v.memory(1, 1);
        let (from, data) = v.filled(0, 3000, 2);
        let to = v.memory(1, 3000);
        let sges = [from.whole()];
        v.send(0, &wr(1, WrOpcode::Send, &sges));
        v.sent_ok(0, 1);
        settle(v, &flag);
        v.recv(1, 7, &[to.whole()]);
        let sges = [from.sge(0..2000)];
        v.send(0, &wr(2, WrOpcode::Send, &sges));
        assert_eq!(v.received_ok(1, 7).byte_len, 2000);
        assert!(v.bytes(&to)[..2000] == data[..2000]);
        assert_eq!((v.state(0), v.state(1)), (QpState::Rts, QpState::Rts));
    });
}

#[test]
fn a_message_too_long_is_dropped_and_its_receive_takes_the_next() {
    on_lossless_with(setup(), |v| {
        let (from, data) = v.filled(0, 3000, 3);
        let to = v.memory(1, 1500);
        v.recv(1, 7, &[to.whole()]);
        let sges = [from.whole()];
        v.send(0, &wr(1, WrOpcode::Send, &sges));
        let sges = [from.sge(100..1600)];
        v.send(0, &wr(2, WrOpcode::Send, &sges));
        assert_eq!(v.received_ok(1, 7).byte_len, 1500);
        assert!(v.bytes(&to) == data[100..1600], "from its beginning");
        v.sent_ok(0, 1);
        v.sent_ok(0, 2);
        assert_eq!(v.state(1), QpState::Rts);
    });
}

#[test]
fn a_write_that_is_refused_changes_nothing_on_either_side() {
    on_lossless_with(setup(), |v| {
        let flag = v.memory(1, 1);
        let (from, _) = v.filled(0, 64, 4);
        let to = v.memory(1, 64);
        let foreign = v.foreign_memory(1, 64);
        let mut guessed = to;
        guessed.rkey = wrong(to.rkey);
        let mut beyond = to;
        beyond.addr += 1;
        let sges = [from.whole()];
        for region in [foreign, guessed, beyond] {
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &region, 0));
            v.sent_ok(0, 1);
            settle(v, &flag);
        }
        assert_eq!(
            (v.bytes(&to), v.bytes(&foreign)),
            (vec![0; 64], vec![0; 64])
        );
        assert_eq!((v.state(0), v.state(1)), (QpState::Rts, QpState::Rts));
        assert!(v.is_empty(1, crate::arm::Queue::Recv));
    });
}

#[test]
fn reads_atomics_and_invalidation_are_refused_at_the_post() {
    on_lossless_with(setup(), |v| {
        let here = v.memory(0, 8);
        let there = v.memory(1, 8);
        let sges = [here.whole()];
        for opcode in [
            WrOpcode::RdmaRead,
            WrOpcode::AtomicCmpAndSwp,
            WrOpcode::AtomicFetchAndAdd,
            WrOpcode::SendWithInv,
        ] {
            let wr = remote(1, opcode, &sges, &there, 0);
            let error = v.arm.post_send(0, &wr).expect_err("refused");
            assert!(
                !matches!(
                    error,
                    PostError::QueueFull(_) | PostError::SendState(_) | PostError::RecvState(_)
                ),
                "{opcode:?}: {error:?}"
            );
        }
        assert_eq!(v.state(0), QpState::Rts);
        assert!(v.is_empty(0, crate::arm::Queue::Send));
    });
}

#[test]
fn a_local_fault_stops_the_sends_alone_and_a_modify_brings_them_back() {
    on_lossless_with(setup(), |v| {
        let (from, _) = v.filled(0, 8, 5);
        let gone = v.memory(0, 8);
        v.arm.deregister(&gone);
        let to = v.memory(0, 8);
        v.recv(0, 9, &[to.whole()]);
        v.send(0, &wr(1, WrOpcode::Send, &[gone.whole()]));
        v.sent_fails(0, 1, Fault::LocalKey);
        assert_eq!(v.state(0), QpState::Sqe);
        // Posted now, it is flushed; what comes in is received.
        v.send(0, &wr(2, WrOpcode::Send, &[from.whole()]));
        v.sent_fails(0, 2, Fault::Flushed);
        let (there, _) = v.filled(1, 8, 6);
        v.send(1, &wr(3, WrOpcode::Send, &[there.whole()]));
        v.received_ok(0, 9);
        let attr = QpAttr {
            qp_state: QpState::Rts,
            ..QpAttr::default()
        };
        v.arm.modify(0, &attr, AttrMask::STATE).expect("to RTS");
        v.recv(1, 4, &[]);
        v.send(0, &wr(5, WrOpcode::Send, &[]));
        v.received_ok(1, 4);
        v.sent_ok(0, 5);
    });
}
