//! End-to-end credits: a sender knows how many receives there are.

use urxe::WrOpcode;

use crate::verbs::{on_all, remote, wr};

#[test]
fn messages_without_receives_wait_and_each_receive_lets_one_through() {
    on_all(|v| {
        for id in 0..30 {
            v.send(0, &wr(id, WrOpcode::Send, &[]));
        }
        for id in 0..30 {
            v.recv(1, id, &[]);
            v.received_ok(1, id);
        }
        for id in 0..30 {
            v.sent_ok(0, id);
        }
        v.nothing_more();
    });
}

#[test]
fn writes_and_reads_need_no_receives() {
    on_all(|v| {
        let (from, data) = v.filled(0, 600, 1);
        let (there, here) = (v.memory(1, 600), v.memory(0, 600));
        for round in 0..10 {
            let sges = [from.whole()];
            v.send(0, &remote(2 * round, WrOpcode::RdmaWrite, &sges, &there, 0));
            let sges = [here.whole()];
            v.send(
                0,
                &remote(2 * round + 1, WrOpcode::RdmaRead, &sges, &there, 0),
            );
        }
        for id in 0..20 {
            v.sent_ok(0, id);
        }
        assert!(v.bytes(&here) == data);
    });
}

#[test]
fn a_sender_that_waits_hears_of_new_receives() {
    on_all(|v| {
        v.recv(1, 0, &[]);
        v.send(0, &wr(0, WrOpcode::Send, &[]));
        v.received_ok(1, 0);
        v.sent_ok(0, 0);
        // The peer knows of no receives now. Many arrive at once.
        for id in 1..20 {
            v.recv(1, id, &[]);
        }
        for id in 1..20 {
            v.send(0, &wr(id, WrOpcode::Send, &[]));
        }
        for id in 1..20 {
            v.received_ok(1, id);
            v.sent_ok(0, id);
        }
    });
}

#[test]
fn messages_with_and_without_receives_mix() {
    on_all(|v| {
        let to = v.memory(1, 8);
        let (from, _) = v.filled(0, 8, 2);
        let sges = [from.whole()];
        for id in 0..40 {
            let opcode = match id % 4 {
                0 => WrOpcode::Send,
                1 => WrOpcode::RdmaWrite,
                2 => WrOpcode::RdmaWriteWithImm,
                _ => WrOpcode::RdmaRead,
            };
            v.send(0, &remote(id, opcode, &sges, &to, 0));
        }
        for id in 0..20 {
            v.recv(1, id, &[to.whole()]);
            v.received_ok(1, id);
        }
        for id in 0..40 {
            v.sent_ok(0, id);
        }
    });
}
