//! One side's verbs objects of a bench.

use serde::{Deserialize, Serialize};
use urxe::congestion::CongestionControl;
use urxe::{Access, ConnectOptions, Mr, Mtu, Qp, RecvWr, SendWr, Sge, Wc};

use super::plan::{Op, Plan};
use crate::error::{CliError, Context};
use crate::pattern::{self, Direction};
use crate::station::{self, PeerCheck, Queue, RemoteMemory, Station};

/// READs and atomics that may be under way.
const RD_ATOMIC: u8 = 16;
/// The same where round trips are long.
const RD_ATOMIC_ON_ROADS: u8 = 128;

const RECV_LIST_LEN: usize = 32;

/// Receives that a ping-pong has posted besides the one that is due, as programs that care for latency have: a
/// peer that knows of one receive only must wait for an acknowledgement before every message.
const RECVS_AHEAD: usize = 64;

/// Places in the send queue at least: a ping-pong asks for a completion only now and then.
const SENDS_MIN: usize = 64;

/// A connected QP, its completion queues and its memory.
#[derive(Debug)]
pub struct Link {
    pub plan: Plan,
    pub qp: Qp,
    pub sends: Queue,
    pub recvs: Queue,
    /// The first half is sent from, the second is received into.
    pub mr: Mr,
}

impl Link {
    pub fn new(station: &Station, plan: Plan) -> Result<Link, CliError> {
        let what = "cannot create a queue pair";
        let depth = plan.depth();
        let sends = station.queue(2 * depth, !plan.is_event)?;
        let recvs = station.queue(4 * depth, !plan.is_event)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let mr = station.pd.reg_owned(vec![0; 2 * half(plan)], access);
        let mr = mr.context(what)?;
        let inline = if plan.is_inline() { plan.size } else { 0 };
        let places = [depth.max(SENDS_MIN), 2 * depth];
        let qp = station.qp(&sends, &recvs, places, inline);
        let qp = qp.create().context(what)?;
        Ok(Link {
            plan,
            qp,
            sends,
            recvs,
            mr,
        })
    }

    /// A counter of this side's device.
    pub fn counter(&self, wanted: &str) -> Result<u64, CliError> {
        let counters = self.sends.cq.context().counters();
        let counters = counters.context("cannot read the counters")?;
        let mut found = counters.iter().filter(|(name, _)| *name == wanted);
        Ok(found.next().map_or(0, |&(_, count)| count))
    }

    /// What became of the packets that this side sent.
    pub fn packets(&self) -> Result<Packets, CliError> {
        Ok(Packets {
            sent: self.counter("sent_pkts")?,
            lost: self.counter("fault_dropped")?,
            queue_full: self.counter("fault_queue_full")?,
        })
    }

    pub fn endpoint(&self) -> String {
        self.qp.endpoint().to_string()
    }

    pub fn connect(&self, remote: &str) -> Result<(), CliError> {
        let mut options = ConnectOptions {
            path_mtu: Mtu::from_bytes(self.plan.mtu),
            rd_atomic: RD_ATOMIC,
            ..ConnectOptions::default()
        };
        if let Some(road) = self.plan.road {
            options.rd_atomic = RD_ATOMIC_ON_ROADS;
            options.timeout = road.timeout;
        }
        station::connect(&self.qp, remote, &options)?;
        if self.plan.road.is_some() {
            let what = "cannot prepare a connection for a road";
            // The other side is this program with the same settings: it offers the same, and does this too.
            self.qp.set_ece(&self.qp.query_ece()).context(what)?;
            let control = self.qp.set_congestion_control(CongestionControl::Auto);
            control.context(what)?;
        }
        if self.plan.op == Op::Send && self.plan.is_latency {
            self.post_recvs(self.plan.depth().min(RECVS_AHEAD))?;
        }
        Ok(())
    }

    /// The half that the other side may work on.
    pub fn window(&self) -> RemoteMemory {
        RemoteMemory::of(&self.mr, self.in_offset())
    }

    pub fn in_offset(&self) -> usize {
        half(self.plan)
    }

    pub fn out_sge(&self) -> Sge {
        self.mr.sge(0..self.plan.size)
    }

    pub fn in_sge(&self) -> Sge {
        self.mr
            .sge(self.in_offset()..self.in_offset() + self.plan.size)
    }

    /// Fills what is sent, or what is read from here, with the pattern.
    pub fn fill(&self, offset: usize) {
        let mut message = vec![0; self.plan.size];
        pattern::fill(&mut message, 0, Direction::ToServer);
        self.mr.write(offset, &message);
    }

    /// Whether the pattern has arrived, whole.
    pub fn verify(&self) -> Result<(), CliError> {
        pattern::verify(
            &self.mr,
            self.in_offset()..self.in_offset() + self.plan.size,
        )
    }

    pub fn post(&self, list: &[SendWr<'_>]) -> Result<(), CliError> {
        let posted = self.qp.post_send_list(list);
        posted.context("cannot post a work request")
    }

    pub fn post_recvs(&self, count: usize) -> Result<(), CliError> {
        let sges = [self.in_sge()];
        let mut left = count;
        while left > 0 {
            let list = [RecvWr::new(0, &sges); RECV_LIST_LEN];
            let next = left.min(RECV_LIST_LEN);
            let posted = self.qp.post_recv_list(&list[..next]);
            posted.context("cannot post receives")?;
            left -= next;
        }
        Ok(())
    }

    /// Waits for the completion of one signaled operation.
    pub fn wait_send(&self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        self.sends.wait(&mut [Wc::default(); 1], check).map(|_| ())
    }

    /// Waits for one message.
    pub fn wait_recv(&self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        self.recvs.wait(&mut [Wc::default(); 1], check).map(|_| ())
    }

    /// The operation of the plan, unsignaled.
    pub fn work_request<'a>(&self, sges: &'a [Sge; 1], remote: RemoteMemory) -> SendWr<'a> {
        let rkey = remote.rkey();
        match self.plan.op {
            Op::Send => SendWr::send(0, sges),
            Op::Write => SendWr::rdma_write(0, sges, remote.addr, rkey),
            Op::Read => SendWr::rdma_read(0, sges, remote.addr, rkey),
            Op::Atomic => SendWr::atomic_fetch_add(0, sges, remote.addr, rkey, 1),
        }
    }

    /// Where the operation's local bytes are.
    pub fn local_sge(&self) -> Sge {
        match self.plan.op {
            Op::Send | Op::Write => self.out_sge(),
            Op::Read | Op::Atomic => self.in_sge(),
        }
    }
}

/// What became of the packets that a side sent, by the counters of its device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    pub sent: u64,
    /// Lost on the road.
    pub lost: u64,
    /// Found the road's queue full.
    pub queue_full: u64,
}

/// Each half begins on a cache line of its own, and where atomics may work.
fn half(plan: Plan) -> usize {
    plan.size.next_multiple_of(64)
}
