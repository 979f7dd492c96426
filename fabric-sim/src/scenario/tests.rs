use super::*;

const EXAMPLE: &str = include_str!("../../scenarios/incast.toml");

#[test]
fn the_example_runs_as_it_expects_and_the_same_every_time() {
    let scenario = Scenario::parse(EXAMPLE).expect("reads");
    let report = scenario.run(scenario.seed()).expect("runs");
    assert_eq!(report.failures, Vec::<String>::new());
    assert_eq!(report.flows.len(), 8);
    assert!(!report.pauses.is_empty());
    assert_eq!(scenario.run(scenario.seed()).expect("runs"), report);
    let other = scenario.run(scenario.seed() + 1).expect("runs");
    assert_ne!(other.trace, report.trace);
    let text = report.to_string();
    assert!(
        text.contains("h0>h15 write") && text.contains("fairness (Jain)"),
        "{text}"
    );
}

#[test]
fn expectations_that_fail_are_told() {
    let text = EXAMPLE
        .replace("jain_min = 0.9", "jain_min = 1.1")
        .replace("lock = false", "lock = true");
    let scenario = Scenario::parse(&text).expect("reads");
    let failures = scenario.run(1).expect("runs").failures;
    assert!(failures.len() >= 2, "{failures:?}");
    assert!(
        failures.iter().any(|f| f == "deadlock: none"),
        "{failures:?}"
    );
    assert!(
        failures
            .iter()
            .any(|f| f.starts_with("Jain's fairness index is ")),
        "{failures:?}"
    );
}

#[test]
fn flows_are_controlled_as_they_say() {
    let run = |cc: &str| {
        let window = "window = \"1MiB\"";
        assert!(EXAMPLE.contains(window));
        let text = EXAMPLE.replace(window, &format!("{window}\ncc = \"{cc}\""));
        let scenario = Scenario::parse(&text).expect("reads");
        scenario.run(1).expect("runs")
    };
    let (without, with) = (run("none"), run("dcqcn"));
    assert_ne!(without.trace, with.trace);
    assert!(
        with.flows.iter().all(|flow| flow.failure.is_none()),
        "{with}"
    );
    for cc in ["window:16KB", "delay:30us"] {
        assert_ne!(run(cc).trace, without.trace, "{cc}");
    }
}

#[test]
fn faults_name_their_place() {
    let fault = |from: &str, to: &str| {
        assert!(EXAMPLE.contains(from), "{from}");
        let text = EXAMPLE.replace(from, to);
        match Scenario::parse(&text).and_then(|scenario| scenario.build(1)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{to} is taken"),
        }
    };
    for (from, to, expected) in [
        (
            "buffer = \"4MB\"",
            "buffer = \"4 parsecs\"",
            "switch.buffer: \"4 parsecs\" is not a size",
        ),
        ("buffer = \"4MB\"", "bufer = 4", "unknown field `bufer`"),
        ("buffer = \"4MB\"", "buffer = 4", "too small"),
        (
            "rate = \"25Gbps\"",
            "rate = \"25\"",
            "topology.rate: \"25\" is not a rate",
        ),
        (
            "kind = \"leaf-spine\"",
            "kind = \"torus\"",
            "topology.kind: \"torus\" is not single-switch",
        ),
        ("leaves = 4", "", "topology.leaves: leaf-spine needs it"),
        (
            "depth = 4",
            "cc = \"reno\"",
            "flow[0].cc: \"reno\" is not none, dcqcn, window:SIZE or delay:TIME",
        ),
        (
            "depth = 4",
            "cc = \"delay:7 parsecs\"",
            "flow[0].cc: \"7 parsecs\" is not a time",
        ),
        (
            "to = \"h15\"",
            "to = \"h16\"",
            "flow[0].to: \"h16\" is no host",
        ),
        (
            "to = \"h15\"",
            "to = \"leaf0\"",
            "flow[0].to: \"leaf0\" is no host",
        ),
        (
            "op = \"write\"",
            "op = \"wrote\"",
            "flow[0].op: \"wrote\" is not frames, write, read, send or fetch-add",
        ),
        (
            "mode = \"bytes\"",
            "mode = \"bits\"",
            "sim.mode: \"bits\" is not bytes or lite",
        ),
        (
            "lossless = [3]",
            "lossless = [8]",
            "qos.lossless: 8: classes are 0 to 7",
        ),
        ("[switch]", "[switch", "TOML parse error"),
    ] {
        let text = fault(from, to);
        assert!(text.contains(expected), "{to}: {text}");
    }
}
