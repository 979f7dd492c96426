//! SEND and receive.

use urxe::{Fault, WcOpcode, WrOpcode};

use crate::verbs::{on_all, on_lossless, opcode_and_len, wr};

#[test]
fn a_send_fills_the_oldest_receive_and_nothing_beyond_the_message() {
    on_all(|v| {
        let (from, data) = v.filled(0, 5000, 1);
        let to = v.memory(1, 6000);
        v.arm.write(&to, 0, &[0xee; 6000]);
        v.recv(1, 7, &[to.whole()]);
        v.send(0, &wr(3, WrOpcode::Send, &[from.whole()]));
        let wc = v.received_ok(1, 7);
        assert_eq!(opcode_and_len(&wc), (WcOpcode::Recv, 5000));
        assert_eq!((wc.qp_num, wc.src_qp), (v.arm.qpn(1), v.arm.qpn(0)));
        assert_eq!(v.sent_ok(0, 3).opcode, WcOpcode::Send);
        let got = v.bytes(&to);
        assert!(got[..5000] == data, "the bytes differ");
        assert!(got[5000..].iter().all(|&b| b == 0xee), "more was written");
        v.nothing_more();
    });
}

#[test]
fn messages_of_every_length_around_packets_arrive_in_order() {
    on_all(|v| {
        let mtu = v.setup.mtu.bytes() as usize;
        let lengths = [0, 1, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 2];
        let (from, data) = v.filled(0, 4 * mtu, 2);
        let to: Vec<_> = lengths.iter().map(|_| v.memory(1, 4 * mtu)).collect();
        for (id, to) in (0..).zip(&to) {
            v.recv(1, id, &[to.whole()]);
        }
        for (id, &len) in (0..).zip(&lengths) {
            v.send(0, &wr(id, WrOpcode::Send, &[from.sge(0..len)]));
        }
        for ((id, &len), to) in (0..).zip(&lengths).zip(&to) {
            assert_eq!(v.received_ok(1, id).byte_len as usize, len);
            assert!(v.bytes(to)[..len] == data[..len], "{len} bytes differ");
            v.sent_ok(0, id);
        }
        v.nothing_more();
    });
}

#[test]
fn both_directions_at_once() {
    on_all(|v| {
        let memory = [0, 1].map(|side| v.filled(side, 3000, side as u64 + 5));
        let to = [0, 1].map(|side| v.memory(side, 3000));
        for side in 0..2 {
            v.recv(side, 1, &[to[side].whole()]);
            v.send(side, &wr(2, WrOpcode::Send, &[memory[side].0.whole()]));
        }
        for side in 0..2 {
            v.received_ok(side, 1);
            v.sent_ok(side, 2);
            assert!(v.bytes(&to[side]) == memory[1 - side].1, "side {side}");
        }
    });
}

#[test]
fn immediate_data_arrives_unchanged_and_only_where_it_was_sent() {
    on_all(|v| {
        let (from, _) = v.filled(0, 2500, 3);
        let to = v.memory(1, 2500);
        for id in 0..3 {
            v.recv(1, id, &[to.whole()]);
        }
        let mut imm = wr(0, WrOpcode::SendWithImm, &[]);
        imm.imm = [1, 2, 3, 0xfe];
        v.send(0, &imm);
        let sges = [from.whole()];
        let mut long = wr(1, WrOpcode::SendWithImm, &sges);
        long.imm = [9, 8, 7, 6];
        v.send(0, &long);
        v.send(0, &wr(2, WrOpcode::Send, &[]));
        let got = [0, 1, 2].map(|id| v.received_ok(1, id).imm_data);
        assert_eq!(got, [Some(0x0102_03fe), Some(0x0908_0706), None]);
    });
}

#[test]
fn scattered_and_gathered_lists_with_empty_entries() {
    on_all(|v| {
        let (from, data) = v.filled(0, 4000, 4);
        let to = v.memory(1, 4000);
        let scatter = [
            to.sge(3000..4000),
            to.sge(0..0),
            to.sge(0..1),
            to.sge(1..3000),
        ];
        v.recv(1, 1, &scatter);
        let gather = [
            from.sge(10..11),
            from.sge(0..0),
            from.sge(11..2000),
            from.sge(2000..4000),
        ];
        v.send(0, &wr(1, WrOpcode::Send, &gather));
        assert_eq!(v.received_ok(1, 1).byte_len, 3990);
        let got = v.bytes(&to);
        let pieces = [&got[3000..4000], &got[0..1], &got[1..2990]].concat();
        assert!(pieces == data[10..4000], "the bytes differ");
    });
}

#[test]
fn a_message_longer_than_its_receive_fails_both_ends() {
    on_lossless(|v| {
        for len in [65, 3000] {
            let (from, _) = v.filled(0, len, 5);
            let to = v.memory(1, 64);
            v.recv(1, 1, &[to.whole()]);
            v.recv(1, 2, &[to.whole()]);
            v.send(0, &wr(3, WrOpcode::Send, &[from.whole()]));
            v.send(0, &wr(4, WrOpcode::Send, &[]));
            v.received_fails(1, 1, Fault::RecvTooShort);
            v.received_fails(1, 2, Fault::Flushed);
            v.sent_fails(0, 3, Fault::NakInvalidRequest);
            v.sent_fails(0, 4, Fault::Flushed);
            for side in 0..2 {
                v.go(side, urxe::QpState::Reset);
            }
            v.connect();
        }
    });
}

#[test]
fn a_receive_that_cannot_be_written_fails_both_ends() {
    on_lossless(|v| {
        let (from, _) = v.filled(0, 8, 6);
        let read_only = v.memory_with(1, 8, urxe::Access::REMOTE_READ);
        v.recv(1, 1, &[read_only.whole()]);
        v.send(0, &wr(2, WrOpcode::Send, &[from.whole()]));
        v.received_fails(1, 1, Fault::LocalAccess);
        v.sent_fails(0, 2, Fault::NakRemoteOperational);
        assert_eq!(v.bytes(&read_only), [0; 8]);
    });
}
