//! The real transport, where its performance has a closed form.

use urxe_core::Recovery;

use crate::engine::{Rate, Span, Time};
use crate::experiments::{Bound, Findings, PAYLOAD_SHARE};
use crate::fabric::{Mode, Upcall};
use crate::fault::{Fault, FaultKind};
use crate::frame::{Frame, Payload};
use crate::host::{StreamSpec, TransportConfig};
use crate::topology::HostId;
use crate::{Fabric, FabricConfig, Link, Qos, Sim, Topology};

pub(super) fn incast(findings: &mut Findings) {
    const SENDERS: u32 = 127;
    const BYTES: u32 = 2_000_000;
    let config = FabricConfig {
        mode: Mode::Lite,
        ..FabricConfig::default()
    };
    let link = Link::new(Rate::gbps(100));
    let topology = Topology::single_switch(SENDERS + 1, link);
    let mut sim = Sim::new(topology, config).expect("a switch");
    for host in 0..SENDERS {
        let spec = StreamSpec::write(HostId(host), HostId(SENDERS), BYTES);
        sim.add_stream(spec).expect("connects");
    }
    sim.run();
    let done = sim.streams().iter().map(|s| s.last);
    let done = done.max().unwrap_or_default();
    // Packets of at most 1024 bytes with 62 of headers and a gap of 20; the first of a message has 16 more.
    let headers = BYTES.div_ceil(1024) * (62 + 20) + 16;
    let wire = u64::from(SENDERS) * u64::from(BYTES + headers);
    // The first packet's way in, and the last one's ACK: four cables, three frames more.
    let way = link.occupancy(1102) + link.delay * 4 + link.occupancy(66) * 2;
    let expected = (link.rate.time_of(wire) + way).as_secs_f64() * 1e6;
    let measured = done.as_secs_f64() * 1e6;
    findings.within(0.001, "last completion", "us", expected, measured);
    let drops = sim.fabric().drops().total() as f64;
    findings.exactly("lost frames", 0.0, drops);
    for (name, ways) in [
        ("both ways", &[(0, 1, 1.0), (1, 0, 1.0)][..]),
        ("three QPs of a host", &[(0, 1, 1.0 / 3.0); 3]),
        (
            "three QPs to three hosts",
            &[(0, 1, 1.0 / 3.0), (0, 2, 1.0 / 3.0), (0, 3, 1.0 / 3.0)],
        ),
    ] {
        shares(findings, name, ways);
    }
}

/// Streams between four hosts on a switch, and the part of a link that each must have.
fn shares(findings: &mut Findings, name: &str, ways: &[(u32, u32, f64)]) {
    let config = FabricConfig {
        mode: Mode::Lite,
        ..FabricConfig::default()
    };
    let topology = Topology::single_switch(4, Link::new(Rate::gbps(100)));
    let mut sim = Sim::new(topology, config).expect("a switch");
    let streams = ways.iter().map(|&(from, to, _)| {
        let mut spec = StreamSpec::write(HostId(from), HostId(to), 1 << 20);
        (spec.count, spec.depth) = (1 << 40, 4);
        sim.add_stream(spec).expect("connects")
    });
    let streams: Vec<_> = streams.collect();
    sim.run_for(Span::from_ms(2));
    for (number, (&stream, (_, _, share))) in streams.iter().zip(ways).enumerate() {
        let measured = sim.stream_bytes(stream) as f64 * 8e-9 / 2e-3;
        let expected = 100.0 * PAYLOAD_SHARE * share;
        findings.within(
            0.02,
            format!("{name}: stream {number}"),
            "Gb/s",
            expected,
            measured,
        );
    }
    let repeated: u64 = sim
        .transport_stats()
        .map(|(_, stats)| stats.retransmitted_pkts)
        .sum();
    findings.exactly(format!("{name}: packets sent twice"), 0.0, repeated as f64);
}

/// Packets under way that fill the link.
const BDP: u64 = 32;
/// Slow, because the shortest timeout of the transport is 4 ms: at a high rate that is thousands of packets, and a packet that
/// is lost twice would count for more than all others. Here a round trip is 2.9 ms, and the timeout three of them.
const RATE: Rate = Rate::mbps(100);

/// Two hosts and a way there and back that takes as long as 32 packets.
fn long_way(bdp: u64) -> (Topology, FabricConfig) {
    let round = RATE.time_of(1106 * bdp);
    let link = Link::new(RATE).delay(Span::from_ps(round.ps() / 2));
    let config = FabricConfig {
        mode: Mode::Lite,
        ..FabricConfig::default()
    };
    (Topology::back_to_back(link), config)
}

/// What a loss does to the transport's window.
#[derive(Clone, Copy, Debug)]
enum Window {
    /// It halves, and grows back: what users have.
    Narrowed,
    /// Nothing: what the closed form assumes.
    Held,
}

/// Payload of messages that the transport writes over a lossy link, as a part of what the link could carry.
fn goodput_of_transport(way: Way, loss: Fault, message: u32, count: u64, window: Window) -> f64 {
    let (topology, config) = long_way(way.bdp);
    let mut sim = Sim::new(topology, config).expect("two hosts");
    let mut config = TransportConfig {
        window_bytes: 4 * way.bdp as u32 * 1024,
        window_packets: u32::MAX,
        recovery: way.recovery,
        ..TransportConfig::default()
    };
    if let Window::Held = window {
        config.window_packets_min = u32::MAX;
    }
    sim.set_transport_config(config);
    let port = sim.fabric().port_of(HostId(0));
    sim.add_fault(loss.on(port)).expect("data is lost");
    let mut spec = StreamSpec::write(HostId(0), HostId(1), message);
    let depth = (8 * way.bdp as u32 * 1024).div_ceil(message).max(4);
    (spec.count, spec.depth, spec.options.timeout) = (count, depth, way.timeout);
    let stream = sim.add_stream(spec).expect("connects");
    sim.run();
    let goodput = sim.stream(stream).goodput().map_or(0.0, Rate::as_gbps_f64);
    goodput / (RATE.as_gbps_f64() * PAYLOAD_SHARE)
}

/// A way, and the timeout of its connections.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Packets under way that fill it.
    bdp: u64,
    /// As verbs have it.
    timeout: u8,
    recovery: Recovery,
}

const SHORT: Way = Way {
    bdp: BDP,
    timeout: 10,
    recovery: Recovery::GoBackN,
};

impl Way {
    /// What going back to the lost packet leaves. A packet that is lost again when it is sent again is missed by the timeout alone, as the receiver
    /// complains once about a gap: that happens to p^2 of the packets, and takes twice the timeout's code.
    fn closed_form(self, loss: f64) -> f64 {
        let timeout = 2.0 * 4.096e-6 * f64::from(1u32 << self.timeout);
        let packets = timeout / RATE.time_of(1106).as_secs_f64();
        (1.0 - loss) / (1.0 + self.bdp as f64 * loss + packets * loss * loss)
    }
}

pub(super) fn go_back_n(findings: &mut Findings) {
    let goodput =
        |way, loss: f64, window| goodput_of_transport(way, Fault::loss(loss), 1 << 18, 160, window);
    let unit = "of the link";
    let longer = [(128, 12), (512, 15)].map(|(bdp, timeout)| Way {
        bdp,
        timeout,
        ..SHORT
    });
    for way in [SHORT].into_iter().chain(longer) {
        for loss in [0.0, 0.001, 0.01, 0.05] {
            let (bdp, percent) = (way.bdp, loss * 100.0);
            let what = format!("goodput at a loss of {percent} %, B = {bdp}, window held");
            let measured = goodput(way, loss, Window::Held);
            findings.within(0.1, what, unit, way.closed_form(loss), measured);
        }
    }
    // What a model of IRN (window of one B, no timer but the timeout) leaves: recovery by what is known to be missing is not worse.
    for (bdp, timeout, loss, irn) in [
        (32, 10, 0.01, 0.974),
        (128, 12, 0.01, 0.918),
        (128, 12, 0.05, 0.480),
    ] {
        let way = Way {
            bdp,
            timeout,
            recovery: Recovery::Selective,
        };
        let what = format!("selective repeat: goodput at {} %, B = {bdp}", loss * 100.0);
        findings.add(
            what,
            unit,
            irn,
            goodput(way, loss, Window::Held),
            Bound::AtLeast,
        );
    }
    // No theory says these: they are a little below what was measured, so that a change for the worse is seen.
    for (loss, least) in [(0.001, 0.9), (0.01, 0.3)] {
        let what = format!(
            "goodput at {} %, window narrowed by losses (own floor)",
            loss * 100.0
        );
        let measured = goodput(SHORT, loss, Window::Narrowed);
        findings.add(what, unit, least, measured, Bound::AtLeast);
    }
}

/// Loses one packet of so many: as a switch did that dropped what had a certain low byte in its IP identification.
fn every(nth: u64) -> Fault {
    Fault::new(FaultKind::Loss).every(nth)
}

/// Packets of a message of 4 MB.
const LONG: u32 = 4_000_000_u32.div_ceil(1024);
/// One packet of so many is lost.
const NTH: u64 = 256;

pub(super) fn livelock(findings: &mut Findings) {
    let whole = GoBack0::run(u64::MAX);
    let broken = GoBack0::run(NTH);
    // The last of them is under way at the end.
    let expected =
        (whole.time.as_secs_f64() / RATE.time_of(u64::from(LONG) * 1106).as_secs_f64()).floor();
    let what = "go-back-0, nothing lost: messages";
    findings.within(0.05, what, "", expected, whole.messages);
    findings.exactly("go-back-0: messages", 0.0, broken.messages);
    findings.at_least("go-back-0: use of the link", 0.99, broken.utilisation);
    let goodput = |window| goodput_of_transport(SHORT, every(NTH), 4_000_000, 20, window);
    let unit = "of the link";
    // Every 256th, so no packet twice in a row.
    let loss = 1.0 / NTH as f64;
    let expected = (1.0 - loss) / (1.0 + BDP as f64 * loss);
    let what = "go-back-N, the transport, window held: goodput";
    findings.within(0.1, what, unit, expected, goodput(Window::Held));
    let what = "go-back-N, window narrowed by losses: goodput (own floor)";
    findings.add(what, unit, 0.5, goodput(Window::Narrowed), Bound::AtLeast);
}

/// A sender that begins its message again from the first packet when one is lost, as adapters once did. Only a model, for
/// this experiment: urxe's transport cannot do that.
#[derive(Debug, Default)]
struct GoBack0 {
    /// How often the present message was begun.
    attempt: u32,
    /// Its next packet.
    next: u32,
    /// The attempt that the receiver sees, the packet that it expects, and whether it has complained.
    seen: (u32, u32, bool),
    /// Messages that have arrived.
    messages: u32,
}

/// What came of it.
struct Livelock {
    messages: f64,
    utilisation: f64,
    time: Span,
}

impl GoBack0 {
    fn run(nth: u64) -> Livelock {
        let (topology, config) = long_way(BDP);
        let mut fabric = Fabric::new(topology, config).expect("two hosts");
        let port = fabric.port_of(HostId(0));
        fabric.add_fault(every(nth).on(port)).expect("data is lost");
        let mut flow = GoBack0::default();
        let time = Span::from_ms(5_000);
        flow.fill(&mut fabric);
        while let Some(upcall) = fabric.step(Time::ZERO + time) {
            match upcall {
                Upcall::Received(host, id) => {
                    let frame = fabric.take(id);
                    let Payload::Flow {
                        flow: attempt,
                        packet,
                        ..
                    } = frame.payload
                    else {
                        continue;
                    };
                    match host {
                        HostId(0) => flow.on_complaint(attempt),
                        _ => flow.on_packet(&mut fabric, attempt, packet),
                    }
                    flow.fill(&mut fabric);
                }
                Upcall::Room(HostId(0)) => flow.fill(&mut fabric),
                _ => {}
            }
        }
        let stats = fabric.port_stats(port);
        let class = usize::from(fabric.config().qos.priority_of(Qos::ROCE_TOS));
        let wire = stats.sent_bytes[class] + 20 * stats.sent_frames[class];
        Livelock {
            messages: f64::from(flow.messages),
            utilisation: wire as f64 / RATE.bytes_in(time) as f64,
            time,
        }
    }

    /// Sends while there is something to send, and room for it. The next message follows at once.
    fn fill(&mut self, fabric: &mut Fabric) {
        while fabric.waiting_in_all(HostId(0)) < 2048 {
            if self.next == LONG {
                (self.attempt, self.next) = (self.attempt + 1, 0);
            }
            send(fabric, HostId(0), self.attempt, self.next, 1024);
            self.next += 1;
        }
    }

    /// The other end misses a packet of this attempt.
    fn on_complaint(&mut self, attempt: u32) {
        if attempt == self.attempt {
            (self.attempt, self.next) = (attempt + 1, 0);
        }
    }

    fn on_packet(&mut self, fabric: &mut Fabric, attempt: u32, packet: u32) {
        if attempt > self.seen.0 {
            self.seen = (attempt, 0, false);
        }
        let (present, expected, has_complained) = self.seen;
        if attempt < present || has_complained {
            return;
        }
        if packet != expected {
            self.seen.2 = true;
            send(fabric, HostId(1), attempt, expected, 0);
            return;
        }
        self.seen.1 += 1;
        self.messages += u32::from(self.seen.1 == LONG);
    }
}

/// Sends a packet of a plain flow to the other host.
fn send(fabric: &mut Fabric, from: HostId, flow: u32, packet: u32, payload: u32) {
    let frame = Frame {
        next: None,
        len: 62 + payload,
        src: from,
        dst: HostId(1 - from.0),
        flow_hash: 0,
        ingress: fabric.port_of(from),
        priority: fabric.config().qos.priority_of(Qos::ROCE_TOS),
        tos: Qos::ROCE_TOS,
        ttl: 64,
        rail: 0,
        is_behind: false,
        born: fabric.now(),
        digest: u64::from(flow) << 32 | u64::from(packet),
        payload: Payload::Flow {
            flow,
            packet,
            payload,
        },
    };
    fabric.send(from, frame);
}
