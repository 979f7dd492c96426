//! RDMA WRITE, with and without immediate data.

use urxe::{Access, Fault, WcOpcode, WrOpcode};

use crate::arm::{ALL, Setup};
use crate::verbs::{on_all, on_lossless, on_lossless_with, opcode_and_len, remote, wrong};

#[test]
fn a_write_lands_where_it_says_and_takes_no_receive() {
    on_all(|v| {
        let (from, data) = v.filled(0, 3000, 1);
        let to = v.memory(1, 4000);
        v.recv(1, 9, &[]);
        let sges = [from.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 500));
        assert_eq!(v.sent_ok(0, 1).opcode, WcOpcode::RdmaWrite);
        let got = v.bytes(&to);
        assert!(got[500..3500] == data, "the bytes differ");
        assert!(got[..500].iter().chain(&got[3500..]).all(|&b| b == 0));
        // The receive is still there for the next message.
        v.send(0, &remote(2, WrOpcode::SendWithImm, &[], &to, 0));
        v.received_ok(1, 9);
        v.sent_ok(0, 2);
        v.nothing_more();
    });
}

#[test]
fn writes_of_every_length_around_packets() {
    on_all(|v| {
        let mtu = v.setup.mtu.bytes() as usize;
        let (from, data) = v.filled(0, 4 * mtu, 2);
        for len in [0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 1] {
            let to = v.memory(1, len + 16);
            let sges = [from.sge(0..len)];
            v.send(0, &remote(len as u64, WrOpcode::RdmaWrite, &sges, &to, 8));
            v.sent_ok(0, len as u64);
            let got = v.bytes(&to);
            assert!(got[8..8 + len] == data[..len], "{len} bytes");
            assert_eq!((&got[..8], &got[8 + len..]), (&[0; 8][..], &[0; 8][..]));
        }
    });
}

#[test]
fn later_writes_win() {
    on_all(|v| {
        let (from, data) = v.filled(0, 20 * 100, 3);
        let to = v.memory(1, 100);
        for n in 0..20 {
            let sges = [from.sge(n * 100..(n + 1) * 100)];
            v.send(0, &remote(n as u64, WrOpcode::RdmaWrite, &sges, &to, 0));
        }
        for n in 0..20 {
            v.sent_ok(0, n);
        }
        assert!(v.bytes(&to) == data[1900..], "not the last write's bytes");
    });
}

#[test]
fn immediate_data_consumes_a_receive_whose_memory_stays_as_it_is() {
    on_all(|v| {
        let (from, data) = v.filled(0, 2100, 4);
        let (to, beside) = (v.memory(1, 2100), v.memory(1, 100));
        v.recv(1, 1, &[beside.whole()]);
        v.recv(1, 2, &[]);
        for (id, len) in [(1, 2100), (2, 0)] {
            let sges = [from.sge(0..len)];
            let mut wr = remote(id, WrOpcode::RdmaWriteWithImm, &sges, &to, 0);
            wr.imm = [0xab, 0, 0, id as u8];
            v.send(0, &wr);
            let wc = v.received_ok(1, id);
            assert_eq!(opcode_and_len(&wc), (WcOpcode::RecvRdmaWithImm, len as u32));
            assert_eq!(wc.imm_data, Some(0xab00_0000 | id as u32));
            v.sent_ok(0, id);
        }
        assert!(v.bytes(&to) == data, "the bytes differ");
        assert_eq!(v.bytes(&beside), [0; 100]);
    });
}

#[test]
fn immediate_data_waits_for_its_receive() {
    on_all(|v| {
        let (from, data) = v.filled(0, 1500, 5);
        let to = v.memory(1, 1500);
        let sges = [from.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaWriteWithImm, &sges, &to, 0));
        for _ in 0..20 {
            v.arm.advance();
        }
        v.recv(1, 1, &[]);
        assert_eq!(v.received_ok(1, 1).byte_len, 1500);
        v.sent_ok(0, 1);
        assert!(v.bytes(&to) == data, "the bytes differ");
    });
}

#[test]
fn a_write_of_no_bytes_needs_no_key() {
    on_all(|v| {
        let to = v.memory(1, 8);
        let mut wr = remote(1, WrOpcode::RdmaWrite, &[], &to, 0);
        (wr.remote_addr, wr.rkey) = (3, wrong(to.rkey));
        v.send(0, &wr);
        v.sent_ok(0, 1);
        v.nothing_more();
    });
}

#[test]
fn a_write_beyond_its_region_lands_nowhere_and_fails_both_ends() {
    // From inside over the end, wholly behind it, from before the start; one packet or more.
    let cases: [(i64, usize); 5] = [(93, 8), (100, 1), (-1, 1), (0, 101), (-500, 3000)];
    on_lossless(|v| {
        let (from, _) = v.filled(0, 3000, 6);
        let to = v.memory(1, 100);
        for (offset, len) in cases {
            let sges = [from.sge(0..len)];
            let mut wr = remote(1, WrOpcode::RdmaWrite, &sges, &to, 0);
            wr.remote_addr = to.addr.wrapping_add_signed(offset);
            v.send(0, &wr);
            v.sent_fails(0, 1, Fault::NakRemoteAccess);
            assert_eq!(v.event(1), "QpAccessErr", "{offset} {len}");
            assert_eq!(v.bytes(&to), [0; 100], "{offset} {len}");
            v.reconnect();
        }
    });
}

#[test]
fn an_address_at_the_end_of_the_numbers_does_not_wrap_into_the_region() {
    on_lossless(|v| {
        let (from, _) = v.filled(0, 64, 7);
        let to = v.memory(1, 100);
        let sges = [from.whole()];
        let mut wr = remote(1, WrOpcode::RdmaWrite, &sges, &to, 0);
        wr.remote_addr = u64::MAX - 10;
        v.send(0, &wr);
        v.sent_fails(0, 1, Fault::NakRemoteAccess);
    });
}

#[test]
fn a_region_without_the_right_or_under_another_key_refuses() {
    on_lossless(|v| {
        let (from, _) = v.filled(0, 8, 8);
        let mine = v.memory_with(1, 8, Access::LOCAL_WRITE | Access::REMOTE_READ);
        let open = v.memory(1, 8);
        let mut stale = v.memory(1, 8);
        v.arm.deregister(&stale);
        stale.len = 8;
        let mut as_lkey = open;
        as_lkey.rkey = urxe::Rkey(open.lkey.0);
        let mut guessed = open;
        guessed.rkey = wrong(open.rkey);
        let foreign = v.foreign_memory(1, 8);
        for region in [mine, stale, as_lkey, guessed, foreign] {
            let sges = [from.whole()];
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &region, 0));
            v.sent_fails(0, 1, Fault::NakRemoteAccess);
            v.reconnect();
        }
        assert_eq!(v.bytes(&open), [0; 8]);
    });
}

#[test]
fn a_qp_without_the_right_finds_the_request_invalid() {
    let access = Access(ALL.0 & !Access::REMOTE_WRITE.0);
    let setup = Setup {
        access,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        let (from, _) = v.filled(0, 8, 9);
        let to = v.memory(1, 8);
        for len in [8, 0] {
            let sges = [from.sge(0..len)];
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 0));
            v.sent_fails(0, 1, Fault::NakInvalidRequest);
            assert_eq!(v.event(1), "QpReqErr");
            v.reconnect();
        }
        assert_eq!(v.bytes(&to), [0; 8]);
    });
}
