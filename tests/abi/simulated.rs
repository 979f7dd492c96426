//! `urxe sim exec`: programs of the distribution, and one in C, on simulated hosts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::c_program::compile;
use crate::harness::{Ran, library, run_within, urxe};

const PROGRAM: &str = "abi/simulated.c";
/// Runs of many seeds, on a machine that does other things.
const LIMIT: Duration = Duration::from_secs(300);

fn exec(args: &[&str]) -> Ran {
    library();
    let mut command = urxe();
    command.args(["sim", "exec"]).args(args);
    run_within(command, LIMIT)
}

/// False, with a word, if the program is not there.
fn is_there(program: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists();
    if !is_there {
        println!(
            "skipped: {program} is missing (apt-get install ibverbs-utils perftest rdmacm-utils)"
        );
    }
    is_there
}

fn traces(text: &str) -> Vec<&str> {
    let traces = text.lines().filter(|line| line.starts_with("seed "));
    traces
        .filter_map(|line| Some(line.split_once("trace ")?.1))
        .collect()
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("urxe-simulated-{}-{name}", std::process::id()))
}

#[test]
fn each_seed_of_a_pingpong_is_one_run() {
    for (program, seeds) in [
        ("ibv_rc_pingpong", 20),
        ("ibv_uc_pingpong", 4),
        ("ibv_ud_pingpong", 4),
        ("ibv_srq_pingpong", 4),
    ] {
        if !is_there(program) {
            continue;
        }
        let count = seeds.to_string();
        let args = ["--seeds", &count, "--", program, "-g", "0", "-n", "20"];
        let ran = exec(&[&["--twice"], &args[..]].concat());
        assert_eq!(ran.code, Some(0), "{program}: {ran:?}");
        let traces = traces(&ran.text);
        assert_eq!(traces.len(), seeds, "{program}: {ran:?}");
        let different: BTreeSet<_> = traces.iter().collect();
        assert!(different.len() > seeds / 2, "{program}: {different:?}");
        // The same in another process.
        assert_eq!(exec(&args).text, ran.text, "{program}");
    }
}

/// It measures by the counter of the processor, and ends with a talk over its stream.
#[test]
fn perftest_measures_virtual_time() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the counters of other processors are not simulated");
        return;
    }
    for (program, column) in [("ib_send_bw", 3), ("ib_read_lat", 4)] {
        if !is_there(program) {
            continue;
        }
        let args = ["--seed", "3", "--twice", "--", program, "-n", "100"];
        let ran = exec(&args);
        if ran.text.contains("addresses of programs are random here") {
            println!(
                "skipped: the system does not let addresses of {program}, which it sends, be the same twice"
            );
            continue;
        }
        assert_eq!(ran.code, Some(0), "{program}: {ran:?}");
        assert!(!ran.text.contains("reset"), "{program}: {ran:?}");
        let mut rows = ran.text.lines().map(str::split_whitespace);
        let row = rows.find_map(|row| {
            let row: Vec<&str> = row.collect();
            let is_it = row.len() > 4 && row[1] == "100";
            is_it.then(|| row[column].parse::<f64>().expect("a number"))
        });
        let measured = row.unwrap_or_else(|| panic!("{program}: {ran:?}"));
        // MB/s of a link of 100 Gb/s; and microseconds of a READ over one switch, in which the program polls by 100 ns.
        let sane = if column == 3 {
            5_000.0..12_000.0
        } else {
            0.1..5.0
        };
        assert!(sane.contains(&measured), "{program}: {measured}");
    }
}

#[test]
fn a_pingpong_with_events_and_losses_has_one_capture() {
    if !is_there("ibv_rc_pingpong") {
        return;
    }
    let scenario = scratch("loss.toml");
    // Not to the end: a program fails that misses the last ACK of one that has ended.
    let text = "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_switch = 1\n\
        [[fault]]\nkind = \"loss\"\np = 0.01\nto = \"200ms\"\n\
        [[program]]\nhost = \"h0\"\ncommand = [\"ibv_rc_pingpong\", \"-g\", \"0\", \"-e\", \"-c\"]\n\
        [[program]]\nhost = \"h1\"\nstart = \"5ms\"\n\
        command = [\"ibv_rc_pingpong\", \"-g\", \"0\", \"-e\", \"-c\", \"10.0.0.1\"]\n";
    fs::write(&scenario, text).expect("a file");
    let file = scenario.to_str().expect("a path in UTF-8");
    let captures = ["a.pcapng", "b.pcapng"].map(|name| {
        let capture = scratch(name);
        let path = capture.to_str().expect("a path in UTF-8");
        let ran = exec(&[file, "--seed", "7", "--pcap", path]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.text.contains("1000 iters in"), "{ran:?}");
        let bytes = fs::read(&capture).expect("there is a capture");
        fs::remove_file(&capture).expect("it is ours");
        (ran.text, bytes)
    });
    assert_eq!(captures[0].0, captures[1].0);
    assert!(
        captures[0].1 == captures[1].1,
        "two captures of one seed differ"
    );
    // 2000 messages of 4 packets each, and what answers them.
    assert!(captures[0].1.len() > 2000 * 4096, "{}", captures[0].1.len());
    // What runs scenarios without programs says who runs those with.
    let mut other = urxe();
    other.args(["sim", "run", file]);
    let ran = run_within(other, LIMIT);
    assert!(
        ran.code != Some(0) && ran.text.contains("urxe sim exec"),
        "{ran:?}"
    );
    fs::remove_file(&scenario).expect("it is ours");
}

#[test]
fn connections_by_address_come_about() {
    for (server, client) in [("rdma_server", "rdma_client"), ("ucmatose", "ucmatose")] {
        if !is_there(server) {
            continue;
        }
        let scenario = scratch(&format!("{server}.toml"));
        let text = format!(
            "[topology]\nkind = \"single-switch\"\nhosts = 2\n\
             [[program]]\nhost = \"h0\"\ncommand = [\"{server}\"]\n\
             [[program]]\nhost = \"h1\"\ncommand = [\"{client}\", \"-s\", \"10.0.0.1\"]\n"
        );
        fs::write(&scenario, text).expect("a file");
        let file = scenario.to_str().expect("a path in UTF-8");
        let ran = exec(&[file, "--seeds", "5", "--twice"]);
        assert_eq!(ran.code, Some(0), "{server}: {ran:?}");
        let traces: BTreeSet<_> = traces(&ran.text).into_iter().collect();
        assert!(traces.len() > 1, "{server}: {ran:?}");
        let ran = exec(&[file]);
        fs::remove_file(&scenario).expect("it is ours");
        // Both say how it ended.
        let well = ["end 0", "return status 0"].map(|well| ran.text.matches(well).count());
        assert_eq!(well.iter().sum::<usize>(), 2, "{ran:?}");
    }
}

#[test]
fn clocks_and_streams_are_the_simulations() {
    let Some(program) = compile(PROGRAM, &["-lpthread"]) else {
        return;
    };
    let ran = exec(&["--seeds", "3", "--twice", "--", &program.binary, "talk"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = exec(&["--", &program.binary, "talk"]);
    assert!(ran.text.contains("from 10.0.0.2"), "{ran:?}");
    let ran = exec(&["--twice", "--", &program.binary, "epoll"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("all was told"), "{ran:?}");
    let refused = "asks for edges of streams (EPOLLET), which is not simulated";
    assert!(ran.text.contains(refused), "{ran:?}");
    let scenario = scratch("clock.toml");
    let text = format!(
        "[sim]\nuntil = \"4000s\"\n[topology]\nkind = \"single-switch\"\nhosts = 2\n\
         [[program]]\nhost = \"h0\"\ncommand = [\"{}\", \"clocks\"]\n",
        program.binary
    );
    fs::write(&scenario, text).expect("a file");
    let ran = exec(&[scenario.to_str().expect("a path in UTF-8"), "--twice"]);
    fs::remove_file(&scenario).expect("it is ours");
    assert!(
        ran.code == Some(0) && ran.text.contains("it is 10000"),
        "{ran:?}"
    );
}

/// How many processes run this binary.
fn running(binary: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("there is /proc");
    let links = processes.filter_map(|entry| fs::read_link(entry.ok()?.path().join("exe")).ok());
    links.filter(|link| link == Path::new(binary)).count()
}

#[test]
fn what_goes_wrong_is_told() {
    for (args, part) in [
        (&["--", "no-such-program"][..], "No such file"),
        (&["no-such-scenario.toml"], "no-such-scenario.toml"),
        (&["incast"], "no [[program]]"),
        (&[], "required"),
        (&["--", "true", "x"], "trace"),
    ] {
        let ran = exec(args);
        assert_eq!(ran.code == Some(0), part == "trace", "{args:?}: {ran:?}");
        assert!(ran.text.contains(part), "{args:?}: {ran:?}");
    }
    let Some(program) = compile(PROGRAM, &["-lpthread"]) else {
        return;
    };
    for (what, parts) in [
        ("status", &["ended with status 3"][..]),
        ("crash", &["ended by signal 11 (SIGSEGV)"]),
        ("spin", &["h0 does not come back", "was killed"]),
        ("wait", &["h0 waits for events of streams, for ever"]),
        (
            "thread",
            &[
                "ended with status 4",
                "starts a thread, which is not simulated",
            ],
        ),
        (
            "fork",
            &["ended with status 5", "forks, which is not simulated"],
        ),
        (
            "exec",
            &[
                "ended with status 6",
                "becomes another program (exec), which is not simulated",
            ],
        ),
    ] {
        let ran = exec(&["--patience", "8", "--", &program.binary, what]);
        assert!(ran.code != Some(0), "{what}: {ran:?}");
        assert_eq!(running(&program.binary), 0, "{what}: a process is left");
        for part in parts {
            assert!(ran.text.contains(part), "{what}: {ran:?}");
        }
    }
}

#[test]
fn each_seed_is_a_line_of_json() {
    let Some(program) = compile(PROGRAM, &["-lpthread"]) else {
        return;
    };
    let json = |args: &[&str]| -> (Option<i32>, Vec<serde_json::Value>) {
        let options = [&["--json"], args].concat();
        let ran = exec(&options);
        let lines = ran.text.lines().filter(|line| line.starts_with('{'));
        let values = lines.map(|line| serde_json::from_str(line).expect("JSON"));
        (ran.code, values.collect())
    };
    let (code, lines) = json(&["--seeds", "3", "--twice", "--", &program.binary, "talk"]);
    assert_eq!((code, lines.len()), (Some(0), 3));
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/JSON.md"))
        .expect("it is there");
    let row = document
        .lines()
        .find(|line| line.starts_with("| `urxe sim exec` |"));
    let row = row.expect("the document has it");
    for (seed, line) in (1..).zip(&lines) {
        assert_eq!(
            (&line["seed"], &line["is_same"]),
            (&seed.into(), &true.into())
        );
        let plain = exec(&["--seed", &seed.to_string(), "--", &program.binary, "talk"]);
        assert_eq!(
            traces(&plain.text),
            [line["trace"].as_str().expect("a text")]
        );
        assert!((0.001..10.0).contains(&line["end_s"].as_f64().expect("a number")));
        let [server, client] = &line["programs"].as_array().expect("a list")[..] else {
            panic!("{line}");
        };
        assert_eq!(
            (&server["host"], &client["host"]),
            (&"h0".into(), &"h1".into())
        );
        assert_eq!(client["command"][2], "10.0.0.1");
        assert_eq!(server["output"], "from 10.0.0.2\n");
        for object in [line, server] {
            for name in object.as_object().expect("fields").keys() {
                assert!(row.contains(&format!("`{name}`")), "no {name}");
            }
        }
    }
    // A program that fails is in it, and the command fails.
    let (code, lines) = json(&["--", &program.binary, "thread"]);
    assert_eq!((code, lines.len()), (Some(1), 1));
    let first = &lines[0]["programs"][0];
    assert_eq!(first["refused"][0], "starts a thread");
    assert_eq!(first["failure"], "ended with status 4");
    let failures = lines[0]["failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 2, "{lines:?}");
}
