//! Textbook queues, to see that time itself is right.

use crate::engine::Rate;
use crate::experiments::Findings;
use crate::host::{Arrivals, FlowSpec};
use crate::topology::HostId;
use crate::{FabricConfig, Link, Sim, Topology};

const PACKETS: u64 = 2_000_000;

pub(super) fn md1(findings: &mut Findings) {
    for load in [0.5, 0.8, 0.9] {
        let link = Link::new(Rate::gbps(100));
        let topology = Topology::back_to_back(link);
        let mut sim = Sim::new(topology, FabricConfig::default()).expect("two hosts");
        let arrivals = Arrivals::Poisson(Rate::bps((load * 100e9) as u64));
        let spec = FlowSpec::new(HostId(0), HostId(1)).size(PACKETS * 1024);
        let flow = sim.add_flow(FlowSpec { arrivals, ..spec });
        sim.run();
        let service = link.rate.time_of(1106);
        let latency = sim.flow(flow).latency_mean().unwrap_or_default();
        // The gap after a frame is no part of its latency, but of the service of the next.
        let wait = latency - service - link.delay;
        let expected = load / (2.0 * (1.0 - load)) * service.as_secs_f64();
        let what = format!("mean wait at load {load}");
        let ns = 1e9;
        let measured = wait.as_secs_f64() * ns;
        findings.within(0.02, what, "ns", expected * ns, measured);
    }
}
