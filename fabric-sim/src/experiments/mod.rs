//! Experiments with known outcomes: from papers, from textbooks, from arithmetic. `urxe sim experiments`
//! prints what is expected beside what was measured.
//!
//! Rates are of payload: with 1024 bytes a packet, 1024 of 1106 bytes on the wire.

mod balance;
mod collectives;
mod congestion;
mod fairness;
mod lossless;
mod queueing;
mod steering;
mod transport;
mod ultra;

use core::fmt;

pub use lossless::{cycle_of_buffers, receiver_that_stops};

use crate::{FabricConfig, Sim, SwitchConfig, Topology};

/// How near a measured value must be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// By so many parts of the expected value.
    Within(f64),
    /// The measured number must not be less.
    AtLeast,
    /// The measured number must not be more.
    AtMost,
    /// The measured number must be equal.
    Exactly,
}

/// One number of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The name of the number.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// The expected value.
    pub expected: f64,
    /// The measured value.
    pub measured: f64,
    /// The bound on the difference.
    pub bound: Bound,
}

impl Finding {
    /// True if it is as near as it must be.
    pub fn holds(&self) -> bool {
        let (expected, measured) = (self.expected, self.measured);
        match self.bound {
            Bound::Within(part) => (measured - expected).abs() <= part * expected.abs(),
            Bound::AtLeast => measured >= expected,
            Bound::AtMost => measured <= expected,
            Bound::Exactly => measured == expected,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Within(part) => write!(f, "{} %", part * 100.0),
            Bound::AtLeast => f.write_str("at least"),
            Bound::AtMost => f.write_str("at most"),
            Bound::Exactly => f.write_str("exactly"),
        }
    }
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// A short name, to run it alone.
    pub name: &'static str,
    /// The title, in a line.
    pub title: &'static str,
    /// The source of the expectation.
    pub source: &'static str,
    /// It takes longer than all others together: left out where only time counts.
    pub is_long: bool,
    run: fn(&mut Findings),
}

impl Experiment {
    /// Runs it. Takes a few seconds at most, unless it is long.
    pub fn run(&self) -> Vec<Finding> {
        let mut findings = Findings::default();
        (self.run)(&mut findings);
        findings.0
    }
}

/// All, in the order in which they are printed.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "share",
        title: "two hosts send to a third, 1 Gb/s each: four ways to share",
        source: "half of the link each",
        is_long: false,
        run: fairness::share,
    },
    Experiment {
        name: "unfairness",
        title: "PFC is fair to ports, not to flows",
        source: "Zhu et al., SIGCOMM 2015, fig. 3: a half and three sixths, or two thirds and two sixths",
        is_long: false,
        run: fairness::unfairness,
    },
    Experiment {
        name: "victim",
        title: "a flow that goes elsewhere suffers from a congestion that it has no part in",
        source: "Zhu et al., SIGCOMM 2015, fig. 4: a quarter of the link, an eighth with more senders",
        is_long: false,
        run: fairness::victim,
    },
    Experiment {
        name: "dcqcn",
        title: "the queue that DCQCN settles at, 2 and 4 senders at 40 Gb/s, by the real transport",
        source: "Zhu et al., CoNEXT 2016: the fixed point",
        is_long: false,
        run: congestion::fixed_point,
    },
    Experiment {
        name: "steering",
        title: "HPCC, Swift and TIMELY, two senders and more, where their rules leave them",
        source: "Li et al., SIGCOMM 2019: eta + N W_AI / (B T); Kumar et al., SIGCOMM 2020: the target; Zhu et al., CoNEXT 2016: q' (1 + N step / (beta C))",
        is_long: false,
        run: steering::fixed_points,
    },
    Experiment {
        name: "nscc",
        title: "NSCC of Ultra Ethernet: 2 MB from one host, from 15 and 127 to one, and from each to another, over fat trees of 100 Gb/s",
        source: "outputs that come with uet-htsim (commit 40ccb05, validate_uec_sender.out)",
        is_long: false,
        run: ultra::nscc,
    },
    Experiment {
        name: "rccc",
        title: "RCCC of Ultra Ethernet, credit from the receiver: the same traffic",
        source: "outputs that come with uet-htsim (commit 40ccb05, validate_uec_rcv.out)",
        is_long: false,
        run: ultra::rccc,
    },
    Experiment {
        name: "thresholds",
        title: "thresholds of a switch with 32 ports of 40 Gb/s and 12 MB",
        source: "Zhu et al., SIGCOMM 2015, section 4",
        is_long: false,
        run: lossless::thresholds,
    },
    Experiment {
        name: "headroom",
        title: "headroom by the formula, 600 bytes less, and a packet less, at 500 moments of stopping or more",
        source: "IEEE 802.3, 31B.3.7",
        is_long: false,
        run: lossless::headroom,
    },
    Experiment {
        name: "deadlock",
        title: "a ring of four switches, and a routing loop",
        source: "Hu et al., HotNets 2016: a cycle is not yet a deadlock; a loop deadlocks above n B / TTL",
        is_long: false,
        run: lossless::deadlock,
    },
    Experiment {
        name: "storm",
        title: "a host that pauses without end, with and without the watchdog",
        source: "Guo et al., SIGCOMM 2016, section 4.3",
        is_long: false,
        run: lossless::storm,
    },
    Experiment {
        name: "incast",
        title: "127 hosts write 2 MB each to one, by the real transport; both ways, and several QPs of a host",
        source: "N (payload + headers) / C + the way there and back",
        is_long: false,
        run: transport::incast,
    },
    Experiment {
        name: "all-reduce",
        title: "all-reduce of 64 and 1024 hosts on one switch of 100 Gb/s, by the real transport",
        source: "alpha-beta: 2 (n - 1) (alpha + S / n beta); 2 log n (alpha + S beta); 2 log n alpha + 2 (n - 1) / n S beta",
        is_long: false,
        run: collectives::all_reduce,
    },
    Experiment {
        name: "all-reduce-ring-1024",
        title: "the same by a ring of 1024 hosts: two million messages",
        source: "alpha-beta: 2 (n - 1) (alpha + S / n beta)",
        is_long: true,
        run: collectives::ring_of_1024,
    },
    Experiment {
        name: "balance",
        title: "flows over equal paths: by hash, flowlets, the shortest queue and lot; the real transport over a fat tree",
        source: "m flows that draw among m paths: 1 - (1 - 1/m)^m; Dixit et al., INFOCOM 2013: lots for packets fill a tree",
        is_long: false,
        run: balance::paths,
    },
    Experiment {
        name: "go-back-n",
        title: "goodput of the real transport under random loss",
        source: "(1 - p) / (1 + B p + T p^2), B packets under way, T packets in a timeout",
        is_long: false,
        run: transport::go_back_n,
    },
    Experiment {
        name: "livelock",
        title: "messages of 4 MB, and every 256th packet lost: a model that begins again, and the real transport",
        source: "Guo et al., SIGCOMM 2016, section 4.1: nothing arrives over a full link; (1 - p) / (1 + B p)",
        is_long: false,
        run: transport::livelock,
    },
    Experiment {
        name: "md1",
        title: "waiting time of random arrivals",
        source: "M/D/1: rho / (2 mu (1 - rho))",
        is_long: false,
        run: queueing::md1,
    },
];

/// What an experiment has found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn add(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        expected: f64,
        measured: f64,
        bound: Bound,
    ) {
        self.0.push(Finding {
            what: what.into(),
            unit,
            expected,
            measured,
            bound,
        });
    }

    /// A number without a unit.
    pub(crate) fn exactly(&mut self, what: impl Into<String>, expected: f64, measured: f64) {
        self.add(what, "", expected, measured, Bound::Exactly);
    }

    /// 1 for what is so, 0 for what is not.
    pub(crate) fn is(&mut self, what: String, expected: bool, measured: bool) {
        let [expected, measured] = [expected, measured].map(|is| f64::from(u8::from(is)));
        self.exactly(what, expected, measured);
    }

    /// A number without a unit.
    pub(crate) fn at_least(&mut self, what: impl Into<String>, least: f64, measured: f64) {
        self.add(what, "", least, measured, Bound::AtLeast);
    }

    pub(crate) fn within(
        &mut self,
        part: f64,
        what: impl Into<String>,
        unit: &'static str,
        expected: f64,
        measured: f64,
    ) {
        self.add(what, unit, expected, measured, Bound::Within(part));
    }
}

/// A simulation of a network with such switches.
pub(crate) fn network(topology: Topology, switch: SwitchConfig) -> Sim {
    let config = FabricConfig {
        switch,
        ..FabricConfig::default()
    };
    Sim::new(topology, config).expect("a small network")
}

/// Share of a link that payload has, with 1024 bytes a packet.
pub(crate) const PAYLOAD_SHARE: f64 = 1024.0 / 1106.0;
