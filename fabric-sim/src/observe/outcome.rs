//! The outcome of each flow, beside that in an empty network.

use crate::Sim;
use crate::engine::{Rate, Span, Time};
use crate::host::{FlowSpec, Message, StreamOp, StreamSpec};
use crate::link::{ETHERNET_OVERHEAD, FRAME_GAP, Link};
use crate::topology::HostId;

/// A plain flow or a stream of the real transport, and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowOutcome {
    /// `h0`.
    pub from: String,
    /// `h3`.
    pub to: String,
    /// `frames`, `write`, `read`.
    pub op: &'static str,
    /// Bytes of payload that are to arrive; `None`: without end.
    pub size: Option<u64>,
    /// Bytes of payload that have arrived.
    pub bytes: u64,
    /// When it begins.
    pub start: Time,
    /// The time from its start to its end, if it is complete.
    pub completion: Option<Span>,
    /// Bytes of payload a second, from its start to its last completion.
    pub goodput: Option<Rate>,
    /// How long it would take alone: all its packets one after the other over the slowest cable of its way, the way of
    /// one packet there, and of an acknowledgement back. Of a flow without end there is none.
    pub ideal: Option<Span>,
    /// How it failed, if it did.
    pub failure: Option<String>,
    /// The numbers of its QPs, of a program's flow: that which posted, and its peer.
    pub qps: Option<(u32, u32)>,
    /// Messages that were posted, of a program's flow.
    pub messages: Option<u64>,
    /// Packets that left again, answers of READs among them, of a program's flow.
    pub sent_again: Option<u64>,
}

impl FlowOutcome {
    /// How many times longer it took than alone.
    pub fn slowdown(&self) -> Option<f64> {
        let (took, ideal) = (self.completion?, self.ideal?);
        (ideal > Span::ZERO).then(|| took.as_secs_f64() / ideal.as_secs_f64())
    }
}

/// All flows of a simulation: plain flows, then streams.
pub fn outcomes(sim: &Sim) -> Vec<FlowOutcome> {
    let topology = sim.fabric().topology();
    let name = |host: HostId| topology.name(host).to_owned();
    let flows = sim.flows().iter().map(|flow| FlowOutcome {
        from: name(flow.spec.from),
        to: name(flow.spec.to),
        op: "frames",
        size: flow.spec.size,
        bytes: flow.delivered_bytes,
        start: flow.spec.start,
        completion: flow.completion(),
        goodput: flow.goodput(),
        ideal: ideal_of_flow(sim, &flow.spec),
        failure: None,
        qps: None,
        messages: None,
        sent_again: None,
    });
    let streams = (0..).map(crate::host::StreamId).zip(sim.streams());
    let streams = streams.map(|(id, stream)| FlowOutcome {
        from: name(stream.spec.from),
        to: name(stream.spec.to),
        op: stream.spec.op.name(),
        size: Some(stream.spec.count * u64::from(stream.spec.len())),
        bytes: sim.stream_bytes(id),
        start: stream.spec.start,
        completion: stream.completion(),
        goodput: stream.goodput(),
        ideal: ideal_of_stream(sim, &stream.spec),
        failure: stream.failure.map(|status| status.to_string()),
        qps: None,
        messages: None,
        sent_again: None,
    });
    flows.chain(streams).collect()
}

/// Headers of Ethernet, IP, UDP and the BTH, the ICRC and the check sequence.
const HEADERS: u32 = ETHERNET_OVERHEAD + 20 + 8 + 12 + 4;
/// The header of the first packet of a WRITE, and of a READ request.
const RETH: u32 = 16;
/// The immediate of the last packet of a message of a job.
const IMMEDIATE: u32 = 4;
/// The header of an ACK, and of the first and the last response.
const AETH: u32 = 4;

/// Packets of a length, and how they go.
struct Load {
    /// Bytes on a cable, with all headers and gaps.
    wire: u64,
    /// Length of the last frame.
    last: u32,
}

fn load(bytes: u64, payload: u32, extra: u64, tag: u32) -> Load {
    let payload = payload.max(1);
    let packets = bytes.div_ceil(payload.into()).max(1);
    let last = bytes - (packets - 1) * u64::from(payload);
    let around = u64::from(HEADERS + tag + FRAME_GAP);
    Load {
        wire: bytes.next_multiple_of(4) + packets * around + extra,
        last: HEADERS + tag + last as u32,
    }
}

fn way(sim: &Sim, spec: &FlowSpec) -> Option<Vec<Link>> {
    let topology = sim.fabric().topology();
    let path = sim.fabric().path(spec)?.into_iter();
    Some(
        path.map(|port| {
            let link = topology.link_at(port);
            link.delay(link.delay + sim.fabric().latency_of(port))
        })
        .collect(),
    )
}

/// The time from the first bit that leaves to the last that arrives.
fn time_of(way: &[Link], load: &Load) -> Span {
    let delays = way.iter().fold(Span::ZERO, |sum, link| sum + link.delay);
    let Some((slowest, link)) = way.iter().enumerate().min_by_key(|(_, link)| link.rate) else {
        return delays;
    };
    let others = way.iter().enumerate().filter(|(i, _)| *i != slowest);
    let hops = others.fold(Span::ZERO, |sum, (_, l)| sum + l.occupancy(load.last));
    delays + link.rate.time_of(load.wire - u64::from(FRAME_GAP)) + hops
}

fn ideal_of_flow(sim: &Sim, spec: &FlowSpec) -> Option<Span> {
    let tag = sim.fabric().config().qos.tag_len();
    let load = load(spec.size?, spec.payload, 0, tag);
    Some(time_of(&way(sim, spec)?, &load))
}

fn ideal_of_stream(sim: &Sim, spec: &StreamSpec) -> Option<Span> {
    let tag = sim.fabric().config().qos.tag_len();
    let there = way(sim, &FlowSpec::new(spec.from, spec.to))?;
    let back = way(sim, &FlowSpec::new(spec.to, spec.from))?;
    let one = load(spec.message.into(), spec.options.mtu.bytes(), 0, tag);
    let several = |extra: u32| Load {
        wire: spec.count * (one.wire + u64::from(extra)),
        last: one.last,
    };
    let short = |header| load(0, 1, header, tag);
    let small = |header: u32| Load {
        last: HEADERS + header + tag,
        ..short(header.into())
    };
    Some(match spec.op {
        StreamOp::Write => time_of(&there, &several(RETH)) + time_of(&back, &small(AETH)),
        StreamOp::Send => time_of(&there, &several(0)) + time_of(&back, &small(AETH)),
        // Atomics wait for each other: how long depends on how many may be under way.
        StreamOp::FetchAdd => return None,
        StreamOp::Read => time_of(&there, &small(RETH)) + time_of(&back, &several(2 * AETH)),
    })
}

/// How long a message of a job would take alone, until its sender knows that it has come.
pub(crate) fn ideal_of_message(sim: &Sim, message: &Message, mtu: u32) -> Span {
    let tag = sim.fabric().config().qos.tag_len();
    let ways = [(message.from, message.to), (message.to, message.from)];
    let [there, back] = ways.map(|(a, b)| way(sim, &FlowSpec::new(a, b)).unwrap_or_default());
    let packets = message.bytes.div_ceil(mtu).max(1);
    let rest = (message.bytes - (packets - 1) * mtu).next_multiple_of(4);
    let [full, last] = [mtu, rest].map(|payload| HEADERS + tag + payload);
    let ack = pipeline(&back, 0, 0, HEADERS + tag + AETH);
    match packets {
        1 => pipeline(&there, 0, 0, last + RETH + IMMEDIATE) + ack,
        _ => {
            // The first packet's header is a few bytes more, once.
            let slowest = there.iter().map(|link| link.rate).min();
            let header = slowest.map_or(Span::ZERO, |rate| rate.time_of(RETH.into()));
            pipeline(&there, full, packets - 1, last + IMMEDIATE) + header + ack
        }
    }
}

/// How long so many frames of a length, and a last one, take through switches that store and forward: the last one waits behind the others
/// up to some cable, and from there on for nothing.
fn pipeline(way: &[Link], full: u32, count: u32, last: u32) -> Span {
    let delays = way.iter().fold(Span::ZERO, |sum, link| sum + link.delay);
    let alone = |links: &[Link]| {
        links
            .iter()
            .fold(Span::ZERO, |sum, l| sum + l.occupancy(last))
    };
    let (mut behind, mut slowest, mut longest) = (Span::ZERO, Span::ZERO, alone(way));
    if count > 0 {
        for (hop, link) in way.iter().enumerate() {
            behind += link.occupancy(full);
            slowest = slowest.max(link.occupancy(full));
            longest = longest.max(behind + slowest * u64::from(count - 1) + alone(&way[hop..]));
        }
    }
    delays + longest
}
