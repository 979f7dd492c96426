//! Scenarios of the simulator: whatever the file, reading and building it returns; what can be built runs, with its books in
//! order, and a second run is the same one, also with every frame as bytes.

use fabric_sim::check::Check;
use fabric_sim::scenario::{Report, Scenario};
use fabric_sim::{Sim, Span, Time};
use toml::{Table, Value};

/// Events of a run, about: what is asked for is not to decide how long an input takes.
const EVENTS: u64 = 2_000;
/// Virtual time of a run.
const TIME: Span = Span::from_ms(50);
/// Hosts, switches, cables; messages that are posted at a time.
const SIZE_MAX: i64 = 16;

/// Input: the text of the file.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let scenario = match Scenario::parse(text) {
        Ok(scenario) => scenario,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    check_text(&scenario);
    if !text.parse().is_ok_and(|table| is_small(&table)) {
        return;
    }
    if scenario.variants().is_err() {
        return;
    }
    let Some(report) = run(&scenario) else {
        return;
    };
    let again = run(&scenario.clone().in_bytes()).expect("it was built before");
    assert_eq!(report.trace, again.trace, "the second run is another one");
    assert_eq!(report.events, again.events);
    assert_eq!(report.flows, again.flows);
    assert_eq!(report.drops, again.drops);
}

/// What it is written as is read as the same.
fn check_text(scenario: &Scenario) {
    let text = scenario.to_toml();
    let again = Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(again.to_toml(), text);
    assert_eq!(again.seed(), scenario.seed());
}

/// A bounded run; `None` if a value makes no sense, which the error says.
fn run(scenario: &Scenario) -> Option<Report> {
    let ran = scenario.run_by(scenario.seed(), |sim, until| {
        let until = until.min(Time::ZERO + TIME);
        let mut slice = Span::from_ns(1);
        while sim.fabric().events() < EVENTS && sim.now() < until {
            let before = sim.fabric().events();
            if !sim.run_until(until.min(sim.now() + slice)) {
                break;
            }
            check_balances(sim);
            let events = sim.fabric().events() - before;
            slice = if events < 100 {
                slice * 2
            } else {
                Span::from_ns(1)
            };
        }
    });
    match ran {
        Ok(report) => {
            check_report(&report);
            Some(report)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn check_balances(sim: &Sim) {
    sim.fabric()
        .check_books()
        .expect("nothing is lost uncounted");
}

/// Whatever the network and its faults, these hold.
fn check_report(report: &Report) {
    let always = [
        Check::Books,
        Check::Delivery,
        Check::Atomics,
        Check::Completions,
    ];
    for failure in &report.failures {
        let is_ours = |check: &Check| failure.starts_with(&format!("{}: ", check.name()));
        assert!(!always.iter().any(is_ours), "{failure}");
    }
    assert!(report.to_string().contains("events until"));
}

/// True of what a run costs little of, whatever else it says.
fn is_small(table: &Table) -> bool {
    let is_small = |value: &Value| match value {
        Value::Integer(number) => *number <= SIZE_MAX,
        _ => true,
    };
    let topology = table.get("topology").and_then(Value::as_table);
    let sizes = ["hosts", "left", "right", "switches", "leaves", "spines"];
    let is_shape = |name: &str| sizes.contains(&name) || ["hosts_per_switch", "k"].contains(&name);
    let flows = table.get("flow").and_then(Value::as_array);
    let flows: &[Value] = flows.map_or(&[], Vec::as_slice);
    let mut fields = flows.iter().filter_map(Value::as_table).flatten();
    let mut shape = topology.into_iter().flatten();
    flows.len() <= SIZE_MAX as usize
        && fields.all(|(name, value)| !["depth", "receives"].contains(&&**name) || is_small(value))
        && shape.all(|(name, value)| !is_shape(name) || is_small(value))
}
