//! What programs must get from their verbs, in the simplest words: what each posted is remembered, and what is executed at
//! the other end, and completes, is compared with it.
//!
//! It hears of that by [`urxe::network::Network::note`], so the transport knows nothing of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use urxe::network::{Act, AtomicOp};
use urxe::{QpAttr, QpState, QpType, SendFlags, SendWrFields, Wc, WcOpcode, WrData, WrOpcode};
use urxe_wire::{BTH_LEN, Opcode};

use crate::check::Check;
use crate::engine::Time;
use crate::envelope::host_of;
use crate::program::flows::Flows;
use crate::topology::HostId;

/// The addresses of a host's regions have its number, plus 1, above these bits.
pub(crate) const REGION_BITS: u32 = 40;

/// Findings that are kept.
const KEPT: usize = 8;

/// A QP of a host.
type Name = (HostId, u32);

/// A check of a program's verbs that did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) check: Check,
    pub(crate) qp: Name,
    pub(crate) at: Time,
    pub(crate) words: String,
}

/// A request that was posted and has no completion.
#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    is_signaled: bool,
    /// Its number among those that the peer executes, if it is one.
    message: Option<u64>,
    /// Its number among those that get data, if it is one.
    answer: Option<u64>,
}

/// What the peer will execute.
#[derive(Debug)]
struct Message {
    opcode: WrOpcode,
    bytes: Vec<u8>,
    /// Where they lie at the sender.
    sources: Vec<(u64, u64)>,
    /// They are no longer what was posted, as the program or a peer wrote to them.
    is_changed: bool,
    remote_addr: u64,
    imm: [u8; 4],
    operands: (u64, u64),
}

/// Data that must come for a READ or an atomic.
#[derive(Debug)]
struct Answer {
    number: u64,
    /// Bytes that have not come.
    missing: u64,
    is_atomic: bool,
}

/// One end of a connection, in both roles.
#[derive(Debug)]
struct End {
    kind: QpType,
    signals_all: bool,
    shares_receives: bool,
    peer: Option<Name>,
    /// It ended in an error: what is flushed needs no explanation.
    is_broken: bool,
    sends: VecDeque<Posted>,
    recvs: VecDeque<u64>,
    messages: VecDeque<Message>,
    messages_posted: u64,
    messages_done: u64,
    /// Bytes of the oldest message that are in the peer's memory.
    placed: usize,
    answers: VecDeque<Answer>,
    answers_posted: u64,
    /// What atomics found that were executed, and have not been answered.
    results: VecDeque<u64>,
}

/// The model of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Model {
    ends: BTreeMap<Name, End>,
    /// The QP of the packet that is being handled, and whether it is an answer.
    arrived: Option<(Name, bool)>,
    /// The request that was told last: its QP, and whether it sends.
    told: Option<(Name, bool)>,
    findings: Vec<Finding>,
    now: Time,
    /// Flows, if the run has a page.
    pub(crate) flows: Option<Box<Flows>>,
}

impl End {
    fn new(kind: QpType, signals_all: bool, shares_receives: bool) -> End {
        End {
            kind,
            signals_all,
            shares_receives,
            peer: None,
            is_broken: false,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            messages: VecDeque::new(),
            messages_posted: 0,
            messages_done: 0,
            placed: 0,
            answers: VecDeque::new(),
            answers_posted: 0,
            results: VecDeque::new(),
        }
    }

    /// The oldest message is executed.
    fn finish(&mut self) {
        self.messages.pop_front();
        self.messages_done += 1;
        self.placed = 0;
    }

    /// WRITEs without bytes leave no trace: those before what is seen are done.
    fn skip_empty_writes(&mut self) {
        while let Some(Message {
            opcode: WrOpcode::RdmaWrite,
            bytes,
            ..
        }) = self.messages.front()
            && bytes.is_empty()
        {
            self.finish();
        }
    }
}

impl Model {
    /// A host does something; `addrs` are the addresses by which its programs know the memory that it is about.
    pub(crate) fn note(&mut self, now: Time, host: HostId, act: &Act<'_>, addrs: &[u64]) {
        self.now = now;
        if let Some(flows) = &mut self.flows {
            flows.note(now, host, act);
        }
        match *act {
            Act::Created {
                qpn,
                kind,
                signals_all,
                shares_receives,
            } => {
                let end = End::new(kind, signals_all, shares_receives);
                self.ends.insert((host, qpn), end);
            }
            Act::Modified { qpn, attr } => self.on_modified((host, qpn), attr),
            Act::Destroyed { qpn } => drop(self.ends.remove(&(host, qpn))),
            Act::Send { qpn, wr, bytes } => self.on_send((host, qpn), wr, bytes),
            Act::Recv { qpn, wr_id } => {
                self.told = qpn.map(|qpn| ((host, qpn), false));
                let end = qpn.and_then(|qpn| self.ends.get_mut(&(host, qpn)));
                if let Some(end) = end {
                    end.recvs.push_back(wr_id);
                }
            }
            Act::Refused => self.take_back(),
            Act::Completed(wc) => self.on_completed((host, wc.qp_num.get()), wc),
            Act::Arrived(packet) => self.arrived = target_of(host, packet),
            Act::Placed { bytes, .. } => {
                self.on_change(host, addrs, bytes.len());
                self.on_placed(bytes, addrs);
            }
            Act::Atomic { old, operation, .. } => {
                self.on_change(host, addrs, 8);
                self.on_atomic(old, operation);
            }
            Act::Written { len, .. } => self.on_change(host, addrs, len),
            _ => {}
        }
    }

    /// All of a host's QPs are gone.
    pub(crate) fn on_crash(&mut self, host: HostId) {
        self.ends.retain(|(of, _), _| *of != host);
        if let Some(flows) = &mut self.flows {
            flows.on_crash(host);
        }
    }

    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        core::mem::take(&mut self.findings)
    }

    fn find(&mut self, check: Check, qp: Name, words: String) {
        if self.findings.len() < KEPT {
            self.findings.push(Finding {
                check,
                qp,
                at: self.now,
                words,
            });
        }
    }

    fn on_modified(&mut self, qp: Name, attr: &QpAttr) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        match attr.qp_state {
            QpState::Reset => *end = End::new(end.kind, end.signals_all, end.shares_receives),
            QpState::Err | QpState::Sqe => end.is_broken = true,
            _ => {}
        }
        if let Some(path) = attr.ah_attr
            && let IpAddr::V4(remote) = path.remote
        {
            end.peer = host_of(remote).map(|host| (host, attr.dest_qp_num.get()));
        }
    }

    fn on_send(&mut self, qp: Name, wr: &SendWrFields<'_>, bytes: &[u8]) {
        self.told = Some((qp, true));
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let sges = match wr.data {
            WrData::Sges(sges) => sges,
            WrData::Inline(_) => &[],
        };
        let sges = sges.iter().map(|sge| (sge.addr, u64::from(sge.length)));
        let is_atomic = matches!(
            wr.opcode,
            WrOpcode::AtomicFetchAndAdd | WrOpcode::AtomicCmpAndSwp
        );
        let is_judged = end.kind == QpType::Rc;
        let is_local = matches!(wr.opcode, WrOpcode::BindMw | WrOpcode::LocalInv);
        let is_read = matches!(wr.opcode, WrOpcode::RdmaRead | WrOpcode::Flush);
        let message = (is_judged && !is_local && !is_read).then_some(end.messages_posted);
        if message.is_some() {
            end.messages_posted += 1;
            end.messages.push_back(Message {
                opcode: wr.opcode,
                bytes: bytes.to_vec(),
                sources: sges.clone().collect(),
                // Of memory that has other addresses than the network's it is not known when it changes.
                is_changed: sges
                    .clone()
                    .any(|(at, _)| at >> REGION_BITS != u64::from(qp.0.0 + 1)),
                remote_addr: wr.remote_addr,
                imm: wr.imm,
                operands: (wr.compare_add, wr.swap),
            });
        }
        let needs = match wr.opcode {
            WrOpcode::RdmaRead => sges.map(|(_, len)| len).sum(),
            _ if is_atomic => 8,
            _ => 0,
        };
        let answer = (is_judged && needs > 0).then_some(end.answers_posted);
        if let Some(number) = answer {
            end.answers_posted += 1;
            end.answers.push_back(Answer {
                number,
                missing: needs,
                is_atomic,
            });
        }
        end.sends.push_back(Posted {
            wr_id: wr.wr_id,
            is_signaled: end.signals_all || wr.flags.contains(SendFlags::SIGNALED),
            message,
            answer,
        });
    }

    fn take_back(&mut self) {
        let told = self.told.take();
        let Some((end, is_send)) = told.and_then(|(qp, is_send)| {
            let end = self.ends.get_mut(&qp)?;
            Some((end, is_send))
        }) else {
            return;
        };
        if !is_send {
            end.recvs.pop_back();
            return;
        }
        let Some(posted) = end.sends.pop_back() else {
            return;
        };
        if posted.message.is_some() {
            end.messages.pop_back();
            end.messages_posted -= 1;
        }
        if posted.answer.is_some() {
            end.answers.pop_back();
            end.answers_posted -= 1;
        }
    }

    /// Memory is not what it was: messages that lie there and have not left are not judged.
    fn on_change(&mut self, host: HostId, addrs: &[u64], len: usize) {
        let ends = self.ends.range_mut((host, 0)..=(host, u32::MAX));
        for message in ends.flat_map(|(_, end)| &mut end.messages) {
            let mut sources = message.sources.iter();
            message.is_changed |= sources.any(|&(start, length)| {
                let meets = |at: &u64| *at < start + length && start < at + len as u64;
                addrs.iter().any(meets)
            });
        }
    }

    /// The other end, the messages of which are executed at this one, if both know of each other.
    fn sender_of(&mut self, qp: Name) -> Option<(Name, &mut End)> {
        let end = self.ends.get(&qp)?;
        if end.kind != QpType::Rc || end.shares_receives {
            return None;
        }
        let name = end.peer?;
        let sender = self.ends.get_mut(&name)?;
        (sender.peer == Some(qp) && sender.kind == QpType::Rc).then_some((name, sender))
    }

    fn on_placed(&mut self, bytes: &[u8], addrs: &[u64]) {
        match self.arrived {
            Some((qp, true)) => self.on_answer(qp, bytes),
            Some((qp, false)) => {
                let Some((sender, end)) = self.sender_of(qp) else {
                    return;
                };
                end.skip_empty_writes();
                if let Err(words) = place(end, bytes, addrs) {
                    end.is_broken = true;
                    self.find(Check::Delivery, sender, words);
                }
            }
            None => {}
        }
    }

    /// Data of a READ, or the result of an atomic.
    fn on_answer(&mut self, qp: Name, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(&qp).filter(|end| end.kind == QpType::Rc) else {
            return;
        };
        let Some(answer) = end.answers.front_mut().filter(|_| !end.is_broken) else {
            return;
        };
        answer.missing = answer.missing.saturating_sub(bytes.len() as u64);
        if answer.missing > 0 {
            return;
        }
        let is_atomic = answer.is_atomic;
        end.answers.pop_front();
        let found = if is_atomic {
            end.results.pop_front()
        } else {
            None
        };
        if let Some(old) = found
            && bytes != old.to_ne_bytes()
        {
            let words = format!("an atomic returned {bytes:x?}, and found {old:#x}");
            self.find(Check::Atomics, qp, words);
        }
    }

    fn on_atomic(&mut self, old: u64, operation: AtomicOp) {
        let Some((qp, false)) = self.arrived else {
            return;
        };
        let Some((sender, end)) = self.sender_of(qp).filter(|(_, end)| !end.is_broken) else {
            return;
        };
        end.skip_empty_writes();
        let posted = end.messages.front().and_then(|message| {
            let (compare_add, swap) = message.operands;
            match message.opcode {
                WrOpcode::AtomicFetchAndAdd => Some(AtomicOp::FetchAdd(compare_add)),
                WrOpcode::AtomicCmpAndSwp => Some(AtomicOp::CompareSwap(compare_add, swap)),
                _ => None,
            }
        });
        if posted == Some(operation) {
            end.results.push_back(old);
            return end.finish();
        }
        end.is_broken = true;
        let words = match posted {
            Some(posted) => format!("{posted:?} was posted, {operation:?} was executed"),
            None => {
                format!("{operation:?} was executed, and no atomic is next: twice, or out of order")
            }
        };
        self.find(Check::Atomics, sender, words);
    }

    fn on_completed(&mut self, qp: Name, wc: &Wc) {
        let is_tagged = (WcOpcode::TmAdd as u32..).contains(&(wc.opcode as u32));
        if is_tagged || !self.ends.contains_key(&qp) {
            return;
        }
        if wc.opcode as u32 >= WcOpcode::Recv as u32 {
            self.on_received(qp, wc);
        } else {
            self.on_sent(qp, wc);
        }
    }

    /// A receive was filled, or flushed.
    fn on_received(&mut self, qp: Name, wc: &Wc) {
        if wc.is_success()
            && let Some((sender, end)) = self.sender_of(qp)
        {
            end.skip_empty_writes();
            if let Err(words) = received(end, wc) {
                end.is_broken = true;
                self.find(Check::Delivery, sender, words);
            }
        }
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        end.is_broken |= !wc.is_success();
        let has_own = matches!(end.kind, QpType::Rc | QpType::Uc | QpType::Ud);
        if end.shares_receives || !has_own {
            return;
        }
        let oldest = end.recvs.pop_front();
        if oldest != Some(wc.wr_id) {
            let wr_id = wc.wr_id;
            let words = format!("a completion of receive {wr_id}, but {oldest:?} was the oldest");
            self.find(Check::Completions, qp, words);
        }
    }

    /// A request completed.
    fn on_sent(&mut self, qp: Name, wc: &Wc) {
        let is_success = wc.is_success();
        let peer = self.ends.get(&qp).and_then(|end| end.peer);
        let knows_peer = peer.is_some_and(|peer| {
            let other = self.ends.get(&peer);
            other.is_some_and(|other| other.peer == Some(qp) && !other.shares_receives)
        });
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let was_broken = end.is_broken;
        end.is_broken |= !is_success;
        // What is not signaled completes with the next that is, or in an error of its own.
        let posted = loop {
            match end.sends.pop_front() {
                Some(it) if !it.is_signaled && (is_success || it.wr_id != wc.wr_id) => {}
                other => break other,
            }
        };
        let Some(posted) = posted.filter(|posted| posted.wr_id == wc.wr_id) else {
            let oldest = posted.map(|posted| posted.wr_id);
            let wr_id = wc.wr_id;
            let words = format!("a completion of request {wr_id}, but {oldest:?} was the oldest");
            return self.find(Check::Completions, qp, words);
        };
        if !is_success || was_broken {
            return;
        }
        if !knows_peer {
            // What becomes of it is not told.
            while posted.message.is_some_and(|it| it >= end.messages_done) {
                end.finish();
            }
            return;
        }
        end.skip_empty_writes();
        let words = if posted.message.is_some_and(|it| it >= end.messages_done) {
            "completed, but was not executed at the other end"
        } else if let Some(number) = posted.answer
            && end.answers.front().is_some_and(|it| it.number <= number)
        {
            "completed before its data came"
        } else {
            return;
        };
        end.is_broken = true;
        let words = format!("{:?} (wr_id {}) {words}", wc.opcode, wc.wr_id);
        self.find(Check::Completions, qp, words);
    }
}

/// The QP of a host that a packet is for, and whether it is an answer.
fn target_of(host: HostId, packet: &[u8]) -> Option<(Name, bool)> {
    let &[opcode, _, _, _, _, q0, q1, q2, ..] = packet.first_chunk::<BTH_LEN>()?;
    let qpn = u32::from_be_bytes([0, q0, q1, q2]);
    Some(((host, qpn), Opcode(opcode).info()?.is_response()))
}

/// Bytes were stored at the other end: the next of the oldest message, if all is well.
fn place(end: &mut End, bytes: &[u8], addrs: &[u64]) -> Result<(), String> {
    if end.is_broken {
        return Ok(());
    }
    let (number, from) = (end.messages_done, end.placed);
    let Some(message) = end.messages.front() else {
        let len = bytes.len();
        return Err(format!(
            "{len} bytes were stored that no message has: twice?"
        ));
    };
    let opcode = message.opcode;
    let Some(expected) = message.bytes.get(from..from + bytes.len()) else {
        let (len, of) = (from + bytes.len(), message.bytes.len());
        return Err(format!(
            "{opcode:?} {number}: {of} bytes were posted, {len} stored"
        ));
    };
    if !message.is_changed
        && let Some(at) = (0..bytes.len()).find(|&at| expected[at] != bytes[at])
    {
        let (at, is, was) = (from + at, bytes[at], expected[at]);
        return Err(format!(
            "{opcode:?} {number}: byte {at} is {is:#x} and was posted as {was:#x} (or the program changed it \
             while it was posted)"
        ));
    }
    let is_write = matches!(
        opcode,
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm | WrOpcode::AtomicWrite
    );
    let meant = message.remote_addr + from as u64;
    // Addresses that the program chose are not known here.
    let is_known = addrs
        .iter()
        .any(|addr| addr >> REGION_BITS == meant >> REGION_BITS);
    if is_write && is_known && !addrs.contains(&meant) {
        return Err(format!(
            "{opcode:?} {number}: byte {from} was meant for {meant:#x} and stored at {addrs:#x?}"
        ));
    }
    end.placed += bytes.len();
    let ends_here = matches!(opcode, WrOpcode::RdmaWrite | WrOpcode::AtomicWrite);
    if ends_here && end.placed == message.bytes.len() {
        end.finish();
    }
    Ok(())
}

/// A receive completed at the other end: the oldest message is there, if all is well.
fn received(end: &mut End, wc: &Wc) -> Result<(), String> {
    if end.is_broken {
        return Ok(());
    }
    let number = end.messages_done;
    let Some(message) = end.messages.front() else {
        return Err("a receive completed, and no message is under way: twice?".to_owned());
    };
    let (opcode, len) = (message.opcode, message.bytes.len());
    let has_imm = match opcode {
        WrOpcode::Send | WrOpcode::SendWithInv => false,
        WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm => true,
        _ => {
            return Err(format!(
                "a receive completed, and {opcode:?} {number} is next"
            ));
        }
    };
    let (placed, told) = (end.placed, wc.byte_len as usize);
    if placed != len || told != len {
        return Err(format!(
            "{opcode:?} {number} of {len} bytes: {placed} are there, and the completion says {told}"
        ));
    }
    let imm = has_imm.then(|| u32::from_be_bytes(message.imm));
    if imm != wc.imm_data {
        let got = wc.imm_data;
        return Err(format!(
            "{opcode:?} {number}: immediate {imm:x?} was posted, {got:x?} came"
        ));
    }
    end.finish();
    Ok(())
}

#[cfg(test)]
mod tests;
