//! Swarms: each seed has different faults. Runs that all have every fault at full strength are much alike; what only
//! one fault at a time brings about is then never seen.

use toml::{Table, Value};

use crate::engine::{Entity, Rng, Span};
use crate::scenario::ScenarioError;
use crate::scenario::file::Scenario;

impl Scenario {
    /// True if each seed shall draw its own faults of those of the file.
    pub fn is_swarm(&self) -> bool {
        self.file.sim.swarm
    }

    /// The scenario that a seed runs: of a swarm with the faults that it draws, else itself. Each fault is taken or
    /// left, made weaker by a power of two, and given a part of its window.
    ///
    /// # Errors
    /// [`ScenarioError`] if what comes out is no scenario.
    pub fn drawn(&self, seed: u64) -> Result<Scenario, ScenarioError> {
        let mut table = self.table.clone();
        let list = table.get_mut("fault").and_then(Value::as_array_mut);
        let faults: Vec<Value> = list.map(core::mem::take).unwrap_or_default();
        let mut drawn = Vec::new();
        for (number, fault) in (0..).zip(faults) {
            let Value::Table(mut fault) = fault else {
                continue;
            };
            // Its draws stay its own, whichever others are there.
            if is_about_frames(&fault) {
                fault
                    .entry("stream")
                    .or_insert(Value::Integer(number.into()));
            }
            if self.file.sim.swarm {
                let mut rng = Rng::stream(seed, Entity::Fault(number), "swarm");
                let is_left = rng.below(2) == 0;
                weaken(&mut fault, &mut rng);
                shorten(&mut fault, &mut rng);
                if is_left {
                    continue;
                }
            }
            drawn.push(Value::Table(fault));
        }
        if !drawn.is_empty() {
            table.insert("fault".to_owned(), Value::Array(drawn));
        } else {
            table.remove("fault");
        }
        if let Some(sim) = table.get_mut("sim").and_then(Value::as_table_mut) {
            sim.remove("swarm");
        }
        let mut drawn = self.with_table(table)?;
        drawn.file.sim.mode = self.file.sim.mode;
        Ok(drawn)
    }
}

fn is_about_frames(fault: &Table) -> bool {
    let kind = fault
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let timed = ["rate", "link-down", "pause-storm", "slow-receiver", "crash"];
    !timed.contains(&kind)
}

fn weaken(fault: &mut Table, rng: &mut Rng) {
    let (p, every, span) = (rng.below(7), rng.below(7), rng.below(4));
    for key in ["p", "enter"] {
        if let Some(Value::Float(x)) = fault.get_mut(key) {
            // By a power of two: exact on every machine.
            *x /= (1u64 << p) as f64;
        }
    }
    if let Some(Value::Integer(n)) = fault.get_mut("every") {
        *n = n.saturating_mul(1 << every);
    }
    for key in ["by", "jitter"] {
        if let Some(given) = span_of(fault, key) {
            let weaker = Span::from_ps((given.ps() >> span).max(1));
            fault.insert(key.to_owned(), Value::String(span_text(weaker)));
        }
    }
}

fn shorten(fault: &mut Table, rng: &mut Rng) {
    let (start, len) = (rng.below(8), 1 + rng.below(8));
    let from = span_of(fault, "from").unwrap_or_default();
    // One without an end goes on until everything is over: any part of for ever would begin after that.
    let Some(to) = span_of(fault, "to") else {
        return;
    };
    let whole = (to - from).ps();
    let begin = from + Span::from_ps(whole / 8 * start);
    let until = (begin + Span::from_ps(whole / 8 * len)).min(to);
    if begin < until {
        fault.insert("from".to_owned(), Value::String(span_text(begin)));
        fault.insert("to".to_owned(), Value::String(span_text(until)));
    }
}

/// The time in a field of a table.
pub(crate) fn span_of(table: &Table, key: &str) -> Option<Span> {
    table.get(key)?.as_str()?.parse().ok()
}

/// A time as scenarios write it, to the picosecond.
pub(crate) fn span_text(span: Span) -> String {
    let units = [("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)];
    let exact = units
        .iter()
        .find(|(_, unit)| span.ps().is_multiple_of(*unit));
    match exact {
        Some((name, unit)) => format!("{}{name}", span.ps() / unit),
        None => format!("{}ps", span.ps()),
    }
}
