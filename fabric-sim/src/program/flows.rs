//! What connected QPs of programs sent to each other: a flow for each kind of request of a QP.
//!
//! It hears what the checks hear, and of the packets that leave.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use urxe::network::Act;
use urxe::{QpAttr, QpState, QpType, SendFlags, SendWrFields, Wc, WcOpcode, WrData, WrOpcode};
use urxe_wire::{Operation, Packet, Psn};

use crate::engine::{Rate, Time};
use crate::envelope::host_of;
use crate::observe::FlowOutcome;
use crate::topology::{HostId, Topology};

/// A QP of a host.
type Name = (HostId, u32);

/// Requests of one kind of a QP.
#[derive(Clone, Debug)]
struct Flow {
    from: Name,
    to: Name,
    op: &'static str,
    start: Time,
    /// When something last arrived or completed.
    last: Time,
    messages: u64,
    completed: u64,
    /// Bytes that were posted, and those that are where they were to go.
    posted: u64,
    arrived: u64,
    sent_again: u64,
    failure: Option<String>,
}

/// A request that has no completion.
#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    is_signaled: bool,
    flow: Option<usize>,
    len: u64,
}

/// Bytes of a flow that are to come.
#[derive(Clone, Copy, Debug)]
struct Missing {
    flow: usize,
    bytes: u64,
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    kind: QpType,
    signals_all: bool,
    peer: Option<Name>,
    mtu: u32,
    by_op: BTreeMap<&'static str, usize>,
    sends: VecDeque<Posted>,
    /// Of its requests in order: what the peer has not got, and what it has not got itself.
    there: VecDeque<Missing>,
    back: VecDeque<Missing>,
    /// The PSN behind the last request that left, and behind the last answer to it.
    sent: Option<Psn>,
    answered: Option<Psn>,
}

/// The flows of all programs.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    ends: BTreeMap<Name, End>,
    flows: Vec<Flow>,
    /// The QP of the packet that is being handled, and what it is.
    arrived: Option<(Name, Operation)>,
    /// The QP of the last post, if it sends.
    told: Option<Name>,
}

/// What a request is called, and which way its bytes go.
fn kind_of(opcode: WrOpcode) -> Option<(&'static str, bool)> {
    Some(match opcode {
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => ("send", false),
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm | WrOpcode::AtomicWrite => {
            ("write", false)
        }
        WrOpcode::RdmaRead => ("read", true),
        WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => ("atomic", true),
        _ => return None,
    })
}

/// The same of a request that is a packet.
fn name_of(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::Send => "send",
        Operation::Write | Operation::AtomicWrite => "write",
        Operation::ReadRequest | Operation::ReadResponse => "read",
        Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicAcknowledge => "atomic",
        _ => return None,
    })
}

impl End {
    fn new(kind: QpType, signals_all: bool) -> End {
        End {
            kind,
            signals_all,
            peer: None,
            mtu: 1024,
            by_op: BTreeMap::new(),
            sends: VecDeque::new(),
            there: VecDeque::new(),
            back: VecDeque::new(),
            sent: None,
            answered: None,
        }
    }
}

impl Flows {
    /// A host does something.
    pub(crate) fn note(&mut self, now: Time, host: HostId, act: &Act<'_>) {
        match *act {
            Act::Created {
                qpn,
                kind,
                signals_all,
                ..
            } => drop(self.ends.insert((host, qpn), End::new(kind, signals_all))),
            Act::Modified { qpn, attr } => self.on_modified((host, qpn), attr),
            Act::Destroyed { qpn } => drop(self.ends.remove(&(host, qpn))),
            Act::Send { qpn, wr, bytes } => self.on_send(now, (host, qpn), wr, bytes.len() as u64),
            Act::Recv { .. } => self.told = None,
            Act::Refused => self.take_back(),
            Act::Completed(wc) => self.on_completed(now, (host, wc.qp_num.get()), wc),
            Act::Arrived(packet) => {
                let packet = Packet::parse(packet).ok();
                self.arrived = packet.map(|packet| {
                    let qpn = packet.bth().dest_qp.get();
                    ((host, qpn), packet.info().operation)
                });
            }
            Act::Placed { bytes, .. } => self.on_placed(now, bytes.len() as u64),
            _ => {}
        }
    }

    /// All of a host's QPs are gone.
    pub(crate) fn on_crash(&mut self, host: HostId) {
        self.ends.retain(|(of, _), _| *of != host);
    }

    fn on_modified(&mut self, qp: Name, attr: &QpAttr) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        if attr.qp_state == QpState::Reset {
            *end = End::new(end.kind, end.signals_all);
        }
        if let Some(path) = attr.ah_attr
            && let IpAddr::V4(remote) = path.remote
        {
            end.peer = host_of(remote).map(|host| (host, attr.dest_qp_num.get()));
            end.mtu = attr.path_mtu.bytes();
        }
    }

    fn on_send(&mut self, now: Time, qp: Name, wr: &SendWrFields<'_>, len: u64) {
        self.told = Some(qp);
        let (Some(end), flows) = (self.ends.get_mut(&qp), &mut self.flows) else {
            return;
        };
        let kind = kind_of(wr.opcode).zip(end.peer);
        let len = match (wr.opcode, wr.data) {
            (WrOpcode::RdmaRead, WrData::Sges(sges)) => {
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
            (WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd, _) => 8,
            _ => len,
        };
        let flow = kind.map(|((op, comes_back), peer)| {
            let flow = *end.by_op.entry(op).or_insert_with(|| {
                flows.push(Flow {
                    from: qp,
                    to: peer,
                    op,
                    start: now,
                    last: now,
                    messages: 0,
                    completed: 0,
                    posted: 0,
                    arrived: 0,
                    sent_again: 0,
                    failure: None,
                });
                flows.len() - 1
            });
            flows[flow].messages += 1;
            flows[flow].posted += len;
            let missing = if comes_back {
                &mut end.back
            } else {
                &mut end.there
            };
            missing.push_back(Missing { flow, bytes: len });
            flow
        });
        end.sends.push_back(Posted {
            wr_id: wr.wr_id,
            is_signaled: end.signals_all || wr.flags.contains(SendFlags::SIGNALED),
            flow,
            len,
        });
    }

    fn take_back(&mut self) {
        let Some(end) = self.told.take().and_then(|qp| self.ends.get_mut(&qp)) else {
            return;
        };
        let Some((flow, len)) = end.sends.pop_back().and_then(|it| Some((it.flow?, it.len))) else {
            return;
        };
        self.flows[flow].messages -= 1;
        self.flows[flow].posted -= len;
        for missing in [&mut end.there, &mut end.back] {
            if missing.back().is_some_and(|it| it.flow == flow) {
                missing.pop_back();
            }
        }
    }

    fn on_completed(&mut self, now: Time, qp: Name, wc: &Wc) {
        let is_send = (wc.opcode as u32) < WcOpcode::Recv as u32;
        let Some(end) = self.ends.get_mut(&qp).filter(|_| is_send) else {
            return;
        };
        let is_success = wc.is_success();
        // What is not signaled completes with the next that is, or in an error of its own.
        while let Some(posted) = end.sends.pop_front() {
            let is_it = posted.wr_id == wc.wr_id && (posted.is_signaled || !is_success);
            if let Some(flow) = posted.flow.and_then(|flow| self.flows.get_mut(flow)) {
                flow.last = now;
                flow.completed += u64::from(is_success);
                if is_it && !is_success {
                    flow.failure.get_or_insert_with(|| wc.status.to_string());
                }
            }
            if is_it {
                break;
            }
        }
    }

    /// Bytes are in memory: the next of those that are missing.
    fn on_placed(&mut self, now: Time, bytes: u64) {
        let Some((qp, operation)) = self.arrived else {
            return;
        };
        let is_answer = matches!(
            operation,
            Operation::ReadResponse | Operation::AtomicAcknowledge | Operation::Acknowledge
        );
        let sender = match is_answer {
            true => Some(qp),
            false => self.ends.get(&qp).and_then(|end| end.peer),
        };
        let Some(end) = sender.and_then(|sender| self.ends.get_mut(&sender)) else {
            return;
        };
        if end.kind != QpType::Rc {
            // Messages may be lost, and bytes are of that which came.
            let flow = name_of(operation).and_then(|name| end.by_op.get(name));
            if let Some(flow) = flow.and_then(|flow| self.flows.get_mut(*flow)) {
                (flow.last, flow.arrived) = (now, flow.arrived + bytes);
            }
            return;
        }
        let missing = match is_answer {
            true => &mut end.back,
            false => &mut end.there,
        };
        while missing.front().is_some_and(|it| it.bytes == 0) {
            missing.pop_front();
        }
        if let Some(front) = missing.front_mut() {
            let taken = front.bytes.min(bytes);
            front.bytes -= taken;
            let flow = &mut self.flows[front.flow];
            (flow.last, flow.arrived) = (now, flow.arrived + taken);
        }
    }

    /// A packet leaves a host.
    pub(crate) fn on_sent(&mut self, to: IpAddr, packet: &[u8]) {
        let IpAddr::V4(to) = to else {
            return;
        };
        let (Some(to), Ok(packet)) = (host_of(to), Packet::parse(packet)) else {
            return;
        };
        let (there, operation) = ((to, packet.bth().dest_qp.get()), packet.info().operation);
        let is_answer = packet.info().is_response();
        let asker = match is_answer {
            true => Some(there),
            false => self.ends.get(&there).and_then(|end| end.peer),
        };
        let Some(end) = asker.and_then(|asker| self.ends.get_mut(&asker)) else {
            return;
        };
        let Some(flow) = name_of(operation).and_then(|name| end.by_op.get(name)) else {
            return;
        };
        let psns = match (operation, packet.reth()) {
            (Operation::ReadRequest, Some(reth)) => reth.dma_len.div_ceil(end.mtu.max(1)).max(1),
            _ => 1,
        };
        let psn = packet.bth().psn;
        let behind = match is_answer {
            true => &mut end.answered,
            false => &mut end.sent,
        };
        let is_again = behind.is_some_and(|behind| psn.is_before(behind));
        if is_again {
            self.flows[*flow].sent_again += 1;
        }
        let next = psn.add(psns);
        if behind.is_none_or(|behind| behind.is_before(next)) {
            *behind = Some(next);
        }
    }

    /// Bytes that have arrived so far, of each flow.
    pub(crate) fn arrived(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.arrived).collect()
    }

    /// What became of each flow.
    pub(crate) fn outcomes(&self, topology: &Topology) -> Vec<FlowOutcome> {
        let outcome = |flow: &Flow| {
            let is_there =
                flow.completed == flow.messages || (flow.posted > 0 && flow.arrived == flow.posted);
            let took = flow.last.since(flow.start);
            let completion = (is_there && flow.failure.is_none()).then_some(took);
            let name = |(host, _): Name| topology.name(host).to_owned();
            FlowOutcome {
                from: name(flow.from),
                to: name(flow.to),
                op: flow.op,
                size: Some(flow.posted),
                bytes: flow.arrived,
                start: flow.start,
                completion,
                goodput: Rate::of(flow.arrived, took),
                ideal: None,
                failure: flow.failure.clone(),
                qps: Some((flow.from.1, flow.to.1)),
                messages: Some(flow.messages),
                sent_again: Some(flow.sent_again),
            }
        };
        self.flows.iter().map(outcome).collect()
    }
}
