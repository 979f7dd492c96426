//! One side of `urxe bench fairness`: many QPs that stream, and a small one.

use serde::{Deserialize, Serialize};
use urxe::{Access, ConnectOptions, Mr, Mtu, Qp, RecvWr, SendWr, Wc};

use crate::error::{CliError, Context};
use crate::pattern::{self, Direction};
use crate::station::{self, PeerCheck, Queue, RemoteMemory, Station};

/// Bytes of a small message.
pub const SMALL: usize = 8;
/// Receives that the small QP has posted.
const RECVS: usize = 64;
/// Every so many small messages one is signaled: enough to reclaim queue places.
const SIGNAL_EVERY: u64 = 32;
/// Bytes that a QP has posted when it streams: more than it may have under way, so that it always has some to send.
const BACKLOG: usize = 2 << 20;

/// What both sides have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// QPs that stream.
    pub qps: usize,
    /// Bytes of their messages.
    pub size: usize,
    pub mtu: u32,
}

/// The verbs objects of one side.
#[derive(Debug)]
pub struct Ends {
    plan: Plan,
    small: Qp,
    small_sends: Queue,
    pub small_recvs: Queue,
    bulk: Vec<Qp>,
    /// Completions of all that stream: the id is the place of the QP.
    pub completions: Queue,
    /// What is sent, or where all of it goes. Small messages are received behind it.
    mr: Mr,
    sent: u64,
}

impl Ends {
    pub fn create(station: &Station, plan: Plan) -> Result<Ends, CliError> {
        let what = "cannot create a queue pair";
        let small_sends = station.queue(2 * RECVS, true)?;
        let small_recvs = station.queue(2 * RECVS, true)?;
        let completions = station.queue((plan.qps * plan.depth()).max(1), true)?;
        let mut memory = vec![0; plan.size.next_multiple_of(64) + SMALL];
        pattern::fill(&mut memory[..plan.size], 0, Direction::ToServer);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = station.pd.reg_owned(memory, access).context(what)?;
        let small = station.qp(&small_sends, &small_recvs, [RECVS; 2], SMALL);
        let small = small.create().context(what)?;
        let bulk = station.qp(&completions, &completions, [plan.depth(), 1], 0);
        let bulk = (0..plan.qps).map(|_| bulk.clone().create());
        let bulk = bulk.collect::<Result<Vec<Qp>, _>>().context(what)?;
        Ok(Ends {
            plan,
            small,
            small_sends,
            small_recvs,
            bulk,
            completions,
            mr,
            sent: 0,
        })
    }

    /// The endpoints, that of the small QP first.
    pub fn endpoints(&self) -> Vec<String> {
        let qps = std::iter::once(&self.small).chain(&self.bulk);
        qps.map(|qp| qp.endpoint().to_string()).collect()
    }

    pub fn connect(&self, remotes: &[String]) -> Result<(), CliError> {
        let options = ConnectOptions {
            path_mtu: Mtu::from_bytes(self.plan.mtu),
            ..ConnectOptions::default()
        };
        for (qp, remote) in std::iter::once(&self.small).chain(&self.bulk).zip(remotes) {
            station::connect(qp, remote, &options)?;
        }
        for _ in 0..RECVS {
            self.repost_small()?;
        }
        Ok(())
    }

    /// Where the other side may WRITE.
    pub fn memory(&self) -> RemoteMemory {
        RemoteMemory::of(&self.mr, 0)
    }

    /// Makes it memory that holds nothing of a message.
    pub fn blank(&self) {
        self.mr.write(0, &vec![0; self.plan.size]);
    }

    /// Whether the pattern has arrived, whole.
    pub fn verify(&self) -> Result<(), CliError> {
        pattern::verify(&self.mr, 0..self.plan.size)
    }

    /// Posts the next message of a QP that streams.
    pub fn post_bulk(&self, index: usize, remote: RemoteMemory) -> Result<(), CliError> {
        let sges = [self.mr.sge(0..self.plan.size)];
        let wr = SendWr::rdma_write(index as u64, &sges, remote.addr, remote.rkey()).signaled();
        let posted = self.bulk[index].post_send(&wr);
        posted.context("cannot post a work request")
    }

    pub fn post_small(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        self.sent += 1;
        let bytes = self.sent.to_le_bytes();
        let wr = SendWr::send_inline(0, &bytes);
        let is_signaled = self.sent.is_multiple_of(SIGNAL_EVERY);
        // The one before has been acknowledged by now: there is nothing to wait for.
        if is_signaled && self.sent > SIGNAL_EVERY {
            self.small_sends.wait(&mut [Wc::default(); 1], check)?;
        }
        let wr = if is_signaled { wr.signaled() } else { wr };
        let posted = self.small.post_send(&wr);
        posted.context("cannot post a work request")
    }

    /// Posts a receive for a small message.
    pub fn repost_small(&self) -> Result<(), CliError> {
        let start = self.plan.size.next_multiple_of(64);
        let sges = [self.mr.sge(start..start + SMALL)];
        let posted = self.small.post_recv(&RecvWr::new(0, &sges));
        posted.context("cannot post a receive")
    }
}

impl Plan {
    /// Messages that a QP has posted when it streams.
    pub fn depth(&self) -> usize {
        (BACKLOG / self.size).clamp(2, 512)
    }
}
