//! Strangers that can send from a peer's address and know the QPNs, but no PSN: no genuine
//! message is lost, whatever Identifications they let the receiver see.

use urxe_core::cm::{AgentConfig, Scope};
use urxe_core::error::DropReason;
use urxe_core::qp::state::QpType;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::{Handled, Shard, ShardConfig};
use urxe_wire::cm::{CmMessage, CmPath, IpCmHeader, PortSpace, Req, service_id};
use urxe_wire::{
    Aeth, Bth, Deth, Gid, MAD_LEN, MadHeader, Msn, NakCode, Opcode, PacketWriter, Pkey, Psn, Qkey,
    Qpn, Reth, Rkey, Syndrome, packet_len,
};

use crate::support::*;
use crate::wire::{FORGED, Forge, MS, Numbering, World};

/// Which Identifications a stranger chooses.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The same twice, then another: two that confirm each other.
    Pairs,
    Random,
    /// Up, in steps that a counter may take.
    Sweep,
    /// Those of a peer that numbers the places in trains.
    Trains,
    /// Away from where the peer's counter is.
    Drag,
}

const BLIND: [Choice; 4] = [Choice::Pairs, Choice::Random, Choice::Sweep, Choice::Trains];

impl Choice {
    fn ident(self, k: u64, rng: &mut Rng, counter: u16) -> u16 {
        match self {
            Choice::Pairs => [30_000, 50_000, 10_000, 62_000][(k / 2) as usize % 4],
            Choice::Random => rng.next() as u16,
            Choice::Sweep => (k * 900) as u16,
            Choice::Trains => rng.below(128) as u16,
            Choice::Drag => counter.wrapping_add((k % 8 * 1700) as u16),
        }
    }
}

/// How often strangers' packets come: so many for so many genuine ones; and how many
/// messages are sent between them.
const RATIOS: [(u64, u64, u64); 4] = [(1, 100, 1000), (1, 1, 500), (30, 1, 200), (1000, 1, 20)];

/// One packet of a stranger to a side.
fn packet(
    w: &World,
    to: usize,
    ident: u16,
    bth: &Bth,
    fill: impl FnOnce(&mut PacketWriter<'_>),
    len: usize,
) -> Vec<u8> {
    let info = bth.opcode.info().expect("in the table");
    let mut bytes = vec![0; packet_len(info, len)];
    let mut writer = PacketWriter::new(&mut bytes, bth);
    fill(&mut writer);
    writer.finish(&w.path_to(to).seed, ident);
    bytes
}

/// A PSN that is far from all that are used.
fn strange_psn(rng: &mut Rng) -> Psn {
    Psn::new((1 << 20) + rng.below(14 << 20) as u32)
}

/// ACKs, NAKs, SENDs and WRITEs with PSNs at random.
fn forged_rc(choice: Choice, seed: u64) -> Forge {
    let mut rng = Rng(seed);
    let mut k = 0;
    Box::new(move |w, to| {
        let ident = choice.ident(k / 2, &mut rng, w.counters[1 - to]);
        k += 1;
        let opcodes = [
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_SEND_ONLY,
            Opcode::RC_WRITE_ONLY,
        ];
        let opcode = rng.pick(&opcodes);
        let bth = Bth::new(opcode, w.nodes[to].qpn, strange_psn(&mut rng));
        let nak = rng.chance(300);
        packet(
            w,
            to,
            ident,
            &bth,
            |writer| match opcode {
                Opcode::RC_ACKNOWLEDGE => writer.aeth(&Aeth {
                    syndrome: if nak {
                        Syndrome::nak(NakCode::RemoteAccess)
                    } else {
                        Syndrome(31)
                    },
                    msn: Msn::ZERO,
                }),
                Opcode::RC_WRITE_ONLY => writer.reth(&reth(0, w)),
                _ => {}
            },
            0,
        )
    })
}

/// The head of a WRITE with a key that no region has.
fn reth(dma_len: u32, w: &World) -> Reth {
    let wrong = w.nodes[0].keys.rkey.0 ^ w.nodes[1].keys.rkey.0 ^ 0x5555;
    Reth {
        va: IOVA,
        rkey: Rkey(wrong),
        dma_len,
    }
}

/// WRITEs that are refused, WRITEs of nothing (which need no key), and ends of messages that never began.
fn forged_uc(choice: Choice, seed: u64) -> Forge {
    let mut rng = Rng(seed);
    let mut k = 0;
    Box::new(move |w, to| {
        let ident = choice.ident(k / 2, &mut rng, w.counters[1 - to]);
        k += 1;
        let kind = rng.below(3);
        let opcode = if kind == 0 {
            Opcode(0x21)
        } else {
            Opcode(0x2a)
        };
        let bth = Bth::new(opcode, w.nodes[to].qpn, strange_psn(&mut rng));
        let len = [256, 0, 8][kind as usize];
        packet(
            w,
            to,
            ident,
            &bth,
            |writer| {
                if kind > 0 {
                    writer.reth(&reth(len as u32, w));
                }
                writer.payload_mut(len).fill(7);
            },
            len,
        )
    })
}

/// Datagrams with this Q_Key; their text is that of a stranger.
fn forged_ud(choice: Choice, qkey: Qkey, seed: u64) -> Forge {
    let mut rng = Rng(seed);
    let mut k = 0;
    Box::new(move |w, to| {
        let ident = choice.ident(k / 2, &mut rng, w.counters[1 - to]);
        k += 1;
        let bth = Bth::new(Opcode::UD_SEND_ONLY, w.nodes[to].qpn, strange_psn(&mut rng));
        packet(
            w,
            to,
            ident,
            &bth,
            |writer| {
                writer.deth(&Deth {
                    qkey,
                    reserved: 0,
                    src_qp: Qpn::new(5),
                });
                writer
                    .payload_mut(64)
                    .copy_from_slice(&FORGED.to_be_bytes().repeat(8));
            },
            64,
        )
    })
}

/// Genuine messages that are lost while such strangers send.
fn lost(
    qp_type: QpType,
    numbering: Numbering,
    ratio: (u64, u64, u64),
    forge: Forge,
    seed: u64,
) -> u64 {
    let mut w = World::new(qp_type, numbering, seed);
    // The peers know each other; then the stranger comes.
    let (before, count) = (20, ratio.2);
    assert_eq!(w.exchange(0..before, 2).len() as u64, before, "seed {seed}");
    w.forge = Some(forge);
    w.ratio = (ratio.0, ratio.1);
    let mut got = 0;
    let mut next = before;
    for round in 0..10 {
        let end = next + count / 10;
        got += w.exchange(next..end, 1 + round % 4).len() as u64;
        next = end;
        // Short silences, in which a counter may move on.
        w.silence(w.ratio.1 * 20 * MS);
    }
    w.assert_alive();
    next - before - got
}

const NUMBERINGS: [Numbering; 3] = [
    Numbering::Trains,
    Numbering::Counter { others: 0 },
    Numbering::Counter { others: 100 },
];

/// All of these strangers, at every rate, against every peer.
fn none_is_lost(qp_type: QpType, choices: &[Choice], forge: impl Fn(Choice, u64) -> Forge) {
    let mut seed = 0;
    let mut failures = Vec::new();
    for numbering in NUMBERINGS {
        for &choice in choices {
            for ratio in RATIOS {
                seed += 1;
                let lost = lost(qp_type, numbering, ratio, forge(choice, seed), seed);
                if lost > 0 {
                    failures.push((numbering, choice, ratio, seed, lost));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{qp_type:?}: {failures:?}");
}

#[test]
fn packets_that_are_not_in_sequence_teach_a_connection_nothing() {
    let all = [&BLIND[..], &[Choice::Drag]].concat();
    none_is_lost(QpType::Rc, &all, forged_rc);
}

#[test]
fn packets_of_strangers_lose_an_unreliable_connection_no_message() {
    none_is_lost(QpType::Uc, &BLIND, forged_uc);
}

#[test]
fn datagrams_without_the_q_key_teach_nothing() {
    let all = [&BLIND[..], &[Choice::Drag]].concat();
    let wrong = Qkey(QKEY.0 + 1);
    none_is_lost(QpType::Ud, &all, |choice, seed| {
        forged_ud(choice, wrong, seed)
    });
}

#[test]
fn datagrams_of_strangers_with_the_q_key_lose_no_other() {
    none_is_lost(QpType::Ud, &BLIND, |choice, seed| {
        forged_ud(choice, QKEY, seed)
    });
}

/// A stranger that can deliver messages and knows where the peer's counter is can draw the receiver's
/// idea of it away: that costs two messages, and then none for a quarter of an hour.
#[test]
fn a_stranger_that_follows_the_counter_loses_two_messages_at_most() {
    for (seed, ratio) in RATIOS.into_iter().enumerate() {
        let seed = seed as u64;
        let numbering = Numbering::Counter { others: 3 };
        for qp_type in [QpType::Uc, QpType::Ud] {
            let forge = match qp_type {
                QpType::Uc => forged_uc(Choice::Drag, seed),
                _ => forged_ud(Choice::Drag, QKEY, seed),
            };
            let lost = lost(qp_type, numbering, ratio, forge, seed);
            assert!(lost <= 2, "{qp_type:?} {ratio:?}: {lost}");
        }
    }
}

const PORT: u16 = 7174;

fn private_data(w: &World) -> [u8; 92] {
    let header = IpCmHeader::new(w.nodes[0].addr, 40_000, w.nodes[1].addr).expect("both IPv4");
    let mut data = [0; 92];
    data[..IpCmHeader::LEN].copy_from_slice(&header.emit());
    data
}

/// A request to connect, with an id of its own.
fn mad(w: &World, ident: u16, id: u32) -> Vec<u8> {
    let message = CmMessage::Req(Req {
        local_comm_id: id,
        service_id: service_id(PortSpace::TCP, PORT),
        local_qpn: Qpn::new(id),
        starting_psn: Psn::new(1),
        remote_cm_response_timeout: 20,
        local_cm_response_timeout: 20,
        max_cm_retries: 15,
        retry_count: 7,
        pkey: Pkey::DEFAULT,
        path_mtu: 3,
        primary_path: CmPath {
            local_gid: Gid::from(w.nodes[0].addr),
            remote_gid: Gid::from(w.nodes[1].addr),
            ..CmPath::default()
        },
        private_data: private_data(w),
        ..Req::default()
    });
    let mad = message.emit(&MadHeader::cm(message.attribute_id(), u64::from(id)));
    let gsi = Qpn::new(1);
    let bth = Bth::new(Opcode::UD_SEND_ONLY, gsi, Psn::ZERO);
    packet(
        w,
        1,
        ident,
        &bth,
        |writer| {
            writer.deth(&Deth {
                qkey: Qkey::GSI,
                reserved: 0,
                src_qp: gsi,
            });
            writer.payload_mut(MAD_LEN).copy_from_slice(&mad[..]);
        },
        MAD_LEN,
    )
}

/// Messages to QP 1 that are refused for their Identification: of the peer, and of a
/// stranger.
fn refused_mads(choice: Choice, ratio: (u64, u64, u64), counts: bool, seed: u64) -> (u64, u64) {
    let mut w = World::new(QpType::Ud, Numbering::Trains, seed);
    let shard = &mut w.nodes[1].shard;
    shard.start_cm(AgentConfig {
        guid: 1,
        owner: QpnChunk(3),
        is_shared: false,
        secret: seed,
    });
    let listens = shard.cm(|agent| agent.listen(PortSpace::TCP, PORT, Scope::AnyV4, 1 << 20));
    listens.expect("it has a manager").expect("free");
    let dropped = |w: &World| w.nodes[1].shard.stats().dropped_for(DropReason::Icrc);
    let (mut rng, mut k, mut owed) = (Rng(seed), 0, 0);
    let (mut genuine, mut forged) = (0, 0);
    let mut counter = 20_000u16;
    for number in 0..ratio.2 as u32 {
        owed += if number < 10 { 0 } else { ratio.0 };
        while owed >= ratio.1 {
            owed -= ratio.1;
            let ident = choice.ident(k, &mut rng, counter);
            k += 1;
            let before = dropped(&w);
            let packet = mad(&w, ident, 0x80_0000 + k as u32 % 0x7f_0000);
            w.deliver(1, 0, &packet);
            forged += dropped(&w) - before;
        }
        counter = counter.wrapping_add(1 + rng.below(5) as u16);
        let before = dropped(&w);
        let packet = mad(&w, if counts { counter } else { 0 }, 1 + number);
        w.deliver(1, 0, &packet);
        genuine += dropped(&w) - before;
        w.now = w.now + 10 * MS;
    }
    let received = w.nodes[1].shard.stats().cm_rcvd_msgs;
    assert_eq!(received, u64::from(ratio.2 as u32) + k - genuine - forged);
    (genuine, forged)
}

#[test]
fn messages_of_strangers_to_qp_1_lose_no_other() {
    let mut forged = 0;
    for counts in [false, true] {
        for choice in BLIND {
            for (seed, ratio) in RATIOS.into_iter().enumerate() {
                let (lost, refused) = refused_mads(choice, ratio, counts, seed as u64);
                assert_eq!(lost, 0, "{choice:?} {ratio:?} counts: {counts}");
                forged += refused;
            }
        }
    }
    assert!(forged > 0, "the Identifications are looked at");
}

/// What QP 1 is told says nothing about the host's datagrams, which need a key.
#[test]
fn qp_1_teaches_other_qps_nothing() {
    let mut w = World::new(QpType::Ud, Numbering::Counter { others: 0 }, 5);
    w.nodes[1].shard.start_cm(AgentConfig {
        guid: 1,
        owner: QpnChunk(3),
        is_shared: false,
        secret: 5,
    });
    assert_eq!(w.exchange(0..10, 1).len(), 10);
    let mut rng = Rng(5);
    let mut k = 0u32;
    w.forge = Some(Box::new(move |w, _| {
        k += 1;
        let ident = Choice::Drag.ident(u64::from(k), &mut rng, w.counters[0]);
        mad(w, ident, k)
    }));
    w.ratio = (8, 1);
    assert_eq!(w.exchange(10..60, 1).len(), 50);
}

/// Each sharer of an address has a QP 1: what one refuses there is not another's.
#[test]
fn a_packet_to_qp_1_of_another_version_is_malformed_here() {
    let mut w = World::new(QpType::Ud, Numbering::Trains, 6);
    let mut shard = Shard::new(ShardConfig {
        shares_qpns: true,
        ..ShardConfig::default()
    });
    shard.start_cm(AgentConfig {
        guid: 1,
        owner: QpnChunk(3),
        is_shared: true,
        secret: 6,
    });
    w.nodes[1].shard = shard;
    let mut packet = mad(&w, 0, 1);
    packet[1] |= 1;
    let (now, path) = (w.now, w.path_to(1));
    let handled = w.nodes[1].with_env(now, |s, env| s.handle_packet(&path, 0, &packet, env));
    assert_eq!(handled, Handled::Here);
    let stats = w.nodes[1].shard.stats();
    assert_eq!(stats.dropped_for(DropReason::Malformed), 1);
}
