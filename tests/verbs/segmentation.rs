//! Messages and packets: MTUs, PSNs, windows.

use urxe::{Mtu, WrOpcode};

use crate::arm::Setup;
use crate::verbs::{on_all_with, remote, wr};

#[test]
fn every_mtu_cuts_and_joins_right() {
    for mtu in Mtu::ALL {
        let setup = Setup {
            mtu,
            ..Setup::default()
        };
        on_all_with(setup, |v| {
            let m = mtu.bytes() as usize;
            let (from, data) = v.filled(0, 5 * m + 3, 1);
            let (to, back) = (v.memory(1, from.len), v.memory(0, from.len));
            v.recv(1, 1, &[to.whole()]);
            let sges = [from.whole()];
            v.send(0, &wr(1, WrOpcode::Send, &sges));
            v.received_ok(1, 1);
            assert!(v.bytes(&to) == data, "sent at {mtu:?}");
            v.arm.write(&to, 0, &vec![0; to.len]);
            v.send(0, &remote(2, WrOpcode::RdmaWrite, &sges, &to, 0));
            let sges = [back.whole()];
            v.send(0, &remote(3, WrOpcode::RdmaRead, &sges, &to, 0));
            for id in 1..4 {
                v.sent_ok(0, id);
            }
            assert!(v.bytes(&to) == data, "written at {mtu:?}");
            assert!(v.bytes(&back) == data, "read at {mtu:?}");
        });
    }
}

#[test]
fn psns_wrap_at_every_place_in_a_message() {
    for before in 0..6 {
        let setup = Setup {
            psn: [(0x100_0000 - before) & 0xff_ffff, 0],
            mtu: Mtu::Mtu256,
            ..Setup::default()
        };
        on_all_with(setup, |v| {
            let (from, data) = v.filled(0, 1100, 2);
            let (to, back) = (v.memory(1, 1100), v.memory(0, 1100));
            let sges = [from.whole()];
            v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 0));
            let sges = [back.whole()];
            v.send(0, &remote(2, WrOpcode::RdmaRead, &sges, &to, 0));
            v.sent_ok(0, 1);
            v.sent_ok(0, 2);
            assert!(v.bytes(&back) == data, "{before} before the wrap");
        });
    }
}

#[test]
fn messages_longer_than_any_window() {
    on_all_with(Setup::default(), |v| {
        const LEN: usize = 600_000;
        let (from, data) = v.filled(0, LEN, 3);
        let (to, back) = (v.memory(1, LEN), v.memory(0, LEN));
        v.recv(1, 1, &[to.whole()]);
        let sges = [from.whole()];
        v.send(0, &wr(1, WrOpcode::Send, &sges));
        v.received_ok(1, 1);
        v.sent_ok(0, 1);
        assert!(v.bytes(&to) == data, "sent");
        let sges = [back.whole()];
        v.send(0, &remote(2, WrOpcode::RdmaRead, &sges, &to, 0));
        v.sent_ok(0, 2);
        assert!(v.bytes(&back) == data, "read");
    });
}
