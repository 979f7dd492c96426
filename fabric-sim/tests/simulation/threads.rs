//! A run on several threads is the run on one: each event, each byte, each number of the report.

use fabric_sim::host::StreamSpec;
use fabric_sim::observe::captured;
use fabric_sim::scenario::{Report, Scenario};
use fabric_sim::{HostId, Sim, Span, Time};

/// Hosts behind leaves and spines; each writes to the one half way round.
pub(crate) const HEAD: &str = r#"
[sim]
until = "400us"
[topology]
kind = "leaf-spine"
leaves = 4
spines = 2
hosts_per_switch = 4
rate = "25Gbps"
cable = "100m"
uplink_rate = "50Gbps"
uplink_cable = "200m"
"#;

pub(crate) const TREE: &str = r#"
[sim]
until = "400us"
[topology]
kind = "fat-tree"
k = 4
rate = "100Gbps"
cable = "50m"
"#;

pub(crate) fn flow(op: &str, from: usize, to: usize, more: &str) -> String {
    format!("[[flow]]\nop = \"{op}\"\nfrom = \"h{from}\"\nto = \"h{to}\"\n{more}\n")
}

pub(crate) fn permutation(op: &str, more: &str) -> String {
    (0..16).map(|h| flow(op, h, (h + 9) % 16, more)).collect()
}

fn incast(op: &str, more: &str) -> String {
    (1..16).map(|h| flow(op, h, 0, more)).collect()
}

/// Runs a scenario on so many threads.
pub(crate) fn run(text: &str, seed: u64, threads: usize) -> (Report, u64) {
    let scenario = Scenario::parse(text).expect("a scenario");
    let scenario = scenario.with_text(
        "two.cm",
        "Nodes 4\nConnections 1\n0->3 id 1 start 0 size 5000\n",
    );
    let mut windows = 0;
    let report = scenario.run_by(seed, |sim, until| {
        sim.set_threads(threads);
        sim.run_until(until);
        windows = sim.work().windows;
    });
    (report.expect("runs"), windows)
}

/// The report of a scenario is the same on 1, 2 and 3 threads.
pub(crate) fn same(text: &str) -> Report {
    same_beyond(text, 100)
}

/// The same of one that may be shorter: it has more than so many windows.
pub(crate) fn same_beyond(text: &str, few: u64) -> Report {
    let mut last = None;
    for seed in [1, 77] {
        let (one, windows) = run(text, seed, 1);
        assert_eq!((windows, one.alone), (0, None));
        assert!(one.events > 5_000, "{one}");
        for threads in [2, 3] {
            let (many, windows) = run(text, seed, threads);
            assert_eq!(many.alone, None);
            assert!(windows > few, "{windows} windows");
            assert_eq!(one, many, "seed {seed}, {threads} threads");
            assert_eq!(one.to_string(), many.to_string());
        }
        last = Some(one);
    }
    last.expect("there are seeds")
}

#[test]
fn a_permutation_of_the_transport() {
    let flows = permutation("write", "size = \"100KB\"\ncount = 4\ndepth = 2");
    let report = same(&format!("{TREE}{flows}"));
    assert!(report.flows.iter().all(|flow| flow.completion.is_some()));
}

#[test]
fn all_operations_in_bytes_and_lite() {
    let flows = [
        permutation("read", "size = \"30KB\"\ncount = 5\ndepth = 2"),
        permutation(
            "send",
            "size = \"9KB\"\ncount = 9\ndepth = 4\nreceives = 2\nrepost = \"3us\"",
        ),
        permutation("fetch-add", "count = 20\ndepth = 4"),
    ];
    let text = format!("{HEAD}{}", flows.concat());
    let bytes = same(&text);
    let lite = same(&text.replace("[sim]", "[sim]\nmode = \"lite\""));
    assert_eq!(bytes.trace, lite.trace);
}

#[test]
fn an_incast_with_pauses() {
    let head = format!("{HEAD}[switch]\nbuffer = \"1MB\"\nthreshold = \"20KB\"\n");
    let report = same(&format!(
        "{head}{}",
        incast("write", "size = \"200KB\"\ncount = 2")
    ));
    assert!(!report.pauses.is_empty(), "{report}");
    // One switch: some hosts are in other parts than their switch.
    let star = "[sim]\nuntil = \"400us\"\n[topology]\nkind = \"single-switch\"\nhosts = 16\ncable = \"100m\"\n";
    same(&format!("{star}{}", incast("write", "size = \"100KB\"")));
}

#[test]
fn flows_that_arrive_at_random() {
    let more = "rate = \"9Gbps\"\narrivals = \"poisson\"\nmtu = 1024";
    let head = format!(
        "{HEAD}[switch]\nbuffer = \"100KB\"\n[qos]\nflow_control = \"none\"\nlossless = []\n"
    );
    let report = same(&format!(
        "{head}{}{}",
        permutation("frames", more),
        incast("frames", more)
    ));
    assert!(report.drops.iter().any(|&(_, count)| count > 0), "{report}");
}

#[test]
fn credits_and_paced_flows() {
    let head = format!("{HEAD}[qos]\nflow_control = \"credits\"\n");
    let flows = [
        permutation("frames", "rate = \"7Gbps\"\narrivals = \"paced\""),
        incast("frames", "size = \"300KB\""),
    ];
    same(&format!("{head}{}", flows.concat()));
}

#[test]
fn dcqcn_marks_and_notices() {
    let head = format!(
        "{HEAD}[switch]\necn = {{ kmin = \"5KB\", kmax = \"100KB\", pmax = 0.1 }}\n[host]\ncc = \"dcqcn\"\n"
    );
    let report = same(&format!(
        "{head}{}",
        incast("write", "size = \"100KB\"\ncount = 9\ndepth = 2")
    ));
    assert!(report.marks.to_string().contains("cnp"), "{report}");
}

#[test]
fn a_storm_of_pauses_and_faults_of_nodes() {
    let head = format!(
        "{HEAD}[switch]\nbuffer = \"1MB\"\nwatchdog = {{ detect = \"50us\", restore = \"50us\", action = \"drop\" }}\n[host]\ntimeout = 3\n"
    );
    let faults = r#"
[[fault]]
kind = "pause-storm"
host = "h9"
from = "20us"
to = "350us"
[[fault]]
kind = "link-down"
link = "leaf0-spine0"
from = "100us"
to = "250us"
reroute = "20us"
[[fault]]
kind = "crash"
host = "h5"
from = "150us"
to = "300us"
[[fault]]
kind = "slow-receiver"
host = "h2"
rate = "2Gbps"
from = "50us"
to = "200us"
[checks]
skip = ["progress"]
"#;
    let flows = permutation("write", "size = \"100KB\"\ncount = 40\ndepth = 2");
    let report = same(&format!("{head}{flows}{faults}"));
    assert!(report.marks.to_string().contains("watchdog"), "{report}");
}

#[test]
fn losses_that_are_made_good_one_by_one() {
    let head = format!(
        "{HEAD}[switch]\nbuffer = \"300KB\"\n[qos]\nflow_control = \"none\"\nlossless = []\n[host]\nrecovery = \"selective\"\ntimeout = 8\nplanes = \"hash\"\n"
    );
    let flows = incast("write", "size = \"400KB\"\ncount = 2");
    let report = same(&format!("{head}{flows}"));
    assert!(report.drops.iter().any(|&(_, count)| count > 0), "{report}");
}

#[test]
fn planes_spraying_and_steered_connections() {
    let two = HEAD.replace("leaves = 4", "planes = 2\nleaves = 4");
    let more = "size = \"60KB\"\ncount = 6\ndepth = 2";
    for (balance, cc) in [
        ("spray", "swift:10us"),
        ("adaptive", "timely:50us"),
        ("flowlets", "rccc"),
        ("rotate", "nscc"),
    ] {
        let text = format!(
            "{two}[switch]\nbalance = \"{balance}\"\necn = {{ kmin = \"9KB\", kmax = \"90KB\", pmax = 0.5 }}\n[host]\nplanes = \"spray\"\ncc = \"{cc}\"\nrecovery = \"selective\"\n{}",
            permutation("write", more)
        );
        same(&text);
    }
}

/// A run that is looked at in between goes on as one that is not.
#[test]
fn pieces_of_a_run() {
    let text = format!("{TREE}{}", permutation("write", "size = \"300KB\""));
    let scenario = Scenario::parse(&text).expect("a scenario");
    let pieces = |threads: &[usize]| {
        let mut sim = scenario.build(3).expect("builds");
        for (step, &threads) in (1..).zip(threads) {
            sim.set_threads(threads);
            sim.run_until(Time::ZERO + Span::from_us(7 * step));
            sim.fabric().check_books().expect("books");
        }
        sim.set_threads(1);
        sim.run_until(Time::ZERO + Span::from_us(400));
        scenario.conclude(&mut sim)
    };
    assert_eq!(pieces(&[1, 1, 1, 1]), pieces(&[2, 3, 1, 4]));
}

/// What is broken is told as on one thread: the same violations, in the same order.
#[test]
fn violations_are_told_alike() {
    let violations = |threads| {
        let text = format!("{HEAD}{}", incast("frames", "size = \"300KB\""));
        let text = text.replace("[topology]", "[qos]\nlossless = [3]\n[switch]\nbuffer = \"2MB\"\nheadroom = \"0B\"\nthreshold = \"9KB\"\n[topology]");
        let report = run(&text, 5, threads).0;
        assert!(!report.failures.is_empty(), "{report}");
        report.failures
    };
    assert_eq!(violations(1), violations(2));
    assert_eq!(violations(1), violations(4));
}

#[test]
fn what_cannot_be_divided_says_so() {
    let flows = permutation("write", "size = \"20KB\"");
    let job = "[[job]]\nkind = \"matrix\"\nfile = \"two.cm\"\n";
    let loss = "[[fault]]\nkind = \"loss\"\np = 0.01\n";
    let bits = HEAD.replace(
        "rate = \"25Gbps\"",
        "rate = \"25Gbps\"\nbit_error_rate = 1e-9",
    );
    for (text, reason) in [
        (format!("{HEAD}{flows}{job}"), "jobs"),
        (format!("{HEAD}{flows}{loss}"), "faults of frames"),
        (format!("{bits}{flows}"), "bit errors"),
        (format!("{HEAD}[host]\ncc = \"hpcc\"\n{flows}"), "telemetry"),
        (
            HEAD.replace("100m", "0m").replace("200m", "0m") + &flows,
            "no cable",
        ),
    ] {
        let (report, windows) = run(&text, 1, 2);
        let told = report.alone.expect(&text);
        assert!(told.contains(reason), "{told}");
        assert_eq!(windows, 0);
        assert!(report.to_string().contains("on one thread: "), "{report}");
        let one = run(&text, 1, 1).0;
        assert_eq!(one.alone, None);
        assert_eq!(
            one,
            Report {
                alone: None,
                ..report
            }
        );
    }
}

/// A capture is of all frames in their order; it is the same file as on one thread.
#[test]
fn captures_are_equal() {
    let capture = |threads| {
        let text = format!("{TREE}{}", permutation("write", "size = \"20KB\""));
        let mut sim = Scenario::parse(&text)
            .expect("a scenario")
            .build(2)
            .expect("builds");
        sim.set_threads(threads);
        let bytes = captured(&mut sim, Vec::new(), "", Sim::run).expect("memory");
        (bytes, sim.alone())
    };
    let (one, many) = (capture(1), capture(2));
    assert!(one.0 == many.0 && many.1.is_some() && one.1.is_none());
}

/// Violations of what verbs promise come from two hosts, which may be in two parts.
#[test]
fn checks_of_messages_reach_the_other_part() {
    let text = format!("{TREE}{}", permutation("write", "size = \"20KB\""));
    let scenario = Scenario::parse(&text).expect("a scenario");
    let mut sim = scenario.build(2).expect("builds");
    sim.set_threads(2);
    sim.run();
    assert_eq!(sim.verdict(), Ok(()));
    // Also when the parts were put together and divided again, with requests under way.
    let stream = StreamSpec::write(HostId(0), HostId(9), 100_000);
    let stream = sim.add_stream(stream).expect("connects");
    sim.run_for(Span::from_us(3));
    sim.run_for(Span::from_us(3));
    sim.run();
    assert!(sim.stream(stream).is_complete());
    assert_eq!(sim.verdict(), Ok(()));
}
