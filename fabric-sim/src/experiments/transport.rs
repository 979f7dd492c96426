//! The real transport, where its performance has a closed form.

use crate::engine::{Entity, Rate, Rng, Span, Time};
use crate::experiments::{Bound, Findings};
use crate::fabric::{Fate, Interference, Mode};
use crate::frame::Frame;
use crate::host::{StreamSpec, TransportConfig};
use crate::topology::{HostId, PortId};
use crate::{FabricConfig, Link, Sim, Topology};

pub(super) fn incast(findings: &mut Findings) {
    const SENDERS: u32 = 63;
    const BYTES: u32 = 1 << 20;
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
    let done = sim
        .streams()
        .iter()
        .map(|s| s.last)
        .max()
        .unwrap_or_default();
    // Packets of 1024 bytes with 62 of headers and a gap of 20; the first of a message has 16 more.
    let wire = u64::from(SENDERS) * (u64::from(BYTES / 1024) * 1106 + 16);
    // The first packet's way in, and the last one's ACK: four cables, three frames more.
    let way = link.occupancy(1102) + link.delay * 4 + link.occupancy(66) * 2;
    let expected = (link.rate.time_of(wire) + way).as_secs_f64() * 1e6;
    let measured = done.as_secs_f64() * 1e6;
    findings.add(
        "last completion",
        "us",
        expected,
        measured,
        Bound::Within(0.001),
    );
    let drops = sim.fabric().drops().total() as f64;
    findings.add("lost frames", "", 0.0, drops, Bound::Exactly);
}

/// Loses data packets at random: those that leave one port.
#[derive(Debug)]
struct Loss {
    port: PortId,
    odds: u64,
    rng: Rng,
}

impl Interference for Loss {
    fn on_wire(&mut self, _: Time, port: PortId, frame: &mut Frame, _: &mut [u8]) -> Fate {
        if port == self.port && !frame.payload.is_control() && self.rng.hits(self.odds) {
            Fate::Lose
        } else {
            Fate::Pass
        }
    }
}

/// Packets under way that fill the link.
const BDP: u64 = 32;

pub(super) fn go_back_n(findings: &mut Findings) {
    for loss in [0.0, 0.001] {
        // A way there and back that takes as long as 32 packets.
        let rate = Rate::gbps(10);
        let round = rate.time_of(1106 * BDP);
        let delay = Span::from_ps(round.ps() / 2);
        let link = Link::new(rate).delay(delay);
        let config = FabricConfig {
            mode: Mode::Lite,
            ..FabricConfig::default()
        };
        let mut sim = Sim::new(Topology::back_to_back(link), config).expect("two hosts");
        sim.set_transport_config(TransportConfig {
            window_bytes: 4 * BDP as u32 * 1024,
            ..TransportConfig::default()
        });
        let port = sim.fabric().port_of(HostId(0));
        let rng = Rng::stream(1, Entity::Port(port.0), "loss");
        let odds = Rng::odds(loss);
        sim.fabric_mut()
            .set_interference(Box::new(Loss { port, odds, rng }));
        let spec = StreamSpec::write(HostId(0), HostId(1), 1 << 20);
        let stream = sim
            .add_stream(StreamSpec {
                count: 40,
                depth: 4,
                ..spec
            })
            .expect("connects");
        sim.run();
        let full = rate.as_gbps_f64() * 1024.0 / 1106.0;
        let goodput = sim.stream(stream).goodput().map_or(0.0, Rate::as_gbps_f64);
        let expected = (1.0 - loss) / (1.0 + BDP as f64 * loss);
        let what = format!("goodput at a loss of {} %", loss * 100.0);
        findings.add(
            what,
            "of the link",
            expected,
            goodput / full,
            Bound::Within(0.1),
        );
    }
}
