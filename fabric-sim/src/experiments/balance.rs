//! Flows over equal paths: how much of them is used, and what frames out of order cost the transport.

use urxe_core::Recovery;
use urxe_core::qp::attr::Mtu;

use crate::engine::{Rate, Span, Time};
use crate::experiments::{Bound, Findings};
use crate::fabric::Mode;
use crate::flow::FlowSpec;
use crate::host::{StreamId, StreamSpec, TransportConfig};
use crate::switch::Balance;
use crate::topology::HostId;
use crate::{FabricConfig, Link, Sim, SwitchConfig, Topology};

const GBPS: u64 = 100;
const MTU: u32 = 4096;
/// Share of a link that payload has.
const SHARE: f64 = MTU as f64 / (MTU as f64 + 82.0);
/// Hosts of a leaf, and its uplinks.
const WIDTH: u32 = 8;
const SEEDS: u64 = 64;

fn network(topology: Topology, seed: u64, balance: Balance) -> Sim {
    let config = FabricConfig {
        seed,
        mode: Mode::Lite,
        switch: SwitchConfig {
            balance,
            ..SwitchConfig::default()
        },
        ..FabricConfig::default()
    };
    Sim::new(topology, config).expect("a network")
}

pub(super) fn paths(findings: &mut Findings) {
    // As many flows as uplinks, each by lot: so many uplinks have a flow, and those are full.
    let drawn = 1.0 - (1.0 - 1.0 / f64::from(WIDTH)).powi(WIDTH as i32);
    let flowlets = Balance::Flowlets(Balance::FLOWLET_GAP);
    for (name, balance, expected) in [
        ("ECMP", Balance::Ecmp, Some(drawn)),
        ("flowlets without a gap", flowlets, Some(drawn)),
        ("adaptive", Balance::Adaptive, None),
        ("spraying", Balance::Spray, None),
    ] {
        let seeds = if expected.is_some() { SEEDS } else { 1 };
        let used: f64 = (0..seeds).map(|seed| used(seed, balance)).sum::<f64>() / seeds as f64;
        let what = format!("8 flows over 8 spines, {name}: use");
        match expected {
            Some(expected) => findings.within(0.05, what, "of the links", expected, used),
            None => findings.at_least(what, 0.95, used),
        }
    }
    transport(findings);
}

/// How much of its uplinks a leaf uses when all its hosts send to another leaf.
fn used(seed: u64, balance: Balance) -> f64 {
    let link = Link::new(Rate::gbps(GBPS));
    let topology = Topology::leaf_spine(2, WIDTH, WIDTH, link, link);
    let mut sim = network(topology, seed, balance);
    for host in 0..WIDTH {
        let mut spec = FlowSpec::new(HostId(host), HostId(host + WIDTH));
        spec.payload = MTU;
        sim.add_flow(spec);
    }
    let arrived = |sim: &Sim| sim.flows().iter().map(|f| f.delivered_bytes).sum::<u64>();
    sim.run_for(Span::from_us(20));
    let (before, span) = (arrived(&sim), Span::from_us(200));
    sim.run_for(span);
    let bytes = (arrived(&sim) - before) as f64;
    bytes * 8e-9 / span.as_secs_f64() / (f64::from(WIDTH) * GBPS as f64 * SHARE)
}

/// Every host of a fat tree writes to another, by the real transport. What overtakes costs go-back-N more than collisions of
/// flows do, and selective repeat less.
fn transport(findings: &mut Findings) {
    let goodput = |name: &str, balance, recovery| {
        let goodput = permutation(balance, recovery);
        (format!("fat tree, {name}: goodput"), goodput)
    };
    let unit = "of the links";
    let (what, ecmp) = goodput("ECMP", Balance::Ecmp, Recovery::GoBackN);
    // Al-Fares et al., NSDI 2010: what hashing leaves of a tree is mostly half to two thirds.
    findings.add(what, unit, 0.75, ecmp, Bound::AtMost);
    for (name, balance) in [
        ("spraying", Balance::Spray),
        ("rotation", Balance::Rotate),
        ("adaptive", Balance::Adaptive),
    ] {
        let (what, back) = goodput(&format!("{name}, go-back-N"), balance, Recovery::GoBackN);
        findings.add(what, unit, ecmp, back, Bound::AtMost);
        let name = format!("{name}, selective repeat");
        // A floor of our own, without a theory.
        let (what, selective) = goodput(&name, balance, Recovery::Selective);
        findings.add(what, unit, ecmp * 1.25, selective, Bound::AtLeast);
    }
}

/// Goodput of all hosts, as a part of what their links can carry.
fn permutation(balance: Balance, recovery: Recovery) -> f64 {
    let link = Link::new(Rate::gbps(GBPS));
    let topology = Topology::fat_tree(4, link, link);
    let hosts = topology.host_count() as u32;
    let mut sim = network(topology, 1, balance);
    sim.set_transport_config(TransportConfig {
        recovery,
        ..TransportConfig::default()
    });
    for host in 0..hosts {
        let to = HostId((host * 7 + 5) % hosts);
        let mut spec = StreamSpec::write(HostId(host), to, 1 << 20);
        (spec.count, spec.depth) = (1 << 40, 4);
        spec.options.mtu = Mtu::Mtu4096;
        // All at once would never overtake: a symmetric network that beats time.
        spec.start = Time::ZERO + Span::from_ns(313) * u64::from(host);
        sim.add_stream(spec).expect("connects");
    }
    let span = Span::from_ms(1);
    sim.run_for(span);
    let ids = (0..hosts).map(StreamId);
    let bytes: u64 = ids.map(|id| sim.stream_bytes(id)).sum();
    let goodput = bytes as f64 * 8e-9 / span.as_secs_f64();
    goodput / (f64::from(hosts) * GBPS as f64 * SHARE)
}
