//! Congestion control: rates and windows are kept, marks are answered, and nothing else
//! about a connection changes.

use crate::script::*;
use crate::support::*;
use urxe_core::congestion::{CongestionControl, CongestionError, DcqcnParams, DelayParams, Rate};
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::{AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_core::{AckMode, RxPath, Time};

const MESSAGE: u32 = 512 << 10;
/// What 1 MTU of 1024 bytes fills of a link: BTH, ICRC, UDP, IPv4 and an Ethernet frame.
const FRAME: u64 = 1024 + 16 + 66;

fn settings() -> Settings {
    Settings {
        mtu: Mtu::Mtu1024,
        memory: 2 << 20,
        window_bytes: 8 << 20,
        ..Settings::default()
    }
}

fn control(p: &mut Pair, side: usize, control: CongestionControl) {
    let (qp, now) = (p.nodes[side].qp, p.now);
    p.nodes[side]
        .shard
        .set_congestion_control(qp, control, now)
        .expect("sensible parameters");
}

fn dcqcn(gbps: u64) -> CongestionControl {
    CongestionControl::Dcqcn(DcqcnParams::at(Rate::from_gbps(gbps)))
}

/// Runs until the first request of `side` is complete; when that was.
fn completed_at(p: &mut Pair, side: usize) -> u64 {
    loop {
        if let Some(&(_, status)) = statuses(p, side).first() {
            assert_eq!(status, WcStatus::Success);
            return p.now.0;
        }
        assert!(p.step(), "something is left to happen");
    }
}

/// Posts a WRITE of side 1.
fn post_back(p: &mut Pair, wr_id: u64, len: u32) {
    let sges = [sge(p, 1, 0x8000, len)];
    let mut wr = SendWr::new(wr_id, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[0].keys.rkey;
    wr.flags = SendFlags::SIGNALED;
    p.post_send(1, &wr);
}

fn count(p: &Pair, side: usize, name: &str) -> u64 {
    let mut counters = p.nodes[side].shard.stats().iter();
    counters.find(|(n, _)| *n == name).expect("a counter").1
}

#[test]
fn a_rate_is_kept_by_requests() {
    let mut p = Pair::new(&settings(), 1);
    control(&mut p, 0, dcqcn(1));
    post(&mut p, 1, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0);
    let packets = u64::from(MESSAGE / 1024);
    let expected = packets * FRAME * 8;
    // The first packet has a RETH more; the last one waits for nothing after it.
    assert!(
        (expected - FRAME * 8..expected + 5_000).contains(&took),
        "{took} ns, not {expected}"
    );
}

#[test]
fn a_rate_is_kept_by_read_responses() {
    let mut p = Pair::new(&settings(), 1);
    control(&mut p, 1, dcqcn(1));
    post(&mut p, 1, WrOpcode::RdmaRead, MESSAGE, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0);
    let expected = u64::from(MESSAGE / 1024) * FRAME * 8;
    assert!(
        (expected - FRAME * 8..expected * 101 / 100).contains(&took),
        "{took} ns, not {expected}"
    );
}

#[test]
fn no_more_is_under_way_than_the_window_allows() {
    let mut p = Pair::new(&settings(), 1);
    control(
        &mut p,
        0,
        CongestionControl::Window {
            bytes: 5 * 1024 + 1023,
        },
    );
    post(&mut p, 1, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    p.transmit();
    assert_eq!(p.sent, [5, 0]);
    // Five packets in a round trip of 2 us.
    let took = completed_at(&mut p, 0);
    assert_eq!(took, u64::from(MESSAGE / 1024).div_ceil(5) * 2_000);
}

#[test]
fn marked_packets_are_answered_and_slow_the_sender_down() {
    let mut p = Pair::new(&settings(), 1);
    control(&mut p, 0, dcqcn(1));
    p.faults.congest = 1000;
    post(&mut p, 1, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0);
    let (sent, received) = (count(&p, 1, "sent_cnp"), count(&p, 0, "rcvd_cnp"));
    // At most one in 50 us, and every one arrives.
    assert!(
        (2..=took / 50_000 + 1).contains(&sent),
        "{sent} in {took} ns"
    );
    assert_eq!(sent, received);
    let unhindered = u64::from(MESSAGE / 1024) * FRAME * 8;
    assert!(took > 3 * unhindered, "{took} ns with {sent} notifications");
}

#[test]
fn marks_are_answered_by_a_receiver_without_control_and_ignored_by_such_a_sender() {
    let mut p = Pair::new(&settings(), 1);
    p.faults.congest = 1000;
    post(&mut p, 1, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0);
    assert!(count(&p, 0, "rcvd_cnp") >= 1);
    assert!(took < 100_000, "{took} ns: as if nothing was");
    assert_eq!(count(&p, 0, "retransmitted_pkts"), 0);
}

/// Side 1 sends a big message at 10 Mbit/s, a packet in 0.9 ms, and has begun.
fn busy_and_slow() -> Pair {
    let mut p = Pair::new(&settings(), 1);
    let slow = DcqcnParams {
        min_rate: Rate::from_bps(1_000_000),
        ..DcqcnParams::at(Rate::from_bps(10_000_000))
    };
    control(&mut p, 1, CongestionControl::Dcqcn(slow));
    post_back(&mut p, 7, 64 << 10);
    for _ in 0..10 {
        p.step();
    }
    p
}

#[test]
fn acknowledgements_are_not_held_back() {
    let mut p = busy_and_slow();
    let begin = p.now.0;
    post(&mut p, 1, WrOpcode::RdmaWrite, 64, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0) - begin;
    assert_eq!(took, 2_000, "one round trip");
    assert!(statuses(&mut p, 1).is_empty(), "the big one still goes on");
}

#[test]
fn negative_acknowledgements_are_not_held_back() {
    let mut p = busy_and_slow();
    let begin = p.now.0;
    lose(&mut p, 0, 1);
    post(&mut p, 1, WrOpcode::RdmaWrite, 3072, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0) - begin;
    assert_eq!(took, 4_000, "two round trips: no timeout");
    assert_eq!(count(&p, 0, "rcvd_seq_err"), 1);
    assert!(statuses(&mut p, 1).is_empty(), "the big one still goes on");
}

/// The type of service of all packets that a node would send now, and their lengths.
fn sent_tos(p: &mut Pair, side: usize) -> Vec<(u8, usize)> {
    let now = p.now;
    let mut batch = TxBatch::new(64 << 10, RunLimits::SINGLE);
    let _ = p.nodes[side].with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
    let runs = batch.runs().iter();
    runs.map(|run| (run.dest.tos, run.range.len())).collect()
}

#[test]
fn packets_say_that_they_can_be_marked_and_notifications_travel_apart() {
    let mut p = Pair::new(&settings(), 1);
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    assert_eq!(sent_tos(&mut p, 0)[0].0, 0, "not without control");
    control(&mut p, 0, dcqcn(1));
    post(&mut p, 2, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    assert_eq!(sent_tos(&mut p, 0)[0].0, 0b10, "ECT(0)");
    control(
        &mut p,
        0,
        CongestionControl::Delay(DelayParams::target(25_000)),
    );
    post(&mut p, 3, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    assert_eq!(sent_tos(&mut p, 0)[0].0, 0, "of no use to this one");

    // A marked packet draws a CNP of DSCP 48.
    let mut p = Pair::new(&settings(), 1);
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    let mut batch = TxBatch::new(64 << 10, RunLimits::SINGLE);
    let _ = p.nodes[0].with_env(Time(0), |s, env| {
        s.poll_transmit(env, &mut batch, AckMode::Now)
    });
    let path = RxPath::new(p.nodes[0].addr, 4791, p.nodes[1].addr, 3);
    p.nodes[1].with_env(Time(0), |s, env| {
        s.handle_packet(&path, 0, batch.bytes(), env)
    });
    assert_eq!(
        sent_tos(&mut p, 1),
        [(48 << 2, 32), (0, 20)],
        "a CNP, and the ACK"
    );
}

#[test]
fn a_new_connection_starts_at_the_links_rate() {
    let s = settings();
    let mut p = Pair::new(&s, 1);
    control(&mut p, 0, dcqcn(1));
    p.faults.congest = 1000;
    post(&mut p, 1, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    completed_at(&mut p, 0);
    p.faults.congest = 0;
    for node in &mut p.nodes {
        let attr = QpAttr {
            qp_state: QpState::Reset,
            ..QpAttr::default()
        };
        node.modify(&attr, AttrMask::STATE);
    }
    let (a, b) = (
        (p.nodes[0].addr, p.nodes[0].qpn),
        (p.nodes[1].addr, p.nodes[1].qpn),
    );
    p.nodes[0].connect(&s, 0, b.0, b.1);
    p.nodes[1].connect(&s, 1, a.0, a.1);
    let begin = p.now.0;
    post(&mut p, 2, WrOpcode::RdmaWrite, MESSAGE, SendFlags::SIGNALED);
    let took = completed_at(&mut p, 0) - begin;
    let expected = u64::from(MESSAGE / 1024) * FRAME * 8;
    assert!(took < expected * 102 / 100, "{took} ns, not {expected}");
}

#[test]
fn a_round_trip_beyond_the_target_narrows_the_window_to_less_than_a_packet() {
    let mut p = Pair::new(&settings(), 1);
    p.faults.delay_ns = 50_000;
    control(
        &mut p,
        0,
        CongestionControl::Delay(DelayParams::target(20_000)),
    );
    for id in 0..64 {
        post(
            &mut p,
            id,
            WrOpcode::RdmaWrite,
            1 << 20,
            SendFlags::SIGNALED,
        );
    }
    // It starts at 1024 packets, and halves with every round trip of 100 us.
    p.run_until(Time(2_000_000));
    let begin = p.now;
    let sent = p.sent[0];
    p.run_until(begin + 2_000_000);
    // Another 20 round trips, and less than a packet in each.
    assert!(p.sent[0] - sent < 20, "{} packets", p.sent[0] - sent);
}

#[test]
fn what_cannot_be_controlled_is_refused() {
    let mut p = Pair::new(&settings(), 1);
    let (qp, shard) = (p.nodes[0].qp, &mut p.nodes[0].shard);
    let bad = CongestionControl::Window { bytes: 0 };
    let error = shard
        .set_congestion_control(qp, bad, Time(0))
        .expect_err("0 bytes");
    assert!(matches!(error, CongestionError::Value(_)), "{error}");
    assert_eq!(shard.congestion_control(qp), Some(CongestionControl::None));
    shard
        .set_congestion_control(qp, dcqcn(1), Time(0))
        .expect("good");
    assert_eq!(shard.congestion_control(qp), Some(dcqcn(1)));
    shard.destroy_qp(qp);
    let error = shard.set_congestion_control(qp, dcqcn(1), Time(0));
    assert_eq!(error, Err(CongestionError::NoQp));

    let mut p = Pair::new(
        &Settings {
            qp_type: QpType::Uc,
            ..settings()
        },
        1,
    );
    let qp = p.nodes[0].qp;
    let error = p.nodes[0]
        .shard
        .set_congestion_control(qp, dcqcn(1), Time(0));
    assert_eq!(error, Err(CongestionError::Service));
}
