//! BIND_MW and LOCAL_INV as work requests: their order, their completions, their failures.

use crate::support::{IOVA, PD, Pair, RECV_CQ, SEND_CQ, Settings};
use urxe_core::cq::WcOpcode;
use urxe_core::error::{Fault, WcStatus};
use urxe_core::mr::{Access, BindMw, MrInit, MrKeys, MwType, inc_rkey};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::work::{PostError, RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::Rkey;

/// Where the region that windows are bound to begins.
const PART: u64 = 0x8000;

fn sge(pair: &Pair, side: usize, at: u64, length: u32) -> Sge {
    let lkey = pair.nodes[side].keys.lkey;
    Sge {
        addr: IOVA + at,
        length,
        lkey,
    }
}

/// A region at the first node that takes windows.
fn bindable(pair: &mut Pair) -> MrKeys {
    let init = MrInit {
        pd: PD,
        access: Access(0xf) | Access::MW_BIND,
        host_addr: PART,
        iova: PART,
        len: 0x4_0000,
        remote_invalidate: false,
    };
    pair.nodes[0].mrs.register(init).expect("fits")
}

fn window(pair: &mut Pair, mw_type: MwType) -> Rkey {
    pair.nodes[0].mrs.alloc_mw(PD, mw_type).expect("fits")
}

fn bind(keys: MrKeys) -> BindMw {
    BindMw {
        lkey: keys.lkey,
        addr: PART + 0x100,
        length: 0x100,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ,
    }
}

fn write<'a>(wr_id: u64, sges: &'a [Sge], addr: u64, rkey: Rkey) -> SendWr<'a> {
    let mut wr = SendWr::new(wr_id, WrOpcode::RdmaWrite, WrData::Sges(sges));
    (wr.remote_addr, wr.rkey) = (addr, rkey);
    wr
}

fn outcomes(pair: &mut Pair, side: usize) -> Vec<(u64, WcStatus)> {
    let cqes = pair.nodes[side].take(SEND_CQ);
    cqes.iter().map(|cqe| (cqe.wr_id, cqe.status)).collect()
}

#[test]
fn a_peer_reaches_what_a_window_shows_and_no_more() {
    for mw_type in [MwType::Type1, MwType::Type2] {
        let mut pair = Pair::new(&Settings::default(), 1);
        let keys = bindable(&mut pair);
        let rkey = inc_rkey(window(&mut pair, mw_type));
        pair.post_send(0, &SendWr::bind_mw(1, rkey, &bind(keys)));
        pair.run();
        let cqes = pair.nodes[0].take(SEND_CQ);
        assert_eq!(
            (cqes.len(), cqes[0].wr_id, cqes[0].status),
            (1, 1, WcStatus::Success)
        );
        assert_eq!(cqes[0].opcode, WcOpcode::BindMw);

        pair.nodes[1].memory.write(0, &[7; 0x100]);
        let data = [sge(&pair, 1, 0, 0x100)];
        pair.post_send(1, &write(2, &data, PART + 0x100, rkey));
        pair.run();
        assert_eq!(outcomes(&mut pair, 1), [(2, WcStatus::Success)]);
        assert_eq!(pair.nodes[0].memory.read(PART + 0x100, 0x100), [7; 0x100]);
        pair.post_send(1, &write(3, &data, PART + 0x101, rkey));
        pair.run();
        assert_eq!(outcomes(&mut pair, 1), [(3, WcStatus::RemAccessErr)]);
        assert_eq!(pair.nodes[0].state(), QpState::Err);
    }
}

#[test]
fn binds_and_invalidations_keep_the_order_of_the_queue() {
    let mut pair = Pair::new(&Settings::default(), 2);
    let keys = bindable(&mut pair);
    let free = window(&mut pair, MwType::Type2);
    let (first, second) = (inc_rkey(free), inc_rkey(inc_rkey(free)));
    let (data, landing) = ([sge(&pair, 0, 0, 3000)], [sge(&pair, 1, 0, 3000)]);
    for wr_id in [10, 11] {
        pair.post_recv(
            1,
            &RecvWr {
                wr_id,
                sges: &landing,
            },
        );
    }
    let read_into = [sge(&pair, 0, 0x4000, 3000)];
    let mut read = SendWr::new(2, WrOpcode::RdmaRead, WrData::Sges(&read_into));
    (read.remote_addr, read.rkey) = (IOVA, pair.nodes[1].keys.rkey);
    let send = |wr_id| SendWr::new(wr_id, WrOpcode::Send, WrData::Sges(&data));
    for wr in [
        send(1),
        read,
        SendWr::bind_mw(3, first, &bind(keys)),
        SendWr::local_inv(4, first),
        SendWr::bind_mw(5, second, &bind(keys)),
        send(6),
    ] {
        pair.post_send(0, &wr);
    }
    assert_eq!(
        pair.nodes[0].mrs.windows_of(keys.lkey),
        0,
        "the SEND is not complete"
    );
    pair.run();
    let done: Vec<_> = (1..=6).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(outcomes(&mut pair, 0), done);
    assert_eq!(pair.nodes[1].take(RECV_CQ).len(), 2);
    assert_eq!(pair.nodes[0].mrs.windows_of(keys.lkey), 1);
    // The first key died when it was taken back, the second lives.
    let word = [sge(&pair, 1, 0, 8)];
    pair.post_send(1, &write(7, &word, PART + 0x100, second));
    pair.run();
    assert_eq!(outcomes(&mut pair, 1), [(7, WcStatus::Success)]);
    pair.post_send(1, &write(8, &word, PART + 0x100, first));
    pair.run();
    assert_eq!(outcomes(&mut pair, 1), [(8, WcStatus::RemAccessErr)]);
}

#[test]
fn unsignaled_binds_complete_in_silence() {
    let mut pair = Pair::new(&Settings::default(), 3);
    let keys = bindable(&mut pair);
    let rkey = inc_rkey(window(&mut pair, MwType::Type1));
    let mut wr = SendWr::bind_mw(1, rkey, &bind(keys));
    wr.flags = SendFlags::NONE;
    pair.post_send(0, &wr);
    pair.run();
    assert_eq!(outcomes(&mut pair, 0), []);
    assert_eq!(pair.nodes[0].mrs.windows_of(keys.lkey), 1);
}

#[test]
fn a_failed_bind_is_a_bind_error_and_the_end_of_the_qp() {
    let mut pair = Pair::new(&Settings::default(), 4);
    let keys = pair.nodes[0].keys;
    let rkey = inc_rkey(window(&mut pair, MwType::Type1));
    let not_bindable = BindMw {
        addr: IOVA,
        ..bind(keys)
    };
    pair.post_send(0, &SendWr::bind_mw(1, rkey, &not_bindable));
    let data = [sge(&pair, 0, 0, 8)];
    pair.post_send(0, &SendWr::new(2, WrOpcode::Send, WrData::Sges(&data)));
    pair.run();
    let cqes = pair.nodes[0].take(SEND_CQ);
    assert_eq!(
        (cqes[0].status, cqes[0].fault),
        (WcStatus::MwBindErr, Fault::WindowBind)
    );
    assert_eq!(cqes[1].status, WcStatus::WrFlushErr);
    assert_eq!(pair.nodes[0].state(), QpState::Err);
    let detail = pair.nodes[0].shard.last_error(pair.nodes[0].qp);
    let found = &detail.expect("it failed").found;
    assert!(found.contains("MW_BIND"), "{found}");
}

#[test]
fn a_failed_invalidation_is_an_operation_error() {
    for which in ["type 1", "free", "region"] {
        let mut pair = Pair::new(&Settings::default(), 5);
        let keys = bindable(&mut pair);
        let rkey = match which {
            "type 1" => {
                let rkey = inc_rkey(window(&mut pair, MwType::Type1));
                pair.post_send(0, &SendWr::bind_mw(1, rkey, &bind(keys)));
                rkey
            }
            "free" => window(&mut pair, MwType::Type2),
            _ => keys.rkey,
        };
        pair.post_send(0, &SendWr::local_inv(2, rkey));
        pair.run();
        let last = pair.nodes[0].take(SEND_CQ).pop().expect("completes");
        assert_eq!(
            (last.wr_id, last.status),
            (2, WcStatus::LocQpOpErr),
            "{which}"
        );
        assert_eq!(last.fault, Fault::LocalInvalidate);
    }
}

#[test]
fn a_peer_takes_a_window_back_by_its_own_qp() {
    let mut pair = Pair::new(&Settings::default(), 6);
    let keys = bindable(&mut pair);
    let rkey = inc_rkey(window(&mut pair, MwType::Type2));
    pair.post_send(0, &SendWr::bind_mw(1, rkey, &bind(keys)));
    pair.run();
    let landing = [sge(&pair, 0, 0, 64)];
    for wr_id in [5, 6] {
        pair.post_recv(
            0,
            &RecvWr {
                wr_id,
                sges: &landing,
            },
        );
    }
    let data = [sge(&pair, 1, 0, 16)];
    let send_inv = |wr_id| {
        let mut wr = SendWr::new(wr_id, WrOpcode::SendWithInv, WrData::Sges(&data));
        wr.rkey = rkey;
        wr
    };
    pair.post_send(1, &send_inv(2));
    pair.run();
    let cqes = pair.nodes[0].take(RECV_CQ);
    assert_eq!((cqes[0].wr_id, cqes[0].invalidated), (5, Some(rkey)));
    assert_eq!(pair.nodes[0].mrs.windows_of(keys.lkey), 0);
    // It is free: the next bind takes another key. A second invalidation is refused.
    pair.post_send(0, &SendWr::bind_mw(3, inc_rkey(rkey), &bind(keys)));
    pair.run();
    assert_eq!(
        outcomes(&mut pair, 0),
        [(1, WcStatus::Success), (3, WcStatus::Success)]
    );
    pair.post_send(1, &send_inv(4));
    pair.run();
    assert_eq!(
        outcomes(&mut pair, 1).pop(),
        Some((4, WcStatus::RemAccessErr))
    );
}

#[test]
fn a_write_of_many_packets_dies_with_its_window() {
    let mut pair = Pair::new(&Settings::default(), 7);
    let keys = bindable(&mut pair);
    let rkey = inc_rkey(window(&mut pair, MwType::Type2));
    let large = BindMw {
        addr: PART,
        length: 0x4_0000,
        ..bind(keys)
    };
    pair.post_send(0, &SendWr::bind_mw(1, rkey, &large));
    pair.run();
    let data = [sge(&pair, 1, 0, 0x4_0000)];
    pair.post_send(1, &write(2, &data, PART, rkey));
    pair.nodes[1].memory.write(0, &[7; 0x4_0000]);
    // Until the first packets are there.
    while pair.nodes[0].memory.read(PART, 1) == [0] {
        assert!(pair.step(), "it never arrives");
    }
    assert_eq!(
        pair.nodes[0].memory.read(PART + 0x3_ffff, 1),
        [0],
        "all is there"
    );
    pair.nodes[0].mrs.invalidate(rkey);
    pair.run();
    assert_eq!(outcomes(&mut pair, 1), [(2, WcStatus::RemAccessErr)]);
}

#[test]
fn unreliable_connections_have_windows_too() {
    let settings = Settings {
        qp_type: QpType::Uc,
        ..Settings::default()
    };
    let mut pair = Pair::new(&settings, 9);
    let keys = bindable(&mut pair);
    let rkey = inc_rkey(window(&mut pair, MwType::Type2));
    pair.post_send(0, &SendWr::bind_mw(1, rkey, &bind(keys)));
    pair.run();
    assert_eq!(outcomes(&mut pair, 0), [(1, WcStatus::Success)]);
    pair.nodes[1].memory.write(0, &[7; 8]);
    let data = [sge(&pair, 1, 0, 8)];
    pair.post_send(1, &write(2, &data, PART + 0x100, rkey));
    pair.run();
    assert_eq!(pair.nodes[0].memory.read(PART + 0x100, 8), [7; 8]);
    pair.post_send(0, &SendWr::local_inv(3, rkey));
    pair.run();
    assert_eq!(outcomes(&mut pair, 0), [(3, WcStatus::Success)]);
    pair.post_send(1, &write(4, &data, PART + 0x108, rkey));
    pair.run();
    assert_eq!(
        pair.nodes[0].memory.read(PART + 0x108, 8),
        [0; 8],
        "dropped"
    );
    // The key is dead: to take it back again is the request's fault, and stops the queue.
    pair.post_send(0, &SendWr::local_inv(5, rkey));
    pair.run();
    assert_eq!(outcomes(&mut pair, 0), [(5, WcStatus::LocQpOpErr)]);
    assert_eq!(pair.nodes[0].state(), QpState::Sqe);
}

#[test]
fn requests_that_send_nothing_have_no_data() {
    let mut pair = Pair::new(&Settings::default(), 8);
    let (qp, data) = (pair.nodes[0].qp, [sge(&pair, 0, 0, 8)]);
    for data in [WrData::Sges(&data), WrData::Inline(b"x")] {
        let wr = SendWr {
            data,
            ..SendWr::local_inv(1, Rkey(5))
        };
        let posted = pair.nodes[0].with_env(urxe_core::Time::ZERO, |shard, env| {
            shard.post_send(qp, &wr, env)
        });
        assert_eq!(posted, Err(PostError::LocalData));
    }
}
