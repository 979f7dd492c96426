//! Finding a race by seeds.

use fabric_sim::program::{Failure, SeedTest, Simulation};

/// Seeds in which a race must be found.
const SEEDS: u64 = 100;
/// Seeds under which the mended program must hold.
const MENDED: u64 = 20;

pub(crate) type Program = fn(&mut Simulation, bool) -> Result<(), Failure>;

/// The broken program fails under some seed, and fails the same way under it again, with a page that shows it; the mended one does not
/// fail. Returns what the failure says.
pub(crate) fn must_find(name: &'static str, program: Program) -> String {
    let test = SeedTest {
        name,
        seeds: SEEDS,
        twice: false,
    };
    let broken = |sim: &mut Simulation| program(sim, true);
    let found = test.find(0..SEEDS, false, broken);
    let found = found.expect_err("the race is found");
    let seed = found.seed.expect("a seed found it");
    println!("{name}: seed {seed}: {}", found.words);
    let words = found.words.clone();
    assert_eq!(test.find([seed], false, broken), Err(found));
    let page = std::env::temp_dir().join(format!("urxe-race-{name}-{}.html", std::process::id()));
    let shown = test.find([seed], false, |sim| {
        sim.page(&page);
        program(sim, true)
    });
    assert_eq!(shown.expect_err("it is found again").words, words);
    let text = std::fs::read_to_string(&page).expect("a page of the run that failed");
    // "seed 3, at 4.5 us: h1 panicked: ...", "seed 3, at 3.1 ms: all wait for ever: ..."
    let cause = words.split(':').nth(1).expect("a cause").trim();
    assert!(
        text.contains("id=\"run\"") && text.contains(cause),
        "{name}: the page does not say {cause:?}"
    );
    std::fs::remove_file(&page).expect("it is there");
    let mended = test.find(0..MENDED, false, |sim| program(sim, false));
    assert_eq!(mended, Ok(()), "mended");
    words
}
