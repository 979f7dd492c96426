//! Datagrams and multicast on a virtual wire: which QP receives what, and what is dropped.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use crate::support::*;
use urxe_core::ah::{AddressHandle, UdDest};
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{DropReason, WcStatus};
use urxe_core::mr::PdId;
use urxe_core::multicast::McastError;
use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::{ModifyError, QpState, QpType};
use urxe_core::table::QpIndex;
use urxe_core::work::{PostError, RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{RxPath, Shard, Time};
use urxe_wire::{Grh, Lkey, Packet, Qkey, Qpn};

const MTU: u32 = 4096;
const GRH: u32 = 40;
const RECV_AT: u64 = 0x40000;
const RECV_LEN: u32 = MTU + GRH;
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));

fn pair() -> Pair {
    let s = Settings {
        qp_type: QpType::Ud,
        ..Settings::default()
    };
    Pair::new(&s, 1)
}

fn sge(p: &Pair, side: usize, at: u64, length: u32) -> Sge {
    Sge {
        addr: IOVA + at,
        length,
        lkey: p.nodes[side].keys.lkey,
    }
}

fn recv_at(wr_id: u64) -> u64 {
    RECV_AT + wr_id % 64 * u64::from(RECV_LEN)
}

fn receive_on(p: &mut Pair, qp: QpIndex, wr_id: u64, length: u32) {
    let sges = [sge(p, 1, recv_at(wr_id), length)];
    let now = p.now;
    let wr = RecvWr { wr_id, sges: &sges };
    p.nodes[1]
        .with_env(now, |s, env| s.post_recv(qp, &wr, env))
        .expect("posts");
}

fn receive(p: &mut Pair, wr_id: u64) {
    let qp = p.nodes[1].qp;
    receive_on(p, qp, wr_id, RECV_LEN);
}

fn path(from: IpAddr, to: IpAddr) -> AddressVector {
    AddressVector {
        local: from,
        remote: to,
        traffic_class: 0,
        hop_limit: 64,
    }
}

fn handle(p: &Pair) -> AddressHandle {
    AddressHandle::new(PD, &path(p.nodes[0].addr, p.nodes[1].addr)).expect("a path")
}

/// Posts a datagram of side 0.
fn try_send(
    p: &mut Pair,
    wr_id: u64,
    bytes: &[u8],
    change: impl FnOnce(&mut SendWr<'_>),
) -> Result<(), PostError> {
    let at = 0x8000 + wr_id % 32 * 0x1800;
    p.nodes[0].memory.write(at, bytes);
    let sges = [sge(p, 0, at, bytes.len() as u32)];
    let ah = handle(p);
    let mut wr = SendWr::new(wr_id, WrOpcode::Send, WrData::Sges(&sges));
    wr.imm = [1, 2, 3, 4];
    wr.ud = Some(UdDest {
        ah: &ah,
        qpn: p.nodes[1].qpn,
        qkey: QKEY,
    });
    change(&mut wr);
    let (now, qp) = (p.now, p.nodes[0].qp);
    p.nodes[0].with_env(now, |s, env| s.post_send(qp, &wr, env))
}

fn send(p: &mut Pair, wr_id: u64, bytes: &[u8]) {
    try_send(p, wr_id, bytes, |_| {}).expect("posts");
}

fn payload(p: &Pair, cqe: &Cqe) -> Vec<u8> {
    let len = (cqe.byte_len - GRH) as usize;
    p.nodes[1]
        .memory
        .read(recv_at(cqe.wr_id) + u64::from(GRH), len)
}

fn grh(p: &Pair, wr_id: u64) -> [u8; 40] {
    let bytes = p.nodes[1].memory.read(recv_at(wr_id), 40);
    bytes.try_into().expect("40 bytes")
}

fn dropped(p: &Pair, side: usize, reason: DropReason) -> u64 {
    p.nodes[side].shard.stats().dropped_for(reason)
}

/// Keeps what side 0 sends from arriving, and returns it.
fn capture(p: &mut Pair) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let packets = Rc::new(RefCell::new(Vec::new()));
    let sink = packets.clone();
    p.filter = Some(Box::new(move |_, bytes| {
        sink.borrow_mut().push(bytes.to_vec());
        Verdict::Drop
    }));
    packets
}

#[test]
fn a_datagram_arrives_behind_the_header_of_its_packet() {
    let mut p = pair();
    p.nodes[1].memory.write(recv_at(7), &[0xee; 64]);
    receive(&mut p, 7);
    receive(&mut p, 8);
    try_send(&mut p, 1, b"hello", |wr| {
        wr.opcode = WrOpcode::SendWithImm;
        wr.flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    })
    .expect("posts");
    send(&mut p, 2, &[]);
    p.transmit();
    let sent = p.nodes[0].take(SEND_CQ);
    assert!(sent.iter().all(|c| c.status == WcStatus::Success));
    assert_eq!(sent.len(), 2, "complete before anything arrived");
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!((got[0].wr_id, got[0].opcode), (7, WcOpcode::Recv));
    assert_eq!(got[0].byte_len, GRH + 5);
    assert_eq!(got[0].imm, Some([1, 2, 3, 4]));
    assert!(got[0].grh && got[0].solicited && !got[1].solicited);
    assert_eq!(got[0].src_qp, p.nodes[0].qpn);
    assert_eq!(payload(&p, &got[0]), b"hello");
    assert_eq!((got[1].byte_len, got[1].imm), (GRH, None));
    assert_eq!(p.sent, [2, 0], "nothing is answered");

    let bytes = grh(&p, 7);
    assert_eq!(bytes[..20], [0; 20]);
    let Ok(Grh::V4(header)) = Grh::parse(&bytes) else {
        panic!("{bytes:?}");
    };
    assert_eq!(header.checksum, header.computed_checksum());
    assert_eq!(IpAddr::V4(header.src), p.nodes[0].addr);
    assert_eq!(IpAddr::V4(header.dst), p.nodes[1].addr);
    // IP, UDP, BTH, DETH, immediate, 5 bytes and 3 of padding, ICRC.
    assert_eq!(header.total_len, 20 + 8 + 12 + 8 + 4 + 8 + 4);
    assert_eq!((header.protocol, header.ttl), (17, 64));
}

#[test]
fn over_ipv6_the_header_is_the_packets() {
    let mut p = pair();
    for (side, node) in p.nodes.iter_mut().enumerate() {
        node.addr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, side as u16 + 1));
    }
    receive(&mut p, 1);
    send(&mut p, 1, &[5; 100]);
    p.run();
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!(payload(&p, &got[0]), [5; 100]);
    let Ok(Grh::V6(header)) = Grh::parse(&grh(&p, 1)) else {
        panic!("no IPv6 header");
    };
    assert_eq!(IpAddr::V6(header.src), p.nodes[0].addr);
    assert_eq!(IpAddr::V6(header.dst), p.nodes[1].addr);
    assert_eq!(header.payload_len, 8 + 12 + 8 + 100 + 4);
    assert_eq!(header.next_header, 17);
}

#[test]
fn a_wrong_qkey_is_dropped_and_a_controlled_one_means_the_senders_own() {
    let mut p = pair();
    receive(&mut p, 1);
    let qkey = |p: &mut Pair, key| {
        try_send(p, 1, b"x", |wr| {
            wr.ud.as_mut().expect("set above").qkey = Qkey(key);
        })
        .expect("posts");
        p.run();
        p.nodes[1].take(RECV_CQ).len()
    };
    assert_eq!(qkey(&mut p, QKEY.0 + 1), 0);
    assert_eq!(dropped(&p, 1, DropReason::Qkey), 1);
    // The high bit: what is sent is the sending QP's key, which both QPs have here.
    assert_eq!(qkey(&mut p, 0x8000_0000), 1);
    receive(&mut p, 2);
    assert_eq!(qkey(&mut p, 0xffff_ffff), 1);
    let attr = QpAttr {
        qkey: Qkey(0x77),
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::QKEY);
    receive(&mut p, 3);
    assert_eq!(qkey(&mut p, 0x8000_0000), 0);
    assert_eq!(dropped(&p, 1, DropReason::Qkey), 2);
}

#[test]
fn without_a_receive_or_with_one_that_is_too_short_a_datagram_is_dropped() {
    let mut p = pair();
    send(&mut p, 1, b"nobody listens");
    p.run();
    assert_eq!(dropped(&p, 1, DropReason::NoReceive), 1);
    let qp = p.nodes[1].qp;
    receive_on(&mut p, qp, 1, GRH + 9);
    send(&mut p, 2, &[1; 10]);
    send(&mut p, 3, &[2; 9]);
    p.run();
    assert_eq!(dropped(&p, 1, DropReason::ReceiveTooShort), 1);
    let got = p.nodes[1].take(RECV_CQ);
    assert_eq!(
        (got.len(), payload(&p, &got[0])),
        (1, vec![2; 9]),
        "the receive serves a shorter one"
    );
    assert_eq!(p.nodes[1].state(), QpState::Rts);
}

#[test]
fn bad_posts_are_refused_and_change_nothing() {
    let mut p = pair();
    let refused = |p: &mut Pair, change: &dyn Fn(&mut SendWr<'_>)| {
        try_send(p, 1, b"x", change).expect_err("refused")
    };
    assert_eq!(refused(&mut p, &|wr| wr.ud = None), PostError::NoAddress);
    let (here, there) = (p.nodes[0].addr, p.nodes[1].addr);
    let foreign = AddressHandle::new(PdId(99), &path(here, there)).expect("a path");
    let qpn = p.nodes[1].qpn;
    assert_eq!(
        refused(&mut p, &|wr| wr.ud = Some(UdDest {
            ah: Box::leak(Box::new(foreign)),
            qpn,
            qkey: QKEY,
        })),
        PostError::ForeignAddress
    );
    assert_eq!(
        refused(&mut p, &|wr| wr.ud.as_mut().expect("set").qpn = Qpn::new(0)),
        PostError::NoDestination
    );
    for opcode in [
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaRead,
        WrOpcode::AtomicFetchAndAdd,
        WrOpcode::SendWithInv,
    ] {
        let qp_type = QpType::Ud;
        assert_eq!(
            refused(&mut p, &|wr| wr.opcode = opcode),
            PostError::NotCarried { opcode, qp_type }
        );
    }
    let too_long = try_send(&mut p, 1, &[0; MTU as usize + 1], |_| {});
    assert_eq!(
        too_long,
        Err(PostError::DatagramTooLong {
            given: MTU + 1,
            max: MTU
        })
    );
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
    receive(&mut p, 1);
    send(&mut p, 1, &[3; MTU as usize]);
    p.run();
    assert_eq!(p.nodes[1].take(RECV_CQ)[0].byte_len, RECV_LEN);
}

#[test]
fn paths_that_no_datagram_can_take_make_no_handle() {
    let v4 = |a, d| IpAddr::V4(Ipv4Addr::new(a, 0, 0, d));
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let broadcast = IpAddr::V4(Ipv4Addr::BROADCAST);
    for (from, to) in [
        (v4(10, 1), v6),
        (v4(0, 0), v4(10, 1)),
        (v4(10, 1), v4(0, 0)),
        (GROUP, v4(10, 1)),
        (v4(10, 1), broadcast),
    ] {
        let result = AddressHandle::new(PD, &path(from, to));
        assert!(
            matches!(result, Err(ModifyError::Path(_))),
            "{from} to {to}"
        );
    }
    let ah = AddressHandle::new(PD, &path(v4(10, 1), GROUP)).expect("a group is a path");
    assert_eq!((ah.pd(), ah.path()), (PD, path(v4(10, 1), GROUP)));
}

#[test]
fn a_fault_of_a_send_stops_the_send_queue_alone() {
    let mut p = pair();
    let bad = [Sge {
        lkey: Lkey(0xdead),
        ..sge(&p, 0, 0x8000, 8)
    }];
    let ah = handle(&p);
    let mut wr = SendWr::new(10, WrOpcode::Send, WrData::Sges(&bad));
    wr.ud = Some(UdDest {
        ah: &ah,
        qpn: p.nodes[1].qpn,
        qkey: QKEY,
    });
    p.post_send(0, &wr);
    send(&mut p, 11, b"x");
    p.run();
    let sent: Vec<_> = p.nodes[0].take(SEND_CQ);
    let sent: Vec<_> = sent.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(
        sent,
        [(10, WcStatus::LocProtErr), (11, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.nodes[0].state(), QpState::Sqe);
    assert_eq!(p.sent[0], 0);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    receive(&mut p, 1);
    send(&mut p, 12, b"again");
    p.run();
    assert_eq!(p.nodes[1].take(RECV_CQ).len(), 1);
}

#[test]
fn packets_come_from_anywhere_but_to_own_addresses_and_with_a_right_icrc() {
    let mut p = pair();
    let packets = capture(&mut p);
    receive(&mut p, 1);
    receive(&mut p, 2);
    send(&mut p, 1, b"x");
    p.transmit();
    let packet = packets.borrow()[0].clone();
    let (source, here) = (p.nodes[0].addr, p.nodes[1].addr);
    let deliver = |p: &mut Pair, from, to, bytes: &[u8]| {
        let path = RxPath::new(from, 4791, to, 0);
        p.nodes[1].with_env(Time::ZERO, |s, env| s.handle_packet(&path, 0, bytes, env));
        p.nodes[1].take(RECV_CQ).len()
    };
    // The addresses are part of the checksum: from elsewhere it would be another packet.
    let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(deliver(&mut p, elsewhere, here, &packet), 0);
    assert_eq!(dropped(&p, 1, DropReason::Icrc), 1);
    let mut spoilt = packet.clone();
    spoilt[20] ^= 1;
    assert_eq!(deliver(&mut p, source, here, &spoilt), 0);
    assert_eq!(deliver(&mut p, source, here, &packet), 1);
    // To a QP's number, but sent to a group.
    assert_eq!(deliver(&mut p, source, GROUP, &packet), 0);
    assert_eq!(dropped(&p, 1, DropReason::Address), 1);
    // Cut off anywhere.
    for len in 0..packet.len() {
        assert_eq!(deliver(&mut p, source, here, &packet[..len]), 0, "{len}");
    }
}

/// Adds a QP to side 1 and brings it to RTS.
fn another_qp(p: &mut Pair, qkey: Qkey, block_self_mcast_lb: bool) -> (QpIndex, Qpn) {
    let node = &mut p.nodes[1];
    let (_, init) = node.shard.query_qp(node.qp).expect("exists");
    let init = urxe_core::QpInit {
        block_self_mcast_lb,
        ..init
    };
    let (qp, qpn) = node.shard.create_qp(&init).expect("creates");
    let attr = QpAttr {
        qkey,
        ..QpAttr::default()
    };
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    for (qp_state, mask) in [
        (QpState::Init, init),
        (QpState::Rtr, AttrMask::STATE),
        (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
    ] {
        let attr = QpAttr { qp_state, ..attr };
        node.with_env(Time::ZERO, |s, env| s.modify_qp(qp, &attr, mask, env))
            .expect("modifies");
    }
    (qp, qpn)
}

/// A datagram of side 0 to the group.
fn to_group(p: &mut Pair) -> Vec<u8> {
    let packets = capture(p);
    let ah = AddressHandle::new(PD, &path(p.nodes[0].addr, GROUP)).expect("a path");
    try_send(p, 1, b"to all", |wr| {
        wr.ud = Some(UdDest {
            ah: Box::leak(Box::new(ah)),
            qpn: Qpn::MULTICAST,
            qkey: QKEY,
        });
    })
    .expect("posts");
    p.transmit();
    packets.borrow()[0].clone()
}

fn deliver_to(p: &mut Pair, from: IpAddr, group: IpAddr, packet: &[u8]) -> Vec<u64> {
    let path = RxPath::new(from, 4791, group, 0);
    p.nodes[1].with_env(Time::ZERO, |s, env| {
        s.handle_packet(&path, 0, packet, env);
    });
    p.nodes[1].take(RECV_CQ).iter().map(|c| c.wr_id).collect()
}

#[test]
fn a_group_datagram_goes_once_to_every_attached_qp_that_can_take_it() {
    let mut p = pair();
    let first = p.nodes[1].qp;
    let (second, _) = another_qp(&mut p, QKEY, false);
    let (other_key, _) = another_qp(&mut p, Qkey(1), false);
    let (not_attached, _) = another_qp(&mut p, QKEY, false);
    for (wr_id, qp) in [(1, first), (2, second), (3, other_key), (4, not_attached)] {
        receive_on(&mut p, qp, wr_id, RECV_LEN);
        receive_on(&mut p, qp, wr_id + 10, RECV_LEN);
    }
    let packet = to_group(&mut p);
    assert_eq!(
        Packet::parse(&packet).expect("a packet").bth().dest_qp,
        Qpn::MULTICAST
    );
    let from = p.nodes[0].addr;
    assert_eq!(deliver_to(&mut p, from, GROUP, &packet), []);
    assert_eq!(dropped(&p, 1, DropReason::NoQp), 1);
    let s = &mut p.nodes[1].shard;
    assert_eq!(s.attach_mcast(first, GROUP), Ok(true));
    assert_eq!(s.attach_mcast(first, GROUP), Ok(false), "changes nothing");
    assert_eq!(s.attach_mcast(second, GROUP), Ok(false));
    assert_eq!(s.attach_mcast(other_key, GROUP), Ok(false));
    assert_eq!(deliver_to(&mut p, from, GROUP, &packet), [1, 2]);
    assert_eq!(dropped(&p, 1, DropReason::Qkey), 1);
    // Not to another group, nor with the group's number at an own address.
    let elsewhere = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 4));
    let here = p.nodes[1].addr;
    assert_eq!(deliver_to(&mut p, from, elsewhere, &packet), []);
    assert_eq!(deliver_to(&mut p, from, here, &packet), []);

    let s = &mut p.nodes[1].shard;
    assert_eq!(s.detach_mcast(first, GROUP), Ok(false));
    assert_eq!(
        s.detach_mcast(first, GROUP),
        Err(McastError::NotAttached(GROUP))
    );
    assert_eq!(deliver_to(&mut p, from, GROUP, &packet), [12]);
    let s = &mut p.nodes[1].shard;
    assert!(s.destroy_qp(second), "destroying detaches");
    assert_eq!(s.detach_mcast(other_key, GROUP), Ok(true));
    assert_eq!(deliver_to(&mut p, from, GROUP, &packet), []);
}

#[test]
fn spoilt_group_datagrams_and_those_of_other_services_are_dropped() {
    let mut p = pair();
    let qp = p.nodes[1].qp;
    receive(&mut p, 1);
    let packet = to_group(&mut p);
    let from = p.nodes[0].addr;
    p.nodes[1].shard.attach_mcast(qp, GROUP).expect("attaches");
    for bit in 0..packet.len() * 8 {
        // Byte 4 of the BTH is not covered by the ICRC: routers may change it.
        if bit / 8 == 4 {
            continue;
        }
        let mut spoilt = packet.clone();
        spoilt[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(deliver_to(&mut p, from, GROUP, &spoilt), [], "bit {bit}");
    }
    assert_eq!(deliver_to(&mut p, from, GROUP, &packet), [1]);
}

#[test]
fn a_qp_that_blocks_its_own_multicast_hears_that_of_others() {
    let mut p = pair();
    let from = p.nodes[0].addr;
    for (blocks, own, expected) in [
        (false, true, &[1, 2][..]),
        (true, true, &[2]),
        (true, false, &[1, 2]),
    ] {
        let (qp, qpn) = another_qp(&mut p, QKEY, blocks);
        let (other, _) = another_qp(&mut p, QKEY, blocks);
        for (wr_id, qp) in [(1, qp), (2, other)] {
            receive_on(&mut p, qp, wr_id, RECV_LEN);
            p.nodes[1].shard.attach_mcast(qp, GROUP).expect("attaches");
        }
        // What side 0 sent as if it were this QP, as it comes back from the network. From
        // another host the same QP number says nothing.
        let packet = as_from(to_group(&mut p), qpn, from);
        let address = if own { from } else { p.nodes[1].addr };
        p.nodes[1].shard.set_own_addresses(vec![address]);
        assert_eq!(deliver_to(&mut p, from, GROUP, &packet), expected);
        for qp in [qp, other] {
            p.nodes[1].shard.destroy_qp(qp);
        }
    }
}

/// The packet with another source QP, and an ICRC that fits.
fn as_from(mut packet: Vec<u8>, qpn: Qpn, from: IpAddr) -> Vec<u8> {
    packet[17..20].copy_from_slice(&qpn.get().to_be_bytes()[1..]);
    let path = RxPath::new(from, 4791, GROUP, 0);
    let end = packet.len() - 4;
    let icrc = path.seed.compute(0, &packet[..end]);
    packet[end..].copy_from_slice(&icrc.to_le_bytes());
    packet
}

#[test]
fn what_cannot_be_attached_is_refused() {
    let mut p = pair();
    let (qp, here) = (p.nodes[1].qp, p.nodes[1].addr);
    let s = &mut p.nodes[1].shard;
    assert_eq!(s.attach_mcast(qp, here), Err(McastError::NotAGroup(here)));
    assert_eq!(s.attach_mcast(QpIndex(99), GROUP), Err(McastError::NoQp));
    let mut rc = Pair::new(&Settings::default(), 1);
    let qp = rc.nodes[0].qp;
    assert_eq!(
        rc.nodes[0].shard.attach_mcast(qp, GROUP),
        Err(McastError::NotDatagrams)
    );
    let qp = p.nodes[1].qp;
    let s = &mut p.nodes[1].shard;
    for k in 0..Shard::GROUPS_MAX {
        let group = IpAddr::V4(Ipv4Addr::new(239, 0, (k / 256) as u8, k as u8));
        assert_eq!(s.attach_mcast(qp, group), Ok(true));
    }
    let one_more = IpAddr::V4(Ipv4Addr::new(239, 9, 9, 9));
    assert_eq!(
        s.attach_mcast(qp, one_more),
        Err(McastError::TooManyGroups(Shard::GROUPS_MAX))
    );
}

/// Random datagrams over a faulty wire: what is received was sent, whole, as often as the
/// wire made copies of it, and every send completes once.
pub(crate) fn random_datagrams(seed: u64) -> (u64, Time) {
    let mut rng = Rng(seed);
    let s = Settings {
        qp_type: QpType::Ud,
        mtu: rng.pick(&Mtu::ALL),
        psn: [rng.next() as u32 & 0xff_ffff, 0],
        secret: seed,
        ..Settings::default()
    };
    let mut p = Pair::new(&s, seed);
    p.faults = Faults {
        lose: 50,
        duplicate: 50,
        corrupt: 50,
        reorder: 200,
        delay_ns: 1000,
        ..Faults::default()
    };
    let mut messages = Vec::new();
    let mut received = 0;
    for wr_id in 0..32 {
        receive(&mut p, wr_id);
    }
    for round in 0..20u64 {
        for _ in 0..rng.below(10) {
            let len = rng.below(u64::from(MTU) + 1) as usize;
            let mut bytes = rng.bytes(len);
            bytes.splice(0..0, (messages.len() as u32).to_be_bytes());
            bytes.truncate(MTU as usize);
            send(&mut p, messages.len() as u64, &bytes);
            messages.push(bytes);
            // The memory of a datagram is free once it is complete.
            p.transmit();
        }
        p.run();
        for cqe in p.nodes[1].take(RECV_CQ) {
            let bytes = payload(&p, &cqe);
            let number = u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes"));
            let message = messages.get(number as usize);
            assert_eq!(Some(&bytes), message, "seed {seed}, round {round}");
            assert!(cqe.grh && cqe.src_qp == p.nodes[0].qpn, "seed {seed}");
            receive(&mut p, cqe.wr_id);
            received += 1;
        }
    }
    assert!(received > messages.len() / 2, "seed {seed}: {received}");
    let sent = p.nodes[0].take(SEND_CQ).len();
    assert_eq!(sent, messages.len(), "seed {seed}");
    (messages.len() as u64, p.now)
}

#[test]
fn random_datagrams_are_what_was_sent() {
    for seed in 0..40 {
        random_datagrams(seed);
    }
}
