//! The text of scenarios: what is read is written as the same, and what is not understood is named.

use fabric_sim::scenario::Scenario;
use proptest::prelude::*;

/// A flow between two of `hosts`.
fn flow(hosts: u32) -> impl Strategy<Value = String> {
    let ops = prop::sample::select(vec!["write", "read", "send", "fetch-add"]);
    let units = prop::sample::select(vec!["B", "KB", "MB", "KiB"]);
    (ops, 0..hosts, 1..hosts, 1..200u32, units, 1..9u32, 1..5u32).prop_map(
        move |(op, from, step, size, unit, count, depth)| {
            let to = (from + step) % hosts;
            let size = match op {
                "fetch-add" => String::new(),
                _ => format!("size = \"{size}{unit}\"\n"),
            };
            format!(
                "[[flow]]\nop = \"{op}\"\nfrom = \"h{from}\"\nto = \"h{to}\"\n{size}count = {count}\ndepth = {depth}\n"
            )
        },
    )
}

fn fault() -> impl Strategy<Value = String> {
    let loss = (0..=1000u32).prop_map(|p| format!("kind = \"loss\"\np = {}\n", f64::from(p) / 1e3));
    let kinds = prop::sample::select(vec!["duplicate", "reorder"]);
    let late = (kinds, 0..=1000u32, 1..50u32).prop_map(|(kind, p, by)| {
        format!(
            "kind = \"{kind}\"\np = {}\nby = \"{by}us\"\n",
            f64::from(p) / 1e3
        )
    });
    prop_oneof![loss, late].prop_map(|fault| format!("[[fault]]\n{fault}"))
}

fn scenario() -> impl Strategy<Value = String> {
    let parts = (2..6u32).prop_flat_map(|hosts| {
        let flows = prop::collection::vec(flow(hosts), 1..4);
        (Just(hosts), flows, prop::collection::vec(fault(), 0..3))
    });
    (any::<u32>(), 1..500u32, 1..101u32, parts).prop_map(
        |(seed, until, rate, (hosts, flows, faults))| {
            let (flows, faults) = (flows.concat(), faults.concat());
            format!(
                "[sim]\nseed = {seed}\nuntil = \"{until}us\"\n[topology]\nkind = \"single-switch\"\nhosts = {hosts}\n\
                 rate = \"{rate}Gbps\"\n{flows}{faults}"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_as_the_same_and_runs_as_the_same(text in scenario()) {
        let scenario = Scenario::parse(&text).expect("a scenario");
        let written = scenario.to_toml();
        let again = Scenario::parse(&written).expect("what was written");
        prop_assert_eq!(again.to_toml(), written);
        let seed = scenario.seed();
        prop_assert_eq!(again.seed(), seed);
        let run = |scenario: &Scenario| {
            let report = scenario.run(seed).expect("it can be built");
            (report.trace, report.events)
        };
        prop_assert_eq!(run(&again), run(&scenario));
    }

    #[test]
    fn a_key_that_there_is_not_is_refused_by_its_name(
        text in scenario(), key in "[a-z]{3,8}", at in any::<prop::sample::Index>(),
    ) {
        let key = format!("{key}-x");
        let lines: Vec<&str> = text.lines().collect();
        let heads: Vec<usize> = (0..lines.len()).filter(|&n| lines[n].starts_with('[')).collect();
        let mut changed = lines.clone();
        let line = format!("{key} = 1");
        changed.insert(at.get(&heads) + 1, &line);
        let error = Scenario::parse(&changed.join("\n")).expect_err("refused").to_string();
        prop_assert!(error.contains(&key), "{}", error);
    }
}
