//! Scenarios and users' programs under a few seeds, with their captures: what `tests/determinism` compares between builds, machines and numbers of
//! processors, under a thousand.

#[path = "../examples/seeds/subjects.rs"]
mod subjects;

use std::collections::BTreeSet;

use subjects::lines;

const SEEDS: u64 = 3;

#[test]
fn a_seed_is_one_run_and_one_capture() {
    let first = lines(SEEDS).expect("they run");
    assert_eq!(first, lines(SEEDS).expect("they run"));
    // Another seed, or another program, is another run.
    let part = |number| first.iter().map(move |line| line.split(' ').nth(number));
    for part in [part(3), part(5)] {
        assert_eq!(part.flatten().collect::<BTreeSet<_>>().len(), first.len());
    }
    assert_eq!(first.len() as u64, 4 * SEEDS);
}
