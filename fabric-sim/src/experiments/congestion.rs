//! The transport's congestion control against what is known of it.

use urxe_core::congestion::{CongestionControl, DcqcnParams, Rate as CoreRate};

use crate::engine::{Rate, Span};
use crate::experiments::{Findings, PAYLOAD_SHARE};
use crate::fabric::Mode;
use crate::host::{StreamSpec, TransportConfig};
use crate::switch::Marking;
use crate::topology::HostId;
use crate::{FabricConfig, Link, Sim, SwitchConfig, Topology};

const GBPS: u64 = 40;
/// The class that is marked: that of lossless RoCE traffic.
const PRIORITY: u8 = 3;
/// Until rates and queue have settled.
const SETTLE: Span = Span::from_ms(60);
/// How often the queue is looked at, and how many times.
const LOOK: Span = Span::from_us(10);
const LOOKS: u64 = 10_000;

/// The queue at which as many notifications come as the senders need to stay at their shares.
fn predicted(senders: f64) -> f64 {
    let params = DcqcnParams::at(CoreRate::from_gbps(GBPS));
    // All in packets of the link.
    let packet = 1106.0 * 8.0;
    let capacity = GBPS as f64 * 1e9 / packet;
    let step = params.additive_increase.bps() as f64 / packet;
    let bytes = params.increase_bytes as f64 * 8.0 / packet;
    let timer = params.increase_timer_ns as f64 * 1e-9;
    let interval = 50e-6;
    let steps = 1.0 / bytes + senders / (timer * capacity);
    let p = (step * senders * senders / (interval * capacity * capacity) * steps * steps).cbrt();
    let marking = Marking::DCQCN;
    marking.min as f64 + p / marking.probability * (marking.max - marking.min) as f64
}

pub(super) fn fixed_point(findings: &mut Findings) {
    for senders in [2, 4] {
        let settled = settle(senders);
        let name = |what: &str| format!("{senders} senders: {what}");
        let expected = predicted(f64::from(senders)) / 1000.0;
        findings.within(0.15, name("queue"), "KB", expected, settled.queue);
        findings.at_least(name("use of the link"), 0.98, settled.utilisation);
        findings.at_least(name("Jain's index"), 0.98, settled.jain);
        findings.exactly(name("pauses"), 0.0, settled.pauses);
    }
}

struct Settled {
    /// Mean, in KB.
    queue: f64,
    /// Part of the link.
    utilisation: f64,
    jain: f64,
    /// Since it settled.
    pauses: f64,
}

fn settle(senders: u32) -> Settled {
    let mut marking = [None; 8];
    marking[usize::from(PRIORITY)] = Some(Marking::DCQCN);
    let config = FabricConfig {
        mode: Mode::Lite,
        switch: SwitchConfig {
            marking,
            ..SwitchConfig::default()
        },
        ..FabricConfig::default()
    };
    let topology = Topology::single_switch(senders + 1, Link::new(Rate::gbps(GBPS)));
    let mut sim = Sim::new(topology, config).expect("a switch");
    sim.set_transport_config(TransportConfig {
        window_bytes: 16 << 20,
        window_packets: u32::MAX,
        ..TransportConfig::default()
    });
    let receiver = HostId(senders);
    let params = DcqcnParams::at(CoreRate::from_gbps(GBPS));
    let streams: Vec<_> = (0..senders)
        .map(|host| {
            let mut spec = StreamSpec::write(HostId(host), receiver, 1 << 20);
            (spec.count, spec.depth) = (1 << 30, 8);
            spec.options.congestion = CongestionControl::Dcqcn(params);
            sim.add_stream(spec).expect("connects")
        })
        .collect();
    sim.run_for(SETTLE);
    let port = sim.fabric().port_of(receiver).peer();
    let count = |sim: &Sim| -> Vec<u64> {
        let completed = streams.iter().map(|&s| sim.stream(s).completed);
        completed.map(|messages| messages << 20).collect()
    };
    let pauses = |sim: &Sim| -> u64 {
        let ports = sim.fabric().topology().ports();
        ports.map(|p| sim.fabric().port_stats(p).pauses_sent).sum()
    };
    let (before, paused) = (count(&sim), pauses(&sim));
    let mut sum = 0;
    for _ in 0..LOOKS {
        sim.run_for(LOOK);
        sum += sim.fabric().queue_bytes(port, PRIORITY);
    }
    let span = (LOOK * LOOKS).as_secs_f64();
    let rates: Vec<f64> = count(&sim)
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64 * 8e-9 / span)
        .collect();
    let total: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|r| r * r).sum();
    Settled {
        queue: sum as f64 / LOOKS as f64 / 1000.0,
        utilisation: total / (GBPS as f64 * PAYLOAD_SHARE),
        jain: total * total / (f64::from(senders) * squares),
        pauses: (pauses(&sim) - paused) as f64,
    }
}
