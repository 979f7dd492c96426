//! The replicated counter of `examples/lock`: under faults by seeds, over real sockets, and with a mistake in it
//! that some seed finds.

#![allow(
    clippy::disallowed_types,
    reason = "what programs return is gathered beside the simulation"
)]

#[path = "../../examples/lock/store.rs"]
mod store;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use fabric_sim::fault::Fault;
use fabric_sim::program::{Report, SeedTest, Simulation, spawn};
use fabric_sim::{HostId, Span};
use store::{Care, Counted, Store, check};

const CLIENTS: usize = 3;
const ROUNDS: u64 = 4;
const TOTAL: u64 = CLIENTS as u64 * ROUNDS;

/// Runs the store on five hosts, under faults, and checks the outcome.
fn run(sim: &mut Simulation, care: Care) -> Result<Report, String> {
    let host = |number: usize| HostId(number as u32);
    let address = |number| sim.address(host(number));
    let store = Store {
        name: String::new(),
        replicas: (0..2).map(address).collect(),
        clients: (2..2 + CLIENTS).map(address).collect(),
        rounds: ROUNDS,
        care,
    };
    sim.fault(Fault::loss(0.01));
    sim.fault(Fault::corrupt_inside(0.005));
    sim.fault(Fault::duplicate(0.01, Span::from_us(4)));
    sim.fault(Fault::reorder(0.02, Span::from_us(6)));
    let counted: Arc<Mutex<Vec<Counted>>> = Arc::default();
    for number in 0..2 {
        let store = store.clone();
        sim.host(host(number), move || {
            let count = store.replica(number).expect("a replica");
            assert_eq!(count, TOTAL, "the count of replica {number}");
        });
    }
    for number in 0..CLIENTS {
        let (store, all) = (store.clone(), counted.clone());
        sim.host(host(2 + number), move || {
            let mine = store.client(number).expect("a client");
            all.lock().expect("nobody panics with it").extend(mine);
        });
    }
    let report = sim.run().map_err(|failure| failure.to_string())?;
    let counted = counted.lock().expect("nobody panics with it");
    assert_eq!(counted.len() as u64, TOTAL);
    check(&counted)?;
    Ok(report)
}

#[fabric_sim::test(seeds = 200)]
fn the_counter_is_linearizable_under_faults(sim: &mut Simulation) -> Result<(), String> {
    let report = run(sim, Care::ForAll)?;
    for mark in ["timeout", "retransmit", "duplicate", "loss", "icrc-drop"] {
        report.assert_sometimes(mark);
    }
    Ok(())
}

/// A client that unlocks when one replica has the record gets away with it, unless the network is slow to the other
/// at the wrong moment.
#[test]
fn a_completion_that_nobody_waits_for_is_found_by_some_seed() {
    let test = SeedTest {
        name: "for one",
        seeds: 200,
        twice: false,
    };
    let careless = |sim: &mut Simulation| run(sim, Care::ForOne).map(drop);
    let failure = test.find(0..200, false, careless);
    let failure = failure.expect_err("200 seeds and none finds it");
    println!("{failure:?}");
    let seed = failure.seed.expect("it is one run that fails");
    let wrong = ["the counts are", "came before", "the count of replica"];
    assert!(
        wrong.iter().any(|words| failure.words.contains(words)),
        "{}",
        failure.words
    );
    let again = test.find(seed..seed + 1, false, careless);
    assert_eq!(again, Err(failure), "the seed repeats it");
    let careful = |sim: &mut Simulation| run(sim, Care::ForAll).map(drop);
    assert_eq!(test.find(seed..seed + 1, false, careful), Ok(()));
}

#[test]
fn the_same_source_runs_over_sockets() {
    let pid = std::process::id();
    let address = |last: usize| -> IpAddr {
        let text = format!("127.{}.{}.{last}", 140 + pid / 250 % 50, pid % 250);
        text.parse().expect("an address")
    };
    let store = Store {
        name: "over sockets".to_owned(),
        replicas: (1..3).map(address).collect(),
        clients: (3..3 + CLIENTS).map(address).collect(),
        rounds: ROUNDS,
        care: Care::ForAll,
    };
    let replicas: Vec<_> = (0..2)
        .map(|number| {
            let store = store.clone();
            spawn(move || store.replica(number).expect("a replica"))
        })
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let store = store.clone();
            spawn(move || store.client(number).expect("a client"))
        })
        .collect();
    let counted: Vec<Counted> = clients.into_iter().flat_map(|c| c.join()).collect();
    assert_eq!(check(&counted), Ok(()));
    for replica in replicas {
        assert_eq!(replica.join(), TOTAL);
    }
}

#[test]
fn the_check_says_no() {
    let at = std::time::Duration::from_micros;
    let counted = |from, to, count| Counted {
        from: at(from),
        to: at(to),
        count,
    };
    assert_eq!(check(&[counted(1, 5, 1), counted(4, 9, 2)]), Ok(()));
    assert_eq!(check(&[counted(4, 9, 2), counted(1, 5, 1)]), Ok(()));
    assert!(check(&[counted(1, 5, 2), counted(6, 9, 1)]).is_err());
    assert!(check(&[counted(1, 5, 1), counted(6, 9, 1)]).is_err());
    assert!(check(&[counted(1, 5, 1), counted(6, 9, 3)]).is_err());
}
