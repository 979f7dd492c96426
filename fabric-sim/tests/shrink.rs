//! Mistakes that were planted are found by seeds, and what finds them is made small.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "how long it takes is what is tested"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fabric_sim::engine::mix64;
use fabric_sim::fabric::{Fate, Interference};
use fabric_sim::frame::{Frame, Payload};
use fabric_sim::scenario::{Report, Scenario, ScenarioError};
use fabric_sim::shrink::{ShrinkError, Shrunk, class_of, shrink};
use fabric_sim::topology::{Node, PortId, Topology};
use fabric_sim::{Sim, Time};
use urxe_wire::{Opcode, Operation, Pause};

const FAULTS: &str = include_str!("../scenarios/faults.toml");
const INCAST: &str = include_str!("../scenarios/incast.toml");

/// A mistake, put into a simulation.
type Plant = fn(&mut Sim, u64);

fn run(scenario: &Scenario, seed: u64, plant: Plant) -> Result<Report, ScenarioError> {
    scenario.run_by(seed, |sim, until| {
        plant(sim, seed);
        sim.run_until(until);
    })
}

/// Finds a seed that fails and shrinks it.
fn hunt(scenario: &Scenario, plant: Plant) -> (u64, Shrunk) {
    let start = Instant::now();
    let fails = |seed: &u64| {
        let report = run(scenario, *seed, plant).expect("runs");
        !report.failures.is_empty()
    };
    let seed = (1..10_000)
        .take_while(|_| start.elapsed() < Duration::from_secs(60))
        .find(fails);
    let seed = seed.expect("a seed that fails within a minute");
    let clean = scenario.run(seed).expect("runs");
    assert_eq!(clean.failures, Vec::<String>::new(), "without the mistake");
    let start = Instant::now();
    let mut again = |scenario: &Scenario| run(scenario, seed, plant);
    let mut go_on = || start.elapsed() < Duration::from_secs(30);
    let shrunk = shrink(scenario, seed, &mut again, &mut go_on).expect("fails");
    println!(
        "seed {seed}: {} runs in {:?}\n{}",
        shrunk.runs,
        start.elapsed(),
        shrunk.to_toml()
    );
    (seed, shrunk)
}

/// What was written fails when it is read again, by the mistake alone.
fn check(seed: u64, shrunk: &Shrunk, plant: Plant) {
    let read = Scenario::parse(&shrunk.to_toml()).expect("reads");
    assert_eq!(read.seed(), seed);
    let report = run(&read, seed, plant).expect("runs");
    assert_eq!(report.trace, shrunk.report.trace);
    assert!(report.failures.iter().any(|f| class_of(f) == shrunk.class));
    let clean = read.run(seed).expect("runs");
    let is_clean = clean.failures.iter().all(|f| class_of(f) != shrunk.class);
    assert!(is_clean, "without the mistake: {clean}");
}

/// A responder that forgets to replay atomics: what it said once, it never says again.
#[derive(Debug, Default)]
struct ForgetsReplays(BTreeSet<[u8; 6]>);

impl Interference for ForgetsReplays {
    fn on_wire(&mut self, _: Time, port: PortId, frame: &mut Frame, bytes: &mut [u8]) -> Fate {
        let is_atomic_ack = matches!(frame.payload, Payload::Roce { .. })
            && Opcode(bytes[42])
                .info()
                .is_some_and(|i| i.operation == Operation::AtomicAcknowledge);
        // As it leaves its host: ports 0 and on are of hosts' cables in this network.
        if !is_atomic_ack || frame.ttl != 64 || frame.src.0 != 3 || port.0 % 2 == 1 {
            return Fate::Pass;
        }
        // Destination QP and PSN.
        let key = [
            bytes[47], bytes[48], bytes[49], bytes[51], bytes[52], bytes[53],
        ];
        match self.0.insert(key) {
            true => Fate::Pass,
            false => Fate::Lose,
        }
    }
}

fn forgets_replays(sim: &mut Sim, _: u64) {
    sim.fabric_mut()
        .set_interference(Box::<ForgetsReplays>::default());
}

#[test]
fn a_core_that_forgets_to_replay_an_atomic_is_found_and_made_small() {
    let scenario = Scenario::parse(&FAULTS.replace("[sim]\n", "[sim]\nswarm = true\n"));
    let scenario = scenario.expect("reads");
    let (seed, shrunk) = hunt(&scenario, forgets_replays);
    assert!((1..=3).contains(&shrunk.faults()), "{}", shrunk.to_toml());
    assert_eq!(shrunk.flows(), 1, "{}", shrunk.to_toml());
    assert!(shrunk.to_toml().contains("op = \"fetch-add\""));
    check(seed, &shrunk, forgets_replays);
    let test = shrunk.to_test("scenario.toml");
    assert!(
        test.contains(&format!("fn all_flows_complete_of_seed_{seed}()")),
        "{test}"
    );
}

/// A switch that does not act on one pause frame in a thousand.
#[derive(Debug)]
struct IgnoresPauses {
    topology: Topology,
    seed: u64,
    count: u64,
}

impl Interference for IgnoresPauses {
    fn on_wire(&mut self, _: Time, port: PortId, frame: &mut Frame, _: &mut [u8]) -> Fate {
        let Payload::Pause { pause, .. } = frame.payload else {
            return Fate::Pass;
        };
        let stops = match pause {
            Pause::All(quanta) => quanta > 0,
            Pause::Priorities { quanta, .. } => quanta.iter().any(|&q| q > 0),
        };
        let is_switch = matches!(self.topology.node_at(port.peer()), Node::Switch(_));
        self.count += u64::from(stops && is_switch);
        match stops && is_switch && mix64(self.seed ^ mix64(self.count)).is_multiple_of(1000) {
            true => Fate::Lose,
            false => Fate::Pass,
        }
    }
}

fn ignores_pauses(sim: &mut Sim, seed: u64) {
    let topology = sim.fabric().topology().clone();
    let plant = IgnoresPauses {
        topology,
        seed,
        count: 0,
    };
    sim.fabric_mut().set_interference(Box::new(plant));
}

#[test]
fn a_switch_that_ignores_a_pause_in_a_thousand_is_found_and_made_small() {
    let text = INCAST
        .replace("buffer = \"4MB\"", "buffer = \"2MB\"")
        .replace("jain_min = 0.9", "")
        .replace("mode = \"bytes\"", "mode = \"lite\"");
    let faults = r#"
[[fault]]
kind = "loss"
p = 0.0005

[[fault]]
kind = "corrupt"
switch = "leaf0"
p = 0.001

[[fault]]
kind = "slow-receiver"
host = "h15"
rate = "10Gbps"
from = "100us"
to = "2ms"

[[fault]]
kind = "pause-storm"
host = "h14"
from = "100us"
to = "2ms"
"#;
    let scenario = Scenario::parse(&(text + faults)).expect("reads");
    let (seed, shrunk) = hunt(&scenario, ignores_pauses);
    assert_eq!(shrunk.class, "lossless");
    assert!(shrunk.faults() <= 3, "{}", shrunk.to_toml());
    assert!(shrunk.flows() < 8, "{}", shrunk.to_toml());
    check(seed, &shrunk, ignores_pauses);
}

#[test]
fn what_passes_is_not_shrunk() {
    let scenario = Scenario::parse(INCAST).expect("reads");
    let mut run = |scenario: &Scenario| scenario.run(7);
    let result = shrink(&scenario, 7, &mut run, &mut || true);
    assert_eq!(result.expect_err("passes"), ShrinkError::Passes);
}

#[test]
fn time_that_is_over_leaves_what_was_found_so_far() {
    let text = INCAST.replace("jain_min = 0.9", "jain_min = 1.5");
    let scenario = Scenario::parse(&text).expect("reads");
    let mut runs = 0;
    let mut run = |scenario: &Scenario| {
        runs += 1;
        scenario.run(7)
    };
    let shrunk = shrink(&scenario, 7, &mut run, &mut || false).expect("fails");
    assert_eq!((shrunk.runs, runs), (1, 1));
    assert_eq!(shrunk.class, "Jain's fairness index is ");
}
