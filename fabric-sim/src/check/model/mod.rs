//! What transports must do, in the simplest words: each end of a connection remembers what was posted, and what
//! is executed at the other end is compared with it.
//!
//! Packets are looked at where they enter the transport, memory where it is written, completions where they are
//! pushed; the transport itself knows nothing of it.

use std::collections::{BTreeMap, VecDeque};

use urxe_core::WcStatus;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::table::QpIndex;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_wire::{BTH_LEN, Opcode, OpcodeInfo, Operation, Position, Psn};

use crate::check::Check;
use crate::engine::{Span, Time};
use crate::topology::HostId;

/// A request that was posted and has no completion.
#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    is_signaled: bool,
    len: u64,
    opcode: WrOpcode,
    /// Its number among those that the peer executes, if it is one.
    action: Option<u64>,
    result_at: u64,
}

/// A message that the peer will execute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    opcode: WrOpcode,
    len: u64,
    addr: u64,
    compare_add: u64,
    swap: u64,
}

/// A message that has been executed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The QP that posted it.
    pub(crate) peer: (HostId, u32),
    operation: Operation,
    len: u64,
    /// Where the first byte of a WRITE went.
    addr: Option<u64>,
    /// Old and new value, of an atomic.
    pub(crate) values: Option<(u64, u64)>,
}

/// A completion that must come after something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) qpn: u32,
    /// The action must have been executed.
    action: Option<u64>,
    pub(crate) result_at: Option<u64>,
    /// Bytes of READs that must have come by now.
    read_claimed: u64,
}

/// One QP, in both roles.
#[derive(Debug, Default)]
struct Qp {
    qpn: u32,
    peer: Option<(HostId, u32)>,
    /// It ended in an error: what is flushed needs no explanation.
    is_broken: bool,
    /// Without a timeout, nothing is ever sent again.
    has_timeout: bool,
    bound: Span,
    sends: VecDeque<Posted>,
    recvs: VecDeque<u64>,
    actions: VecDeque<Action>,
    /// Actions that were posted, and those that the peer has executed.
    actions_posted: u64,
    actions_done: u64,
    /// Results of atomics that were executed and not completed, by number.
    results: VecDeque<(u64, u64)>,
    /// As responder: the last PSN that was executed.
    last_request: Option<Psn>,
    /// As requester: the last response that gave data.
    last_answer: Option<Psn>,
    /// As responder: the message that comes in.
    incoming: u64,
    incoming_addr: Option<u64>,
    /// As requester: bytes of READs that came, and that completions have claimed.
    read_came: u64,
    read_claimed: u64,
    last_progress: Time,
}

/// What was counted before and after a packet was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// Writes, atomics among them.
    pub(crate) writes: u64,
    /// Bytes that they wrote.
    pub(crate) bytes: u64,
    pub(crate) atomics: u64,
    pub(crate) messages: u64,
    pub(crate) duplicates: u64,
    /// Writes that were not what the pattern of the region says.
    pub(crate) mismatches: u64,
}

/// The effects of a packet.
pub(crate) struct Received<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) before: Seen,
    pub(crate) after: Seen,
    /// Address of the last write.
    pub(crate) wrote_at: u64,
    /// Old and new value of the last atomic.
    pub(crate) values: (u64, u64),
}

/// The model of one host's transport.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) now: Time,
    qps: Vec<Qp>,
    by_qpn: BTreeMap<u32, usize>,
    by_index: BTreeMap<QpIndex, u32>,
    /// The QP of the last packet: the next is often of the same.
    recent: (u32, usize),
    /// Something below is not empty.
    pub(crate) has_news: bool,
    pub(crate) finished: Vec<Finished>,
    pub(crate) completed: Vec<Completed>,
    pub(crate) violations: Vec<(Check, u32, String)>,
    pub(crate) atomic_replays: u64,
    pub(crate) psn_wraps: u64,
}

/// A QP with requests that have no completion.
pub(crate) struct Waiting {
    pub(crate) qpn: u32,
    pub(crate) peer: (HostId, u32),
    pub(crate) since: Time,
    pub(crate) bound: Span,
}

impl Model {
    /// A QP was made.
    pub(crate) fn on_create(&mut self, index: QpIndex, qpn: u32) {
        self.by_index.insert(index, qpn);
        self.by_qpn.insert(qpn, self.qps.len());
        self.qps.push(Qp {
            qpn,
            ..Qp::default()
        });
    }

    /// The number of a QP; 0, which no connection has, if there is none.
    pub(crate) fn qpn_of(&self, index: QpIndex) -> u32 {
        self.by_index.get(&index).copied().unwrap_or(0)
    }

    /// The QPs, with their numbers.
    pub(crate) fn indices(&self) -> impl Iterator<Item = (QpIndex, u32)> {
        self.by_index.iter().map(|(&index, &qpn)| (index, qpn))
    }

    /// The post was refused.
    pub(crate) fn take_post_back(&mut self, qpn: u32) {
        let Some(qp) = self.find(qpn) else {
            return;
        };
        if let Some(posted) = qp.sends.pop_back()
            && posted.action.is_some()
        {
            qp.actions.pop_back();
            qp.actions_posted -= 1;
        }
    }

    /// A QP was connected: it begins anew.
    pub(crate) fn on_connect(&mut self, qpn: u32, peer: (HostId, u32), ack_timeout: u8) {
        let now = self.now;
        let Some(qp) = self.find(qpn) else {
            return;
        };
        let recvs = core::mem::take(&mut qp.recvs);
        // 4.096 us times 2 to the code, 64 times.
        let bound = Span::from_ns(4_096 * 64) * (1 << ack_timeout.min(31));
        *qp = Qp {
            qpn,
            peer: Some(peer),
            has_timeout: ack_timeout > 0,
            bound,
            recvs,
            last_progress: now,
            ..Qp::default()
        };
    }

    /// Receives can be posted before a QP is connected.
    pub(crate) fn on_post_recv(&mut self, qpn: u32, wr_id: u64) {
        if let Some(qp) = self.find(qpn) {
            qp.recvs.push_back(wr_id);
        }
    }

    fn find(&mut self, qpn: u32) -> Option<&mut Qp> {
        self.qps.get_mut(*self.by_qpn.get(&qpn)?)
    }

    pub(crate) fn on_post_send(&mut self, qpn: u32, wr: &SendWr<'_>) {
        let now = self.now;
        let Some(qp) = self.find(qpn) else {
            return;
        };
        let (len, first) = match wr.data {
            WrData::Sges(sges) => (
                sges.iter().map(|s| u64::from(s.length)).sum(),
                sges.first().map_or(0, |s| s.addr),
            ),
            WrData::Inline(bytes) => (bytes.len() as u64, 0),
        };
        let is_local = matches!(wr.opcode, WrOpcode::BindMw | WrOpcode::LocalInv);
        let is_action = !is_local && !matches!(wr.opcode, WrOpcode::RdmaRead | WrOpcode::Flush);
        let action = is_action.then_some(qp.actions_posted);
        if is_action {
            qp.actions_posted += 1;
            qp.actions.push_back(Action {
                opcode: wr.opcode,
                len,
                addr: wr.remote_addr,
                compare_add: wr.compare_add,
                swap: wr.swap,
            });
        }
        if qp.sends.is_empty() {
            qp.last_progress = now;
        }
        qp.sends.push_back(Posted {
            wr_id: wr.wr_id,
            is_signaled: wr.flags.contains(SendFlags::SIGNALED),
            len,
            opcode: wr.opcode,
            action,
            result_at: first,
        });
    }

    /// A completion was pushed.
    pub(crate) fn on_cqe(&mut self, cqe: &Cqe) {
        let (now, qpn) = (self.now, cqe.qpn.get());
        let Some(qp) = self.find(qpn) else {
            return;
        };
        qp.last_progress = now;
        let is_success = cqe.status == WcStatus::Success;
        qp.is_broken |= !is_success;
        if cqe.opcode as u32 >= WcOpcode::Recv as u32 {
            let expected = qp.recvs.pop_front();
            if expected != Some(cqe.wr_id) {
                let fault = format!(
                    "a completion of receive {}, but {expected:?} was the oldest",
                    cqe.wr_id
                );
                self.violate(Check::Completions, qpn, fault);
            }
            return;
        }
        // What is not signaled completes with the next that is, or in an error of its own.
        let posted = loop {
            match qp.sends.pop_front() {
                Some(posted)
                    if !posted.is_signaled && (is_success || posted.wr_id != cqe.wr_id) =>
                {
                    qp.claim(&posted, is_success);
                }
                other => break other,
            }
        };
        match posted {
            Some(posted) if posted.wr_id == cqe.wr_id => {
                qp.claim(&posted, is_success);
                let is_atomic = matches!(
                    posted.opcode,
                    WrOpcode::AtomicFetchAndAdd | WrOpcode::AtomicCmpAndSwp
                );
                if is_success {
                    let read_claimed = qp.read_claimed;
                    self.has_news = true;
                    // Looked at when the packet has been handled to its end.
                    self.completed.push(Completed {
                        qpn,
                        action: posted.action,
                        result_at: is_atomic.then_some(posted.result_at),
                        read_claimed,
                    });
                }
            }
            other => {
                let oldest = other.map(|posted| posted.wr_id);
                let fault = format!(
                    "a completion of request {}, but {oldest:?} was the oldest",
                    cqe.wr_id
                );
                self.violate(Check::Completions, qpn, fault);
            }
        }
    }

    fn violate_if(&mut self, check: Check, qpn: u32, fault: Option<String>) {
        if let Some(fault) = fault {
            self.violate(check, qpn, fault);
        }
    }

    fn violate(&mut self, check: Check, qpn: u32, fault: String) {
        self.has_news = true;
        if self.violations.len() < 8 {
            self.violations.push((check, qpn, fault));
        }
    }

    /// A packet was handled. Called for those that did something, and for repeated atomics.
    pub(crate) fn on_packet(&mut self, received: &Received<'_>) {
        let Some(&[opcode, _, _, _, _, q0, q1, q2, _, p0, p1, p2]) =
            received.packet.first_chunk::<BTH_LEN>()
        else {
            return;
        };
        let qpn = u32::from_be_bytes([0, q0, q1, q2]);
        let psn = Psn::new(u32::from_be_bytes([0, p0, p1, p2]));
        let Some(info) = Opcode(opcode).info() else {
            return;
        };
        if self.recent.0 != qpn {
            let Some(&place) = self.by_qpn.get(&qpn) else {
                return;
            };
            self.recent = (qpn, place);
        }
        let Some(qp) = self.qps.get_mut(self.recent.1).filter(|qp| qp.qpn == qpn) else {
            return;
        };
        let (before, after) = (&received.before, &received.after);
        if after.writes != before.writes || after.messages != before.messages {
            qp.last_progress = self.now;
            return self.on_executed(info, psn, received);
        }
        let is_atomic = matches!(info.operation, Operation::CompareSwap | Operation::FetchAdd);
        self.atomic_replays += u64::from(is_atomic && after.duplicates != before.duplicates);
    }

    /// A packet of the recent QP wrote something, or ended a message.
    fn on_executed(&mut self, info: &OpcodeInfo, psn: Psn, received: &Received<'_>) {
        let (before, after) = (&received.before, &received.after);
        let (operation, is_answer) = (info.operation, info.is_response());
        let (qpn, place) = self.recent;
        let Some(qp) = self.qps.get_mut(place) else {
            return;
        };
        let last = if is_answer {
            qp.last_answer.replace(psn)
        } else {
            qp.last_request.replace(psn)
        };
        self.psn_wraps += u64::from(last.is_some_and(|last| psn.get() < last.get()));
        if let Some(last) = last.filter(|last| !last.is_before(psn)) {
            let fault = format!(
                "{operation:?} with PSN {psn:?} was executed after {last:?}: twice, or out of order"
            );
            let check = if after.atomics != before.atomics {
                Check::Atomics
            } else {
                Check::Delivery
            };
            return self.violate(check, qpn, fault);
        }
        let mismatch = (after.mismatches != before.mismatches)
            .then(|| format!("{operation:?} with PSN {psn:?} wrote what was not sent"));
        let bytes = after.bytes - before.bytes;
        if is_answer {
            if operation == Operation::ReadResponse {
                qp.read_came += bytes;
            }
            return self.violate_if(Check::Delivery, qpn, mismatch);
        }
        let fault = qp.on_request(operation, info.position, bytes, received);
        let is_action = !matches!(operation, Operation::ReadRequest | Operation::Flush);
        if after.messages != before.messages
            && is_action
            && let Some(finished) = qp.finish(operation, received)
        {
            self.has_news = true;
            self.finished.push(finished);
        }
        self.violate_if(Check::Delivery, qpn, mismatch.or(fault));
    }

    /// The peer has executed the next message of a QP of this host: was it that?
    pub(crate) fn on_peer_finished(&mut self, finished: &Finished) {
        let qpn = finished.peer.1;
        let Some(qp) = self.find(qpn) else {
            return;
        };
        let number = qp.actions_done;
        qp.actions_done += 1;
        let Some(action) = qp.actions.pop_front() else {
            let fault = format!("{:?} was executed without a post", finished.operation);
            return self.violate(Check::Delivery, qpn, fault);
        };
        if let Some((old, _)) = finished.values {
            qp.results.push_back((number, old));
        }
        if let Some((check, fault)) = action.differs(finished) {
            self.violate(check, qpn, format!("message {number}: {fault}"));
        }
    }

    /// A completion was pushed: has the peer executed it? Returns the result that an atomic should have.
    pub(crate) fn on_completed(&mut self, completed: &Completed) -> Option<u64> {
        let qp = self.find(completed.qpn)?;
        if completed.read_claimed > qp.read_came {
            let fault = "a READ completed before its data came".to_owned();
            self.violate(Check::Completions, completed.qpn, fault);
            return None;
        }
        let number = completed.action?;
        if number >= qp.actions_done && !qp.is_broken {
            let fault = format!("message {number} completed, but was not executed");
            self.violate(Check::Completions, completed.qpn, fault);
            return None;
        }
        completed.result_at?;
        while let Some((of, value)) = qp.results.pop_front() {
            if of == number {
                return Some(value);
            }
        }
        None
    }

    /// QPs that wait for the completion of requests.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        let waiting = |qp: &Qp| {
            let is_waiting = !qp.is_broken && qp.has_timeout && !qp.sends.is_empty();
            let peer = qp.peer.filter(|_| is_waiting)?;
            Some(Waiting {
                qpn: qp.qpn,
                peer,
                since: qp.last_progress,
                bound: qp.bound,
            })
        };
        self.qps.iter().filter_map(waiting)
    }

    /// QPs with signaled requests that have no completion, and how many.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let of = |qp: &Qp| {
            let count = qp.sends.iter().filter(|posted| posted.is_signaled).count();
            (count > 0 && qp.has_timeout).then_some((qp.qpn, count))
        };
        self.qps.iter().filter_map(of)
    }

    /// When a QP last executed or completed something.
    pub(crate) fn last_progress(&self, qpn: u32) -> Option<Time> {
        Some(self.qps.get(*self.by_qpn.get(&qpn)?)?.last_progress)
    }
}

impl Qp {
    fn claim(&mut self, posted: &Posted, is_success: bool) {
        if posted.opcode == WrOpcode::RdmaRead && is_success {
            self.read_claimed += posted.len;
        }
    }

    /// A message has come to its end.
    fn finish(&mut self, operation: Operation, received: &Received<'_>) -> Option<Finished> {
        let (len, addr) = (
            core::mem::take(&mut self.incoming),
            self.incoming_addr.take(),
        );
        let is_atomic = received.after.atomics != received.before.atomics;
        Some(Finished {
            peer: self.peer?,
            operation,
            len,
            addr,
            values: is_atomic.then_some(received.values),
        })
    }

    /// A request packet was executed; says what is wrong with it.
    fn on_request(
        &mut self,
        operation: Operation,
        position: Position,
        bytes: u64,
        received: &Received<'_>,
    ) -> Option<String> {
        if matches!(position, Position::First | Position::Only) {
            (self.incoming, self.incoming_addr) = (0, None);
        }
        let offset = self.incoming;
        self.incoming += bytes;
        if operation != Operation::Write || bytes == 0 {
            return None;
        }
        let start = *self.incoming_addr.get_or_insert(received.wrote_at);
        let expected = start + offset;
        (received.wrote_at != expected).then(|| {
            let at = received.wrote_at;
            format!("a WRITE went on at {at:#x}, not at {expected:#x}")
        })
    }
}

impl Action {
    /// What was executed that was not posted so.
    fn differs(&self, finished: &Finished) -> Option<(Check, String)> {
        let is_same = match self.opcode {
            WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => {
                finished.operation == Operation::Send
            }
            WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => {
                finished.operation == Operation::Write
            }
            WrOpcode::AtomicCmpAndSwp => finished.operation == Operation::CompareSwap,
            WrOpcode::AtomicFetchAndAdd => finished.operation == Operation::FetchAdd,
            _ => true,
        };
        if !is_same {
            let (posted, executed) = (self.opcode, finished.operation);
            let fault = format!("{posted:?} was posted, {executed:?} executed");
            return Some((Check::Delivery, fault));
        }
        if let Some((old, new)) = finished.values {
            let expected = match self.opcode {
                WrOpcode::AtomicFetchAndAdd => old.wrapping_add(self.compare_add),
                _ if old == self.compare_add => self.swap,
                _ => old,
            };
            let fault = format!(
                "{:?} made {new:#x} of {old:#x}, not {expected:#x}",
                self.opcode
            );
            return (new != expected).then_some((Check::Atomics, fault));
        }
        if matches!(finished.operation, Operation::Send | Operation::Write)
            && finished.len != self.len
        {
            let fault = format!("{} bytes were posted, {} written", self.len, finished.len);
            return Some((Check::Delivery, fault));
        }
        let addr = finished
            .addr
            .filter(|_| finished.operation == Operation::Write)?;
        let fault = format!("posted for {:#x}, written at {addr:#x}", self.addr);
        (addr != self.addr).then_some((Check::Delivery, fault))
    }
}

#[cfg(test)]
mod tests;
