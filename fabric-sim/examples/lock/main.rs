//! A replicated counter under a lock (`store.rs`), over real sockets or in a simulation:
//!
//! ```console
//! $ cargo run -p urxe-fabric-sim --example lock
//! over sockets of this host: 3 clients counted to 30
//! $ cargo run -p urxe-fabric-sim --example lock -- --seed 7
//! in the simulated fabric: 3 clients counted to 30 in 2148.3 ms, with 38 frames lost
//! $ cargo run -p urxe-fabric-sim --example lock -- --seed 7 --careless
//! lock: seed 7, at 1476.952576935 ms: h0 panicked: assertion `left == right` failed: the count of replica 0
//! ```
//!
//! With `--careless` clients unlock before both replicas have the record. Most seeds forgive that.

mod store;

use std::error::Error;
use std::process::ExitCode;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, spawn};
use fabric_sim::{HostId, Time};
use store::{Care, Store, check};

const CLIENTS: u32 = 3;
const ROUNDS: u64 = 10;

fn main() -> ExitCode {
    let (mut seed, mut care) = (None, Care::ForAll);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = |text: String| text.parse::<u64>().ok();
        match argument.as_str() {
            "--careless" => care = Care::ForOne,
            "--seed" => seed = arguments.next().and_then(number),
            _ => seed = None,
        }
        if seed.is_none() && argument != "--careless" {
            eprintln!("usage: lock [--seed N] [--careless]");
            return ExitCode::from(2);
        }
    }
    let result = match seed {
        None => over_sockets(care),
        Some(seed) => in_simulation(seed, care),
    };
    match result {
        Ok(words) => {
            println!("{words}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lock: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All of them as threads of this process, on addresses of loopback.
fn over_sockets(care: Care) -> Result<String, Box<dyn Error>> {
    let address = |last: u32| format!("127.81.2.{last}").parse();
    let store = Store {
        name: "sockets".to_owned(),
        replicas: vec![address(1)?, address(2)?],
        clients: (3..3 + CLIENTS).map(address).collect::<Result<_, _>>()?,
        rounds: ROUNDS,
        care,
    };
    let replicas: Vec<_> = (0..2)
        .map(|number| {
            let store = store.clone();
            spawn(move || store.replica(number))
        })
        .collect();
    let clients: Vec<_> = (0..CLIENTS as usize)
        .map(|number| {
            let store = store.clone();
            spawn(move || store.client(number))
        })
        .collect();
    let mut counted = Vec::new();
    for client in clients {
        counted.extend(client.join()?);
    }
    check(&counted)?;
    for replica in replicas {
        assert_eq!(replica.join()?, counted.len() as u64);
    }
    let count = counted.len();
    Ok(format!(
        "over sockets of this host: {CLIENTS} clients counted to {count}"
    ))
}

/// Each on a host of its own, in a network that loses frames.
fn in_simulation(seed: u64, care: Care) -> Result<String, Box<dyn Error>> {
    let mut sim = Simulation::new(seed);
    sim.fault(Fault::loss(0.02));
    let hosts: Vec<HostId> = (0..2 + CLIENTS).map(HostId).collect();
    let store = Store {
        name: "simulation".to_owned(),
        replicas: hosts[..2].iter().map(|host| sim.address(*host)).collect(),
        clients: hosts[2..].iter().map(|host| sim.address(*host)).collect(),
        rounds: ROUNDS,
        care,
    };
    for (number, host) in hosts.iter().enumerate() {
        let store = store.clone();
        sim.host(*host, move || match number.checked_sub(2) {
            None => {
                let count = store.replica(number).expect("a replica");
                assert_eq!(
                    count,
                    ROUNDS * u64::from(CLIENTS),
                    "the count of replica {number}"
                );
            }
            Some(client) => {
                let counted = store.client(client).expect("a client");
                assert_eq!(counted.len() as u64, ROUNDS);
            }
        });
    }
    let report = sim.run()?;
    let took_ms = report.ended_at().since(Time::ZERO).as_secs_f64() * 1e3;
    Ok(format!(
        "in the simulated fabric: {CLIENTS} clients counted to {} in {took_ms:.1} ms, with {} frames lost",
        ROUNDS * u64::from(CLIENTS),
        report.drops().total()
    ))
}
