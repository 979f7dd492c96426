//! Runs many seeds of many services, counts, and says how to replay what fails.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use urxe_core::marks::{self, Mark};

use urxe_core::Time;

use crate::support::{AGREES, Node, PARTICULAR, QUIET_MAX, RECOVERY, recoveries};

/// One service's random programs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// Programs in an ordinary test run.
    pub(crate) programs: u64,
    /// Runs the program of a seed against the model; panics where they disagree.
    pub(crate) run: fn(u64) -> Run,
}

/// What came of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// Work requests and other steps that the model judged.
    pub(crate) operations: u64,
    /// Time at the end, packets sent by each side, and all counters: the same for the
    /// same seed.
    pub(crate) trace: (Time, Vec<u64>),
}

impl Run {
    /// What programs from elsewhere tell: operations, and the time at the end.
    pub(crate) fn of((operations, now): (u64, Time)) -> Run {
        Run {
            operations,
            trace: (now, Vec::new()),
        }
    }

    /// What the nodes of a finished program say.
    pub(crate) fn new<'a>(
        operations: u64,
        now: Time,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Run {
        let counters = nodes.into_iter().flat_map(|node| node.shard.stats().iter());
        Run {
            operations,
            trace: (now, counters.map(|(_, count)| count).collect()),
        }
    }
}

/// A number in the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is \"{text}\", which is no number")),
    )
}

/// One program was asked for.
pub(crate) fn is_replay() -> bool {
    setting("URXE_SEED").is_some()
}

/// A program's wire is quiet no longer: some timeouts of the programs (8.4 ms each), and the longest pause of a window of less
/// than a packet.
const QUIET_NS: u64 = 250_000_000;

/// Runs one program. Neighbouring seeds have other kinds of recovery.
pub(crate) fn run_program(service: &Service, seed: u64) -> Run {
    RECOVERY.set(recoveries(seed));
    AGREES.set((seed / 9).is_multiple_of(2));
    QUIET_MAX.set(QUIET_NS);
    // The programs of which no connection begins again.
    PARTICULAR.set(service.name == "rc");
    (service.run)(seed)
}

/// Runs one program; says how to replay it if it fails.
fn run_seed(service: &Service, seed: u64) -> Result<u64, String> {
    let run = catch_unwind(AssertUnwindSafe(|| run_program(service, seed)));
    run.map(|run| run.operations).map_err(|_| {
        let name = service.name;
        format!("URXE_SEED={seed} cargo test -p urxe-core --test model -- {name}_programs")
    })
}

/// All programs of an ordinary run, once a process however many tests want them.
pub(crate) fn run_once(service: &Service) {
    static DONE: Mutex<BTreeMap<&str, &OnceLock<()>>> = Mutex::new(BTreeMap::new());
    let cell: &OnceLock<()> = DONE
        .lock()
        .expect("no panic holds the lock")
        .entry(service.name)
        .or_insert_with(|| Box::leak(Box::default()));
    cell.get_or_init(|| run_all(service));
}

fn run_all(service: &Service) {
    if let Some(seed) = setting("URXE_SEED") {
        run_program(service, seed);
        return;
    }
    let programs = setting("URXE_PROGRAMS").unwrap_or(service.programs);
    let mut operations = 0;
    for seed in 0..programs {
        match run_seed(service, seed) {
            Ok(count) => operations += count,
            Err(replay) => panic!("seed {seed} fails; replay: {replay}"),
        }
    }
    println!(
        "{}: {programs} programs with {operations} operations agree with the model",
        service.name
    );
}

/// Prints how often each mark was reached, and fails if one never was.
pub(crate) fn check_marks() {
    for mark in Mark::ALL {
        println!("{:>10}  {:?} ({})", mark.hits(), mark, mark.group());
    }
    let missed = marks::missed();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

/// Fresh seeds on all processors until `URXE_SOAK` seconds are over (one, if it is not
/// set). Goes on after a failure, so that an hour finds more than one.
pub(crate) fn soak(services: &[&Service]) {
    if is_replay() {
        println!("skipped: URXE_SEED asks for one program");
        return;
    }
    let seconds = setting("URXE_SOAK").unwrap_or(1);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let base = since_epoch.expect("it is later than 1970").as_nanos() as u64;
    println!("soak: {seconds} s, seeds from {base}");
    let (start, next) = (Instant::now(), AtomicU64::new(0));
    let is_over = || start.elapsed() >= Duration::from_secs(seconds);
    let tally = Mutex::new(Tally::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let service = services[number as usize % services.len()];
                    run_batch(service, base.wrapping_add(number * BATCH), &tally, &is_over);
                }
            });
        }
    });
    let tally = tally.into_inner().expect("no panic holds the lock");
    tally.print(start.elapsed());
    let failures = tally.failures;
    assert!(
        failures.is_empty(),
        "{} programs fail; replay:\n  {}",
        failures.len(),
        failures.join("\n  ")
    );
}

/// Programs of one service that a thread runs in a row.
const BATCH: u64 = 256;

fn run_batch(service: &Service, first: u64, tally: &Mutex<Tally>, is_over: &dyn Fn() -> bool) {
    let mut counts = Counts::default();
    for seed in (0..BATCH).map(|n| first.wrapping_add(n)) {
        if is_over() {
            break;
        }
        counts.programs += 1;
        match run_seed(service, seed) {
            Ok(operations) => counts.operations += operations,
            Err(replay) => {
                eprintln!("FAILED: {replay}");
                let mut tally = tally.lock().expect("no panic holds the lock");
                tally.failures.push(replay);
            }
        }
    }
    tally
        .lock()
        .expect("no panic holds the lock")
        .add(service.name, counts);
}

#[derive(Clone, Copy, Default)]
struct Counts {
    programs: u64,
    operations: u64,
}

#[derive(Default)]
struct Tally {
    services: BTreeMap<&'static str, Counts>,
    failures: Vec<String>,
    batches: u64,
}

impl Tally {
    fn add(&mut self, service: &'static str, counts: Counts) {
        let sum = self.services.entry(service).or_default();
        sum.programs += counts.programs;
        sum.operations += counts.operations;
        self.batches += 1;
        if self.batches.is_multiple_of(1000) {
            let programs: u64 = self.services.values().map(|c| c.programs).sum();
            println!("{programs} programs, {} failed", self.failures.len());
        }
    }

    fn print(&self, elapsed: Duration) {
        let mut total = Counts::default();
        for (name, counts) in &self.services {
            println!(
                "{name}: {} programs, {} operations",
                counts.programs, counts.operations
            );
            total.programs += counts.programs;
            total.operations += counts.operations;
        }
        println!(
            "{} programs with {} operations in {:.0} s, {} failed; {} of {} marks reached",
            total.programs,
            total.operations,
            elapsed.as_secs_f64(),
            self.failures.len(),
            Mark::ALL.len() - marks::missed().len(),
            Mark::ALL.len()
        );
    }
}
