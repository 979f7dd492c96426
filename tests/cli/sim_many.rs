//! `urxe sim sweep`, `replay` and `shrink`: many runs, the same run again, and the smallest that fails.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Ran, project_file, run, urxe};
use crate::json::documented;
use crate::sim::Folder;

/// Writes a file into a folder.
fn write(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.file(name);
    fs::write(&path, text).expect("can be written");
    path.to_str().expect("is text").to_owned()
}

fn sim(args: &[&str]) -> Ran {
    run(urxe().arg("sim").args(args))
}

fn scenario(name: &str) -> String {
    let path = project_file(&format!("fabric-sim/scenarios/{name}"));
    path.to_str().expect("is text").to_owned()
}

/// An incast with a receiver that loses so much that it cannot be complete by its end.
fn failing(folder: &Folder) -> String {
    let text = fs::read_to_string(scenario("incast.toml")).expect("is there");
    let text = text.replace("until = \"20ms\"", "until = \"12ms\"");
    let faults = "\n[[fault]]\nkind = \"duplicate\"\np = 0.001\n\n\
        [[fault]]\nkind = \"loss\"\np = 0.5\nhost = \"h15\"\nfrom = \"50us\"\nto = \"11ms\"\n";
    write(folder, "failing.toml", &(text + faults))
}

#[test]
fn a_sweep_runs_every_combination_under_every_seed() {
    let file = scenario("sweep.toml");
    let sweep = |jobs: &str| {
        let ran = sim(&["sweep", &file, "--seeds", "2", "--jobs", jobs]).expect_success();
        assert_eq!(ran.stderr, "", "no bar where nobody can see it");
        let hash = ran.stdout.split("hash of all ").nth(1).map(str::to_owned);
        (ran.stdout, hash.expect("is told"))
    };
    let (text, hash) = sweep("1");
    assert_eq!(
        text.matches(": 2 seeds, 0 failed").count(),
        3 * 2 * 2,
        "{text}"
    );
    assert!(
        text.contains("fault[0].p=0.001 flow[0].size=256KB host.cc=dcqcn"),
        "{text}"
    );
    assert!(
        text.contains("24 runs in ") && text.contains("\nseen: "),
        "{text}"
    );
    assert_eq!(sweep("3").1, hash, "whoever runs them");
}

/// A scenario without a flow, with values that only seeds tell apart.
#[test]
fn jobs_on_a_dragonfly_are_told_with_how_sure_their_median_is() {
    let folder = Folder::new("jobs");
    let text = "[topology]\nkind = \"dragonfly\"\nrouters = 2\nhosts_per_switch = 2\nglobal = 1\n\n\
        [[job]]\nkind = \"all-to-all\"\nhosts = \"all\"\nsize = \"120KB\"\n\n\
        [[fault]]\nkind = \"loss\"\nhost = \"h0\"\np = 0.05\n";
    let file = write(&folder, "jobs.toml", text);
    let ran = sim(&["run", &file, "--json"]).expect_success();
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let job = &report["jobs"][0];
    // Each of 12 hosts to the 11 others.
    assert_eq!(job["messages"], 12 * 11, "{report}");
    assert!(job["completion_s"].as_f64() > Some(0.0), "{report}");
    assert!(
        job["bus_bandwidth_bit_per_s"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(report["flows"].as_array().map(Vec::len), Some(0));

    let swept = |seeds: &str| -> Value {
        let ran = sim(&["sweep", &file, "--seeds", seeds, "--json"]).expect_success();
        let first = ran.stdout.lines().next().expect("a combination");
        serde_json::from_str(first).expect("JSON")
    };
    let many = swept("12");
    let seconds = |field: &str| many[field].as_f64().unwrap_or_else(|| panic!("{many}"));
    let order = [
        "completion_median_from_s",
        "completion_median_s",
        "completion_median_to_s",
        "completion_max_s",
    ];
    let order = order.map(seconds);
    assert!(order.is_sorted() && order[0] < order[2], "{many}");
    assert!(many["goodput_median_bit_per_s"].is_null(), "{many}");
    // Too few to be sure of anything.
    let few = swept("5");
    assert!(few["completion_median_s"].is_f64(), "{few}");
    assert!(few["completion_median_from_s"].is_null(), "{few}");
    let ran = sim(&["sweep", &file, "--seeds", "12"]).expect_success();
    let line = ran.stdout.lines().next().expect("a combination");
    assert!(
        line.contains("12 seeds, 0 failed; complete after ")
            && line.contains(" ms at the median ("),
        "{line}"
    );

    for (from, to, words) in [
        ("\"all-to-all\"", "\"all-to-some\"", "all-to-some"),
        ("\"all\"", "\"h0..h99\"", "h99"),
        ("\"120KB\"", "\"much\"", "much"),
    ] {
        let file = write(&folder, "bad.toml", &text.replacen(from, to, 1));
        let ran = sim(&["run", &file]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
}

#[test]
fn a_seed_that_fails_is_told_with_the_line_that_replays_it() {
    let folder = Folder::new("replay");
    let file = failing(&folder);
    let ran = sim(&["sweep", &file, "--seeds", "3", "--set", "flow[0].count=7"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("3 seeds, 3 failed"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("seed 2: all flows complete: false"),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("3 of 3 runs failed"), "{}", ran.stderr);
    let line = ran.stdout.split("again: urxe sim ").nth(1).expect("a line");
    let line = line.lines().next().expect("one");
    let words: Vec<&str> = line
        .split(' ')
        .map(|word| word.trim_matches('\''))
        .collect();
    assert_eq!(words[..2], ["replay", &file]);
    assert!(
        words.contains(&"flow[0].count=7") && words.contains(&"--trace"),
        "{line}"
    );
    let again = sim(&words);
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    assert!(
        again.stdout.contains("the same run, event by event"),
        "{}",
        again.stdout
    );
    assert!(
        again
            .stdout
            .contains("fault: loss p=0.5 from 50 us to 11 ms: "),
        "{}",
        again.stdout
    );
    let mut other = words.clone();
    other[words.len() - 1] = "0123456789abcdef";
    let other = sim(&other);
    assert!(
        other.stderr.contains("another run: its hash is "),
        "{}",
        other.stderr
    );
}

#[test]
fn shards_put_together_are_the_sweep_of_one_machine() {
    let folder = Folder::new("shards");
    let file = scenario("sweep.toml");
    let path = |name: &str| folder.file(name).to_str().expect("is text").to_owned();
    let sweep = |more: &[&str]| {
        let all = ["sweep", &file, "--seeds", "2"];
        sim(&[&all[..], more].concat())
    };
    let untimed = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| !line.contains("shards put together"));
        let lines = lines.map(|line| match line.split_once(" runs in ") {
            Some((runs, rest)) => format!("{runs} runs{}", &rest[rest.find(',').unwrap_or(0)..]),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>()
    };
    let whole = sweep(&["--results", &path("all")]).expect_success();
    for shard in ["1/3", "2/3", "3/3"] {
        let name = path(&shard[..1]);
        sweep(&["--shard", shard, "--results", &name]).expect_success();
    }
    let merged = sim(&[
        "merge",
        &path("3"),
        &path("1"),
        &path("2"),
        "--results",
        &path("sum"),
    ]);
    let merged = merged.expect_success();
    assert_eq!(untimed(&merged.stdout), untimed(&whole.stdout));
    let text = |name: &str| fs::read_to_string(path(name)).expect("is written");
    assert_eq!(text("sum"), text("all"));
    // A worker was lost: what it had to do is told, and what has come is not taken for all.
    let lost = sim(&["merge", &path("1"), &path("3"), "--results", &path("less")]);
    assert_eq!(lost.code, Some(1), "{}", lost.stdout);
    let told = "8 of 24 runs are missing: numbers 1, 4, 7, 10, 13, 16, 19, 22.";
    assert!(lost.stderr.contains(told), "{}", lost.stderr);
    assert!(!folder.file("less").exists());
    let other = sweep(&[
        "--first",
        "9",
        "--shard",
        "2/3",
        "--results",
        &path("other"),
    ]);
    other.expect_success();
    let mixed = sim(&["merge", &path("1"), &path("other"), &path("3")]);
    assert!(
        mixed.stderr.contains("it is of another sweep"),
        "{}",
        mixed.stderr
    );
    let broken = write(&folder, "broken", &text("2")[..400]);
    let broken = sim(&["merge", &path("1"), &broken]);
    assert!(broken.stderr.contains("broken: line "), "{}", broken.stderr);
    let fourth = sweep(&["--shard", "4/3"]);
    assert!(fourth.stderr.contains("K from 1 to N"), "{}", fourth.stderr);
}

#[test]
fn the_first_event_that_differs_between_two_runs_is_told() {
    let file = scenario("incast.toml");
    let same = sim(&["diff", &file]).expect_success();
    assert!(same.stdout.starts_with("the same ") && same.stdout.lines().count() == 1);
    // One flow begins a microsecond later: until then nothing is another.
    let later = ["diff", &file, "--set-b", "flow[0].start=1us"];
    let ran = sim(&later);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("the runs are not the same"),
        "{}",
        ran.stderr
    );
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("the same 0 events"), "{}", ran.stdout);
    assert!(lines[1].starts_with("  A: 0 s: "), "{}", ran.stdout);
    assert!(lines[2].starts_with("  B: 1 us: "), "{}", ran.stdout);
    assert!(
        lines[4].ends_with(" --set 'flow[0].start=1us'"),
        "{}",
        ran.stdout
    );
    // A fault at 100 us: all is the same before.
    let folder = Folder::new("diff");
    let text = fs::read_to_string(&file).expect("is there");
    let fault = "\n[[fault]]\nkind = \"loss\"\np = 1.0\nfrom = \"100us\"\n";
    let other = write(&folder, "other.toml", &(text + fault));
    let ran = sim(&["diff", &file, &other]);
    let last = ran
        .stdout
        .lines()
        .find(|line| line.contains("last of them:"));
    let time = last.and_then(|line| line.split(' ').find(|w| w.parse::<f64>().is_ok()));
    let time: f64 = time.expect("a time").parse().expect("a number");
    assert!((99.0..103.0).contains(&time), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("  B: ") && ran.stdout.contains("drops "),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_trace_for_perfetto_has_flows_faults_and_pauses() {
    let folder = Folder::new("perfetto");
    let out = folder.file("trace.json");
    let to = out.to_str().expect("is text");
    let file = failing(&folder);
    let ran = sim(&["run", &file, "--perfetto", to]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let text = fs::read_to_string(&out).expect("is written");
    let trace: Value = serde_json::from_str(&text).expect("is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let of = |ph: &'static str| events.iter().filter(move |e| e["ph"] == ph);
    let groups: Vec<_> = of("M")
        .filter(|e| e["name"] == "process_name")
        .map(|e| e["args"]["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(groups, ["flows", "faults", "pauses", "drops and marks"]);
    let bar = |name: &str| of("X").find(|e| e["name"].as_str().is_some_and(|n| n.contains(name)));
    let loss = bar("loss p=0.5").expect("the fault");
    assert_eq!(
        (loss["ts"].as_f64(), loss["dur"].as_f64()),
        (Some(50.0), Some(10_950.0))
    );
    assert!(bar("h0>h15 write").is_some() && bar("class 3 paused").is_some());
    assert!(of("i").any(|e| e["name"] != "marked"), "something was lost");
    assert_eq!(
        sim(&["run", &file, "--perfetto", "/nonexistent/t"]).code,
        Some(1)
    );
}

#[test]
fn a_mark_that_was_never_seen_fails_the_set() {
    let folder = Folder::new("marks");
    let text = fs::read_to_string(scenario("incast.toml")).expect("is there");
    let text = text + "sometimes = [\"pause\", \"atomic-replay\"]\n";
    let file = write(&folder, "marks.toml", &text);
    let ran = sim(&["sweep", &file, "--seeds", "2"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let expected = "never seen, though expected sometimes: atomic-replay\n";
    assert!(ran.stdout.ends_with(expected), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("1 marks were never seen"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_fails_is_made_small_with_its_capture_and_its_test() {
    let folder = Folder::new("shrink");
    let file = failing(&folder);
    let out = folder.0.join("small");
    let to = out.to_str().expect("is text");
    let ran = sim(&[
        "shrink",
        &file,
        "--seed",
        "5",
        "--out",
        to,
        "--seconds",
        "10",
    ]);
    let ran = ran.expect_success();
    assert!(
        ran.stdout.contains(" 1 faults and 1 flows are left"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("fails: all flows complete: false"),
        "{}",
        ran.stdout
    );
    let small = fs::read_to_string(out.join("scenario.toml")).expect("is there");
    assert!(
        small.starts_with("# Fails: all flows complete: false\n"),
        "{small}"
    );
    assert!(!small.contains("duplicate"), "{small}");
    let again = sim(&["run", out.join("scenario.toml").to_str().expect("is text")]);
    assert_eq!(again.code, Some(1), "{}", again.stdout);
    assert!(again.stdout.starts_with("seed 5: "), "{}", again.stdout);
    let test = fs::read_to_string(out.join("test.rs")).expect("is there");
    assert!(test.contains("fn all_flows_complete_of_seed_5()"), "{test}");
    let capture = fs::read(out.join("capture.pcapng")).expect("is there");
    assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let decoded = run(urxe()
        .args(["decode", "--quiet"])
        .arg(out.join("capture.pcapng")));
    assert!(!decoded.stdout.is_empty(), "{}", decoded.stderr);
}

#[test]
fn in_json_each_failure_is_told_and_nothing_else_is_printed() {
    let folder = Folder::new("json");
    let file = failing(&folder);
    let of = |command: &str, args: &[&str]| {
        let words = [&[command, &file], args, &["--json"]].concat();
        let ran = sim(&words);
        let name = format!("sim {command}");
        (documented(&name, &ran.stdout), ran.code)
    };

    let (lines, code) = of("sweep", &["--seeds", "2"]);
    let [combination, all] = &lines[..] else {
        panic!("two lines, not {lines:?}");
    };
    let failed = combination["failed"].as_array().expect("a list");
    assert_eq!(failed.len(), 2, "{combination}");
    let failure = &failed[1]["failures"][0];
    assert_eq!(failure, "all flows complete: false", "{combination}");
    let again = failed[1]["again"].as_str().expect("is text");
    assert!(again.starts_with("urxe sim replay "), "{again}");
    assert_eq!((&all["failed_runs"], code), (&2.into(), Some(1)), "{all}");

    let trace = failed[1]["trace"].as_str().expect("is text");
    for (trace, is_same) in [(trace, true), ("0123456789abcdef", false)] {
        let (lines, code) = of("replay", &["--seed", "2", "--trace", trace]);
        assert_eq!((lines.len(), code), (1, Some(1)), "{lines:?}");
        assert_eq!(lines[0]["is_same"], is_same, "{lines:?}");
    }
    assert_eq!(of("run", &["--seed", "2"]).0.len(), 1);

    let page = folder.0.join("page.html");
    let page = page.to_str().expect("is text");
    let (lines, _) = of("report", &["--seed", "2", "-o", page]);
    assert_eq!((lines.len(), &lines[0]["page"]), (1, &page.into()));

    let out = folder.0.join("small");
    let out = out.to_str().expect("is text");
    let (lines, code) = of("shrink", &["--seed", "5", "--out", out, "--seconds", "1"]);
    assert_eq!((lines.len(), code), (1, Some(0)), "{lines:?}");
    assert!(lines[0]["runs"].as_u64() > Some(0), "{lines:?}");
    let files = lines[0]["files"].as_array().expect("a list");
    let there = |file: &Value| Path::new(file.as_str().expect("is text")).is_file();
    assert!(files.len() >= 3 && files.iter().all(there), "{files:?}");
}

#[test]
fn bad_input_is_told_and_nothing_is_written() {
    let folder = Folder::new("bad");
    let incast = scenario("incast.toml");
    let out = folder.0.join("none");
    let out = out.to_str().expect("is text");
    let text = fs::read_to_string(&incast).expect("is there");
    let text = text + "\n[sweep]\n\"flow[3].size\" = [1]\n";
    let sweep = write(&folder, "sweep.toml", &text);
    let fault = "[[fault]]\nkind = \"los\"\n";
    let text = fs::read_to_string(&incast).expect("is there") + fault;
    let faulty = write(&folder, "faulty.toml", &text);
    let line = format!(
        "TOML parse error at line {0}, column 8\n   |\n{0} | kind = \"los\"\n   |        ^^^^^\nunknown variant `los`",
        text.matches('\n').count()
    );
    for (args, code, expected) in [
        (
            vec!["shrink", &incast, "--out", out],
            2,
            "passes under seed 7: there is nothing to shrink",
        ),
        (
            vec!["shrink", &incast, "--out", "/proc/none"],
            1,
            "cannot write /proc/none",
        ),
        (vec!["shrink", &incast], 2, "--out"),
        (
            vec!["sweep", &sweep],
            1,
            "flow[3].size: there are 1 of flow",
        ),
        (
            vec!["sweep", &incast, "--seeds", "0"],
            2,
            "0 is not in 1..=",
        ),
        (vec!["sweep", &incast, "--jobs", "0"], 2, "0 is not in 1..="),
        (
            vec!["sweep", "/nonexistent.toml"],
            1,
            "cannot read /nonexistent.toml",
        ),
        (
            vec!["run", &incast, "--set", "flow"],
            2,
            "--set flow: a setting is path=value",
        ),
        (
            vec!["run", &incast, "--set", "flow[0].siez=1"],
            1,
            "unknown field `siez`",
        ),
        (vec!["replay", &faulty], 1, &line),
    ] {
        let ran = sim(&args);
        assert_eq!(
            ran.code,
            Some(code),
            "{args:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
    let left: Vec<_> = fs::read_dir(out).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_bad_network_is_the_same_twice_and_a_swarm_too() {
    let file = scenario("faults.toml");
    for more in [&[][..], &["--swarm"]] {
        let args = [&["check-determinism", "--seeds", "8", &file][..], more].concat();
        let ran = sim(&args).expect_success();
        let expected = "8 seeds from 1, each the same twice; 8 different runs; hash of all ";
        assert!(ran.stdout.starts_with(expected), "{}", ran.stdout);
    }
}
