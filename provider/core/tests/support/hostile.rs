//! A peer that sends whatever it likes, well-formed or not, to a live QP: the body
//! of a fuzz target and of a property test. The bytes are a script.

use urxe_core::cq::Cqe;
use urxe_core::error::WcStatus;
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Recovery, RxPath, Time};
use urxe_wire::{IcrcPolicy, Opcode, PayloadRule, Psn};

use crate::support::bytes::Script;
use crate::support::{IOVA, Node, QKEY, RECV_CQ, SEND_CQ, Settings};

/// Bytes of memory; the upper half is in no region and must stay as it is.
const REGISTERED: usize = 64 << 10;
const SENTINEL: u8 = 0xa5;

/// Runs a script against a QP and checks what must hold whatever happens. Returns
/// the final state, and the number of messages that were executed.
pub(crate) fn run(script: &[u8]) -> (QpState, u64) {
    run_as(QpType::Rc, script)
}

/// Runs a script against a QP with a peer that is believed when it says which packets it has.
#[allow(dead_code, reason = "not every user of this file wants it")]
pub(crate) fn run_selective(script: &[u8]) -> (QpState, u64) {
    run_with(QpType::Rc, Recovery::Selective, script)
}

/// Runs a script against a QP of any service.
pub(crate) fn run_as(qp_type: QpType, script: &[u8]) -> (QpState, u64) {
    run_with(qp_type, Recovery::Keep, script)
}

fn run_with(qp_type: QpType, recovery: Recovery, script: &[u8]) -> (QpState, u64) {
    let mut script = Script(script);
    let settings = Settings {
        qp_type,
        memory: REGISTERED,
        access: urxe_core::mr::Access(0x30f),
        icrc: IcrcPolicy::Skip,
        recovery: [recovery; 2],
        ..Settings::default()
    };
    let mut node = Node::new(0, &settings);
    let peer = "10.0.0.2".parse().expect("an address");
    node.memory = crate::support::VecMemory::new(2 * REGISTERED);
    node.memory
        .write(REGISTERED as u64, &[SENTINEL; REGISTERED]);
    node.connect(&settings, 0, peer, urxe_wire::Qpn::new(0x77));
    let mut now = Time(1);
    let (mut sends, mut recvs) = (0usize, 0usize);
    let mut done: Vec<Cqe> = Vec::new();
    while let Some(op) = script.byte() {
        match op % 8 {
            0 => {
                let sges = [Sge {
                    addr: IOVA + 64,
                    length: 600,
                    lkey: node.keys.lkey,
                }];
                let wr = RecvWr {
                    wr_id: 1,
                    sges: &sges,
                };
                let qp = node.qp;
                recvs += usize::from(
                    node.with_env(now, |s, env| s.post_recv(qp, &wr, env))
                        .is_ok(),
                );
            }
            1 => {
                let opcode = [
                    WrOpcode::Send,
                    WrOpcode::RdmaWrite,
                    WrOpcode::RdmaRead,
                    WrOpcode::AtomicFetchAndAdd,
                ][op as usize / 8 % 4];
                let length = if opcode.is_atomic() { 8 } else { 700 };
                let sges = [Sge {
                    addr: IOVA + 4096,
                    length,
                    lkey: node.keys.lkey,
                }];
                let mut wr = SendWr::new(2, opcode, WrData::Sges(&sges));
                wr.remote_addr = 64;
                let qp = node.qp;
                sends += usize::from(
                    node.with_env(now, |s, env| s.post_send(qp, &wr, env))
                        .is_ok(),
                );
            }
            2 => {
                now = now + u64::from(script.number().unwrap_or(0)) * 1000;
                node.with_env(now, |s, env| s.handle_timeout(env));
            }
            3 => drain(&mut node, now),
            _ => {
                let Some(mut packet) = hostile_packet(&mut script, &node, qp_type, op) else {
                    break;
                };
                if recovery == Recovery::Selective && packet[0] == 0x11 {
                    say_which(&mut script, &mut packet, op);
                }
                let path = RxPath::new(peer, 4791, node.addr, 0);
                node.with_env(now, |s, env| s.handle_packet(&path, 0, &packet, env));
            }
        }
        done.extend(node.take(SEND_CQ));
        done.extend(node.take(RECV_CQ));
    }
    drain(&mut node, now);
    done.extend(node.take(SEND_CQ));
    done.extend(node.take(RECV_CQ));
    assert!(
        done.len() <= sends + recvs,
        "more completions than work requests"
    );
    if node.state() == QpState::Err {
        assert_eq!(done.len(), sends + recvs, "a failed QP flushes everything");
    } else {
        assert!(
            done.iter().all(|c| c.status == WcStatus::Success),
            "a failure without a reason"
        );
    }
    let beyond = node.memory.read(REGISTERED as u64, REGISTERED);
    assert!(
        beyond.iter().all(|&b| b == SENTINEL),
        "memory outside the region was written"
    );
    (node.state(), node.shard.stats().rcvd_messages)
}

/// A packet with the script's opcode, a PSN near the expected one, and the right QP:
/// hostile, but not so wrong that it is dropped at the door.
fn hostile_packet(
    script: &mut Script<'_>,
    node: &Node,
    qp_type: QpType,
    op: u8,
) -> Option<Vec<u8>> {
    // Any opcode, or one that may well be executed.
    let opcode = script.byte()?;
    let plain = [0x04, 0x0a, 0x0c, 0x14, 0x0a, 0x00, 0x02, 0x11];
    let opcode = if op & 0x18 != 0 {
        plain[opcode as usize % 8]
    } else {
        opcode & 0x1f
    };
    let opcode = match qp_type {
        QpType::Uc => 0x20 | opcode,
        QpType::Ud => 0x64 | (opcode & 1),
        _ => opcode,
    };
    // Mostly the next PSN, else one around it.
    let near = script.byte()?;
    let near = if near < 200 { 0 } else { i32::from(near) - 228 };
    let flags = script.byte()?;
    // Another version than 0 is dropped at the door: rarely worth a packet.
    let flags = if op & 0x20 == 0 { flags & 0xc0 } else { flags };
    let base = if (0x0d..=0x12).contains(&opcode) {
        0x100
    } else {
        0x200
    };
    let psn = Psn::new((base + near) as u32);
    let len = [0, 8, 256, 256, 100, 600][script.byte()? as usize % 6];
    let mut packet = vec![opcode, flags, 0xff, 0xff, 0, 0, 0, 0, flags & 0x80, 0, 0, 0];
    packet[5..8].copy_from_slice(&node.qpn.get().to_be_bytes()[1..]);
    packet[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
    let info = Opcode(opcode).info();
    let mut headers = script.take(info.map_or(8, |i| i.header_len as usize - 12));
    if headers.len() >= 16 && op & 0x40 == 0 {
        // Often a key and an address that pass.
        let va = IOVA + u64::from(headers[7]);
        headers[..8].copy_from_slice(&va.to_be_bytes());
        headers[8..12].copy_from_slice(&node.keys.rkey.0.to_be_bytes());
        headers[12..14].fill(0);
        let dma_len = (len as u16).to_be_bytes();
        headers[14..16].copy_from_slice(&dma_len);
    }
    if qp_type == QpType::Ud && headers.len() >= 8 && op & 0x40 == 0 {
        headers[..4].copy_from_slice(&QKEY.0.to_be_bytes());
    }
    packet.extend(headers);
    let payload = if info.is_some_and(|i| i.payload == PayloadRule::Nothing) {
        0
    } else {
        len
    };
    packet.extend(std::iter::repeat_n(op, payload + 4));
    Some(packet)
}

/// An ACKNOWLEDGE says which packets arrived.
fn say_which(script: &mut Script<'_>, packet: &mut Vec<u8>, op: u8) {
    packet.truncate(packet.len() - 4);
    packet.resize(packet.len().max(16), 0);
    if op & 0x40 == 0 {
        // Of an ACK, not of a NAK.
        packet[12] &= 0x1f;
    }
    let len = usize::from(script.byte().unwrap_or(0) % 40);
    packet.extend(script.take(len));
    packet.resize(packet.len().next_multiple_of(4) + 4, 0);
}

fn drain(node: &mut Node, now: Time) {
    let mut batch = TxBatch::new(64 << 10, RunLimits::SINGLE);
    // Bounded: what is ready at one moment is finite.
    for round in 0.. {
        let more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
        batch.clear();
        if !more {
            return;
        }
        assert!(round < 10_000, "sending never ends");
    }
}
