//! Scenarios and users' programs, each run and captured under a seed.

#![allow(
    clippy::disallowed_types,
    reason = "what seeds came to is gathered beside the simulations"
)]

#[path = "../echo/program.rs"]
mod echo;
#[path = "../lock/store.rs"]
#[allow(
    dead_code,
    reason = "the mistake in it, and how it is found, are not for here"
)]
mod lock;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::{env, fs, process};

use fabric_sim::fault::Fault;
use fabric_sim::observe::captured;
use fabric_sim::program::{SeedTest, Simulation, task};
use fabric_sim::scenario::Scenario;
use fabric_sim::{HostId, Span};
use lock::{Care, Store};
use urxe::cm;

/// What a run came to: its trace, and the bytes of its capture.
type Came = Result<(u64, Vec<u8>), Box<dyn Error>>;

/// Gives programs to the hosts of a simulation, and faults to its network.
type Setup = fn(&mut Simulation);

/// All operations under nearly all kinds of faults; and many senders to one.
const SCENARIOS: [(&str, &str); 2] = [
    ("faults.toml", include_str!("../../scenarios/faults.toml")),
    ("sweep.toml", include_str!("../../scenarios/sweep.toml")),
];
/// Verbs by several clients; connections by address and tasks that await.
const PROGRAMS: [(&str, Setup); 2] = [("lock", counter), ("echo", visitors)];

/// How often each client of the counter counts.
const ROUNDS: u64 = 4;

/// Each scenario and program under the seeds 0 and so on, a line a run, in order.
///
/// # Errors
/// A scenario that cannot be read.
pub(crate) fn lines(seeds: u64) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for (name, text) in SCENARIOS {
        let scenario = Scenario::parse(text).map_err(|error| error.to_string())?;
        let scenario = scenario.in_bytes();
        all.extend(each(name, seeds, |sim| {
            run_scenario(&scenario, sim.seed())
        })?);
    }
    for (name, program) in PROGRAMS {
        all.extend(each(name, seeds, |sim| run_program(sim, program))?);
    }
    Ok(all)
}

/// One of them under each seed, on all processors.
fn each(
    name: &'static str,
    seeds: u64,
    run: impl Fn(&mut Simulation) -> Came + Sync,
) -> Result<Vec<String>, String> {
    let lines = Mutex::new(BTreeMap::new());
    let test = SeedTest {
        name,
        seeds,
        twice: false,
    };
    let found = test.find(0..seeds, false, |sim| {
        let seed = sim.seed();
        let line = match run(sim) {
            Ok((trace, capture)) => {
                let capture = hash_of(&capture);
                format!("{name} {seed} trace {trace:016x} capture {capture:016x}")
            }
            // That a program cannot bear so many faults is an outcome, too: the same everywhere.
            Err(error) => format!("{name} {seed} failed: {:?}", error.to_string()),
        };
        lines
            .lock()
            .expect("no run panics with it")
            .insert(seed, line);
        Ok::<(), String>(())
    });
    found.map_err(|failure| format!("{name}, seed {:?}: {}", failure.seed, failure.words))?;
    let lines = lines.into_inner().expect("no run panics with it");
    Ok(lines.into_values().collect())
}

/// Scenarios need not come to a good end here: they have to come to the same one.
fn run_scenario(scenario: &Scenario, seed: u64) -> Came {
    let mut sim = scenario.build(seed)?;
    let until = scenario.until();
    let file = captured(&mut sim, Vec::new(), "", |sim| {
        sim.run_until(until);
    })?;
    let report = scenario.conclude(&mut sim);
    Ok((report.trace.value() ^ report.content.value(), file))
}

fn run_program(sim: &mut Simulation, program: Setup) -> Came {
    let path = file(sim.seed());
    sim.capture(&path);
    program(sim);
    let ran = sim.run();
    let capture = fs::read(&path);
    fs::remove_file(&path)?;
    Ok((ran?.trace(), capture?))
}

/// A file of this process and seed alone.
fn file(seed: u64) -> PathBuf {
    env::temp_dir().join(format!("urxe-seeds-{}-{seed}.pcapng", process::id()))
}

/// The replicated counter of the example `lock`, in a network with faults.
fn counter(sim: &mut Simulation) {
    sim.fault(Fault::loss(0.01));
    sim.fault(Fault::corrupt_inside(0.005));
    sim.fault(Fault::duplicate(0.01, Span::from_us(4)));
    sim.fault(Fault::reorder(0.02, Span::from_us(6)));
    let address = |number: u32| sim.address(HostId(number));
    let store = Store {
        name: String::new(),
        replicas: (0..2).map(address).collect(),
        clients: (2..5).map(address).collect(),
        rounds: ROUNDS,
        care: Care::ForAll,
    };
    for number in 0..5_usize {
        let store = store.clone();
        sim.host(HostId(number as u32), move || match number.checked_sub(2) {
            None => {
                let count = store.replica(number).expect("a replica");
                assert_eq!(count, 3 * ROUNDS);
            }
            Some(client) => {
                let counted = store.client(client).expect("a client");
                assert_eq!(counted.len() as u64, ROUNDS);
            }
        });
    }
}

/// The async server of the example `echo` and its clients, in a network that loses frames.
fn visitors(sim: &mut Simulation) {
    // An end of a connection that is lost again and again is waited for long.
    sim.limit(Span::from_ms(1_000_000));
    sim.fault(Fault::loss(0.02));
    let to = SocketAddr::new(sim.address(HostId(0)), 7471);
    sim.host(HostId(0), move || {
        let listener = cm::listen(to).expect("listens");
        let heard = task::block_on(echo::serve(listener, 3));
        assert_eq!(heard.expect("serves"), 3 * echo::MESSAGES);
    });
    for client in 0..3 {
        sim.host(HostId(client + 1), move || {
            task::block_on(echo::visit(to, None, client)).expect("has visited");
        });
    }
}

/// FNV-1a, eight bytes at a time: the same on every machine.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let start = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    words.fold(start, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
    })
}
