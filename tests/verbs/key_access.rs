//! Keys: what they belong to, what they open, how they end.

use urxe::{Access, Fault, RegisterError, WrOpcode};

use crate::arm::{Domain, Setup};
use crate::verbs::{on_all, on_lossless, on_wire_with, remote, wr};

#[test]
fn remote_rights_that_write_need_local_write() {
    on_lossless(|v| {
        for access in [
            Access::REMOTE_WRITE,
            Access::REMOTE_ATOMIC,
            Access::REMOTE_WRITE | Access::REMOTE_READ,
        ] {
            let result = v.arm.register(0, Domain::Own, 8, access);
            assert!(
                matches!(result, Err(RegisterError::RemoteWithoutLocalWrite)),
                "{access:?}: {result:?}"
            );
        }
        for access in [Access::NONE, Access::REMOTE_READ, Access::LOCAL_WRITE] {
            v.memory_with(0, 8, access);
        }
    });
}

#[test]
fn an_lkey_is_never_the_rkey() {
    on_lossless(|v| {
        for _ in 0..50 {
            let region = v.memory(0, 8);
            assert_ne!(region.lkey.0, region.rkey.0);
        }
    });
}

#[test]
fn keys_are_not_given_out_again_soon() {
    on_lossless(|v| {
        let mut seen = std::collections::BTreeSet::new();
        // A place has 64 generations; after that a key may come again, by chance.
        for _ in 0..60 {
            let region = v.memory(0, 8);
            assert!(seen.insert(region.rkey.0) && seen.insert(region.lkey.0));
            v.arm.deregister(&region);
        }
    });
}

#[test]
fn a_send_may_take_a_key_back_that_was_lent_for_it() {
    on_lossless(|v| {
        let (from, _) = v.filled(0, 2000, 1);
        let (to, lent, kept) = (v.memory(1, 2000), v.memory(1, 8), v.memory(1, 8));
        v.arm.allow_invalidate(&lent);
        for id in 0..3 {
            v.recv(1, id, &[to.whole()]);
        }
        let sges = [from.whole()];
        let mut inv = wr(0, WrOpcode::SendWithInv, &sges);
        inv.rkey = lent.rkey;
        v.send(0, &inv);
        let wc = v.received_ok(1, 0);
        assert_eq!((wc.invalidated_rkey, wc.imm_data), (Some(lent.rkey), None));
        v.sent_ok(0, 0);
        // The lkey goes on to work, other keys too.
        let sges = [lent.whole()];
        v.send(1, &remote(1, WrOpcode::RdmaWrite, &sges, &from, 0));
        v.sent_ok(1, 1);
        let sges = [from.sge(0..8)];
        v.send(0, &remote(2, WrOpcode::RdmaWrite, &sges, &kept, 0));
        v.sent_ok(0, 2);
        v.send(0, &remote(3, WrOpcode::RdmaWrite, &sges, &lent, 0));
        v.sent_fails(0, 3, Fault::NakRemoteAccess);
        assert_eq!(v.bytes(&lent), [0; 8]);
    });
}

#[test]
fn a_key_that_was_not_lent_stays_and_the_send_fails() {
    on_lossless(|v| {
        let (to, kept) = (v.memory(1, 8), v.memory(1, 8));
        let (from, _) = v.filled(0, 8, 2);
        v.recv(1, 1, &[to.whole()]);
        let sges = [from.whole()];
        let mut inv = wr(1, WrOpcode::SendWithInv, &sges);
        inv.rkey = kept.rkey;
        v.send(0, &inv);
        v.sent_fails(0, 1, Fault::NakRemoteAccess);
        v.received_fails(1, 1, Fault::ResponderAccess);
        v.reconnect();
        v.send(0, &remote(2, WrOpcode::RdmaWrite, &sges, &kept, 0));
        v.sent_ok(0, 2);
    });
}

#[test]
fn a_region_taken_back_under_way_fails_the_rest() {
    on_wire_with(Setup::default(), |v| {
        let (from, _) = v.filled(0, 600_000, 3);
        let to = v.memory(1, 600_000);
        let sges = [from.whole()];
        v.send(0, &remote(1, WrOpcode::RdmaWrite, &sges, &to, 0));
        v.arm.advance();
        v.arm.deregister(&to);
        v.sent_fails(0, 1, Fault::NakRemoteAccess);
        assert_eq!(v.event(1), "QpAccessErr");
    });
}

#[test]
fn a_key_works_until_its_region_is_taken_back() {
    on_all(|v| {
        let (from, data) = v.filled(0, 500, 4);
        let sges = [from.whole()];
        for id in 0..10 {
            let to = v.memory(1, 500);
            v.send(0, &remote(id, WrOpcode::RdmaWrite, &sges, &to, 0));
            v.sent_ok(0, id);
            assert!(v.bytes(&to) == data);
            v.arm.deregister(&to);
        }
    });
}
