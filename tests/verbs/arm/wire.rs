//! The virtual wire of the core's own tests.

use std::collections::VecDeque;
use std::net::IpAddr;

use urxe::{Access, AttrMask, ModifyError, PostError, QpAttr, Qpn, RegisterError, Wc};
use urxe_core::mr::{MrInit, PdId};
use urxe_core::work::{RecvWr, SendWr};

use super::{Arm, Domain, Queue, Region, Setup, event_name};
use crate::support::{Faults, IOVA, PD, Pair, RECV_CQ, Rng, SEND_CQ, Settings, Verdict};

const MEMORY: usize = 8 << 20;

pub(crate) struct WireArm {
    pair: Pair,
    done: [[VecDeque<Wc>; 2]; 2],
    /// Start of the memory that no region has yet, by side.
    free: [usize; 2],
    regions: usize,
}

impl WireArm {
    pub(crate) fn open(setup: &Setup, seed: Option<u64>) -> WireArm {
        let settings = Settings {
            memory: MEMORY,
            cap: setup.cap,
            sq_sig_all: setup.sq_sig_all,
            qp_type: setup.qp_type,
            secret: seed.unwrap_or(1),
            ..Settings::default()
        };
        let mut pair = Pair::unconnected(&settings, seed.unwrap_or(1));
        for node in &mut pair.nodes {
            node.cqs.capacity = setup.cqe;
        }
        if let Some(seed) = seed {
            let mut rng = Rng(seed);
            pair.faults = Faults {
                lose: 20 + rng.below(60),
                duplicate: rng.below(60),
                corrupt: rng.below(40),
                reorder: rng.below(80),
                delay_ns: 1000 + rng.below(10_000),
                batch_ns: rng.pick(&[0, 20_000]),
                congest: rng.pick(&[0, 50]),
            };
        }
        WireArm {
            pair,
            done: Default::default(),
            free: [0; 2],
            regions: 0,
        }
    }
}

impl Arm for WireArm {
    fn addr(&self, side: usize) -> IpAddr {
        self.pair.nodes[side].addr
    }

    fn qpn(&self, side: usize) -> Qpn {
        self.pair.nodes[side].qpn
    }

    fn register(
        &mut self,
        side: usize,
        domain: Domain,
        len: usize,
        access: Access,
    ) -> Result<Region, RegisterError> {
        // A gap between regions, so that reaching too far reaches nothing.
        let at = self.free[side];
        let node = &mut self.pair.nodes[side];
        let addr = IOVA + at as u64;
        let keys = node.mrs.register(MrInit {
            pd: match domain {
                Domain::Own => PD,
                Domain::Other => PdId(PD.0 + 1),
            },
            access,
            host_addr: at as u64,
            iova: addr,
            len: len as u64,
            remote_invalidate: false,
        })?;
        self.free[side] += len.next_multiple_of(64) + 64;
        assert!(
            self.free[side] < MEMORY,
            "the wire's nodes have {MEMORY} bytes"
        );
        self.regions += 1;
        Ok(Region {
            side,
            id: self.regions,
            addr,
            len,
            lkey: keys.lkey,
            rkey: keys.rkey,
        })
    }

    fn deregister(&mut self, region: &Region) {
        assert!(self.pair.nodes[region.side].mrs.deregister(region.lkey));
    }

    fn allow_invalidate(&mut self, region: &Region) {
        let mrs = &mut self.pair.nodes[region.side].mrs;
        assert!(mrs.set_remote_invalidate(region.lkey, true));
    }

    fn write(&mut self, region: &Region, offset: usize, bytes: &[u8]) {
        let at = region.addr - IOVA + offset as u64;
        self.pair.nodes[region.side].memory.write(at, bytes);
    }

    fn read(&self, region: &Region, offset: usize, len: usize) -> Vec<u8> {
        let at = region.addr - IOVA + offset as u64;
        self.pair.nodes[region.side].memory.read(at, len)
    }

    fn modify(&mut self, side: usize, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
        let now = self.pair.now;
        let node = &mut self.pair.nodes[side];
        let qp = node.qp;
        node.with_env(now, |s, env| s.modify_qp(qp, attr, mask, env))
    }

    fn query(&self, side: usize) -> QpAttr {
        let node = &self.pair.nodes[side];
        node.shard.query_qp(node.qp).expect("the QP exists").0
    }

    fn post_send(&mut self, side: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let now = self.pair.now;
        let node = &mut self.pair.nodes[side];
        let qp = node.qp;
        node.with_env(now, |s, env| s.post_send(qp, wr, env))
    }

    fn post_recv(&mut self, side: usize, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let now = self.pair.now;
        let node = &mut self.pair.nodes[side];
        let qp = node.qp;
        node.with_env(now, |s, env| s.post_recv(qp, wr, env))
    }

    fn poll(&mut self, side: usize, queue: Queue) -> Option<Wc> {
        let cq = match queue {
            Queue::Send => SEND_CQ,
            Queue::Recv => RECV_CQ,
        };
        let done = &mut self.done[side][queue as usize];
        done.extend(self.pair.nodes[side].take(cq).into_iter().map(Wc::from));
        done.pop_front()
    }

    fn event(&mut self, side: usize) -> Option<String> {
        self.pair.nodes[side].shard.poll_event().map(event_name)
    }

    fn destroy(&mut self, side: usize) {
        let node = &mut self.pair.nodes[side];
        assert!(node.shard.destroy_qp(node.qp));
    }

    fn advance(&mut self) -> bool {
        self.pair.step()
    }

    fn silence(&mut self, side: usize) -> bool {
        let drop = move |from, _: &[u8]| {
            if from == side {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        };
        self.pair.filter = Some(Box::new(drop));
        true
    }
}
