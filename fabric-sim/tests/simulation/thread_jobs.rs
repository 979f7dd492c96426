//! Jobs on several threads: the run is that on one, whichever part their hosts are in.

use fabric_sim::host::Message;
use fabric_sim::observe::{Sampling, csv, observed};
use fabric_sim::scenario::{Report, Scenario};
use fabric_sim::{Span, Time};

use crate::threads::{HEAD, TREE, permutation, run, same, same_beyond};

fn job(kind: &str, more: &str) -> String {
    format!("[[job]]\nkind = \"{kind}\"\n{more}\n")
}

fn arrivals(load: f64, more: &str) -> String {
    let more = format!("load = {load}\nstop = \"200us\"\n{more}");
    job("arrivals", &more)
}

fn is_complete(report: &Report) -> bool {
    let mut jobs = report.jobs.iter();
    !report.jobs.is_empty() && jobs.all(|job| job.completion.is_some() && job.failure.is_none())
}

#[test]
fn messages_that_arrive_at_random() {
    let mixed = arrivals(0.4, "sizes = \"hadoop\"");
    let report = same(&format!("{TREE}{mixed}"));
    assert!(report.jobs[0].messages > 50, "{report}");
    // To some hosts, several at a time: connections are begun all the time.
    let report = same(&format!(
        "{HEAD}{}",
        arrivals(0.8, "sizes = \"20KB\"\nto = \"h0..h3\"")
    ));
    assert!(report.jobs[0].buckets[0].count > 20, "{report}");
    let text = format!("{TREE}{}", arrivals(0.3, "sizes = \"20KB\""));
    let bytes = same(&text);
    let lite = same(&text.replace("[sim]", "[sim]\nmode = \"lite\""));
    assert_eq!(bytes.trace, lite.trace);
    assert!(is_complete(&bytes), "{bytes}");
}

#[test]
fn every_collective() {
    for (kind, algorithms) in [
        (
            "all-reduce",
            &["ring", "tree", "halving-doubling", "recursive-doubling"][..],
        ),
        ("all-gather", &["ring", "recursive-doubling"]),
        ("reduce-scatter", &["ring", "halving"]),
        ("all-to-all", &[""]),
        ("broadcast", &[""]),
    ] {
        for algorithm in algorithms {
            // A step of a tree, and a step of a broadcast, is of the whole length.
            let (size, repeat) = match *algorithm {
                "tree" => (30, 2),
                "" | "recursive-doubling" => (40, 3),
                _ => (64, 4),
            };
            let mut more = format!("size = \"{size}KB\"\nrepeat = {repeat}\ncompute = \"5us\"\n");
            if !algorithm.is_empty() {
                more.push_str(&format!("algorithm = \"{algorithm}\"\n"));
            }
            for head in [HEAD, TREE] {
                let head = head.replace("400us", "1200us");
                let report = same_beyond(&format!("{head}{}", job(kind, &more)), 50);
                assert!(is_complete(&report), "{kind} {algorithm}: {report}");
            }
        }
    }
}

#[test]
fn lengths_of_pairs() {
    let rows = (0..16).map(|from| {
        let row = (0..16).map(|to| format!("{}", (from * 7 + to * 3) % 5 * 1500));
        format!("[{}]", row.collect::<Vec<_>>().join(", "))
    });
    let lengths = format!(
        "repeat = 3\nlengths = [{}]",
        rows.collect::<Vec<_>>().join(", ")
    );
    let report = same(&format!("{HEAD}{}", job("all-to-all", &lengths)));
    assert!(is_complete(&report), "{report}");
}

/// Jobs that begin at other times, on hosts of one part and of several, beside each other and beside flows.
#[test]
fn several_jobs_and_flows() {
    let jobs = [
        job(
            "all-reduce",
            "size = \"200KB\"\nhosts = \"h0..h7\"\nrepeat = 2",
        ),
        job(
            "all-reduce",
            "size = \"200KB\"\nhosts = [\"h15\", \"h0\", \"h9\", \"h4\"]\nalgorithm = \"tree\"\nstart = \"30us\"",
        ),
        arrivals(0.2, "sizes = \"20KB\""),
        arrivals(
            0.2,
            "sizes = \"9KB\"\nhosts = \"h8..h15\"\nstart = \"77us\"",
        ),
        job(
            "all-to-all",
            "size = \"100KB\"\nstart = \"77us\"\ncc = \"dcqcn\"",
        ),
        permutation("write", "size = \"50KB\"\ncount = 2"),
    ];
    let report = same(&format!("{TREE}{}", jobs.concat()));
    assert!(is_complete(&report), "{report}");
}

#[test]
fn faults_that_do_not_look_at_single_frames() {
    let faults = r#"
[[fault]]
kind = "link-down"
link = "leaf0-spine0"
from = "40us"
to = "100us"
reroute = "20us"
[[fault]]
kind = "slow-receiver"
host = "h2"
rate = "2Gbps"
from = "50us"
to = "120us"
[[fault]]
kind = "pause-storm"
host = "h9"
from = "20us"
to = "90us"
[[fault]]
kind = "crash"
host = "h5"
from = "60us"
to = "110us"
[checks]
skip = ["progress"]
"#;
    let head = format!("{HEAD}[host]\ntimeout = 3\nretry_cnt = 3\n");
    let jobs = [
        arrivals(0.5, "sizes = \"hadoop\""),
        job(
            "all-reduce",
            "size = \"900KB\"\nhosts = \"h8..h15\"\nrepeat = 2",
        ),
        job("all-gather", "size = \"300KB\"\nstart = \"10us\""),
    ];
    let report = same(&format!("{head}{}{faults}", jobs.concat()));
    // What a host that crashed had under way is lost.
    assert!(report.jobs[0].failure.is_some(), "{report}");
    assert!(report.marks.to_string().contains("crash"), "{report}");
    let without = faults.replace(
        "kind = \"crash\"\nhost = \"h5\"",
        "kind = \"slow-receiver\"\nhost = \"h5\"\nrate = \"1Gbps\"",
    );
    assert_ne!(without, faults);
    same(&format!("{head}{}{without}", jobs.concat()));
}

#[test]
fn losses_steering_and_several_planes() {
    let lossy = "[switch]\nbuffer = \"100KB\"\n[qos]\nflow_control = \"none\"\nlossless = []\n[host]\nrecovery = \"selective\"\ntimeout = 6\n";
    let jobs = [
        arrivals(0.6, "sizes = \"60KB\"\nto = \"h0..h3\""),
        job("all-reduce", "size = \"600KB\""),
    ];
    let report = same(&format!("{HEAD}{lossy}{}", jobs.concat()));
    assert!(report.drops.iter().any(|&(_, count)| count > 0), "{report}");
    let two = HEAD.replace("leaves = 4", "planes = 2\nleaves = 4");
    for cc in ["swift:10us", "timely:50us", "rccc", "nscc", "dcqcn"] {
        let host = format!(
            "[switch]\nbalance = \"adaptive\"\necn = {{ kmin = \"9KB\", kmax = \"90KB\", pmax = 0.5 }}\n[host]\nplanes = \"spray\"\ncc = \"{cc}\"\nrecovery = \"selective\"\n"
        );
        let report = same(&format!("{two}{host}{}", jobs.concat()));
        assert!(report.jobs[0].messages > 20, "{report}");
    }
}

/// The messages one by one, in their order, and the tables that are made of them.
#[test]
fn each_message_is_the_same() {
    let jobs = [
        arrivals(0.5, "sizes = \"hadoop\""),
        job("all-reduce", "size = \"64KB\""),
    ];
    let text = format!("{TREE}{}", jobs.concat());
    let scenario = Scenario::parse(&text).expect("a scenario");
    let messages = |threads: usize| -> Vec<Message> {
        let mut sim = scenario.build(4).expect("builds");
        sim.set_threads(threads);
        for step in 1..=8 {
            sim.run_until(Time::ZERO + Span::from_us(50 * step));
        }
        assert_eq!(sim.alone(), None);
        sim.jobs()[0].messages.clone()
    };
    let one = messages(1);
    assert!(one.len() > 50, "{} messages", one.len());
    assert!(one.is_sorted_by_key(|message| (message.start + message.took, message.from)));
    assert_eq!(one, messages(2));
    assert_eq!(one, messages(3));
    let mut sim = scenario.build(4).expect("builds");
    let seen = observed(
        &mut sim,
        Time::ZERO + Span::from_us(400),
        Sampling::AtMost(9),
    );
    let mut table = Vec::new();
    csv::write_messages(&mut table, &seen).expect("memory");
    let lines = String::from_utf8(table).expect("is text").lines().count();
    assert_eq!(lines, one.len() + 1);
}

/// A job that begins at the very end of a run, or after it, and one that is added between two runs.
#[test]
fn beginnings_at_any_time() {
    for start in ["400us", "399999ns", "500us"] {
        let jobs = [
            job(
                "all-reduce",
                &format!("size = \"9KB\"\nstart = \"{start}\""),
            ),
            arrivals(0.5, "sizes = \"64KB\""),
        ];
        let report = same(&format!("{TREE}{}", jobs.concat()));
        assert_eq!(report.jobs[0].completion, None);
    }
    let text = format!("{TREE}{}", job("broadcast", "size = \"9KB\""));
    let (one, _) = run(&text, 3, 1);
    assert_eq!(one, run(&text, 3, 5).0);
}
