//! A peer that says of any packets that it has them, whether or not they were ever sent, and acknowledges none: the body of
//! a fuzz target and of a property test. Nothing completes for that. Once the peer tells the truth, everything does.

use urxe_core::error::WcStatus;
use urxe_core::qp::state::QpState;
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Recovery, RxPath, Time};
use urxe_wire::{IcrcPolicy, Operation, Packet, Psn, Qpn, Rkey};

use crate::support::bytes::Script;
use crate::support::{IOVA, Node, SEND_CQ, Settings};

/// Bytes of a request, and the packets that it or its answer takes.
const LEN: u32 = 700;
const PACKETS: u32 = 3;
const POSTED_MAX: usize = 60;

/// The requester, and what is known of it.
struct World {
    node: Node,
    now: Time,
    first: Psn,
    posted: Vec<WrOpcode>,
    /// PSNs that were sent, from the first on.
    sent: u32,
    done: usize,
}

/// Runs a script. Returns how many requests were posted, and how many ACKs and NAKs claimed something.
pub(crate) fn run(script: &[u8]) -> (usize, usize) {
    let mut script = Script(script);
    let first = match script.byte() {
        Some(byte) if byte % 2 == 1 => 0xff_fff0 + u32::from(byte / 16),
        _ => 0x100,
    };
    let settings = Settings {
        psn: [first, 0x200],
        memory: 64 << 10,
        icrc: IcrcPolicy::Skip,
        recovery: [Recovery::Selective; 2],
        // It does not give up.
        timeout: 0,
        ..Settings::default()
    };
    let mut node = Node::new(0, &settings);
    let peer = "10.0.0.2".parse().expect("an address");
    node.connect(&settings, 0, peer, Qpn::new(0x77));
    node.shard.set_selective_peer(node.qp);
    let mut world = World {
        node,
        now: Time(1),
        first: Psn::new(first),
        posted: Vec::new(),
        sent: 0,
        done: 0,
    };
    let mut claims = 0;
    while let Some(step) = script.byte() {
        match step % 8 {
            0 | 1 => world.post(step / 8),
            2 => world.send(),
            3 => world.wait(u64::from(script.number().unwrap_or(0)) * 1000),
            _ => {
                claims += 1;
                world.claim(&mut script, step / 8);
            }
        }
        assert!(
            world.node.take(SEND_CQ).is_empty(),
            "a request is done of which nothing was acknowledged"
        );
        assert_eq!(world.node.state(), QpState::Rts, "a claim is no fault");
    }
    world.tell_the_truth();
    (world.posted.len(), claims)
}

impl World {
    fn post(&mut self, kind: u8) {
        if self.posted.len() == POSTED_MAX {
            return;
        }
        use WrOpcode::{RdmaRead, RdmaWrite, Send};
        let opcode = [Send, RdmaWrite, RdmaWrite, RdmaRead][usize::from(kind % 4)];
        let sges = [Sge {
            addr: IOVA,
            length: LEN,
            lkey: self.node.keys.lkey,
        }];
        let mut wr = SendWr::new(self.posted.len() as u64, opcode, WrData::Sges(&sges));
        wr.flags = SendFlags::SIGNALED;
        (wr.remote_addr, wr.rkey) = (64, Rkey(1));
        let qp = self.node.qp;
        self.node
            .with_env(self.now, |s, env| s.post_send(qp, &wr, env))
            .expect("posts");
        self.posted.push(opcode);
    }

    /// All that leaves now is of what was posted.
    fn send(&mut self) {
        let mut batch = TxBatch::new(64 << 10, RunLimits::SINGLE);
        for round in 0.. {
            let now = self.now;
            let more = self
                .node
                .with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
            for run in batch.runs() {
                for bytes in batch.bytes()[run.range.clone()].chunks(run.segment_size) {
                    let packet = Packet::parse(bytes).expect("shards send packets");
                    let span = match packet.info().operation {
                        Operation::ReadRequest => {
                            packet.reth().expect("it has one").dma_len.div_ceil(256)
                        }
                        _ => 1,
                    };
                    let end = packet.bth().psn.distance_from(self.first) + span;
                    assert!(
                        end <= PACKETS * self.posted.len() as u32,
                        "something is sent that was not posted: {:?}",
                        packet.bth()
                    );
                    self.sent = self.sent.max(end);
                }
            }
            batch.clear();
            if !more {
                return;
            }
            assert!(round < 10_000, "sending never ends");
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now + ns;
        let now = self.now;
        self.node.with_env(now, |s, env| s.handle_timeout(env));
    }

    /// An ACK or NAK of nothing that says which packets are here: any, all, or those of the script.
    fn claim(&mut self, script: &mut Script<'_>, kind: u8) {
        let is_nak = kind.is_multiple_of(2);
        let len = script.byte().unwrap_or(0);
        let mut payload = match kind / 2 % 2 {
            0 => script.take(usize::from(len % 48)),
            _ => vec![0xff; 4 * usize::from(len)],
        };
        payload.resize(payload.len().next_multiple_of(4), 0);
        let (syndrome, psn) = match is_nak {
            true => (0x60, self.first),
            false => (0x1f, self.first.prev()),
        };
        self.receive(0x11, psn, Some(syndrome), &payload);
    }

    fn receive(&mut self, opcode: u8, psn: Psn, syndrome: Option<u8>, payload: &[u8]) {
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let flags = 0x40 | (pad as u8) << 4;
        let mut packet = vec![opcode, flags, 0xff, 0xff, 0, 0, 0, 0, 0];
        packet[5..8].copy_from_slice(&self.node.qpn.get().to_be_bytes()[1..]);
        packet.extend(&psn.get().to_be_bytes()[1..]);
        packet.extend(syndrome.iter().flat_map(|&syndrome| [syndrome, 0, 0, 0]));
        packet.extend(payload);
        // The ICRC is not looked at.
        packet.resize(packet.len() + pad + 4, 0);
        let from = "10.0.0.2".parse().expect("an address");
        let path = RxPath::new(from, 4791, self.node.addr, 0);
        let now = self.now;
        self.node
            .with_env(now, |s, env| s.handle_packet(&path, 0, &packet, env));
    }

    /// Each request is answered as by any peer, and is done then.
    fn tell_the_truth(&mut self) {
        for (number, opcode) in self.posted.clone().into_iter().enumerate() {
            let begin = number as u32 * PACKETS;
            for round in 0.. {
                self.send();
                if self.sent >= begin + PACKETS {
                    break;
                }
                assert!(round < 100, "request {number} never leaves");
                self.wait(100_000_000);
            }
            let psn = |n: u32| self.first.add(begin + n);
            if opcode == WrOpcode::RdmaRead {
                let [first, middle, last] = [psn(0), psn(1), psn(2)];
                self.receive(0x0d, first, Some(0x1f), &[7; 256]);
                self.receive(0x0e, middle, None, &[7; 256]);
                self.receive(0x0f, last, Some(0x1f), &[7; LEN as usize - 512]);
            } else {
                let last = psn(2);
                self.receive(0x11, last, Some(0x1f), &[]);
            }
            for cqe in self.node.take(SEND_CQ) {
                assert_eq!(
                    (cqe.wr_id, cqe.status),
                    (self.done as u64, WcStatus::Success)
                );
                self.done += 1;
            }
            assert_eq!(self.done, number + 1, "{opcode:?} was answered");
        }
    }
}
