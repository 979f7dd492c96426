//! Collective operations on an idle fabric, beside the alpha-beta model.
//!
//! A message of *m* bytes takes *alpha + m beta*. Through a switch that stores and forwards, at *C* bytes a second:
//!
//! * *beta = (MTU + headers) / MTU / C*: each packet has 62 bytes of headers and a gap of 20;
//! * *alpha = 2 d + (packet + RETH and immediate) / C*: both cables, and the last packet once more, out of the switch.
//!
//! | operation | time |
//! |---|---|
//! | ring all-reduce of *S* bytes | *2 (n - 1) (alpha + S / n beta)* |
//! | tree all-reduce (binomial, there and back) | *2 log2(n) (alpha + S beta)*, and an ACK's way more for each step in which a rank sends again |
//! | halving-doubling | *2 log2(n) alpha + 2 (n - 1) / n S beta* |

use urxe_core::qp::attr::Mtu;

use crate::engine::{Rate, Time};
use crate::experiments::Findings;
use crate::fabric::Mode;
use crate::host::{ConnectOptions, JobSpec};
use crate::workload::{Algorithm, Collective, CollectiveKind};
use crate::{FabricConfig, Link, Sim, SwitchConfig, Topology};

const RATE: Rate = Rate::gbps(100);
const MTU: f64 = 4096.0;
const HEADERS: f64 = 62.0 + 20.0;
/// RETH and immediate.
const ONCE: f64 = 16.0 + 4.0;

struct Model {
    alpha: f64,
    beta: f64,
    ack: f64,
}

impl Model {
    fn new(link: Link) -> Model {
        let byte = RATE.time_of(1_000_000).as_secs_f64() / 1e6;
        let cables = 2.0 * link.delay.as_secs_f64();
        Model {
            alpha: cables + (MTU + HEADERS + ONCE) * byte,
            beta: (MTU + HEADERS) / MTU * byte,
            ack: cables + 2.0 * (4.0 + HEADERS) * byte,
        }
    }

    fn message(&self, bytes: f64) -> f64 {
        self.alpha + bytes * self.beta
    }

    fn all_reduce(&self, algorithm: Algorithm, n: f64, bytes: f64) -> f64 {
        let steps = n.log2();
        match algorithm {
            Algorithm::Ring => 2.0 * (n - 1.0) * self.message(bytes / n),
            Algorithm::Tree => 2.0 * steps * self.message(bytes) + (steps - 1.0) * self.ack,
            _ => 2.0 * steps * self.alpha + 2.0 * (n - 1.0) / n * bytes * self.beta,
        }
    }
}

/// Time that it takes on one switch, in seconds.
fn measure(algorithm: Algorithm, hosts: u32, bytes: u64) -> (Link, f64) {
    let config = FabricConfig {
        mode: Mode::Lite,
        // Headroom for a port each of 1024 hosts.
        switch: SwitchConfig {
            buffer: 256 << 20,
            ..SwitchConfig::default()
        },
        ..FabricConfig::default()
    };
    let link = Link::new(RATE);
    let topology = Topology::single_switch(hosts, link);
    let all = topology.hosts().collect();
    let mut sim = Sim::new(topology, config).expect("a switch");
    let kind = CollectiveKind::AllReduce(algorithm);
    let job = sim.add_job(JobSpec {
        name: String::new(),
        start: Time::ZERO,
        options: ConnectOptions {
            mtu: Mtu::Mtu4096,
            ..ConnectOptions::default()
        },
        workload: Box::new(Collective::new(kind, all, bytes).expect("is possible")),
    });
    sim.run();
    let took = sim.job(job).completion();
    (link, took.map_or(0.0, |span| span.as_secs_f64()))
}

pub(super) fn all_reduce(findings: &mut Findings) {
    let (ring, tree) = (Algorithm::Ring, Algorithm::Tree);
    for (algorithm, hosts, bytes) in [
        (ring, 64, 16 << 20),
        (tree, 64, 1 << 20),
        (Algorithm::HalvingDoubling, 64, 4 << 20),
        (tree, 1024, 256 << 10),
        (Algorithm::HalvingDoubling, 1024, 4 << 20),
    ] {
        compare(findings, algorithm, hosts, bytes);
    }
}

/// A packet a step: a step's time is nearly all alpha.
pub(super) fn ring_of_1024(findings: &mut Findings) {
    compare(findings, Algorithm::Ring, 1024, 4 << 20);
}

fn compare(findings: &mut Findings, algorithm: Algorithm, hosts: u32, bytes: u64) {
    let (link, measured) = measure(algorithm, hosts, bytes);
    let expected = Model::new(link).all_reduce(algorithm, f64::from(hosts), bytes as f64);
    let name: &str = algorithm.into();
    let what = format!("{name} of {hosts} hosts, {} KiB", bytes >> 10);
    findings.within(0.05, what, "us", expected * 1e6, measured * 1e6);
}
