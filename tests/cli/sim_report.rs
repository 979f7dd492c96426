//! `urxe sim report`: the page in a real browser says what the tables say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{run, urxe};
use crate::sim::{Folder, incast, table};

/// A browser that can be asked for its view of a page, if there is one.
fn browser() -> Option<&'static str> {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let found = known.into_iter().find(is_there);
    if found.is_none() {
        eprintln!(
            "skipped: no chromium is installed (apt-get install chromium): the page was not opened"
        );
    }
    found
}

/// What a browser makes of a page, at a sample.
fn opened(browser: &str, folder: &Folder, page: &Path, sample: usize) -> String {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    command.args(["--enable-logging=stderr", "--dump-dom"]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.file("browser").display()
    ));
    command.arg(format!("file://{}#sample={sample}", page.display()));
    let ran = run(&mut command).expect_success();
    let said: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|l| l.contains("CONSOLE"))
        .collect();
    assert!(said.is_empty(), "the browser's console: {said:?}");
    let body = element(&ran.stdout, "<body");
    assert_eq!(attribute(body, "data-error"), None, "{body}");
    assert_eq!(attribute(body, "data-ready").as_deref(), Some("true"));
    assert_eq!(attribute(body, "data-sample"), Some(sample.to_string()));
    ran.stdout
}

/// The first tag that begins so.
fn element<'a>(dom: &'a str, begin: &str) -> &'a str {
    let rest = &dom[dom.find(begin).expect("is there")..];
    &rest[..rest.find('>').expect("ends")]
}

/// All tags of a kind that have an attribute, by its value.
fn elements(dom: &str, kind: &str, by: &str) -> BTreeMap<String, String> {
    let tags = dom.split(kind).skip(1);
    let tags = tags.map(|rest| {
        // Names hold '>', which some browsers write as it is: a tag ends outside of quotes.
        let mut is_quoted = false;
        let end = rest.find(|c| {
            is_quoted ^= c == '"';
            c == '>' && !is_quoted
        });
        &rest[..end.unwrap_or(rest.len())]
    });
    let named = tags.filter_map(|tag| Some((attribute(tag, by)?, tag.to_owned())));
    named.collect()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("&gt;", ">").replace("&amp;", "&"))
}

fn number(tag: &str, name: &str) -> f64 {
    let text = attribute(tag, name).unwrap_or_else(|| panic!("{name} of {tag}"));
    text.parse().expect("a number")
}

/// What the tables say of each sample: by port its queue, and whether it was paused.
fn told(csv: &Path, interval: f64) -> Vec<BTreeMap<String, (f64, bool)>> {
    let ports = table(&csv.join("ports.csv"));
    let number = |column: &str, row: usize| ports[column][row].parse::<f64>().expect("a number");
    let mut samples = Vec::new();
    for (row, port) in ports["port"].iter().enumerate() {
        let sample = (number("time_us", row) / interval).round() as usize;
        if samples.len() <= sample {
            samples.resize_with(sample + 1, BTreeMap::new);
        }
        let entry: &mut (f64, bool) = samples[sample].entry(port.clone()).or_default();
        entry.0 += number("queue_bytes", row);
        entry.1 |= number("paused_us", row) > 0.0;
    }
    samples
}

/// Bytes in the queues of each switch in a sample.
fn held(sample: &BTreeMap<String, (f64, bool)>) -> BTreeMap<&str, f64> {
    let mut held = BTreeMap::new();
    for (port, (queue, _)) in sample {
        let (node, _) = port.split_once('>').expect("from>to");
        *held.entry(node).or_default() += queue;
    }
    held
}

/// Runs a scenario for the tables and for the page, and compares them at some samples.
fn compare(folder: &Folder, scenario: &Path, ports: usize) {
    let (csv, page) = (folder.file("tables"), folder.file("page.html"));
    let mut command = urxe();
    command.args(["sim", "run", "--every", "20us", "--csv"]);
    run(command.arg(&csv).arg(scenario)).expect_success();
    let mut command = urxe();
    command.args(["sim", "report", "--every", "20us", "-o"]);
    run(command.arg(&page).arg(scenario)).expect_success();
    let text = fs::read_to_string(&page).expect("was written");
    let outside = text.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("http://") && !outside.contains("https://"));
    let Some(browser) = browser() else { return };

    let samples = told(&csv, 20.0);
    let switches = |sample: &BTreeMap<String, (f64, bool)>| -> f64 {
        let held = held(sample);
        let held = held.iter().filter(|(node, _)| !node.starts_with('h'));
        held.map(|(_, bytes)| *bytes).fold(0.0, f64::max)
    };
    let most = samples.iter().map(switches).fold(0.0, f64::max);
    let paused = |s: &BTreeMap<String, (f64, bool)>| s.values().filter(|v| v.1).count();
    let worst = (0..samples.len()).max_by_key(|&s| paused(&samples[s]));
    let worst = worst.expect("there are samples");
    assert!(paused(&samples[worst]) >= 8, "{}", paused(&samples[worst]));
    for at in [0, worst] {
        let dom = opened(browser, folder, &page, at);
        let drawn = elements(&dom, "<path ", "data-port");
        assert_eq!(drawn.len(), ports);
        for (port, tag) in &drawn {
            let expected = samples[at].get(port).is_some_and(|v| v.1);
            let class = attribute(tag, "class").expect("has one");
            assert_eq!(class == "port paused", expected, "{port} at {at}: {tag}");
        }
        let words = format!(
            "{} of {ports} sending sides are paused",
            paused(&samples[at])
        );
        assert!(dom.contains(&words), "{words}");
        let held = held(&samples[at]);
        let levels = elements(&dom, "<rect ", "data-switch");
        for (switch, tag) in &levels {
            let bytes = held.get(switch.as_str()).copied().unwrap_or(0.0);
            assert_eq!(number(tag, "data-bytes"), bytes, "{switch} at {at}");
            let height = number(tag, "height");
            assert!(
                (height - 44.0 * bytes / most).abs() < 0.01,
                "{tag}: {bytes} of {most}"
            );
        }
        assert!(levels.len() >= 6);
        // A row for each flow, and each that was paused has its bars.
        let flows = table(&csv.join("flows.csv"))["flow"].len();
        assert!(dom.contains(&format!("{flows} of {flows} flows are complete.")));
        let bars = elements(&dom, "<rect ", "data-port");
        let ever = |port: &String| samples.iter().any(|s| s.get(port).is_some_and(|v| v.1));
        assert_eq!(bars.len(), drawn.keys().filter(|port| ever(port)).count());
    }
}

#[test]
fn the_page_says_what_the_tables_say() {
    let folder = Folder::new("report");
    compare(&folder, &incast(), 48);
}

#[test]
fn a_large_network_is_drawn_as_well() {
    let folder = Folder::new("large");
    let file = folder.file("large.toml");
    let text = "[sim]\nmode = \"lite\"\n[topology]\nkind = \"leaf-spine\"\nleaves = 8\nspines = 4\n\
        hosts_per_switch = 16\nrate = \"25Gbps\"\nuplink_rate = \"100Gbps\"\n\
        [switch]\nbuffer = \"4MB\"\nalpha = 0.5\n[host]\nwindow = \"1MiB\"\n\
        [[flow]]\nop = \"write\"\nfrom = \"all\"\nto = \"h127\"\nsize = \"100KB\"\n";
    fs::write(&file, text).expect("can be written");
    compare(&folder, &file, 320);
}

#[test]
fn a_page_of_a_run_that_failed_says_so_and_of_nothing_says_nothing() {
    let folder = Folder::new("failed");
    let (file, page) = (folder.file("<b>&.toml"), folder.file("page.html"));
    let text = fs::read_to_string(incast()).expect("is there");
    fs::write(&file, text.replace("jain_min = 0.9", "jain_min = 1.5")).expect("can be written");
    let ran = run(urxe().args(["sim", "report", "-o"]).arg(&page).arg(&file));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("not as expected: Jain's"),
        "{}",
        ran.stdout
    );
    let text = fs::read_to_string(&page).expect("was written nevertheless");
    assert!(text.contains("<h1>&lt;b&gt;&amp;.toml, seed 7</h1>"));
    assert!(text.contains("\"failures\":[\"Jain's fairness index is "));
    // The comment that the file begins with, and no other.
    let about =
        "<p id=\"about\">Eight hosts of three racks write to one of the fourth, all at once.</p>";
    assert!(text.contains(about));

    let quiet = "[topology]\nkind = \"single-switch\"\nhosts = 4\n";
    fs::write(&file, quiet).expect("can be written");
    run(urxe().args(["sim", "report", "-o"]).arg(&page).arg(&file)).expect_success();
    let text = fs::read_to_string(&page).expect("was written");
    assert!(text.contains("\"samples\":0"));

    let nowhere = folder.file("no/page.html");
    let ran = run(urxe()
        .args(["sim", "report", "-o"])
        .arg(&nowhere)
        .arg(&file));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let expected = format!("cannot write {}: No such file", nowhere.display());
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    let ran = run(urxe()
        .args(["sim", "report", "-o", "/dev/full"])
        .arg(incast()));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("cannot write /dev/full: No space left"),
        "{}",
        ran.stderr
    );
}
