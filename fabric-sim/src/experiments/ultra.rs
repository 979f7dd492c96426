//! Congestion control of Ultra Ethernet, beside what its public simulator tells of the same traffic.
//!
//! That simulator (`uet-htsim`) has cables of 1 us, packets of 4150 bytes, marks between a fifth and four fifths of what fills the longest
//! way, and switches that cut the payload off what finds no room. Here switches pause their neighbours; packets take 4178 bytes.

use urxe_core::Recovery;
use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::Mtu;

use crate::congestion::{NsccParams, RcccParams, Steering};
use crate::engine::{Rate, Span};
use crate::experiments::Findings;
use crate::fabric::Mode;
use crate::host::{StreamSpec, TransportConfig};
use crate::switch::{Balance, Marking};
use crate::topology::HostId;
use crate::{FabricConfig, Link, Sim, SwitchConfig, Topology};

const BYTES: u32 = 2_000_000;
/// The longest way there and back, and what fills it.
const LONGEST: Span = Span::from_ns(14_023);
const FULL: u64 = 43 * 4150;

/// Connections over a fat tree of switches with so many ports.
#[derive(Debug)]
struct Traffic {
    name: &'static str,
    ports: u32,
    balance: Balance,
    pairs: Vec<(u32, u32)>,
}

impl Traffic {
    fn one() -> Traffic {
        Traffic {
            name: "one flow",
            ports: 4,
            balance: Balance::Ecmp,
            pairs: vec![(0, 15)],
        }
    }

    /// All other hosts to the last.
    fn incast(name: &'static str, ports: u32) -> Traffic {
        let last = ports.pow(3) / 4 - 1;
        let pairs = (0..last).map(|host| (host, last)).collect();
        Traffic {
            name,
            ports,
            balance: Balance::Ecmp,
            pairs,
        }
    }

    /// `perm_16n_16c_2MB.cm` of that simulator.
    fn permutation() -> Traffic {
        let to = [8, 4, 13, 10, 12, 15, 0, 9, 14, 7, 5, 3, 11, 6, 2, 1];
        Traffic {
            name: "16 hosts, each to another",
            ports: 4,
            // There a sender leaves out paths with marks.
            balance: Balance::Adaptive,
            pairs: (0..).zip(to).collect(),
        }
    }

    /// Microseconds to the last completion and the first.
    fn run(&self, steering: Steering) -> (f64, f64) {
        let mut switch = SwitchConfig {
            balance: self.balance,
            ..SwitchConfig::default()
        };
        switch.marking[3] = Some(Marking {
            min: FULL / 5,
            max: FULL * 4 / 5,
            probability: 1.0,
        });
        let config = FabricConfig {
            mode: Mode::Lite,
            switch,
            ..FabricConfig::default()
        };
        let link = Link::new(Rate::gbps(100)).delay(Span::from_us(1));
        let mut sim = Sim::new(Topology::fat_tree(self.ports, link, link), config).expect("a tree");
        sim.set_transport_config(TransportConfig {
            window_bytes: 16 << 20,
            window_packets: u32::MAX,
            window_packets_min: u32::MAX,
            recovery: Recovery::Selective,
            ..TransportConfig::default()
        });
        for &(from, to) in &self.pairs {
            let mut spec = StreamSpec::write(HostId(from), HostId(to), BYTES);
            spec.options.mtu = Mtu::Mtu4096;
            spec.options.congestion = CongestionControl::Steered;
            spec.options.steering = Some(steering);
            sim.add_stream(spec).expect("connects");
        }
        sim.run();
        let took = sim.streams().iter().map(|s| s.completion());
        let took: Option<Vec<f64>> = took.map(|t| Some(t?.as_secs_f64() * 1e6)).collect();
        let mut took = took.expect("all complete");
        took.sort_by(f64::total_cmp);
        (took[took.len() - 1], took[0])
    }
}

/// Of the last completion and the first, in microseconds: what is told of each traffic, beside what comes here; and how near the last
/// must be.
fn compare(findings: &mut Findings, steering: Steering, told: [(f64, f64, f64); 4]) {
    let traffic = [
        Traffic::one(),
        Traffic::incast("15 to one", 4),
        Traffic::incast("127 to one", 8),
        Traffic::permutation(),
    ];
    for (traffic, (last, first, near)) in traffic.iter().zip(told) {
        let (measured, earliest) = traffic.run(steering);
        let name = |what: &str| format!("{}: {what} completion", traffic.name);
        findings.within(near, name("last"), "us", last, measured);
        // How far flows are apart that began together is a matter of draws, there as here.
        findings.within(0.25, name("first"), "us", first, earliest);
    }
}

pub(super) fn nscc(findings: &mut Findings) {
    let steering = Steering::Nscc(NsccParams {
        target: Some(Span::from_ps(LONGEST.ps() / 4 * 3)),
        ..NsccParams::default()
    });
    let told = [
        (176.2, 176.2, 0.03),
        (2478.53, 1273.56, 0.03),
        (21029.3, 10787.9, 0.03),
        (194.022, 187.97, 0.03),
    ];
    compare(findings, steering, told);
}

pub(super) fn rccc(findings: &mut Findings) {
    let told = [
        (177.368, 177.368, 0.03),
        (2464.44, 2368.38, 0.03),
        (20891.4, 20354.6, 0.03),
        // Flows that meet inside the tree: there a sender avoids marked paths, here credit knows nothing of them.
        (195.673, 186.898, 0.15),
    ];
    compare(findings, Steering::Rccc(RcccParams::default()), told);
}
