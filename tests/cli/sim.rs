//! `urxe sim`: scenarios, determinism, experiments.

use std::fs;

use crate::harness::{project_file, run, urxe};

fn incast() -> std::path::PathBuf {
    project_file("fabric-sim/scenarios/incast.toml")
}

#[test]
fn a_scenario_runs_and_a_seed_is_a_run() {
    let sim = |seed: &str| {
        let ran = run(urxe().args(["sim", "run", "--seed", seed]).arg(incast())).expect_success();
        assert!(
            ran.stdout.starts_with(&format!("seed {seed}: ")),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("h0>h15 write"), "{}", ran.stdout);
        ran.stdout
    };
    assert_eq!(sim("5"), sim("5"));
    assert_ne!(sim("5"), sim("6"));
}

#[test]
fn expectations_that_fail_are_a_failure_with_the_line_that_repeats_it() {
    let text = fs::read_to_string(incast()).expect("is there");
    let folder = std::env::temp_dir().join(format!("urxe-sim-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("can be made");
    let file = folder.join("hard.toml");
    fs::write(&file, text.replace("jain_min = 0.9", "jain_min = 1.5")).expect("can be written");
    let ran = run(urxe().args(["sim", "run"]).arg(&file));
    fs::remove_dir_all(&folder).expect("can be removed");
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("not as expected: Jain's"),
        "{}",
        ran.stdout
    );
    let again = format!("again: urxe sim run {} --seed 7", file.display());
    assert!(ran.stdout.contains(&again), "{}", ran.stdout);
}

#[test]
fn runs_are_the_same_twice() {
    let mut command = urxe();
    command
        .args(["sim", "check-determinism", "--seeds", "6"])
        .arg(incast());
    let ran = run(&mut command).expect_success();
    let expected = "6 seeds from 1, each the same twice; 6 different runs; hash of all ";
    assert!(ran.stdout.starts_with(expected), "{}", ran.stdout);
}

#[test]
fn experiments_print_what_was_expected_and_measured() {
    let ran = run(urxe().args(["sim", "experiments", "share", "thresholds"])).expect_success();
    assert!(
        ran.stdout.contains("15 of 15 values as expected"),
        "{}",
        ran.stdout
    );
    let ran = run(urxe().args(["sim", "experiments", "perpetuum"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("no experiment perpetuum: there are share, "),
        "{}",
        ran.stderr
    );
}

#[test]
fn files_that_are_missing_or_wrong_are_told() {
    let ran = run(urxe().args(["sim", "run", "/nonexistent.toml"]));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("cannot read /nonexistent.toml"),
        "{}",
        ran.stderr
    );
    let ran = run(urxe().args(["sim", "run"]).arg(project_file("Cargo.toml")));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("unknown field"), "{}", ran.stderr);
}
