//! Two queue pairs, one at each end of a road. The first sends messages to the second, or reads them from there.

use urxe_core::congestion::CongestionControl;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Recovery, RxPath, Time};

use super::road::{Cargo, Flow};
use super::support::{IOVA, Pair, RECOVERY, RECV_CQ, SEND_CQ, Settings};

/// Bytes of a message, and messages that are posted at a time.
const MESSAGE: u32 = 256 << 10;
const POSTED: u64 = 64;
/// What a datagram takes on a link beside its UDP payload.
const OVERHEAD: u64 = 66;
/// The part of a link that payload has: packets of 1024 bytes.
pub(crate) const PAYLOAD: f64 = 1024.0 / (1024.0 + 16.0 + OVERHEAD as f64);

pub(crate) struct Ends {
    pair: Pair,
    op: WrOpcode,
    posted: u64,
    done: u64,
    is_dead: bool,
}

impl Ends {
    pub(crate) fn new(control: CongestionControl, op: WrOpcode, seed: u64) -> Ends {
        let settings = Settings {
            mtu: Mtu::Mtu1024,
            window_bytes: 512 << 10,
            window_packets: 4096,
            window_packets_start: 32,
            read_chunk_bytes: 64 << 10,
            rd_atomic: 16,
            timeout: 14,
            // The bounds are those of going back, unless a test says otherwise.
            recovery: match RECOVERY.get() {
                [Recovery::Selective, _] => [Recovery::Selective; 2],
                _ => [Recovery::GoBackN; 2],
            },
            memory: MESSAGE as usize * 2,
            cap: QpCap {
                max_send_wr: POSTED as u32,
                max_recv_wr: POSTED as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..Settings::default()
        };
        let mut pair = Pair::new(&settings, seed);
        let (qp, now) = (pair.nodes[0].qp, pair.now);
        let shard = &mut pair.nodes[0].shard;
        shard
            .set_congestion_control(qp, control, now)
            .expect("takes it");
        Ends {
            pair,
            op,
            posted: 0,
            done: 0,
            is_dead: false,
        }
    }

    fn post(&mut self) {
        let keys = [self.pair.nodes[0].keys, self.pair.nodes[1].keys];
        let far = IOVA + u64::from(MESSAGE);
        if self.op == WrOpcode::Send {
            let sges = [Sge {
                addr: far,
                length: MESSAGE,
                lkey: keys[1].lkey,
            }];
            self.pair.post_recv(
                1,
                &RecvWr {
                    wr_id: self.posted,
                    sges: &sges,
                },
            );
        }
        let sges = [Sge {
            addr: IOVA,
            length: MESSAGE,
            lkey: keys[0].lkey,
        }];
        let mut wr = SendWr::new(self.posted, self.op, WrData::Sges(&sges));
        wr.flags = SendFlags::SIGNALED;
        (wr.remote_addr, wr.rkey) = (far, keys[1].rkey);
        self.pair.post_send(0, &wr);
        self.posted += 1;
    }
}

impl Flow for Ends {
    fn poll(&mut self, now: Time) -> Vec<Cargo> {
        self.pair.now = now;
        while self.posted - self.done < POSTED && !self.is_dead {
            self.post();
        }
        let mut out = Vec::new();
        for side in 0..2 {
            let node = &mut self.pair.nodes[side];
            let mut more = true;
            while more {
                let mut batch =
                    std::mem::replace(&mut node.batch, TxBatch::new(0, RunLimits::SINGLE));
                more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
                for run in batch.runs() {
                    let packets = batch.bytes()[run.range.clone()].chunks(run.segment_size);
                    out.extend(packets.enumerate().map(|(k, bytes)| Cargo {
                        from: side,
                        size: bytes.len() as u64 + OVERHEAD,
                        hint: k as u16,
                        bytes: bytes.to_vec(),
                    }));
                }
                batch.clear();
                node.batch = batch;
            }
        }
        out
    }

    fn arrive(&mut self, cargo: Cargo, now: Time) {
        let [near, far] = [cargo.from, 1 - cargo.from].map(|side| self.pair.nodes[side].addr);
        let path = RxPath::new(near, 4791, far, 0);
        self.pair.nodes[1 - cargo.from].with_env(now, |s, env| {
            s.handle_packet(&path, cargo.hint, &cargo.bytes, env)
        });
    }

    fn deadline(&self) -> Option<Time> {
        let nodes = self.pair.nodes.iter();
        nodes.filter_map(|node| node.shard.next_timeout()).min()
    }

    fn tick(&mut self, now: Time) {
        for node in &mut self.pair.nodes {
            node.with_env(now, |s, env| s.handle_timeout(env));
        }
        for cqe in self.pair.nodes[0].take(SEND_CQ) {
            self.is_dead |= cqe.status != WcStatus::Success;
            self.done += 1;
        }
        self.pair.nodes[1].take(RECV_CQ);
    }

    fn delivered(&self) -> u64 {
        self.done * u64::from(MESSAGE)
    }

    fn is_dead(&self) -> bool {
        self.is_dead
    }
}
