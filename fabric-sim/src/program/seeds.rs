//! One test, many seeds.

#![allow(
    clippy::disallowed_methods,
    reason = "which seeds to run is asked of the environment, as it is the person at the terminal who knows"
)]

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::program::fewer::{self, Left};
use crate::program::marks::Marks;
use crate::program::page::Page;
use crate::program::setup::Simulation;
use crate::program::threads::{first_failure, words_of};

/// Runs this seed alone.
const SEED: &str = "URXE_SIM_SEED";
/// Runs so many seeds, in place of what the test says; or those of a range, `100..200`.
const SEEDS: &str = "URXE_SIM_SEEDS";
/// Runs every seed twice, if it is 1.
const TWICE: &str = "URXE_SIM_TWICE";
/// Captures the last run, which is the one that fails, to this file.
const PCAP: &str = "URXE_SIM_PCAP";

/// Writes the page of the last run, which is the one that fails, to this file.
const PAGE: &str = "URXE_SIM_PAGE";
/// Runs so many seeds at a time, in place of one a processor.
const JOBS: &str = "URXE_SIM_JOBS";

/// What a test over seeds returns.
pub trait TestResult {
    /// The failure, in words.
    fn failure(self) -> Option<String>;
}

impl TestResult for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Display> TestResult for Result<(), E> {
    fn failure(self) -> Option<String> {
        Some(self.err()?.to_string())
    }
}

/// A test over many seeds; `#[fabric_sim::test]` makes one of a function.
#[derive(Clone, Copy, Debug)]
pub struct SeedTest {
    /// How `cargo test` calls it.
    pub name: &'static str,
    /// Seeds to run: 0 and so on.
    pub seeds: u64,
    /// Each is run twice, and both runs must be the same, event by event.
    pub twice: bool,
}

/// The first seed that failed, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeedFailure {
    /// Which; `None` if it is about all of them.
    pub seed: Option<u64>,
    /// What happened.
    pub words: String,
}

impl SeedTest {
    /// Runs the test for each seed, as the environment says: `URXE_SIM_SEED=17` runs that one alone, `URXE_SIM_SEEDS=1000` or
    /// `URXE_SIM_SEEDS=200..300` others than the test's own number, `URXE_SIM_TWICE=1` each twice, `URXE_SIM_JOBS=4` four at a time. `URXE_SIM_PCAP=FILE` captures
    /// the last run, which is the one that fails, if any does; `URXE_SIM_PAGE=FILE` has its page.
    ///
    /// # Panics
    /// If a seed fails, with the line that repeats it.
    pub fn run<R: TestResult>(self, body: impl Fn(&mut Simulation) -> R + Sync) {
        let asked = self.seeds_of_environment();
        let asked = asked.and_then(|seeds| Ok((seeds, jobs_of_environment()?)));
        let ((seeds, is_whole), jobs) = match asked {
            Ok(asked) => asked,
            Err(words) => panic!("{words}"),
        };
        let is_twice = self.twice || std::env::var(TWICE).is_ok_and(|value| value == "1");
        let test = SeedTest {
            twice: is_twice,
            ..self
        };
        let file = |name| std::env::var_os(name).filter(|path| !path.is_empty());
        let (capture, page) = (file(PCAP), file(PAGE));
        let captured = |sim: &mut Simulation| {
            if let Some(path) = &capture {
                sim.capture(path);
            }
            if let Some(path) = &page {
                sim.page = Some(Page {
                    path: path.into(),
                    name: self.name.to_owned(),
                    again: self.again(sim.seed()),
                });
            }
            body(sim)
        };
        let found = match capture.as_ref().or(page.as_ref()) {
            // One file: one run after the other.
            Some(_) => seeds
                .into_iter()
                .try_for_each(|seed| test.find([seed], false, captured)),
            None => test.find_by(jobs, seeds, is_whole, captured),
        };
        if let Err(failure) = found {
            let fewest = self.fewest(&failure, &body);
            panic!("{}{fewest}", self.explain(&failure));
        }
    }

    /// The first of `seeds` that fails; they run on all processors. With `is_whole`, all that [`Report::assert_sometimes`](crate::program::Report::assert_sometimes) named must
    /// have happened.
    ///
    /// # Errors
    /// [`SeedFailure`].
    pub fn find<R: TestResult>(
        &self,
        seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
        is_whole: bool,
        body: impl Fn(&mut Simulation) -> R + Sync,
    ) -> Result<(), SeedFailure> {
        self.find_by(None, seeds, is_whole, body)
    }

    fn find_by<R: TestResult>(
        &self,
        jobs: Option<usize>,
        seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
        is_whole: bool,
        body: impl Fn(&mut Simulation) -> R + Sync,
    ) -> Result<(), SeedFailure> {
        let marks = Arc::new(Marks::default());
        first_failure(seeds.into_iter(), jobs, |seed| {
            let fail = |words| SeedFailure {
                seed: Some(seed),
                words,
            };
            let first = run_one(seed, &marks, &body).map_err(fail)?;
            if self.twice {
                let second = run_one(seed, &marks, &body).map_err(fail)?;
                if first != second {
                    let words = format!(
                        "two runs differ: traces {first:x?} and {second:x?}; something in the test is \
                         neither simulated nor drawn from the seed (real time, a hash table's order, an \
                         address)"
                    );
                    return Err(fail(words));
                }
            }
            Ok(())
        })?;
        let missed = if is_whole { marks.missed() } else { Vec::new() };
        if missed.is_empty() {
            return Ok(());
        }
        Err(SeedFailure {
            seed: None,
            words: format!("no seed saw this: {}", missed.join(", ")),
        })
    }

    /// How few of its faults the failure needs, in words; nothing if it was under none.
    pub fn fewest<R: TestResult>(
        &self,
        failure: &SeedFailure,
        body: impl Fn(&mut Simulation) -> R,
    ) -> String {
        // A program that never comes back is waited for in real time, and its thread stays: once is enough.
        let is_stuck = failure.words.contains("does not come back");
        let Some(seed) = failure.seed.filter(|_| !is_stuck) else {
            return String::new();
        };
        let marks = Arc::new(Marks::default());
        let run = |left: Option<&[Left]>| {
            let mut sim = Simulation::new(seed);
            sim.left = left.map(<[Left]>::to_vec);
            let did = sim.did.clone();
            let words = run_it(sim, &marks, &body).err();
            let is_same = words.is_some_and(|words| fewer::is_same(&words, &failure.words));
            (is_same, did.with(core::mem::take))
        };
        let (is_same, did) = run(None);
        if !is_same || did.is_empty() {
            return String::new();
        }
        let left = fewer::fewest(&did, |left| run(Some(left)).0);
        let what = fewer::describe(&did, &left);
        format!("\n  and it takes no more than: {what}")
    }

    /// The line that runs a seed again.
    fn again(&self, seed: u64) -> String {
        format!("{SEED}={seed} cargo test {}", self.name)
    }

    fn explain(&self, failure: &SeedFailure) -> String {
        let SeedFailure { seed, words } = failure;
        match seed {
            Some(seed) => format!(
                "{} failed with seed {seed}: {words}\n  again: {}\n  \
                 and see its frames: {PCAP}=run.pcapng, in a browser: {PAGE}=run.html",
                self.name,
                self.again(*seed)
            ),
            None => format!("{}: {words}", self.name),
        }
    }

    fn seeds_of_environment(&self) -> Result<(core::ops::Range<u64>, bool), String> {
        if let Ok(text) = std::env::var(SEED) {
            let seed: Option<u64> = text.trim().parse().ok();
            let seed = seed.filter(|seed| *seed < u64::MAX);
            let seed = seed.ok_or_else(|| format!("{SEED}: \"{text}\" is no seed"))?;
            return Ok((seed..seed + 1, false));
        }
        let Ok(text) = std::env::var(SEEDS) else {
            return Ok((0..self.seeds, true));
        };
        range_of(text.trim())
            .map(|range| (range, true))
            .ok_or_else(|| {
                format!("{SEEDS}: \"{text}\" is neither a number nor a range like 100..200")
            })
    }
}

fn jobs_of_environment() -> Result<Option<usize>, String> {
    match std::env::var(JOBS) {
        Ok(text) => jobs_of(&text).map(Some),
        Err(_) => Ok(None),
    }
}

fn jobs_of(text: &str) -> Result<usize, String> {
    let jobs = text.trim().parse().ok().filter(|jobs| *jobs > 0);
    jobs.ok_or_else(|| format!("{JOBS}: \"{text}\" is no number of runs at a time"))
}

fn range_of(text: &str) -> Option<core::ops::Range<u64>> {
    match text.split_once("..") {
        Some((from, to)) => {
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            (from < to).then_some(from..to)
        }
        None => Some(0..text.parse().ok().filter(|count| *count > 0)?),
    }
}

/// Runs a seed; returns the traces of all runs that the test made.
fn run_one<R: TestResult>(
    seed: u64,
    marks: &Arc<Marks>,
    body: &impl Fn(&mut Simulation) -> R,
) -> Result<Vec<u64>, String> {
    run_it(Simulation::new(seed), marks, body)
}

fn run_it<R: TestResult>(
    mut sim: Simulation,
    marks: &Arc<Marks>,
    body: &impl Fn(&mut Simulation) -> R,
) -> Result<Vec<u64>, String> {
    sim.marks = marks.clone();
    let traces = sim.traces.clone();
    let result = catch_unwind(AssertUnwindSafe(|| body(&mut sim).failure()));
    match result {
        Ok(None) => Ok(traces.with(core::mem::take)),
        Ok(Some(words)) => Err(words),
        Err(payload) => Err(words_of(&*payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        assert_eq!(range_of("30"), Some(0..30));
        assert_eq!(range_of("7..9"), Some(7..9));
        for bad in ["", "0", "x", "9..7", "3..3", "-1", "1..", "..4"] {
            assert_eq!(range_of(bad), None, "{bad}");
        }
        assert_eq!(jobs_of("3 "), Ok(3));
        for bad in ["", "0", "all", "-2", "1.5"] {
            assert!(
                jobs_of(bad).is_err_and(|words| words.contains(bad)),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_lowest_seed_is_named_whatever_runs_beside_it() {
        let test = SeedTest {
            name: "odd",
            seeds: 40,
            twice: false,
        };
        for jobs in [1, 2, 7] {
            let failure = test.find_by(Some(jobs), 0..40, false, |sim: &mut Simulation| {
                let seed = sim.seed();
                // The first that fails is the last to be done with.
                let turns = if seed == 11 { 3000 } else { 1 };
                sim.host(crate::HostId(0), move || {
                    for _ in 0..turns {
                        crate::program::sleep(core::time::Duration::from_nanos(10));
                    }
                    assert!(seed < 11, "too large");
                });
                sim.run().map(drop)
            });
            assert_eq!(failure.expect_err("it fails").seed, Some(11), "{jobs} jobs");
        }
    }
}
