//! Unreliable connections on a virtual wire: messages arrive whole or not at all, and
//! no completion tells of those that do not.

use crate::support::*;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{DropReason, Fault, WcStatus};
use urxe_core::mr::{Access, MrInit};
use urxe_core::qp::attr::{AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::work::{PostError, RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Lkey, Packet, Rkey};

const MTU: u32 = 256;
/// Where receives are, and how long they are.
const RECV_AT: u64 = 0x40000;
const RECV_LEN: u32 = 0x800;

fn settings() -> Settings {
    Settings {
        qp_type: QpType::Uc,
        ..Settings::default()
    }
}

fn sge(p: &Pair, side: usize, at: u64, length: u32) -> Sge {
    Sge {
        addr: IOVA + at,
        length,
        lkey: p.nodes[side].keys.lkey,
    }
}

/// Posts a message of side 0 with these bytes.
fn send(p: &mut Pair, wr_id: u64, opcode: WrOpcode, bytes: &[u8]) {
    let at = 0x8000 + wr_id % 64 * u64::from(RECV_LEN);
    p.nodes[0].memory.write(at, bytes);
    let sges = [sge(p, 0, at, bytes.len() as u32)];
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1].keys.rkey;
    wr.imm = (wr_id as u32).to_be_bytes();
    p.post_send(0, &wr);
}

fn recv_at(wr_id: u64) -> u64 {
    RECV_AT + wr_id % 64 * u64::from(RECV_LEN)
}

fn receive(p: &mut Pair, wr_id: u64, length: u32) {
    let sges = [sge(p, 1, recv_at(wr_id), length)];
    p.post_recv(1, &RecvWr { wr_id, sges: &sges });
}

fn received(p: &Pair, cqe: &Cqe) -> Vec<u8> {
    p.nodes[1]
        .memory
        .read(recv_at(cqe.wr_id), cqe.byte_len as usize)
}

fn dropped(p: &Pair, side: usize, reason: DropReason) -> u64 {
    p.nodes[side].shard.stats().dropped_for(reason)
}

/// Loses the packets of side 0 with these places, counting from 0.
fn lose(p: &mut Pair, places: &'static [u32]) {
    let mut seen = 0;
    p.filter = Some(Box::new(move |from, _| {
        assert_eq!(from, 0, "nothing is ever answered");
        seen += 1;
        if places.contains(&(seen - 1)) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }));
}

#[test]
fn messages_of_every_kind_arrive_and_nothing_is_answered() {
    let mut p = Pair::new(&settings(), 1);
    lose(&mut p, &[]);
    let bytes = Rng(7).bytes(3 * MTU as usize + 5);
    for wr_id in 0..4 {
        receive(&mut p, wr_id, RECV_LEN);
    }
    send(&mut p, 10, WrOpcode::Send, &bytes);
    send(&mut p, 11, WrOpcode::SendWithImm, &bytes[..7]);
    send(&mut p, 12, WrOpcode::RdmaWrite, &bytes[..2 * MTU as usize]);
    send(&mut p, 13, WrOpcode::RdmaWriteWithImm, &bytes);
    send(&mut p, 14, WrOpcode::Send, &[]);
    // Complete before anything arrived: when the last packet is handed over.
    p.transmit();
    let sent = p.nodes[0].take(SEND_CQ);
    assert_eq!(
        sent.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(),
        (10..15)
            .map(|id| (id, WcStatus::Success))
            .collect::<Vec<_>>()
    );
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    let seen: Vec<_> = got.iter().map(|c| (c.wr_id, c.opcode, c.imm)).collect();
    assert_eq!(
        seen,
        [
            (0, WcOpcode::Recv, None),
            (1, WcOpcode::Recv, Some([0, 0, 0, 11])),
            (2, WcOpcode::RecvRdmaWithImm, Some([0, 0, 0, 13])),
            (3, WcOpcode::Recv, None),
        ]
    );
    assert_eq!(received(&p, &got[0]), bytes);
    assert_eq!(received(&p, &got[1]), bytes[..7]);
    assert_eq!(got[2].byte_len as usize, bytes.len());
    assert_eq!(p.nodes[1].memory.read(0x1000, bytes.len()), bytes);
    assert_eq!(got[3].byte_len, 0);
    assert_eq!(p.sent[1], 0);
}

#[test]
fn packets_bear_the_opcodes_of_the_service_and_ask_for_no_ack() {
    let mut p = Pair::new(&settings(), 1);
    let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |_, bytes| {
        let packet = Packet::parse(bytes).expect("a packet");
        assert!(!packet.bth().ack_req);
        sink.borrow_mut()
            .push((packet.info().name, packet.bth().psn.get()));
        Verdict::Pass
    }));
    send(&mut p, 0, WrOpcode::RdmaWriteWithImm, &[1; 600]);
    send(&mut p, 1, WrOpcode::Send, &[2; 100]);
    p.run();
    assert_eq!(
        *log.borrow(),
        [
            ("UC RDMA WRITE First", 0x100),
            ("UC RDMA WRITE Middle", 0x101),
            ("UC RDMA WRITE Last with Immediate", 0x102),
            ("UC SEND Only", 0x103),
        ]
    );
}

#[test]
fn a_lost_packet_costs_its_message_and_the_receive_serves_the_next() {
    for lost in [&[0u32][..], &[1], &[2], &[0, 2]] {
        let mut p = Pair::new(&settings(), 1);
        lose(&mut p, Box::leak(lost.to_vec().into()));
        receive(&mut p, 1, RECV_LEN);
        send(&mut p, 10, WrOpcode::Send, &[1; 3 * MTU as usize]);
        send(&mut p, 11, WrOpcode::Send, &[2; 2 * MTU as usize]);
        p.run();
        let got = p.nodes[1].take(RECV_CQ);
        assert_eq!(got.len(), 1, "lost {lost:?}");
        assert_eq!(got[0].byte_len, 2 * MTU, "lost {lost:?}");
        assert_eq!(received(&p, &got[0]), [2; 2 * MTU as usize]);
        assert_eq!(p.nodes[1].state(), QpState::Rts);
    }
}

#[test]
fn a_message_without_a_receive_is_dropped_whole() {
    let mut p = Pair::new(&settings(), 1);
    send(&mut p, 10, WrOpcode::Send, &[1; 600]);
    p.transmit();
    p.run();
    assert_eq!(dropped(&p, 1, DropReason::NoReceive), 1);
    assert_eq!(dropped(&p, 1, DropReason::Incomplete), 2);
    receive(&mut p, 1, RECV_LEN);
    send(&mut p, 11, WrOpcode::Send, &[3; 600]);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got.len(), got[0].byte_len), (1, 600));
}

#[test]
fn a_message_longer_than_its_receive_is_dropped_and_the_receive_stays() {
    let mut p = Pair::new(&settings(), 1);
    receive(&mut p, 1, 300);
    send(&mut p, 10, WrOpcode::Send, &[1; 301]);
    send(&mut p, 11, WrOpcode::Send, &[2; 300]);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got.len(), got[0].byte_len), (1, 300));
    assert_eq!(received(&p, &got[0]), [2; 300]);
    assert_eq!(dropped(&p, 1, DropReason::ReceiveTooShort), 1);
}

#[test]
fn a_write_that_a_key_or_the_access_flags_refuse_is_dropped_silently() {
    let s = settings();
    let mut p = Pair::new(&s, 1);
    let sges = [sge(&p, 0, 0x8000, 600)];
    let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = Rkey(p.nodes[1].keys.rkey.0 ^ 0x100);
    p.nodes[0].memory.write(0x8000, &[9; 600]);
    p.post_send(0, &wr);
    p.run();
    assert_eq!(p.nodes[0].take(SEND_CQ)[0].status, WcStatus::Success);
    assert_eq!(dropped(&p, 1, DropReason::Refused), 1);
    assert_eq!(p.nodes[1].memory.read(0x1000, 600), [0; 600]);

    let mut p = Pair::new(
        &Settings {
            access: Access::LOCAL_WRITE,
            ..s
        },
        1,
    );
    send(&mut p, 2, WrOpcode::RdmaWrite, &[9; 100]);
    p.run();
    assert_eq!(dropped(&p, 1, DropReason::Refused), 1);
    assert_eq!(p.nodes[1].memory.read(0x1000, 100), [0; 100]);
    for node in &mut p.nodes {
        assert_eq!(node.state(), QpState::Rts);
        assert_eq!(node.shard.poll_event(), None);
    }
    assert_eq!(p.sent[1], 0);
}

#[test]
fn a_local_fault_stops_the_send_queue_alone_until_a_modify() {
    let mut p = Pair::new(&settings(), 1);
    receive(&mut p, 1, RECV_LEN);
    let bad = [Sge {
        lkey: Lkey(0xdead),
        ..sge(&p, 0, 0x8000, 8)
    }];
    p.post_send(0, &SendWr::new(10, WrOpcode::Send, WrData::Sges(&bad)));
    send(&mut p, 11, WrOpcode::Send, &[1; 8]);
    p.run();
    let status = |p: &mut Pair| -> Vec<_> {
        let cqes = p.nodes[0].take(SEND_CQ);
        cqes.iter().map(|c| (c.wr_id, c.status)).collect()
    };
    assert_eq!(
        status(&mut p),
        [(10, WcStatus::LocProtErr), (11, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.nodes[0].state(), QpState::Sqe);
    // A post in SQE is flushed.
    send(&mut p, 12, WrOpcode::Send, &[1; 8]);
    assert_eq!(status(&mut p), [(12, WcStatus::WrFlushErr)]);
    // Receives go on.
    let sges = [sge(&p, 0, 0x100, 64)];
    let wr = RecvWr {
        wr_id: 5,
        sges: &sges,
    };
    p.post_recv(0, &wr);
    let sges = [sge(&p, 1, 0x100, 64)];
    p.post_send(1, &SendWr::new(6, WrOpcode::Send, WrData::Sges(&sges)));
    p.run();
    assert_eq!(p.nodes[0].take(RECV_CQ)[0].status, WcStatus::Success);
    // And with a modify sends do too.
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    send(&mut p, 13, WrOpcode::Send, &[7; 300]);
    p.run();
    assert_eq!(status(&mut p), [(13, WcStatus::Success)]);
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got.len(), received(&p, &got[0])), (1, vec![7; 300]));
}

#[test]
fn memory_that_vanishes_amid_a_message_stops_the_queue_and_the_next_message_is_whole() {
    // One packet a batch, so that the message is under way when its memory goes.
    let s = Settings {
        batch_bytes: 300,
        ..settings()
    };
    let mut p = Pair::new(&s, 1);
    receive(&mut p, 1, RECV_LEN);
    p.nodes[0].memory.gone_from.set(0x8000 + 10 * 0x800 + 300);
    send(&mut p, 10, WrOpcode::Send, &[1; 700]);
    p.run();
    assert_eq!(p.nodes[0].take(SEND_CQ)[0].fault, Fault::LocalMemory);
    assert_eq!(p.nodes[0].state(), QpState::Sqe);
    p.nodes[0].memory.gone_from.set(u64::MAX);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    send(&mut p, 11, WrOpcode::Send, &[2; 700]);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got.len(), received(&p, &got[0])), (1, vec![2; 700]));
}

#[test]
fn a_receive_into_memory_without_rights_fails_the_qp() {
    let mut p = Pair::new(&settings(), 1);
    let read_only = p.nodes[1]
        .mrs
        .register(MrInit {
            pd: PD,
            access: Access::NONE,
            host_addr: 0,
            iova: IOVA,
            len: 0x1000,
            remote_invalidate: false,
        })
        .expect("registers");
    let sges = [Sge {
        lkey: read_only.lkey,
        ..sge(&p, 1, 0, 64)
    }];
    p.post_recv(
        1,
        &RecvWr {
            wr_id: 3,
            sges: &sges,
        },
    );
    receive(&mut p, 4, 64);
    send(&mut p, 10, WrOpcode::Send, &[1; 8]);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    let seen: Vec<_> = got.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(seen, [(3, WcStatus::LocProtErr), (4, WcStatus::WrFlushErr)]);
    assert_eq!(p.nodes[1].state(), QpState::Err);
}

#[test]
fn what_the_service_does_not_carry_is_refused_when_it_is_posted() {
    let mut p = Pair::new(&settings(), 1);
    for opcode in [
        WrOpcode::RdmaRead,
        WrOpcode::AtomicCmpAndSwp,
        WrOpcode::AtomicFetchAndAdd,
        WrOpcode::SendWithInv,
    ] {
        let sges = [sge(&p, 0, 0, 8)];
        let wr = SendWr::new(1, opcode, WrData::Sges(&sges));
        let (now, qp) = (p.now, p.nodes[0].qp);
        let result = p.nodes[0].with_env(now, |s, env| s.post_send(qp, &wr, env));
        let qp_type = QpType::Uc;
        assert_eq!(result, Err(PostError::NotCarried { opcode, qp_type }));
    }
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
}

#[test]
fn packets_of_another_service_are_dropped() {
    let mut p = Pair::new(&settings(), 1);
    let mut rc = Pair::new(&Settings::default(), 1);
    receive(&mut p, 1, RECV_LEN);
    // The same numbers and addresses, so only the service differs.
    let packets = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let sink = packets.clone();
    rc.filter = Some(Box::new(move |_, bytes| {
        sink.borrow_mut().push(bytes.to_vec());
        Verdict::Drop
    }));
    send(&mut rc, 1, WrOpcode::Send, &[1; 8]);
    rc.transmit();
    p.deliver(1, 0, &packets.borrow()[0]);
    assert_eq!(dropped(&p, 1, DropReason::Service), 1);
    assert!(p.nodes[1].take(RECV_CQ).is_empty());
}

#[test]
fn a_draining_queue_finishes_the_message_it_has_begun() {
    let s = Settings {
        batch_bytes: 300,
        ..settings()
    };
    let mut p = Pair::new(&s, 1);
    receive(&mut p, 1, RECV_LEN);
    receive(&mut p, 2, RECV_LEN);
    send(&mut p, 10, WrOpcode::Send, &[1; 700]);
    send(&mut p, 11, WrOpcode::Send, &[2; 8]);
    let now = p.now;
    let mut batch = urxe_core::transmit::TxBatch::new(300, s.limits);
    let more = p.nodes[0].with_env(now, |shard, env| {
        shard.poll_transmit(env, &mut batch, urxe_core::AckMode::Now)
    });
    assert!(more && batch.packets() == 1, "the message is under way");
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY);
    let packet = batch.bytes().to_vec();
    p.deliver(1, 0, &packet);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got.len(), received(&p, &got[0])), (1, vec![1; 700]));
    assert_eq!(
        p.nodes[0].shard.poll_event(),
        Some(urxe_core::event::AsyncEvent::SqDrained(p.nodes[0].qp))
    );
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    p.run();
    assert_eq!(p.nodes[1].take(RECV_CQ).len(), 1);
}

/// The bytes of message `number`: its length and content follow from the seed.
fn message(seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng(seed ^ number.wrapping_mul(0x9e37));
    let len = rng.below(u64::from(RECV_LEN)) as usize;
    let mut bytes = rng.bytes(len);
    // Which message it is shows even in the shortest.
    bytes.splice(0..0, (number as u32).to_be_bytes());
    bytes.truncate(RECV_LEN as usize);
    bytes
}

/// Sends 200 random messages over a faulty wire. Whatever is received must be a message
/// that was sent, whole; returns their numbers in order of arrival.
fn random_messages(seed: u64, faults: Faults) -> Vec<u64> {
    let mut rng = Rng(seed);
    let s = Settings {
        mtu: rng.pick(&[Mtu::Mtu256, Mtu::Mtu512]),
        psn: [rng.next() as u32 & 0xff_ffff, 0],
        secret: seed,
        ..settings()
    };
    let mut p = Pair::new(&s, seed);
    p.faults = faults;
    let mut posted = 0;
    let mut arrived = Vec::new();
    let collect = |p: &mut Pair, arrived: &mut Vec<u64>| {
        for cqe in p.nodes[1].take(RECV_CQ) {
            assert_eq!(cqe.status, WcStatus::Success, "seed {seed}");
            let bytes = received(p, &cqe);
            let number = u64::from(u32::from_be_bytes(
                bytes[..4].try_into().expect("a message's first four bytes"),
            ));
            assert!(number < 200, "seed {seed}: message {number}");
            assert_eq!(
                bytes,
                message(seed, number),
                "seed {seed}: message {number}"
            );
            arrived.push(number);
            receive(p, cqe.wr_id, RECV_LEN);
        }
    };
    for wr_id in 0..32 {
        receive(&mut p, wr_id, RECV_LEN);
    }
    while posted < 200 {
        for _ in 0..rng.below(8) {
            let opcode = rng.pick(&[WrOpcode::Send, WrOpcode::SendWithImm]);
            send(&mut p, posted, opcode, &message(seed, posted));
            posted += 1;
            if posted == 200 {
                break;
            }
        }
        p.run();
        collect(&mut p, &mut arrived);
    }
    assert!(p.nodes.iter().all(|n| n.state() == QpState::Rts));
    assert_eq!(p.sent[1], 0, "seed {seed}: nothing is answered");
    let sent = p.nodes[0].take(SEND_CQ).len();
    assert_eq!(sent, 200, "seed {seed}: every send completes, once");
    arrived
}

#[test]
fn over_a_wire_that_loses_messages_arrive_whole_and_in_order_or_not_at_all() {
    let mut lost = 0;
    for seed in 0..60 {
        let faults = Faults {
            lose: 50,
            corrupt: 20,
            delay_ns: 1000,
            ..Faults::default()
        };
        let arrived = random_messages(seed, faults);
        assert!(
            arrived.windows(2).all(|w| w[0] < w[1]),
            "seed {seed}: {arrived:?}"
        );
        assert!(arrived.len() > 20, "seed {seed}: only {arrived:?}");
        lost += 200 - arrived.len();
    }
    assert!(lost > 0, "the wire lost nothing");
}

#[test]
fn over_a_clean_wire_all_messages_arrive() {
    for seed in 0..10 {
        let arrived = random_messages(seed, Faults::default());
        assert_eq!(arrived, (0..200).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// A network that also duplicates and reorders is not what the service is made for; even
/// there nothing arrives that was not sent like this.
#[test]
fn over_a_wire_that_reorders_and_duplicates_no_message_is_mixed_up() {
    for seed in 100..160 {
        let faults = Faults {
            lose: 30,
            duplicate: 50,
            corrupt: 20,
            reorder: 100,
            delay_ns: 1000,
            batch_ns: 20_000 * (seed % 2),
            ..Faults::default()
        };
        assert!(!random_messages(seed, faults).is_empty(), "seed {seed}");
    }
}
