//! Compare-and-swap and fetch-and-add.

use urxe::{Access, Fault, WcOpcode, WrOpcode};

use crate::arm::{ALL, Region, Setup};
use crate::verbs::{Verbs, on_all, on_lossless, on_lossless_with, remote};

fn word(v: &Verbs, region: &Region) -> u64 {
    u64::from_ne_bytes(v.arm.read(region, 0, 8).try_into().expect("8 bytes"))
}

fn add(v: &mut Verbs, wr_id: u64, here: &Region, there: &Region, add: u64) {
    let sges = [here.sge(0..8)];
    let mut wr = remote(wr_id, WrOpcode::AtomicFetchAndAdd, &sges, there, 0);
    wr.compare_add = add;
    v.send(0, &wr);
}

fn swap(v: &mut Verbs, wr_id: u64, here: &Region, there: &Region, compare: u64, swap: u64) {
    let sges = [here.sge(0..8)];
    let mut wr = remote(wr_id, WrOpcode::AtomicCmpAndSwp, &sges, there, 0);
    (wr.compare_add, wr.swap) = (compare, swap);
    v.send(0, &wr);
}

#[test]
fn fetch_and_add_wraps_and_returns_what_was_there() {
    on_all(|v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 8));
        v.arm.write(&there, 0, &(u64::MAX - 4).to_ne_bytes());
        add(v, 1, &here, &there, 7);
        assert_eq!(v.sent_ok(0, 1).opcode, WcOpcode::FetchAdd);
        assert_eq!((word(v, &here), word(v, &there)), (u64::MAX - 4, 2));
        v.nothing_more();
    });
}

#[test]
fn compare_and_swap_swaps_only_what_it_expects_and_returns_what_was_there() {
    on_all(|v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 8));
        v.arm.write(&there, 0, &77u64.to_ne_bytes());
        swap(v, 1, &here, &there, 78, 100);
        assert_eq!(v.sent_ok(0, 1).opcode, WcOpcode::CompSwap);
        assert_eq!((word(v, &here), word(v, &there)), (77, 77));
        swap(v, 2, &here, &there, 77, 100);
        v.sent_ok(0, 2);
        assert_eq!((word(v, &here), word(v, &there)), (77, 100));
    });
}

#[test]
fn each_atomic_is_executed_once_however_often_it_is_sent() {
    on_all(|v| {
        let there = v.memory(1, 8);
        let here: Vec<_> = (0..32).map(|_| v.memory(0, 8)).collect();
        for (id, here) in (0..).zip(&here) {
            add(v, id, here, &there, 3);
        }
        for (id, here) in (0..).zip(&here) {
            v.sent_ok(0, id);
            assert_eq!(word(v, here), 3 * id, "atomic {id}");
        }
        assert_eq!(word(v, &there), 96);
    });
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    on_lossless(|v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 24));
        for offset in [1, 2, 4, 7] {
            let mut at = there;
            at.addr += offset;
            add(v, 1, &here, &at, 1);
            v.sent_fails(0, 1, Fault::NakInvalidRequest);
            assert_eq!(v.event(1), "QpReqErr");
            v.reconnect();
        }
        assert_eq!(v.bytes(&there), [0; 24]);
    });
}

#[test]
fn the_result_needs_exactly_eight_bytes_that_may_be_written() {
    on_lossless(|v| {
        let (here, there) = (v.memory(0, 16), v.memory(1, 8));
        let read_only = v.memory_with(0, 8, Access::NONE);
        for (sge, fault) in [
            (here.sge(0..4), Fault::MessageTooLong),
            (here.sge(0..9), Fault::MessageTooLong),
            (here.sge(0..0), Fault::MessageTooLong),
            (read_only.whole(), Fault::LocalAccess),
        ] {
            let sges = [sge];
            let mut wr = remote(1, WrOpcode::AtomicFetchAndAdd, &sges, &there, 0);
            wr.compare_add = 1;
            v.send(0, &wr);
            v.sent_fails(0, 1, fault);
            v.reconnect();
        }
        assert_eq!(word(v, &there), 0);
    });
}

#[test]
fn atomics_that_are_not_allowed_change_nothing() {
    on_lossless(|v| {
        let here = v.memory(0, 8);
        let plain = v.memory_with(1, 8, Access(ALL.0 & !Access::REMOTE_ATOMIC.0));
        let short = v.memory(1, 7);
        let foreign = v.foreign_memory(1, 8);
        for there in [plain, short, foreign] {
            add(v, 1, &here, &there, 1);
            v.sent_fails(0, 1, Fault::NakRemoteAccess);
            assert_eq!(v.event(1), "QpAccessErr");
            v.reconnect();
        }
        assert_eq!((v.bytes(&plain), v.bytes(&short)), (vec![0; 8], vec![0; 7]));
    });
}

#[test]
fn a_qp_without_the_right_finds_the_request_invalid() {
    let access = Access(ALL.0 & !Access::REMOTE_ATOMIC.0);
    let setup = Setup {
        access,
        ..Setup::default()
    };
    on_lossless_with(setup, |v| {
        let (here, there) = (v.memory(0, 8), v.memory(1, 8));
        swap(v, 1, &here, &there, 0, 1);
        v.sent_fails(0, 1, Fault::NakInvalidRequest);
        assert_eq!(word(v, &there), 0);
    });
}
