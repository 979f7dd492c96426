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
            "18 | buffer = \"4 parsecs\"\n   |          ^^^^^^^^^^^\n\"4 parsecs\" is not a size like 64KiB",
        ),
        ("buffer = \"4MB\"", "bufer = 4", "unknown field `bufer`"),
        ("buffer = \"4MB\"", "buffer = 4", "too small"),
        (
            "rate = \"25Gbps\"",
            "rate = \"25\"",
            "line 12, column 8\n   |\n12 | rate = \"25\"\n   |        ^^^^\n\"25\" is not a rate",
        ),
        (
            "kind = \"leaf-spine\"",
            "kind = \"torus\"",
            "unknown variant `torus`, expected one of `single-switch`, `back-to-back`",
        ),
        (
            "leaves = 4",
            "",
            "8 | kind = \"leaf-spine\"\n  |        ^^^^^^^^^^^^\nmissing field `leaves`",
        ),
        (
            "spines = 2",
            "spines = 2\nleft = 2",
            "11 | left = 2\n   | ^^^^\nunexpected keys in table: left, available keys: leaves, spines, hosts_per_switch",
        ),
        ("leaves = 4", "leaves = 0", "0: 1 to 65536"),
        (
            "kind = \"leaf-spine\"",
            "kind = { edges = {} }",
            "wanted string",
        ),
        (
            "depth = 4",
            "cc = \"reno\"",
            "37 | cc = \"reno\"\n   |      ^^^^^^\n\"reno\" is not none, dcqcn, window:SIZE, delay:TIME, swift:TIME, timely:TIME, hpcc, nscc, nscc:TIME or rccc",
        ),
        (
            "depth = 4",
            "cc = \"delay:7 parsecs\"",
            "37 | cc = \"delay:7 parsecs\"\n   |      ^^^^^^^^^^^^^^^^^\n\"7 parsecs\" is not a time",
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
            "unknown variant `wrote`, expected one of `frames`, `write`, `read`, `send`, `fetch-add`",
        ),
        (
            "mode = \"bytes\"",
            "mode = \"bits\"",
            "5 | mode = \"bits\"\n  |        ^^^^^^\nunknown variant `bits`, expected `bytes` or `lite`",
        ),
        (
            "lossless = [3]",
            "lossless = [8]",
            "24 | lossless = [8]\n   |            ^^^\n8: classes are 0 to 7",
        ),
        ("[switch]", "[switch", "TOML parse error"),
    ] {
        let text = fault(from, to);
        assert!(text.contains(expected), "{to}: {text}");
    }
}

/// A topology is counted before it is built: too large a one is a clear error, not all memory or a panic.
#[test]
fn a_topology_too_large_is_refused() {
    for (topology, expected) in [
        (
            "kind = \"single-switch\"\nhosts = 65536",
            "65536 hosts: at most 32768",
        ),
        (
            "kind = \"dumbbell\"\nleft = 32768\nright = 1",
            "32769 hosts",
        ),
        (
            "kind = \"ring\"\nswitches = 65536\nhosts_per_switch = 65536",
            "4294967296 hosts",
        ),
        (
            "kind = \"parking-lot\"\nswitches = 32768\nhosts_per_switch = 1",
            "1073741824 routes",
        ),
        (
            "kind = \"leaf-spine\"\nleaves = 4096\nspines = 65536\nhosts_per_switch = 1",
            "cables",
        ),
        ("kind = \"fat-tree\"\nk = 64", "65536 hosts"),
        (
            "kind = \"dragonfly\"\nrouters = 128\nhosts_per_switch = 128\nglobal = 128",
            "268451840 hosts",
        ),
        (
            "kind = \"dragonfly\"\nrouters = 4\nhosts_per_switch = 2\nglobal = 0",
            "1 to 128",
        ),
    ] {
        let text = format!("[topology]\n{topology}\n");
        match Scenario::parse(&text).and_then(|scenario| scenario.build(1)) {
            Err(error) => assert!(error.to_string().contains(expected), "{topology}: {error}"),
            Ok(_) => panic!("{topology} is taken"),
        }
    }
}

const FAULTS: &str = include_str!("../../scenarios/faults.toml");
const SWEEP: &str = include_str!("../../scenarios/sweep.toml");

#[test]
fn a_bad_network_is_lived_through_and_what_is_rare_is_seen() {
    let scenario = Scenario::parse(FAULTS).expect("reads");
    let wanted = scenario.sometimes();
    assert!(wanted.len() > 10);
    let mut marks = crate::check::Marks::default();
    for seed in 1..=12 {
        let report = scenario.run(seed).expect("runs");
        assert_eq!(
            report.failures,
            Vec::<String>::new(),
            "seed {seed}: {report}"
        );
        assert_eq!(report.faults.len(), 13);
        marks.merge(&report.marks);
    }
    let missed: Vec<_> = wanted.iter().filter(|&&m| marks.of(m) == 0).collect();
    assert!(missed.is_empty(), "never seen: {missed:?}");
}

#[test]
fn faults_that_make_no_sense_are_told_with_their_line() {
    let fault = |table: &str| {
        let text =
            format!("{EXAMPLE}\n[[fault]]\nkind = \"loss\"\np = 0.1\n\n[[fault]]\n{table}\n");
        let first = text.matches('\n').count() - table.matches('\n').count();
        let error = match Scenario::parse(&text).and_then(|scenario| scenario.build(1)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{table} is taken"),
        };
        // What the reader of TOML found has a picture of the place between the line and the words.
        let place = format!("TOML parse error at line {first}, ");
        let error = match error
            .strip_prefix(&place)
            .and_then(|rest| rest.rsplit_once("^\n"))
        {
            Some((_, words)) => format!("line {first}: {words}"),
            None => error,
        };
        error.replace(&format!("line {first}: "), "line 0: ")
    };
    for (table, expected) in [
        (
            "kind = \"los\"\np = 0.1",
            "line 0: unknown variant `los`, expected one of `loss`, `burst-loss`",
        ),
        (
            "kind = \"loss\"",
            "fault[1].p: a fault of this kind needs p, every or nth",
        ),
        (
            "p = 1.5\nkind = \"loss\"",
            "line 0: 1.5: a probability is 0 to 1",
        ),
        (
            "p = \"often\"\nkind = \"loss\"",
            "line 0: invalid type: string \"often\", expected f64",
        ),
        (
            "every = 0\nkind = \"loss\"",
            "line 0: invalid value: integer `0`, expected a nonzero u64",
        ),
        (
            "nth = [3, 3]\nkind = \"loss\"",
            "line 0: numbers of frames must rise",
        ),
        (
            "nth = [-3]\nkind = \"loss\"",
            "line 0: invalid value: integer `-3`, expected u64",
        ),
        (
            "p = 0.1\nnth = [3]\nkind = \"loss\"",
            "fault[1].p: only one of p, every and nth",
        ),
        (
            "mtu = 9\nkind = \"loss\"\np = 0.1",
            "line 0: unexpected keys in table: mtu",
        ),
        ("kind = \"delay\"", "line 0: missing field `by`"),
        (
            "by = \"soon\"\nkind = \"delay\"",
            "line 0: \"soon\" is not a time",
        ),
        (
            "host = \"h99\"\nkind = \"crash\"",
            "line 0: fault[1].host: \"h99\" is no host",
        ),
        (
            "kind = \"crash\"",
            "line 0: fault[1].kind: crash needs a host",
        ),
        (
            "link = \"h0-h1\"\nkind = \"link-down\"",
            "line 0: fault[1].link: \"h0-h1\" is no cable",
        ),
        (
            "port = \"h0\"\nkind = \"link-down\"",
            "line 0: fault[1].port: \"h0\" is no port",
        ),
        (
            "switch = \"h0\"\nkind = \"link-down\"",
            "line 0: fault[1].switch: \"h0\" is no switch",
        ),
        (
            "kind = \"crash\"\nhost = \"h0\"\nswitch = \"leaf0\"",
            "only one of host, switch, link and port",
        ),
        (
            "to = \"1us\"\nfrom = \"2us\"\nkind = \"link-down\"",
            "line 0: fault[1].to: the window ends",
        ),
        (
            "side = [\"leaf0\"]\nkind = \"partition\"",
            "line 0: fault[1].side: \"leaf0\" is no host",
        ),
        (
            "classes = [9]\nkind = \"pause-storm\"\nhost = \"h0\"",
            "line 0: 9: classes are 0 to 7",
        ),
        (
            "rate = \"fast\"\nkind = \"rate\"",
            "line 0: \"fast\" is not a rate",
        ),
        (
            "forgery = \"id\"\nkind = \"forge\"\np = 0.1",
            "line 0: unknown variant `id`, expected one of `psn`, `qpn`",
        ),
        (
            "down = \"1us\"\nkind = \"link-down\"",
            "fault[1].up: down needs it",
        ),
        (
            "frames = \"odd\"\nkind = \"loss\"\np = 0.1",
            "line 0: unknown variant `odd`, expected one of `data`, `control`",
        ),
        ("kind = 7", "line 0: wanted string"),
        (
            "kind = \"crash\"\nhost = \"h0\"\np = 0.1",
            "fault[1].p: a fault of this kind does not take it",
        ),
        (
            "frames = \"all\"\nkind = \"pause-loss\"\np = 0.1",
            "line 0: fault[1].frames: a fault of this kind does not take it",
        ),
    ] {
        let text = fault(table);
        assert!(text.contains(expected), "{table}: {text}");
    }
    for (from, to, expected) in [
        (
            "deadlock = false",
            "sometimes = [\"nak\", \"luck\"]",
            "\"luck\" is none of nak, rnr",
        ),
        (
            "[expect]",
            "[checks]\nskip = [\"luck\"]\n[expect]",
            "unknown variant `luck`, expected one of `lossless`",
        ),
        (
            "[expect]",
            "[checks]\nprogress = \"7\"\n[expect]",
            "\"7\" is not a time",
        ),
        (
            "window = \"1MiB\"",
            "first_psn = 16777216",
            "16777216: a PSN has 24 bits",
        ),
    ] {
        assert!(EXAMPLE.contains(from));
        let scenario = Scenario::parse(&EXAMPLE.replace(from, to));
        let error = scenario.and_then(|s| s.run(1)).expect_err(to).to_string();
        assert!(
            error.starts_with("TOML parse error at line ") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn settings_change_a_field_and_lead_nowhere_else() {
    let scenario = Scenario::parse(EXAMPLE).expect("reads");
    let with = |text: &str| {
        let setting = text.parse::<Setting>().expect("is a setting");
        assert_eq!(setting.to_string(), text, "as it was given");
        scenario.with(&[setting])
    };
    let changed = with("flow[0].size=1KB")
        .and_then(|s| s.run(1))
        .expect("runs");
    assert_eq!(changed.flows[0].bytes, 8_000);
    with("host.cc=dcqcn").and_then(|s| s.run(1)).expect("runs");
    with("flow[0].from=[\"h1\"]")
        .and_then(|s| s.build(1))
        .expect("builds");
    for (text, expected) in [
        ("flow[1].size=1KB", "flow[1].size: there are 1 of flow"),
        ("flow[x].size=1KB", "\"flow[x]\" is not like flow[0]"),
        ("sim.seed.low=1", "seed holds no fields"),
        ("flow[0].siez=1KB", "unknown field `siez`"),
        ("sim..seed=1", "a name is missing"),
    ] {
        let error = with(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for bad in ["host.window", "=7", ""] {
        assert!(bad.parse::<Setting>().is_err(), "{bad}");
    }
    let read = Scenario::parse(&scenario.to_toml()).expect("reads");
    assert_eq!(read.run(3).expect("runs"), scenario.run(3).expect("runs"));
}

#[test]
fn a_sweep_has_all_combinations() {
    let variants = |sweep: &str| {
        let (before, _) = SWEEP.split_once("[sweep]").expect("has one");
        let scenario = Scenario::parse(&format!("{before}[sweep]\n{sweep}\n")).expect("reads");
        let variants = scenario.variants().map_err(|error| error.to_string())?;
        let text = |settings: &Vec<Setting>| {
            let each: Vec<String> = settings.iter().map(Setting::to_string).collect();
            each.join(" ")
        };
        Ok::<Vec<String>, String>(variants.iter().map(text).collect())
    };
    assert_eq!(variants(""), Ok(vec![String::new()]));
    assert_eq!(
        variants("\"flow[0].size\" = { from = \"16KB\", to = \"64KB\", factor = 2 }\n\"host.cc\" = [\"none\", \"dcqcn\"]")
            .map(|all| (all.len(), all[0].clone(), all[5].clone())),
        Ok((6, "flow[0].size=16KB host.cc=none".to_owned(), "flow[0].size=64KB host.cc=dcqcn".to_owned()))
    );
    assert_eq!(
        variants("\"flow[0].depth\" = { from = 1, to = 7, step = 3 }"),
        Ok(["flow[0].depth=1", "flow[0].depth=4", "flow[0].depth=7"]
            .map(str::to_owned)
            .to_vec())
    );
    assert_eq!(
        variants("\"fault[0].p\" = { from = 0.1, to = 0.3, step = 0.1 }").map(|v| v.len()),
        Ok(3)
    );
    for (bad, expected) in [
        ("\"a.b\" = []", "sweep.a.b: the list is empty"),
        ("\"a.b\" = 7", "sweep.a.b: a list, or a range"),
        (
            "\"a.b\" = { from = 1, to = 8 }",
            "a step above 0 of the same unit, or a factor above 1",
        ),
        ("\"a.b\" = { from = 1, to = 8, step = 0 }", "a step above 0"),
        (
            "\"a.b\" = { from = 1, to = 8, factor = 1 }",
            "a factor above 1",
        ),
        (
            "\"a.b\" = { from = \"1us\", to = \"8ms\", step = \"1us\" }",
            "from and to have the same unit",
        ),
        (
            "\"a.b\" = { from = 9, to = 8, step = 1 }",
            "from is not above to",
        ),
        (
            "\"a.b\" = { from = 1, to = 8, steps = 1 }",
            "\"steps\" is not from, to, step or factor",
        ),
        (
            "\"a.b\" = { from = 1, to = 1000000, step = 1 }",
            "too many values",
        ),
    ] {
        let error = variants(bad).expect_err(bad);
        assert!(error.contains(expected), "{bad}: {error}");
    }
}

#[test]
fn a_swarm_draws_faults_that_are_a_seed_s_own() {
    let text = FAULTS.replace("[sim]\n", "[sim]\nswarm = true\n");
    let swarm = Scenario::parse(&text).expect("reads");
    let mut counts = Vec::new();
    for seed in 1..=16 {
        let report = swarm.run(seed).expect("runs");
        assert_eq!(
            report.failures,
            Vec::<String>::new(),
            "seed {seed}: {report}"
        );
        let drawn = swarm.drawn(seed).expect("is one");
        assert!(!drawn.is_swarm());
        let written = Scenario::parse(&drawn.to_toml()).expect("reads");
        let again = written.run(seed).expect("runs");
        assert_eq!(
            again, report,
            "what is drawn can be written down: seed {seed}"
        );
        counts.push(report.faults.len());
    }
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(least < Some(&6) && most > Some(&6), "{counts:?}");
}
