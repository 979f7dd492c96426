//! `urxe sim`: scenarios, determinism, experiments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{project_file, run, urxe};

pub(crate) fn incast() -> PathBuf {
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

/// A folder that a test has for itself, gone when the test is.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("urxe-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("can be made");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of what is in it.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("reads").file_name();
        entries
            .map(|e| name(e).to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What a failed test leaves is in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_capture_is_what_wireshark_expects() {
    let folder = Folder::new("pcap");
    let pcap = folder.file("run.pcapng");
    let file = folder.file("short.toml");
    let text = fs::read_to_string(incast()).expect("is there");
    fs::write(
        &file,
        text.replace("count = 8", "count = 1").replace("4MB", "1MB"),
    )
    .expect("can be written");
    let sim = |args: &[&str]| run(urxe().args(["sim", "run"]).arg(&file).args(args));
    let plain = sim(&[]).expect_success().stdout;
    let with = sim(&["--pcap", &pcap.to_string_lossy()]).expect_success();
    assert_eq!(with.stdout, plain, "looking changes nothing");
    let mut names = folder.names();
    names.sort();
    assert_eq!(names, ["run.pcapng", "short.toml"]);
    // Our own opinion: every packet whole, every ICRC right.
    let ran = run(urxe().args(["decode", "--quiet"]).arg(&pcap)).expect_success();
    assert!(!ran.stdout.is_empty());
    // One from outside.
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!(
            "skipped: tshark is not installed (apt-get install tshark): the capture was not shown to it"
        );
        return;
    }
    // Wireshark guesses at protocols inside the payload: these guesses are switched off, as in tests/run.
    let known = tshark(&["-G", "heuristic-decodes"]);
    let guess = |line: &str| -> Option<String> {
        let mut words = line.split_whitespace();
        let is_guess = words.next() == Some("infiniband.payload");
        let name = words
            .next()
            .filter(|name| is_guess && *name != "ethertype")?;
        Some(format!("--disable-protocol={name}"))
    };
    let guesses: Vec<String> = known.lines().filter_map(guess).collect();
    let file = pcap.to_string_lossy();
    let count = |filter: &str| {
        let args = [
            "-r",
            &file,
            "-Y",
            filter,
            "-T",
            "fields",
            "-e",
            "frame.number",
        ];
        let mut args = args.to_vec();
        args.extend(guesses.iter().map(String::as_str));
        tshark(&args).lines().count()
    };
    let (all, roce, pfc) = (
        count("frame"),
        count("infiniband.bth"),
        count("macc.opcode == 0x0101"),
    );
    assert!(roce > 10_000 && pfc > 10, "{roce} {pfc}");
    assert_eq!(all, roce + pfc);
    assert_eq!(count("_ws.malformed"), 0);
    assert!(count("frame.comment contains \"stop class 3: \"") > 5);
    assert!(
        count("frame.comment contains \"marked (CE)\" and frame.interface_name == \"leaf3p4\"") > 5
    );
}

/// A table's columns by name, as text.
pub(crate) fn table(path: &Path) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(path).expect("was written");
    let mut lines = text.lines().map(|line| line.split(','));
    let names = lines.next().expect("a header");
    let mut columns: Vec<(String, Vec<String>)> =
        names.map(|name| (name.to_owned(), Vec::new())).collect();
    for mut line in lines {
        for (_, column) in &mut columns {
            column.push(line.next().expect("a field a column").to_owned());
        }
        assert_eq!(line.next(), None);
    }
    columns.into_iter().collect()
}

fn numbers(column: &[String]) -> impl Iterator<Item = f64> {
    column
        .iter()
        .map(|text| text.parse::<f64>().expect("a number"))
}

#[test]
fn tables_say_what_the_report_says() {
    let folder = Folder::new("csv");
    let csv = folder.file("tables");
    let mut command = urxe();
    command.args(["sim", "run", "--every", "20us", "--csv"]);
    let ran = run(command.arg(&csv).arg(incast())).expect_success();
    let flows = table(&csv.join("flows.csv"));
    assert_eq!(flows["from"].len(), 8);
    assert!(
        flows["arrived_bytes"]
            .iter()
            .all(|bytes| bytes == "2000000")
    );
    for (line, ms) in ran
        .stdout
        .lines()
        .skip(1)
        .zip(numbers(&flows["completion_us"]))
    {
        assert!(
            line.contains(&format!("complete after {} ms", ms / 1000.0)),
            "{line} {ms}"
        );
    }
    // Eight senders at 25 Gb/s share 25 Gb/s.
    assert!(numbers(&flows["slowdown"]).all(|times| (6.0..8.5).contains(&times)));
    let rates = table(&csv.join("rates.csv"));
    assert_eq!(numbers(&rates["bytes"]).sum::<f64>(), 8.0 * 2e6);
    let ports = table(&csv.join("ports.csv"));
    let last = ports["port"].iter().zip(numbers(&ports["rate_gbps"]));
    let busy = last
        .filter(|(port, rate)| *port == "leaf3>h15" && *rate > 24.5)
        .count();
    assert!(
        busy > 200,
        "the last cable is full nearly all the time: {busy}"
    );
    assert!(numbers(&ports["rate_gbps"]).all(|rate| rate <= 100.5));
    assert!(numbers(&ports["paused_us"]).all(|us| us <= 20.0));
    assert!(numbers(&ports["paused_us"]).sum::<f64>() > 100.0);
    assert!(numbers(&ports["time_us"]).all(|us| us % 20.0 == 0.0));

    let ran = run(urxe()
        .args(["sim", "run", "--every", "20 parsecs", "--csv"])
        .arg(&csv)
        .arg(incast()));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("--every: \"20 parsecs\" is not a time"),
        "{}",
        ran.stderr
    );
    let ran = run(urxe()
        .args(["sim", "run", "--csv", "/nonexistent/tables"])
        .arg(incast()));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("cannot write /nonexistent/tables: "),
        "{}",
        ran.stderr
    );
    // Of tables that cannot all be written, none is.
    let taken = folder.file("taken");
    fs::create_dir_all(taken.join("rates.csv")).expect("can be made");
    let ran = run(urxe()
        .args(["sim", "run", "--csv"])
        .arg(&taken)
        .arg(incast()));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("rates.csv: Is a directory"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read_dir(&taken).expect("is there").count(), 1);
}

fn tshark(args: &[&str]) -> String {
    let out = Command::new("tshark").args(args).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn output_that_cannot_be_written_is_told_and_leaves_nothing() {
    let folder = Folder::new("unwritable");
    let sim = |pcap: &str| {
        let ran = run(urxe().args(["sim", "run", "--pcap", pcap]).arg(incast()));
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        assert!(
            ran.stderr.contains(&format!("cannot write {pcap}: ")),
            "{}",
            ran.stderr
        );
        ran.stderr
    };
    let nowhere = folder.file("no/such/folder.pcapng");
    let said = sim(&nowhere.to_string_lossy());
    assert!(said.contains("No such file or directory"), "{said}");
    assert_eq!(folder.names(), Vec::<String>::new());
    // The whole file does not fit: none of it stays.
    let said = sim("/dev/full");
    assert!(said.contains("No space left on device"), "{said}");
    // A file that is there stays what it was when the run is not even begun.
    let old = folder.file("old.pcapng");
    fs::write(&old, "precious").expect("can be written");
    let ran = run(urxe()
        .args(["sim", "run", "/nonexistent.toml", "--pcap"])
        .arg(&old));
    assert_eq!(ran.code, Some(1));
    assert_eq!(fs::read_to_string(&old).expect("is there"), "precious");
    assert_eq!(folder.names(), ["old.pcapng"]);
}

#[test]
fn expectations_that_fail_are_a_failure_with_the_line_that_repeats_it() {
    let text = fs::read_to_string(incast()).expect("is there");
    let folder = Folder::new("hard");
    let file = folder.file("hard.toml");
    fs::write(&file, text.replace("jain_min = 0.9", "jain_min = 1.5")).expect("can be written");
    let ran = run(urxe().args(["sim", "run"]).arg(&file));
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

/// Those that come with the command need no source tree.
#[test]
fn scenarios_have_names() {
    let list = run(urxe().args(["sim", "scenarios"])).expect_success();
    let line = "incast: Eight hosts of three racks write to one of the fourth, all at once.\n";
    assert!(list.stdout.starts_with(line), "{}", list.stdout);
    let printed = run(urxe().args(["sim", "scenarios", "incast"])).expect_success();
    let file = fs::read_to_string(incast()).expect("can be read");
    assert_eq!(printed.stdout, file);
    let folder = Folder::new("names");
    let by = |scenario: &Path| {
        let mut command = urxe();
        command.args(["sim", "run"]).arg(scenario);
        run(command.current_dir(&folder.0)).expect_success().stdout
    };
    let named = by(Path::new("incast"));
    assert!(named.starts_with("seed 7: "), "{named}");
    assert_eq!(named, by(&incast()));
    // A file of that name is meant before.
    fs::write(folder.file("incast"), file.replace("seed = 7", "seed = 8")).expect("can be written");
    let other = by(Path::new("incast"));
    assert!(other.starts_with("seed 8: "), "{other}");
    let ran = run(urxe().args(["sim", "scenarios", "outcast"]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("there are incast, faults"),
        "{}",
        ran.stderr
    );
}

#[test]
fn files_that_are_missing_or_wrong_are_told() {
    let ran = run(urxe().args(["sim", "run", "/nonexistent.toml"]));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr
            .contains("cannot read /nonexistent.toml (and these come with urxe: incast,"),
        "{}",
        ran.stderr
    );
    let ran = run(urxe().args(["sim", "run"]).arg(project_file("Cargo.toml")));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("unknown field"), "{}", ran.stderr);
}
