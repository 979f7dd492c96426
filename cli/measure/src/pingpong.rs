//! One side of `urxe pingpong`, in one variant: a connected queue pair, its memory, its completion queues.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use urxe::{Access, ConnectOptions, Mr, Qp, RecvWr, SendWr, Sge, Wc};

use crate::error::{CliError, Context};
use crate::pattern::{self, Direction};
use crate::station::{self, PeerCheck, Queue, RemoteMemory, Station};

/// Places for outgoing messages. A message must not be touched before its completion, so the next rounds use
/// other places meanwhile.
const OUT_SLOTS_MAX: usize = 64;

/// Bytes of all places for outgoing messages, unless two of them need more.
const OUT_BYTES_MAX: usize = 4 << 20;

/// The four ways to do a ping-pong that introductions to RDMA programming compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// SEND and RECV, both sides polling their completion queue without a pause
    #[default]
    SendRecvPoll,
    /// SEND and RECV, both sides sleeping until a completion event
    SendRecvNotify,
    /// WRITE to the server's memory, then READ it back, sleeping for each completion
    WriteReadNotify,
    /// WRITE without a completion, then READ, sleeping for the READ's completion
    WriteReadUnsignaled,
}

impl Variant {
    /// Whether the server takes part in each round, rather than only its memory.
    pub fn is_two_sided(self) -> bool {
        matches!(self, Variant::SendRecvPoll | Variant::SendRecvNotify)
    }

    /// Whether completions are polled for, rather than waited for.
    pub fn is_polling(self) -> bool {
        self == Variant::SendRecvPoll
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::SendRecvPoll => "SEND/RECV, busy polling",
            Variant::SendRecvNotify => "SEND/RECV, wait for notify",
            Variant::WriteReadNotify => "WRITE/READ, wait for notify",
            Variant::WriteReadUnsignaled => "WRITE unsignaled/READ, notify",
        })
    }
}

/// A place in the registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// What is sent in this round.
    Out(u64),
    /// Where messages arrive, in turn.
    In0,
    In1,
    /// The eight bytes of the "finished" message: how many transfers there were.
    Count,
}

impl Slot {
    /// Rounds use the two receive slots in turn, so that the next receive is posted before an answer goes out.
    pub fn of_round(round: u64) -> Slot {
        if round.is_multiple_of(2) {
            Slot::In0
        } else {
            Slot::In1
        }
    }
}

/// What one side has.
#[derive(Debug)]
pub struct Link {
    variant: Variant,
    size: usize,
    qp: Qp,
    sends: Queue,
    recvs: Queue,
    mr: Mr,
    /// A message's bytes outside the registered memory: where they are made and checked.
    scratch: Vec<u8>,
    out_slots: usize,
    /// Signaled sends without a completion so far: at most half of the places.
    outstanding: usize,
}

impl Link {
    pub fn new(station: &Station, variant: Variant, size: usize) -> Result<Link, CliError> {
        let what = "cannot create a queue pair";
        let out_slots = (OUT_BYTES_MAX / size).clamp(2, OUT_SLOTS_MAX);
        let sends = station.queue(OUT_SLOTS_MAX, variant.is_polling())?;
        let recvs = station.queue(8, variant.is_polling())?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = vec![0; (out_slots + 2) * size + COUNT_LEN];
        let mr = station.pd.reg_owned(memory, access).context(what)?;
        let qp = station.qp(&sends, &recvs, [OUT_SLOTS_MAX, 4], 0);
        let qp = qp.create().context(what)?;
        let scratch = vec![0; size];
        Ok(Link {
            variant,
            size,
            qp,
            sends,
            recvs,
            mr,
            scratch,
            out_slots,
            outstanding: 0,
        })
    }

    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// This end, as text for the other side.
    pub fn endpoint(&self) -> String {
        self.qp.endpoint().to_string()
    }

    pub fn connect(&self, remote: &str) -> Result<(), CliError> {
        station::connect(&self.qp, remote, &ConnectOptions::default())
    }

    /// Address and key of the memory that the other side may WRITE and READ.
    pub fn window(&self) -> RemoteMemory {
        RemoteMemory::of(&self.mr, self.offset(Slot::In0))
    }

    /// Writes the contents of a round's message.
    pub fn fill(&mut self, slot: Slot, round: u64, direction: Direction) {
        pattern::fill(&mut self.scratch, round, direction);
        self.mr.write(self.offset(slot), &self.scratch);
    }

    /// Compares every byte with the contents of a round's message.
    pub fn verify(&mut self, slot: Slot, round: u64, direction: Direction) -> Result<(), CliError> {
        self.mr.read(self.offset(slot), &mut self.scratch);
        match pattern::first_difference(&self.scratch, round, direction) {
            None => Ok(()),
            Some(byte) => {
                // What is there instead tells a lost message from a damaged one.
                let others = (0..round + 2).rev().flat_map(|other| {
                    [Direction::ToServer, Direction::ToClient].map(|direction| (other, direction))
                });
                let mut others = others.take(1 << 12);
                let found = others.find(|&(other, direction)| {
                    pattern::first_difference(&self.scratch, other, direction).is_none()
                });
                let instead = found.map_or_else(String::new, |(other, direction)| {
                    format!("; the bytes are those of message {other} {direction:?}")
                });
                Err(CliError::Fault(format!(
                    "verification failed: byte {byte} of message {round} is not what was sent{instead}"
                )))
            }
        }
    }

    pub fn count(&self) -> u64 {
        let mut bytes = [0; COUNT_LEN];
        self.mr.read(self.offset(Slot::Count), &mut bytes);
        u64::from_be_bytes(bytes)
    }

    pub fn set_count(&mut self, count: u64) {
        self.mr
            .write(self.offset(Slot::Count), &count.to_be_bytes());
    }

    pub fn post_recv(&mut self, slot: Slot) -> Result<(), CliError> {
        let sges = [self.sge(slot)];
        let posted = self.qp.post_recv(&RecvWr::new(0, &sges));
        posted.context("cannot post a receive")
    }

    /// Posts a SEND. Its completion is collected later, by [`Link::drain_sends`] at the latest: one poll for
    /// many rounds, because all but the last few are there by then.
    pub fn post_send(&mut self, slot: Slot, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        while self.outstanding >= self.out_slots / 2 {
            self.collect_sends(check)?;
        }
        let sges = [self.sge(slot)];
        self.post(&[SendWr::send(0, &sges).signaled()])?;
        self.outstanding += 1;
        Ok(())
    }

    pub fn post_write(&mut self, round: u64, memory: RemoteMemory) -> Result<(), CliError> {
        let sges = [self.sge(Slot::Out(round))];
        self.post(&[SendWr::rdma_write(0, &sges, memory.addr, memory.rkey()).signaled()])
    }

    pub fn post_read(&mut self, memory: RemoteMemory) -> Result<(), CliError> {
        let sges = [self.sge(Slot::In0)];
        self.post(&[SendWr::rdma_read(0, &sges, memory.addr, memory.rkey()).signaled()])
    }

    /// A WRITE without a completion and a READ with one, in one posted list.
    pub fn post_write_then_read(
        &mut self,
        round: u64,
        memory: RemoteMemory,
    ) -> Result<(), CliError> {
        let (out, back) = ([self.sge(Slot::Out(round))], [self.sge(Slot::In0)]);
        self.post(&[
            SendWr::rdma_write(0, &out, memory.addr, memory.rkey()),
            SendWr::rdma_read(0, &back, memory.addr, memory.rkey()).signaled(),
        ])
    }

    fn post(&self, list: &[SendWr<'_>]) -> Result<(), CliError> {
        let posted = self.qp.post_send_list(list);
        posted.context("cannot post a work request")
    }

    pub fn wait_recv(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        let taken = self.recvs.wait(&mut [Wc::default(); 1], check);
        taken.map(|_| ()).map_err(|error| self.cause_of(error))
    }

    /// When a send fails, the receives are flushed: the send's completion says why.
    fn cause_of(&self, error: CliError) -> CliError {
        let mut wcs = [Wc::default(); OUT_SLOTS_MAX];
        loop {
            match self.sends.poll(&mut wcs) {
                Ok(0) => return error,
                Ok(_) => {}
                Err(cause) => return cause,
            }
        }
    }

    /// Waits for the completion of the one signaled WRITE or READ that is outstanding.
    pub fn wait_send(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        self.sends.wait(&mut [Wc::default(); 1], check).map(|_| ())
    }

    /// Waits until all posted SENDs are complete.
    pub fn drain_sends(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        while self.outstanding > 0 {
            self.collect_sends(check)?;
        }
        Ok(())
    }

    fn collect_sends(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        let mut wcs = [Wc::default(); OUT_SLOTS_MAX];
        self.outstanding -= self.sends.wait(&mut wcs, check)?;
        Ok(())
    }

    fn offset(&self, slot: Slot) -> usize {
        match slot {
            Slot::In0 => 0,
            Slot::In1 => self.size,
            Slot::Out(round) => (2 + (round % self.out_slots as u64) as usize) * self.size,
            Slot::Count => (2 + self.out_slots) * self.size,
        }
    }

    fn sge(&self, slot: Slot) -> Sge {
        let len = match slot {
            Slot::Count => COUNT_LEN,
            _ => self.size,
        };
        let start = self.offset(slot);
        self.mr.sge(start..start + len)
    }
}

const COUNT_LEN: usize = 8;
