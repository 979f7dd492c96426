//! What transports must do, in the simplest words: each end of a connection remembers what was posted, and what
//! is executed at the other end is compared with it.
//!
//! Packets are looked at where they enter the transport, memory where it is written, completions where they are
//! pushed; the transport itself knows nothing of it. One that keeps what is ahead of a gap executes several packets when the
//! gap is filled: what was written then must be what those packets have, one after the other.

mod deed;
mod effects;
mod message;
mod requester;
mod responder;

use std::collections::{BTreeMap, VecDeque};

use urxe_core::WcStatus;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::table::QpIndex;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_wire::{BTH_LEN, Psn};

use crate::check::kind::Check;
use crate::engine::{Span, Time};
use crate::host::Write;
use crate::topology::HostId;
use deed::{Deed, psns_of};
use effects::Effects;
use message::{Action, Message};
use requester::Answers;
use responder::Requests;

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
    /// PSNs that it takes.
    psns: u32,
    is_answered: bool,
}

/// A message that has been executed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The QP that posted it.
    pub(crate) peer: (HostId, u32),
    pub(crate) message: Message,
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
    mtu: u32,
    requests: Requests,
    answers: Answers,
    /// Bytes of READs that completions have claimed.
    read_claimed: u64,
    last_progress: Time,
}

/// What was counted before and after a packet was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) messages: u64,
    pub(crate) duplicates: u64,
    /// Requests ahead of the one that is next.
    pub(crate) ahead: u64,
    /// Packets that were dropped. Not counted if nothing ahead is kept.
    pub(crate) dropped: u64,
}

/// The effects of a packet.
pub(crate) struct Received<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) before: Seen,
    pub(crate) after: Seen,
    /// In order.
    pub(crate) writes: &'a [Write],
}

/// The model of one host's transport.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) now: Time,
    /// Packets ahead of a gap are kept.
    pub(crate) keeps: bool,
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
        let Some(posted) = qp.sends.pop_back() else {
            return;
        };
        if posted.action.is_some() {
            qp.actions.pop_back();
            qp.actions_posted -= 1;
        }
        qp.answers.take_back(posted.psns, posted.is_answered);
    }

    /// A QP was connected: it begins anew. `psns` are its first own, and its peer's.
    pub(crate) fn on_connect(
        &mut self,
        qpn: u32,
        peer: (HostId, u32),
        psns: (Psn, Psn),
        mtu: u32,
        ack_timeout: u8,
    ) {
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
            mtu,
            answers: Answers::new(psns.0),
            requests: Requests::new(psns.1),
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
        let (len, first, is_one) = match wr.data {
            WrData::Sges(sges) => (
                sges.iter().map(|s| u64::from(s.length)).sum(),
                sges.first().map_or(0, |s| s.addr),
                sges.len() == 1,
            ),
            WrData::Inline(bytes) => (bytes.len() as u64, 0, false),
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
        let psns = match is_local {
            true => 0,
            false => psns_of(len, qp.mtu),
        };
        // An answer without data leaves no trace.
        let missing = match wr.opcode {
            WrOpcode::RdmaRead => len,
            WrOpcode::AtomicFetchAndAdd | WrOpcode::AtomicCmpAndSwp => 8,
            _ => 0,
        };
        qp.answers.expect(psns, missing, is_one.then_some(first));
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
            psns,
            is_answered: missing > 0,
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

    fn violate(&mut self, check: Check, qpn: u32, fault: String) {
        self.has_news = true;
        if self.violations.len() < 8 {
            self.violations.push((check, qpn, fault));
        }
    }

    /// A packet was handled. Called for those that did something, or may have been kept, and for repeated atomics.
    pub(crate) fn on_packet(&mut self, received: &Received<'_>) {
        let Some(&[_, _, _, _, _, q0, q1, q2, ..]) = received.packet.first_chunk::<BTH_LEN>()
        else {
            return;
        };
        let qpn = u32::from_be_bytes([0, q0, q1, q2]);
        if self.recent.0 != qpn {
            let Some(&place) = self.by_qpn.get(&qpn) else {
                return;
            };
            self.recent = (qpn, place);
        }
        let Some(qp) = self.qps.get_mut(self.recent.1).filter(|qp| qp.qpn == qpn) else {
            return;
        };
        let Some(deed) = Deed::of(received.packet, qp.mtu) else {
            return;
        };
        let (before, after) = (&received.before, &received.after);
        let is_answer = deed.is_answer;
        let effects = Effects::new(received.writes, after.messages - before.messages);
        if effects.is_empty() {
            match is_answer {
                _ if !self.keeps => {}
                true if after.dropped == before.dropped => qp.answers.note_ahead(deed),
                false if after.ahead != before.ahead => qp.requests.note_ahead(deed),
                _ => {}
            }
            self.atomic_replays +=
                u64::from(deed.is_atomic() && after.duplicates != before.duplicates);
            return;
        }
        qp.last_progress = self.now;
        let executed = match (is_answer, qp.peer) {
            (true, _) => qp.answers.on_packet(deed, effects, qp.is_broken),
            (false, Some(peer)) => {
                let finished = &mut self.finished;
                let has_ended = |message| finished.push(Finished { peer, message });
                qp.requests
                    .on_packet(deed, effects, qp.is_broken, has_ended)
            }
            (false, None) => Ok(()),
        };
        self.has_news |= !self.finished.is_empty();
        if let Err((check, fault)) = executed {
            self.violate(check, qpn, fault);
        }
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
            let operation = finished.message.operation;
            let fault = format!("{operation:?} was executed without a post");
            return self.violate(Check::Delivery, qpn, fault);
        };
        if let Some((old, _)) = finished.message.values {
            qp.results.push_back((number, old));
        }
        if let Some((check, fault)) = action.differs(&finished.message) {
            self.violate(check, qpn, format!("message {number}: {fault}"));
        }
    }

    /// A completion was pushed: has the peer executed it? Returns the result that an atomic should have.
    pub(crate) fn on_completed(&mut self, completed: &Completed) -> Option<u64> {
        let qp = self.find(completed.qpn)?;
        if completed.read_claimed > qp.answers.came() {
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

    /// PSNs that began anew, of packets that were executed.
    pub(crate) fn psn_wraps(&self) -> u64 {
        let wraps = |qp: &Qp| qp.answers.wraps() + qp.requests.wraps();
        self.qps.iter().map(wraps).sum()
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
}

#[cfg(test)]
mod tests;
