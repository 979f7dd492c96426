//! One side's verbs objects of one variant: a connected queue pair, its memory, its completion queues.

use urxe::{Access, ConnectOptions, Mr, Qp, RecvWr, Rkey, SendWr, Sge, Wc};

use super::protocol::Variant;
use crate::error::CliError;
use crate::pattern::{self, Direction};
use crate::station::{self, PeerCheck, Queue};
pub(super) use crate::station::{RemoteMemory, Station};

/// Places for outgoing messages. A message must not be touched before its completion, so the next rounds use
/// other places meanwhile.
const OUT_SLOTS_MAX: usize = 64;

/// Bytes of all places for outgoing messages, unless two of them need more.
const OUT_BYTES_MAX: usize = 4 << 20;

/// A place in the registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// What is sent in this round.
    Out(u64),
    /// Where messages arrive, in turn.
    In0,
    In1,
    /// The eight bytes of the "finished" message: how many transfers there were.
    Count,
}

#[derive(Debug)]
pub(super) struct Link {
    variant: Variant,
    size: usize,
    qp: Qp,
    sends: Queue,
    recvs: Queue,
    mr: Mr,
    /// A message's bytes outside the registered memory: where they are made and checked.
    scratch: Vec<u8>,
    /// Places for outgoing messages.
    out_slots: usize,
    /// Signaled sends without a completion so far: at most half of the places.
    outstanding: usize,
}

impl Link {
    pub(super) fn new(station: &Station, variant: Variant, size: usize) -> Result<Link, CliError> {
        let fail = |error| CliError::context("cannot create a queue pair", error);
        let out_slots = (OUT_BYTES_MAX / size).clamp(2, OUT_SLOTS_MAX);
        let sends = station.queue(OUT_SLOTS_MAX, variant.is_polling())?;
        let recvs = station.queue(8, variant.is_polling())?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mr = station
            .pd
            .reg_owned(vec![0; (out_slots + 2) * size + COUNT_LEN], access)
            .map_err(fail)?;
        let qp = station
            .pd
            .qp(&sends.cq)
            .recv_cq(&recvs.cq)
            .max_send_wr(OUT_SLOTS_MAX as u32)
            .max_recv_wr(4)
            .max_sge(1)
            .max_inline_data(0)
            .create()
            .map_err(fail)?;
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

    pub(super) fn variant(&self) -> Variant {
        self.variant
    }

    /// This end, as text for the other side.
    pub(super) fn endpoint(&self) -> String {
        self.qp.endpoint().to_string()
    }

    pub(super) fn connect(&self, remote: &str) -> Result<(), CliError> {
        station::connect(&self.qp, remote, &ConnectOptions::default())
    }

    /// Address and key of the memory that the other side may WRITE and READ.
    pub(super) fn window(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.mr.addr() + self.offset(Slot::In0) as u64,
            rkey: self.mr.rkey().0,
        }
    }

    /// Writes the contents of a round's message.
    pub(super) fn fill(&mut self, slot: Slot, round: u64, direction: Direction) {
        pattern::fill(&mut self.scratch, round, direction);
        self.mr.write(self.offset(slot), &self.scratch);
    }

    /// Compares every byte with the contents of a round's message.
    pub(super) fn verify(
        &mut self,
        slot: Slot,
        round: u64,
        direction: Direction,
    ) -> Result<(), CliError> {
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

    pub(super) fn count(&self) -> u64 {
        let mut bytes = [0; COUNT_LEN];
        self.mr.read(self.offset(Slot::Count), &mut bytes);
        u64::from_be_bytes(bytes)
    }

    pub(super) fn set_count(&mut self, count: u64) {
        self.mr
            .write(self.offset(Slot::Count), &count.to_be_bytes());
    }

    pub(super) fn post_recv(&mut self, slot: Slot) -> Result<(), CliError> {
        let sges = [self.sge(slot)];
        let posted = self.qp.post_recv(&RecvWr::new(0, &sges));
        posted.map_err(|error| CliError::context("cannot post a receive", error))
    }

    /// Posts a SEND. Its completion is collected later, by [`Link::drain_sends`] at the latest: one poll for
    /// many rounds, because all but the last few are there by then.
    pub(super) fn post_send(
        &mut self,
        slot: Slot,
        check: &mut PeerCheck<'_>,
    ) -> Result<(), CliError> {
        while self.outstanding >= self.out_slots / 2 {
            self.collect_sends(check)?;
        }
        let sges = [self.sge(slot)];
        self.post(&[SendWr::send(0, &sges).signaled()])?;
        self.outstanding += 1;
        Ok(())
    }

    pub(super) fn post_write(&mut self, round: u64, memory: RemoteMemory) -> Result<(), CliError> {
        let sges = [self.sge(Slot::Out(round))];
        let rkey = Rkey(memory.rkey);
        self.post(&[SendWr::rdma_write(0, &sges, memory.addr, rkey).signaled()])
    }

    pub(super) fn post_read(&mut self, memory: RemoteMemory) -> Result<(), CliError> {
        let sges = [self.sge(Slot::In0)];
        let rkey = Rkey(memory.rkey);
        self.post(&[SendWr::rdma_read(0, &sges, memory.addr, rkey).signaled()])
    }

    /// A WRITE without a completion and a READ with one, in one posted list.
    pub(super) fn post_write_then_read(
        &mut self,
        round: u64,
        memory: RemoteMemory,
    ) -> Result<(), CliError> {
        let (out, back) = ([self.sge(Slot::Out(round))], [self.sge(Slot::In0)]);
        let rkey = Rkey(memory.rkey);
        self.post(&[
            SendWr::rdma_write(0, &out, memory.addr, rkey),
            SendWr::rdma_read(0, &back, memory.addr, rkey).signaled(),
        ])
    }

    fn post(&self, list: &[SendWr<'_>]) -> Result<(), CliError> {
        let posted = self.qp.post_send_list(list);
        posted.map_err(|error| CliError::context("cannot post a work request", error))
    }

    /// Waits for a message.
    pub(super) fn wait_recv(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        let mut wcs = [Wc::default(); 1];
        match self.recvs.wait(&mut wcs, check) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.cause_of(error)),
        }
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
    pub(super) fn wait_send(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        let mut wcs = [Wc::default(); 1];
        self.sends.wait(&mut wcs, check)?;
        Ok(())
    }

    /// Waits until all posted SENDs are complete.
    pub(super) fn drain_sends(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
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
        let len = if slot == Slot::Count {
            COUNT_LEN
        } else {
            self.size
        };
        let start = self.offset(slot);
        self.mr.sge(start..start + len)
    }
}

/// Bytes of the transfer count.
const COUNT_LEN: usize = 8;
