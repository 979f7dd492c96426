//! Plain flows: frames without a transport behind them, for experiments about the network alone.

use crate::engine::{Rate, Span, Time};
use crate::topology::HostId;

/// A flow, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// When a flow's packets are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// As fast as the adapter takes them.
    Greedy,
    /// At even distances, at a rate on the wire (frames with their gaps); held back while the
    /// adapter does not take them.
    Paced(Rate),
    /// At random, at such a mean rate on the wire, and never held back: they queue in the adapter.
    Poisson(Rate),
}

/// A flow to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// The sender.
    pub from: HostId,
    /// The receiver.
    pub to: HostId,
    /// DSCP and ECN; decides the class.
    pub tos: u8,
    /// UDP source port: decides among equal paths.
    pub source_port: u16,
    /// Bytes of payload in a packet.
    pub payload: u32,
    /// Bytes of payload in all; `None`: without end.
    pub size: Option<u64>,
    /// The time of its beginning.
    pub start: Time,
    /// The time of its end, at the latest.
    pub stop: Time,
    /// The times of its packets.
    pub arrivals: Arrivals,
    /// Switches that a frame may pass.
    pub ttl: u8,
    /// The plane that it stays in, if its sender has several and that leads to its destination.
    pub plane: Option<u8>,
    /// The plane that it arrives in, of [rails](crate::Topology::with_rails); without, that which it left in.
    pub to_plane: Option<u8>,
}

impl FlowSpec {
    /// A greedy flow without end in the lossless RoCE class, 1024 bytes a packet.
    pub fn new(from: HostId, to: HostId) -> FlowSpec {
        FlowSpec {
            from,
            to,
            tos: crate::Qos::ROCE_TOS,
            source_port: 0xc000,
            payload: 1024,
            size: None,
            start: Time::ZERO,
            stop: Time::NEVER,
            arrivals: Arrivals::Greedy,
            ttl: 64,
            plane: None,
            to_plane: None,
        }
    }

    /// This flow, of so many bytes.
    pub fn size(self, bytes: u64) -> FlowSpec {
        FlowSpec {
            size: Some(bytes),
            ..self
        }
    }

    /// This flow, beginning then.
    pub fn start(self, start: Time) -> FlowSpec {
        FlowSpec { start, ..self }
    }

    /// This flow, with packets of this payload.
    pub fn payload(self, payload: u32) -> FlowSpec {
        FlowSpec { payload, ..self }
    }

    /// This flow, paced.
    pub fn paced(self, rate: Rate) -> FlowSpec {
        FlowSpec {
            arrivals: Arrivals::Paced(rate),
            ..self
        }
    }

    /// This flow, with another TOS byte.
    pub fn tos(self, tos: u8) -> FlowSpec {
        FlowSpec { tos, ..self }
    }

    /// This flow, from another port.
    pub fn source_port(self, source_port: u16) -> FlowSpec {
        FlowSpec {
            source_port,
            ..self
        }
    }
}

/// A flow, and what became of it so far.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The flow as it was requested.
    pub spec: FlowSpec,
    /// Packets sent.
    pub sent: u32,
    /// Bytes of payload sent.
    pub sent_bytes: u64,
    /// Packets that arrived.
    pub delivered: u32,
    /// Bytes of payload that arrived.
    pub delivered_bytes: u64,
    /// Packets that arrived after a later one.
    pub reordered: u32,
    /// Packets that arrived marked.
    pub marked: u32,
    /// The arrival time of the last one.
    pub last: Time,
    /// Time from being made to arriving, summed over all.
    pub latency: Span,
    /// The longest of them.
    pub latency_max: Span,
    /// Number that the next packet should have.
    pub(crate) expected: u32,
    /// When a paced flow may send next.
    pub(crate) next_at: Time,
    /// True while it waits for room in the adapter.
    pub(crate) is_listed: bool,
    /// True if it stopped because its host crashed.
    pub(crate) is_halted: bool,
    pub(crate) priority: u8,
    pub(crate) hash: u32,
}

impl Flow {
    pub(crate) fn new(spec: FlowSpec, priority: u8, hash: u32) -> Flow {
        Flow {
            spec,
            sent: 0,
            sent_bytes: 0,
            delivered: 0,
            delivered_bytes: 0,
            reordered: 0,
            marked: 0,
            last: Time::ZERO,
            latency: Span::ZERO,
            latency_max: Span::ZERO,
            expected: 0,
            next_at: spec.start,
            is_listed: false,
            is_halted: false,
            priority,
            hash,
        }
    }

    /// Takes what its sender has done, in another part of the simulation.
    pub(crate) fn join_sender(&mut self, other: &Flow) {
        (self.sent, self.sent_bytes) = (other.sent, other.sent_bytes);
        (self.next_at, self.is_listed) = (other.next_at, other.is_listed);
        self.is_halted = other.is_halted;
    }

    /// Takes what its receiver has seen.
    pub(crate) fn join_receiver(&mut self, other: &Flow) {
        (self.delivered, self.delivered_bytes) = (other.delivered, other.delivered_bytes);
        (self.reordered, self.expected) = (other.reordered, other.expected);
        (self.marked, self.last) = (other.marked, other.last);
        (self.latency, self.latency_max) = (other.latency, other.latency_max);
    }

    /// Bytes of payload that the next packet has; 0 when all were sent.
    pub(crate) fn next_payload(&self, now: Time) -> u32 {
        if now >= self.spec.stop {
            return 0;
        }
        match self.spec.size {
            Some(size) => size
                .saturating_sub(self.sent_bytes)
                .min(self.spec.payload.into()) as u32,
            None => self.spec.payload,
        }
    }

    /// True if everything has arrived.
    pub fn is_complete(&self) -> bool {
        self.spec
            .size
            .is_some_and(|size| self.delivered_bytes >= size)
    }

    /// Time from its start to its last arrival, if it is complete.
    pub fn completion(&self) -> Option<Span> {
        self.is_complete().then(|| self.last.since(self.spec.start))
    }

    /// Bytes of payload a second, from its start to its last arrival.
    pub fn goodput(&self) -> Option<Rate> {
        Rate::of(self.delivered_bytes, self.last.since(self.spec.start))
    }

    /// Mean time from being made to arriving.
    pub fn latency_mean(&self) -> Option<Span> {
        let mean = self.latency.ps().checked_div(u64::from(self.delivered))?;
        Some(Span::from_ps(mean))
    }
}
