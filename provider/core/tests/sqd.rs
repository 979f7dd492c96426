//! The send queue drains: what was started ends, nothing new starts, attributes change,
//! and everything goes on.

use crate::support::*;
use urxe_core::Time;
use urxe_core::error::WcStatus;
use urxe_core::event::AsyncEvent;
use urxe_core::qp::attr::{AddressVector, AttrMask, QpAttr};
use urxe_core::qp::state::{ModifyError, QpState};
use urxe_core::work::{SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::Packet;

fn post(p: &mut Pair, wr_id: u64, opcode: WrOpcode, len: u32) {
    let sges = [Sge {
        addr: IOVA + 0x8000,
        length: len,
        lkey: p.nodes[0].keys.lkey,
    }];
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
    wr.flags = SendFlags::SIGNALED;
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1].keys.rkey;
    p.post_send(0, &wr);
}

fn modify(p: &mut Pair, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
    let (now, qp) = (p.now, p.nodes[0].qp);
    p.nodes[0].with_env(now, |s, env| s.modify_qp(qp, attr, mask, env))
}

fn to(qp_state: QpState) -> QpAttr {
    QpAttr {
        qp_state,
        ..QpAttr::default()
    }
}

fn drained_events(p: &mut Pair) -> usize {
    let events = std::iter::from_fn(|| p.nodes[0].shard.poll_event());
    events
        .filter(|event| matches!(event, AsyncEvent::SqDrained(_)))
        .count()
}

fn done(p: &mut Pair) -> Vec<u64> {
    let cqes = p.nodes[0].take(SEND_CQ);
    assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success));
    cqes.iter().map(|cqe| cqe.wr_id).collect()
}

#[test]
fn drains_what_is_under_way_and_tells_when_it_is() {
    let mut p = Pair::new(&Settings::default(), 1);
    // The first packets of a long message and of a READ are under way, one of them lost.
    let mut lost = false;
    p.filter = Some(Box::new(move |from, bytes| {
        let bth = Packet::parse(bytes).expect("a packet").bth();
        let hit = from == 0 && bth.psn.get() == 0x102 && !lost;
        lost |= hit;
        if hit { Verdict::Drop } else { Verdict::Pass }
    }));
    post(&mut p, 1, WrOpcode::RdmaWrite, 256 * 8);
    post(&mut p, 2, WrOpcode::RdmaRead, 256 * 4);
    p.transmit();
    let notify = QpAttr {
        en_sqd_async_notify: true,
        ..to(QpState::Sqd)
    };
    modify(
        &mut p,
        &notify,
        AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY,
    )
    .expect("RTS to SQD");
    assert_eq!(drained_events(&mut p), 0, "two are under way");
    // Posted while draining: waits.
    post(&mut p, 3, WrOpcode::RdmaWrite, 8);
    let early = modify(&mut p, &to(QpState::Rts), AttrMask::STATE);
    assert_eq!(early, Err(ModifyError::Draining));
    assert_eq!(p.nodes[0].state(), QpState::Sqd);
    p.run();
    assert_eq!(
        done(&mut p),
        [1, 2],
        "what was started ended, retransmissions too"
    );
    assert_eq!(drained_events(&mut p), 1);
    p.run();
    assert_eq!((done(&mut p).len(), drained_events(&mut p)), (0, 0));
    modify(&mut p, &to(QpState::Rts), AttrMask::STATE).expect("drained");
    p.run();
    assert_eq!(done(&mut p), [3]);
}

#[test]
fn an_idle_queue_is_drained_at_once_and_without_the_wish_nothing_is_told() {
    let mut p = Pair::new(&Settings::default(), 1);
    let notify = QpAttr {
        en_sqd_async_notify: true,
        ..to(QpState::Sqd)
    };
    modify(
        &mut p,
        &notify,
        AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY,
    )
    .expect("RTS to SQD");
    assert_eq!(drained_events(&mut p), 1);
    let mut p = Pair::new(&Settings::default(), 1);
    modify(&mut p, &to(QpState::Sqd), AttrMask::STATE).expect("RTS to SQD");
    assert_eq!(drained_events(&mut p), 0);
}

/// Requests of the peer are answered as ever, and errors end the QP from here too.
#[test]
fn the_receive_side_goes_on_and_errors_count() {
    let mut p = Pair::new(&Settings::default(), 1);
    modify(&mut p, &to(QpState::Sqd), AttrMask::STATE).expect("RTS to SQD");
    let sges = [Sge {
        addr: IOVA,
        length: 600,
        lkey: p.nodes[1].keys.lkey,
    }];
    let mut wr = SendWr::new(9, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    wr.flags = SendFlags::SIGNALED;
    (wr.remote_addr, wr.rkey) = (IOVA + 0x3000, p.nodes[0].keys.rkey);
    p.post_send(1, &wr);
    p.run();
    assert_eq!(p.nodes[1].take(SEND_CQ)[0].status, WcStatus::Success);
    post(&mut p, 1, WrOpcode::RdmaWrite, 8);
    modify(&mut p, &to(QpState::Err), AttrMask::STATE).expect("from everywhere");
    let cqes = p.nodes[0].take(SEND_CQ);
    assert_eq!(cqes[0].status, WcStatus::WrFlushErr);
}

#[test]
fn attributes_change_while_drained() {
    let settings = Settings {
        rd_atomic: 1,
        ..Settings::default()
    };
    let mut p = Pair::new(&settings, 1);
    modify(&mut p, &to(QpState::Sqd), AttrMask::STATE).expect("RTS to SQD");
    let (local, remote) = (p.nodes[0].addr, p.nodes[1].addr);
    let attr = QpAttr {
        ah_attr: Some(AddressVector {
            local,
            remote,
            traffic_class: 0x68,
            hop_limit: 7,
        }),
        timeout: 12,
        retry_cnt: 1,
        rnr_retry: 2,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 5,
        min_rnr_timer: 9,
        ..to(QpState::Sqd)
    };
    let mask = AttrMask::AV
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::MAX_QP_RD_ATOMIC
        | AttrMask::MAX_DEST_RD_ATOMIC
        | AttrMask::MIN_RNR_TIMER;
    modify(&mut p, &attr, mask | AttrMask::STATE).expect("SQD to SQD");
    let (now, _) = p.nodes[0].shard.query_qp(p.nodes[0].qp).expect("there");
    assert_eq!(
        (
            now.ah_attr,
            now.timeout,
            now.retry_cnt,
            now.max_dest_rd_atomic
        ),
        (attr.ah_attr, 12, 1, 5)
    );
    // What may not change in SQD is refused as a whole.
    let refused = modify(&mut p, &attr, AttrMask::AV | AttrMask::PATH_MTU);
    assert!(
        matches!(refused, Err(ModifyError::Excess { .. })),
        "{refused:?}"
    );
    modify(&mut p, &to(QpState::Rts), AttrMask::STATE).expect("drained");

    // The new traffic class is in use.
    post(&mut p, 1, WrOpcode::RdmaWrite, 8);
    let now = p.now;
    let mut batch = urxe_core::transmit::TxBatch::new(64 << 10, settings.limits);
    let more = p.nodes[0].with_env(now, |s, env| {
        s.poll_transmit(env, &mut batch, urxe_core::AckMode::Now)
    });
    assert!(!more);
    assert_eq!(batch.runs()[0].dest.tos, 0x68);
    // So are retry_cnt and timeout: that packet is lost, and so is everything after it.
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    p.run();
    let cqe = p.nodes[0].take(SEND_CQ)[0];
    assert_eq!(cqe.status, WcStatus::RetryExcErr);
    assert!(p.now > Time::ZERO);
    let detail = p.nodes[0].shard.last_error(p.nodes[0].qp).expect("failed");
    assert!(
        detail.found.contains("2 times (timeout 12, retry_cnt 1)"),
        "{detail}"
    );
}

/// The peer may have as many READs outstanding as SQD's new limit says.
#[test]
fn a_larger_max_dest_rd_atomic_is_granted() {
    let settings = Settings {
        rd_atomic: 1,
        ..Settings::default()
    };
    let mut p = Pair::new(&settings, 1);
    let more = |p: &mut Pair, side: usize, attr: &QpAttr, mask| {
        let (now, qp) = (p.now, p.nodes[side].qp);
        let node = &mut p.nodes[side];
        node.with_env(now, |s, env| {
            s.modify_qp(qp, &to(QpState::Sqd), AttrMask::STATE, env)
        })
        .expect("RTS to SQD");
        node.with_env(now, |s, env| s.modify_qp(qp, attr, mask, env))
            .expect("SQD to SQD");
        node.with_env(now, |s, env| {
            s.modify_qp(qp, &to(QpState::Rts), AttrMask::STATE, env)
        })
        .expect("SQD to RTS");
    };
    let attr = QpAttr {
        max_rd_atomic: 3,
        max_dest_rd_atomic: 3,
        ..QpAttr::default()
    };
    more(&mut p, 1, &attr, AttrMask::MAX_DEST_RD_ATOMIC);
    more(&mut p, 0, &attr, AttrMask::MAX_QP_RD_ATOMIC);
    for n in 0..3 {
        post(&mut p, n, WrOpcode::AtomicFetchAndAdd, 8);
    }
    p.run();
    assert_eq!(done(&mut p), [0, 1, 2]);
}
