//! RDMA READ.

use urxe::{Access, Fault, WcOpcode, WrOpcode};

use crate::arm::{ALL, Setup};
use crate::verbs::{on_all, on_all_with, on_lossless, on_lossless_with, remote, wrong};

#[test]
fn a_read_brings_what_is_there_and_the_target_does_nothing() {
    on_all(|v| {
        let (there, data) = v.filled(1, 5000, 1);
        let here = v.memory(0, 5000);
        let sges = [here.sge(1000..5000)];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 700));
        assert_eq!(v.sent_ok(0, 1).opcode, WcOpcode::RdmaRead);
        let got = v.bytes(&here);
        assert!(got[1000..] == data[700..4700], "the bytes differ");
        assert!(got[..1000].iter().all(|&b| b == 0));
        v.nothing_more();
    });
}

#[test]
fn reads_of_every_length_around_packets() {
    on_all(|v| {
        let mtu = v.setup.mtu.bytes() as usize;
        let (there, data) = v.filled(1, 4 * mtu, 2);
        for len in [0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 1] {
            let here = v.memory(0, len + 16);
            let sges = [here.sge(8..8 + len)];
            v.send(0, &remote(len as u64, WrOpcode::RdmaRead, &sges, &there, 1));
            v.sent_ok(0, len as u64);
            let got = v.bytes(&here);
            assert!(got[8..8 + len] == data[1..1 + len], "{len} bytes");
            assert_eq!((&got[..8], &got[8 + len..]), (&[0; 8][..], &[0; 8][..]));
        }
    });
}

#[test]
fn more_reads_than_may_be_under_way_all_come_in_order() {
    let setup = Setup {
        rd_atomic: 2,
        ..Setup::default()
    };
    on_all_with(setup, |v| {
        let (there, data) = v.filled(1, 3000 * 16, 3);
        let here = v.memory(0, 3000 * 16);
        for n in 0..16 {
            let sges = [here.sge(n * 3000..(n + 1) * 3000)];
            v.send(
                0,
                &remote(n as u64, WrOpcode::RdmaRead, &sges, &there, n * 3000),
            );
        }
        for n in 0..16 {
            v.sent_ok(0, n);
        }
        assert!(v.bytes(&here) == data, "the bytes differ");
    });
}

#[test]
fn a_read_sees_the_writes_before_it() {
    on_all(|v| {
        let (from, data) = v.filled(0, 2000, 4);
        let (there, here) = (v.memory(1, 2000), v.memory(0, 2000));
        for _ in 0..4 {
            let sges = [from.whole()];
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &there, 0));
            let sges = [here.whole()];
            v.send(0, &remote(2, WrOpcode::RdmaRead, &sges, &there, 0));
            v.sent_ok(0, 1);
            v.sent_ok(0, 2);
            assert!(v.bytes(&here) == data, "the bytes differ");
            v.arm.write(&here, 0, &[0; 2000]);
        }
    });
}

#[test]
fn a_read_is_scattered_over_its_list() {
    on_all(|v| {
        let (there, data) = v.filled(1, 3000, 5);
        let here = v.memory(0, 3000);
        let sges = [here.sge(2000..3000), here.sge(5..5), here.sge(0..2000)];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 0));
        v.sent_ok(0, 1);
        let got = v.bytes(&here);
        assert!(got[2000..] == data[..1000] && got[..2000] == data[1000..]);
    });
}

#[test]
fn a_read_of_no_bytes_needs_no_key() {
    on_all(|v| {
        let there = v.memory(1, 8);
        let mut wr = remote(1, WrOpcode::RdmaRead, &[], &there, 0);
        (wr.remote_addr, wr.rkey) = (3, wrong(there.rkey));
        v.send(0, &wr);
        v.sent_ok(0, 1);
    });
}

#[test]
fn reads_that_are_not_allowed_are_refused() {
    on_lossless(|v| {
        let here = v.memory(0, 64);
        let unreadable = v.memory_with(1, 64, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let open = v.memory(1, 64);
        let mut short = open;
        short.addr += 1;
        let foreign = v.foreign_memory(1, 64);
        let mut as_lkey = open;
        as_lkey.rkey = urxe::Rkey(open.lkey.0);
        for region in [unreadable, short, foreign, as_lkey] {
            let sges = [here.whole()];
            v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &region, 0));
            v.sent_fails(0, 1, Fault::NakRemoteAccess);
            assert_eq!(v.event(1), "QpAccessErr");
            v.reconnect();
        }
        assert_eq!(v.bytes(&here), [0; 64]);
    });
}

#[test]
fn a_read_into_memory_that_may_not_be_written_fails_here() {
    on_lossless(|v| {
        let there = v.memory(1, 64);
        let read_only = v.memory_with(0, 64, Access::NONE);
        let sges = [read_only.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 0));
        v.sent_fails(0, 1, Fault::LocalAccess);
    });
}

#[test]
fn a_qp_without_the_right_finds_the_request_invalid() {
    let access = Access(ALL.0 & !Access::REMOTE_READ.0);
    let setup = Setup {
        access,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 8));
        let sges = [here.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 0));
        v.sent_fails(0, 1, Fault::NakInvalidRequest);
        assert_eq!(v.event(1), "QpReqErr");
    });
}

#[test]
fn without_places_for_reads_one_never_starts() {
    let setup = Setup {
        rd_atomic: 0,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 8));
        let sges = [here.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaRead, &sges, &there, 0));
        v.send(0, &remote(2, WrOpcode::RdmaWrite, &sges, &there, 0));
        // Nothing overtakes it; it goes when the QP fails.
        v.pass_a_message(1);
        v.go(0, urxe::QpState::Err);
        v.sent_fails(0, 1, Fault::Flushed);
        v.sent_fails(0, 2, Fault::Flushed);
    });
}
