//! Congestion control from papers at the fixed points that follow from their rules.

use urxe_core::congestion::CongestionControl;

use crate::congestion::{HpccParams, Road, Steering, SwiftParams, TimelyParams};
use crate::engine::{Rate, Span};
use crate::experiments::{Bound, Findings};
use crate::fabric::Mode;
use crate::host::{StreamId, StreamSpec, TransportConfig};
use crate::topology::HostId;
use crate::{FabricConfig, Link, Sim, Topology};

/// A packet of 1024 bytes of payload on a link, and its acknowledgement.
const PACKET: u32 = 1106;
const ACK: u32 = 86;
const LOOKS: u64 = 2000;

/// Senders on a switch that write to one host without end.
#[derive(Clone, Copy, Debug)]
struct Incast {
    steering: Steering,
    senders: u32,
    link: Link,
    /// Until it has settled, and how long it is looked at.
    settle: Span,
    look: Span,
}

struct Settled {
    /// Mean, in bytes.
    queue: f64,
    utilisation: f64,
    jain: f64,
    stopped: f64,
}

impl Incast {
    /// The way of one sender.
    fn road(&self) -> Road {
        let (link, rate) = (self.link, self.link.rate);
        let sending = rate.time_of(u64::from(PACKET - 20)) + rate.time_of(u64::from(ACK - 20));
        Road {
            base_rtt: (link.delay * 2 + sending) * 2,
            rate,
            switches: 1,
            packet: PACKET,
        }
    }

    /// Bytes that wait while the round trip is so long.
    fn queue_at(&self, rtt: f64) -> f64 {
        (rtt - self.road().base_rtt.as_secs_f64()) * self.link.rate.as_bps() as f64 / 8.0
    }

    fn run(&self) -> Settled {
        let config = FabricConfig {
            mode: Mode::Lite,
            ..FabricConfig::default()
        };
        let topology = Topology::single_switch(self.senders + 1, self.link);
        let mut sim = Sim::new(topology, config).expect("a switch");
        sim.set_transport_config(TransportConfig {
            window_bytes: 16 << 20,
            window_packets: u32::MAX,
            ..TransportConfig::default()
        });
        let receiver = HostId(self.senders);
        for host in 0..self.senders {
            let mut spec = StreamSpec::write(HostId(host), receiver, 1 << 20);
            (spec.count, spec.depth) = (1 << 30, 8);
            spec.options.congestion = CongestionControl::Steered;
            spec.options.steering = Some(self.steering);
            sim.add_stream(spec).expect("connects");
        }
        sim.run_for(self.settle);
        let port = sim.fabric().port_of(receiver).peer();
        let ids = || (0..self.senders).map(StreamId);
        let arrived = |sim: &Sim| -> Vec<u64> { ids().map(|id| sim.stream_bytes(id)).collect() };
        let before = arrived(&sim);
        let mut sum = 0;
        for _ in 0..LOOKS {
            sim.run_for(Span::from_ps(self.look.ps() / LOOKS));
            sum += sim.fabric().queue_bytes(port, 3);
        }
        let after = arrived(&sim);
        let rates = after.iter().zip(before).map(|(a, b)| (a - b) as f64);
        let (total, squares) = rates.fold((0.0, 0.0), |(t, s), r| (t + r, s + r * r));
        let packets = total / 1024.0 * f64::from(PACKET);
        Settled {
            queue: sum as f64 / LOOKS as f64,
            utilisation: packets / self.link.rate.bytes_in(self.look) as f64,
            jain: total * total / (f64::from(self.senders) * squares),
            stopped: sim
                .fabric()
                .topology()
                .ports()
                .map(|p| sim.fabric().port_stats(p).pauses_sent as f64)
                .sum(),
        }
    }
}

pub(super) fn fixed_points(findings: &mut Findings) {
    hpcc(findings);
    swift(findings);
    timely(findings);
}

/// Each adds a little to its window, and all divide by what the link is used for: what is sent and what waits are together eta and
/// what they add.
fn hpcc(findings: &mut Findings) {
    let params = HpccParams::default();
    for senders in [4, 16] {
        let incast = Incast {
            steering: Steering::Hpcc(params),
            senders,
            link: Link::new(Rate::gbps(100)).delay(Span::from_us(1)),
            // What is added in a round trip of 4 us is a thousandth of a window.
            settle: Span::from_ms(20),
            look: Span::from_ms(2),
        };
        let settled = incast.run();
        let name = |what: &str| format!("HPCC, {senders} senders: {what}");
        let expected = params.eta + f64::from(senders) * params.additive;
        let inside = incast.road().bdp() * f64::from(PACKET);
        let measured = settled.utilisation + settled.queue / inside;
        let what = name("use of the link, and queue by B T");
        findings.within(0.03, what, "", expected, measured);
        let (packets, most) = (settled.queue / f64::from(PACKET), f64::from(senders));
        findings.add(name("queue"), "packets", most, packets, Bound::AtMost);
        // At rest a window is W_AI / (1 - eta / U), with U as its sender measures it: few senders, which add little together, come to
        // very different windows by measuring U a thousandth apart, and nothing here is random.
        if senders == 16 {
            findings.at_least(name("Jain's index"), 0.95, settled.jain);
        }
        findings.exactly(name("pauses"), 0.0, settled.stopped);
    }
}

/// The window at which the target is what the queue of all windows makes the round trip.
fn swift(findings: &mut Findings) {
    let params = SwiftParams::target(Span::from_us(10));
    for senders in [2, 16] {
        let incast = Incast {
            steering: Steering::Swift(params),
            senders,
            link: Link::new(Rate::gbps(100)).delay(Span::from_us(1)),
            settle: Span::from_ms(4),
            look: Span::from_ms(4),
        };
        let (road, settled) = (incast.road(), incast.run());
        let mut rtt = road.base_rtt.as_secs_f64();
        for _ in 0..100 {
            let full = rtt * road.rate.as_bps() as f64 / (8.0 * f64::from(PACKET));
            rtt = params
                .round_trip(&road, full / f64::from(senders))
                .as_secs_f64();
        }
        let name = |what: &str| format!("Swift, {senders} senders: {what}");
        let expected = incast.queue_at(rtt) / 1000.0;
        findings.within(0.15, name("queue"), "KB", expected, settled.queue / 1000.0);
        findings.at_least(name("use of the link"), 0.98, settled.utilisation);
        findings.at_least(name("Jain's index"), 0.95, settled.jain);
    }
}

/// Growth and decrease are equal where the change is none: q = q' (1 + N step / (beta C)), by the round trip.
fn timely(findings: &mut Findings) {
    let params = TimelyParams::low(Span::from_us(50));
    for senders in [2, 4] {
        let incast = Incast {
            steering: Steering::Timely(params),
            senders,
            link: Link::new(Rate::gbps(10)).delay(Span::from_us(4)),
            settle: Span::from_ms(100),
            look: Span::from_ms(40),
        };
        let settled = incast.run();
        let step = f64::from(senders) * params.step.as_bps() as f64;
        let part = step / (params.beta * incast.link.rate.as_bps() as f64);
        let rtt = params.low.as_secs_f64() * (1.0 + part);
        let name = |what: &str| format!("TIMELY, {senders} senders: {what}");
        let expected = incast.queue_at(rtt) / 1000.0;
        findings.within(0.15, name("queue"), "KB", expected, settled.queue / 1000.0);
        findings.at_least(name("use of the link"), 0.98, settled.utilisation);
        findings.at_least(name("Jain's index"), 0.95, settled.jain);
    }
}
