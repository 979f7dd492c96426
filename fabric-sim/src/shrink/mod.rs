//! Shrinks a failing scenario: fewer faults, fewer frames that they hit, fewer flows, shorter windows,
//! smaller messages, as long as it fails in the same way.
//!
//! Delta debugging (Zeller and Hildebrandt): leave out one half, then a quarter, and so on; what still fails is
//! gone on with.

mod steps;

use toml::{Table, Value};

use crate::scenario::{Report, Scenario, ScenarioError};

/// A scenario that was made small.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What is left.
    pub scenario: Scenario,
    /// What came of it.
    pub report: Report,
    /// What both have in common.
    pub class: String,
    /// Runs that it took.
    pub runs: u64,
}

/// Why nothing can be shrunk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShrinkError {
    /// It does not fail.
    #[error("the run is as it should be: there is nothing to shrink")]
    Passes,
    /// It cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The kind of a failure: two runs fail in the same way if they have one in common. The check that did not hold, or
/// what was expected, without numbers.
pub fn class_of(failure: &str) -> String {
    let words = failure.split(':').next().unwrap_or_default();
    words.replace(|c: char| c.is_ascii_digit() || c == '.', "")
}

/// Shrinks a scenario that fails under a seed. `run` runs one, and may put into it what makes it fail; `go_on` says
/// when there is no more time.
///
/// # Errors
/// [`ShrinkError::Passes`] if it does not fail.
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    run: &mut dyn FnMut(&Scenario) -> Result<Report, ScenarioError>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Shrunk, ShrinkError> {
    let mut start = scenario.drawn(seed)?;
    let mut table = start.table.clone();
    table.remove("sweep");
    if let Some(Value::Table(expect)) = table.get_mut("expect") {
        // What a set of runs must have seen is not for one.
        expect.remove("sometimes");
    }
    let sim = table
        .entry("sim")
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(sim) = sim {
        let seed = i64::try_from(seed).unwrap_or_default();
        sim.insert("seed".to_owned(), Value::Integer(seed));
    }
    start = start.with_table(table)?;
    let report = run(&start)?;
    let class = class_of(report.failures.first().ok_or(ShrinkError::Passes)?);
    let mut search = Search {
        best: Shrunk {
            scenario: start,
            report,
            class,
            runs: 1,
        },
        run,
        go_on,
        moves_hits: false,
    };
    search.cut_the_end();
    let mut before = None;
    // What is smaller may let something else go, too.
    while before.as_ref() != Some(&search.best.scenario.table) && (search.go_on)() {
        before = Some(search.best.scenario.table.clone());
        search.fewer("fault");
        search.single_flows();
        search.fewer("flow");
        search.fewer("job");
        search.shorter_windows();
        search.smaller_flows();
        // Last: which frame is hit depends on how many there are before it.
        search.fewer_hits();
        search.moves_hits = true;
    }
    Ok(search.best)
}

/// Earlier frames that are tried for a hit.
const MOVES_MAX: usize = 400;

struct Search<'a> {
    best: Shrunk,
    run: &'a mut dyn FnMut(&Scenario) -> Result<Report, ScenarioError>,
    go_on: &'a mut dyn FnMut() -> bool,
    /// The frames that faults hit are known: with less before them, they have other numbers.
    moves_hits: bool,
}

impl Search<'_> {
    /// Goes on with a table if it fails in the same way.
    fn accept(&mut self, table: Table) -> bool {
        if table == self.best.scenario.table || !(self.go_on)() {
            return false;
        }
        let Ok(scenario) = self.best.scenario.with_table(table) else {
            return false;
        };
        self.best.runs += 1;
        let Ok(report) = (self.run)(&scenario) else {
            return false;
        };
        let class = &self.best.class;
        let fails = report.failures.iter().any(|f| class_of(f) == *class);
        if fails {
            (self.best.scenario, self.best.report) = (scenario, report);
        }
        fails
    }

    /// The same; if it does not fail so, it may with the last hit on an earlier frame.
    fn accept_moved(&mut self, table: Table) -> bool {
        if self.accept(table.clone()) {
            return true;
        }
        let faults = table.get("fault").and_then(Value::as_array);
        let count = faults.map_or(0, |faults| faults.len());
        if !self.moves_hits {
            return false;
        }
        for place in 0..count {
            let Some(number) = steps::last_hit(&table, place) else {
                continue;
            };
            for earlier in (0..number).rev().take(MOVES_MAX) {
                let mut moved = table.clone();
                if steps::move_last_hit(&mut moved, place, earlier) && self.accept(moved) {
                    return true;
                }
                if !(self.go_on)() {
                    return false;
                }
            }
        }
        false
    }

    fn table(&self) -> Table {
        self.best.scenario.table.clone()
    }
}

impl Shrunk {
    /// Number of faults that are left.
    pub fn faults(&self) -> usize {
        self.len_of("fault")
    }

    /// Number of flows that are left.
    pub fn flows(&self) -> usize {
        self.len_of("flow")
    }

    fn len_of(&self, list: &str) -> usize {
        let list = self.scenario.table.get(list).and_then(Value::as_array);
        list.map_or(0, Vec::len)
    }

    /// The file, with what it shows above it.
    pub fn to_toml(&self) -> String {
        let failure = self.report.failures.first().map_or("", String::as_str);
        format!("# Fails: {failure}\n{}", self.scenario.to_toml())
    }

    /// A test that fails as long as the scenario does, for a file beside the scenario's.
    pub fn to_test(&self, file: &str) -> String {
        let seed = self.scenario.seed();
        let failure = self.report.failures.first().map_or("", String::as_str);
        let name: String = class_name(&self.class);
        let text = |(file, _): (&str, &str)| {
            format!("    let scenario = scenario.with_text({file:?}, include_str!({file:?}));\n")
        };
        let texts: String = self.scenario.texts().map(text).collect();
        format!(
            "//! Found by a simulation, and made small: {failure}\n\n\
             use fabric_sim::scenario::Scenario;\n\n\
             #[test]\n\
             fn {name}_of_seed_{seed}() {{\n    \
                 let scenario = Scenario::parse(include_str!({file:?})).expect(\"a scenario\");\n{texts}    \
                 let report = scenario.run({seed}).expect(\"it runs\");\n    \
                 assert_eq!(report.failures, Vec::<String>::new(), \"{{report}}\");\n\
             }}\n"
        )
    }
}

/// A class as the name of a function.
fn class_name(class: &str) -> String {
    let class = class.to_ascii_lowercase();
    let words = class.split(|c: char| !c.is_ascii_alphabetic());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("_")
}
