//! One-sided operations, and what protects memory from them.

use crate::common::{self, ALL, End, bytes, pair, pair_with, pattern};
use urxe::{Access, ConnectOptions, Mr, SendWr, Wc, WcOpcode, WcStatus};

fn run(end: &End, wr: SendWr<'_>) -> Wc {
    end.qp.post_send(&wr.signaled()).expect("room in the queue");
    end.complete()
}

#[test]
fn writes_and_reads_of_every_length() {
    let (a, b) = pair();
    let (local, remote) = (a.memory(100_000), b.memory(100_000));
    for len in [0, 1, 4, 7, 4095, 4096, 4097, 8192, 65_536, 65_537, 99_999] {
        let data = pattern(len as u64, len);
        local.write(0, &data);
        let wc = run(
            &a,
            SendWr::rdma_write(1, &[local.sge(..len)], remote.addr(), remote.rkey()),
        );
        assert_eq!(
            (wc.status, wc.opcode),
            (WcStatus::Success, WcOpcode::RdmaWrite)
        );
        assert!(bytes(&remote, len) == data, "WRITE of {len} bytes");

        let back = a.memory(len.max(1));
        let wc = run(
            &a,
            SendWr::rdma_read(2, &[back.sge(..len)], remote.addr(), remote.rkey()),
        );
        assert_eq!(
            (wc.status, wc.opcode),
            (WcStatus::Success, WcOpcode::RdmaRead)
        );
        assert_eq!(wc.byte_len as usize, len);
        assert!(bytes(&back, len) == data, "READ of {len} bytes");
    }
    assert_eq!(
        b.cq.poll(&mut [Wc::default()]).expect("polls"),
        0,
        "the target notices nothing"
    );
}

#[test]
fn many_reads_at_once_keep_their_order() {
    let (a, b) = pair();
    let remote = b.memory(64 * 5000);
    let data = pattern(4, remote.len());
    remote.write(0, &data);
    let local = a.memory(remote.len());
    for n in 0..64 {
        let (from, to) = (n * 5000, (n + 1) * 5000);
        let sges = [local.sge(from..to)];
        let wr = SendWr::rdma_read(n as u64, &sges, remote.addr() + from as u64, remote.rkey());
        a.qp.post_send(&wr.signaled()).expect("room");
    }
    for n in 0..64 {
        assert_eq!(a.succeed().wr_id, n);
    }
    assert!(bytes(&local, data.len()) == data, "the bytes differ");
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let (a, b) = pair();
    let (local, remote, empty) = (a.memory(5000), b.memory(5000), b.memory(1));
    let data = pattern(5, 5000);
    local.write(0, &data);
    b.qp.post_recv(&urxe::RecvWr::new(9, &[])).expect("room");
    let sges = [local.sge(..)];
    let wr = SendWr::rdma_write_with_imm(1, &sges, remote.addr(), remote.rkey(), 77);
    assert!(run(&a, wr).is_success());
    let wc = b.succeed();
    assert_eq!((wc.wr_id, wc.opcode), (9, WcOpcode::RecvRdmaWithImm));
    assert_eq!((wc.imm_data, wc.byte_len), (Some(77), 5000));
    assert!(bytes(&remote, 5000) == data, "the bytes differ");
    let _ = empty;
}

#[test]
fn atomics_return_what_was_there() {
    let (a, b) = pair();
    let (local, remote) = (a.memory(8), b.memory(16));
    remote.store_u64(8, 40);
    let (addr, rkey) = (remote.addr() + 8, remote.rkey());
    let sges = [local.sge(..)];

    assert!(run(&a, SendWr::atomic_fetch_add(1, &sges, addr, rkey, 2)).is_success());
    assert_eq!((local.load_u64(0), remote.load_u64(8)), (40, 42));
    assert!(run(&a, SendWr::atomic_cmp_swp(2, &sges, addr, rkey, 41, 7)).is_success());
    assert_eq!(
        (local.load_u64(0), remote.load_u64(8)),
        (42, 42),
        "41 is not there"
    );
    assert!(run(&a, SendWr::atomic_cmp_swp(3, &sges, addr, rkey, 42, 7)).is_success());
    assert_eq!((local.load_u64(0), remote.load_u64(8)), (42, 7));
    assert_eq!(remote.load_u64(0), 0, "the neighbour is untouched");
}

#[test]
fn concurrent_atomics_lose_nothing() {
    let target = End::open();
    let counter = target.memory(8);
    const EACH: u64 = 300;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let qp = target.pd.qp(&target.cq).create().expect("a QP");
            let counter = &counter;
            scope.spawn(move || {
                let end = End::open();
                common::connect(&end.qp, &qp, &ConnectOptions::default());
                let local = end.memory(8);
                for n in 0..EACH {
                    let sges = [local.sge(..)];
                    let wr = SendWr::atomic_fetch_add(n, &sges, counter.addr(), counter.rkey(), 1);
                    assert!(run(&end, wr).is_success());
                }
                drop(qp);
            });
        }
    });
    assert_eq!(counter.load_u64(0), 3 * EACH);
}

/// Each is refused by the check that is named, and the target's memory is unchanged.
#[test]
fn what_is_not_allowed_is_refused() {
    type Case = (
        &'static str,
        Access,
        Access,
        fn(&Mr) -> (u64, urxe::Rkey, usize),
        WcStatus,
    );
    let cases: [Case; 7] = [
        (
            "wrong key",
            ALL,
            ALL,
            |m| (m.addr(), urxe::Rkey(m.rkey().0 ^ 0x100), 8),
            WcStatus::RemAccessErr,
        ),
        (
            "lkey for rkey",
            ALL,
            ALL,
            |m| (m.addr(), urxe::Rkey(m.lkey().0), 8),
            WcStatus::RemAccessErr,
        ),
        (
            "before",
            ALL,
            ALL,
            |m| (m.addr() - 1, m.rkey(), 8),
            WcStatus::RemAccessErr,
        ),
        (
            "after",
            ALL,
            ALL,
            |m| (m.addr() + 57, m.rkey(), 8),
            WcStatus::RemAccessErr,
        ),
        (
            "region without REMOTE_WRITE",
            Access(1 | 4 | 8),
            ALL,
            |m| (m.addr(), m.rkey(), 8),
            WcStatus::RemAccessErr,
        ),
        (
            "QP without REMOTE_WRITE",
            ALL,
            Access(1 | 4 | 8),
            |m| (m.addr(), m.rkey(), 8),
            WcStatus::RemInvReqErr,
        ),
        (
            "wrapping address",
            ALL,
            ALL,
            |m| (u64::MAX - 3, m.rkey(), 8),
            WcStatus::RemAccessErr,
        ),
    ];
    for (name, region, qp, target, expected) in cases {
        let (a, b) = pair_with(&ConnectOptions {
            access: qp,
            ..ConnectOptions::default()
        });
        let local = a.memory(64);
        local.write(0, &[0xff; 64]);
        let remote = b.pd.reg_owned(vec![0; 64], region).expect("memory");
        let (addr, rkey, len) = target(&remote);
        let wc = run(&a, SendWr::rdma_write(1, &[local.sge(..len)], addr, rkey));
        assert_eq!(wc.status, expected, "{name}: {wc}");
        assert_eq!(bytes(&remote, 64), [0; 64], "{name}");
        assert_eq!(a.qp.state().expect("there"), urxe::QpState::Err, "{name}");
    }
}

#[test]
fn a_region_that_was_taken_back_is_out_of_reach() {
    let (a, b) = pair();
    let (local, remote) = (a.memory(8), b.memory(8));
    let (addr, rkey) = (remote.addr(), remote.rkey());
    let sges = [local.sge(..)];
    assert!(run(&a, SendWr::rdma_write(1, &sges, addr, rkey)).is_success());
    remote.dereg().expect("no window is bound");
    assert_eq!(
        run(&a, SendWr::rdma_write(2, &sges, addr, rkey)).status,
        WcStatus::RemAccessErr
    );
}

#[test]
fn every_kind_of_memory_can_be_a_target() {
    let (a, b) = pair();
    let local = a.memory(4096);
    let data = pattern(11, 4096);
    local.write(0, &data);
    let anonymous = memmap2::MmapMut::map_anon(4096).expect("memory");
    let mapped = b.pd.reg_mapped(anonymous, ALL).expect("memory");
    let sges = [local.sge(..)];
    assert!(
        run(
            &a,
            SendWr::rdma_write(1, &sges, mapped.addr(), mapped.rkey())
        )
        .is_success()
    );
    assert!(bytes(&mapped, 4096) == data, "the bytes differ");
}
