//! `[[job]]` in scenarios.

use fabric_sim::observe::{Sampling, csv, observed};
use fabric_sim::scenario::{Report, Scenario};

const EXAMPLE: &str = include_str!("../../scenarios/jobs.toml");
const STAR: &str = "[topology]\nkind = \"single-switch\"\nhosts = 8\n";

fn run(text: &str) -> Report {
    let scenario = Scenario::parse(text).expect(text);
    scenario.run(scenario.seed()).expect(text)
}

#[test]
fn the_example_runs_as_it_expects_and_the_same_every_time() {
    let report = run(EXAMPLE);
    assert_eq!(report.failures, Vec::<String>::new());
    assert_eq!(run(EXAMPLE), report);
    let [training, search] = &report.jobs[..] else {
        panic!("{report}");
    };
    // Three times 14 steps of 8 ranks.
    assert_eq!(
        (training.name.as_str(), training.messages),
        ("training", 3 * 14 * 8)
    );
    assert!(training.bus_bandwidth.is_some() && training.buckets.is_empty());
    let counted: usize = search.buckets.iter().map(|bucket| bucket.count).sum();
    assert_eq!(counted as u64, search.messages);
    let rise = |slowdown: [f64; 3]| slowdown.is_sorted() && slowdown[0] >= 0.99;
    assert!(
        search.buckets.iter().all(|bucket| rise(bucket.slowdown)),
        "{report}"
    );
    let text = report.to_string();
    assert!(
        text.contains("job training") && text.contains("slowdown p50"),
        "{text}"
    );
}

#[test]
fn tables_have_each_job_and_each_message() {
    let scenario = Scenario::parse(EXAMPLE).expect("reads");
    let mut seen = None;
    let report = scenario.run_by(1, |sim, until| {
        seen = Some(observed(sim, until, Sampling::AtMost(10)));
    });
    let (report, seen) = (report.expect("runs"), seen.expect("was run"));
    let (mut jobs, mut messages) = (Vec::new(), Vec::new());
    csv::write_jobs(&mut jobs, &seen).expect("can be written");
    csv::write_messages(&mut messages, &seen).expect("can be written");
    let [jobs, messages] = [jobs, messages].map(|b| String::from_utf8(b).expect("is text"));
    assert_eq!(jobs.lines().count(), 3, "{jobs}");
    assert_eq!(messages.lines().count() as u64, report.jobs[1].messages + 1);
    assert!(
        jobs.contains("0,training,0,") && jobs.contains("1,search,0,"),
        "{jobs}"
    );
}

#[test]
fn files_are_given_as_texts() {
    let text = format!(
        "{STAR}[[job]]\nkind = \"matrix\"\nfile = \"two.cm\"\nhosts = \"h4..h7\"\n[expect]\ncomplete = true\n"
    );
    let scenario = Scenario::parse(&text).expect("reads");
    assert_eq!(scenario.files(), ["two.cm"]);
    let missing = scenario.run(1).expect_err("has no text").to_string();
    assert_eq!(
        missing,
        "line 6: job[0].file: the text of two.cm was not given"
    );
    let given = |matrix: &str| scenario.clone().with_text("two.cm", matrix).run(1);
    let report = given("Nodes 4\nConnections 1\n0->3 id 1 start 0 size 5000\n").expect("runs");
    assert_eq!((report.jobs[0].messages, report.failures.len()), (1, 0));
    let wrong = given("Nodes 4\n0->9 start 0 size 1\n")
        .expect_err("is none")
        .to_string();
    assert_eq!(
        wrong,
        "line 6: job[0].file: two.cm: line 2: \"9\" is no node: they are 0 to 3"
    );
    let large = given("Nodes 5\n").expect_err("is none").to_string();
    assert_eq!(
        large,
        "line 7: job[0].hosts: it has 5 nodes, and the job 4 hosts"
    );
}

#[test]
fn a_job_that_makes_no_sense_is_named_with_its_line() {
    for (job, error) in [
        ("kind = \"all-reduce\"\n", "missing field `size`"),
        (
            "kind = \"all-reduce\"\nsize = 8\nload = 1.0\n",
            "unknown field `load`",
        ),
        ("kind = \"dance\"\n", "unknown variant `dance`"),
        (
            "kind = \"all-reduce\"\nsize = 8\nalgorithm = \"waltz\"\n",
            "unknown variant `waltz`",
        ),
        (
            "kind = \"all-gather\"\nsize = 8\nalgorithm = \"tree\"\n",
            "line 5: job[0].kind: there is no such algorithm of this operation",
        ),
        (
            "kind = \"all-reduce\"\nsize = 8\nhosts = \"h0..h9\"\n",
            "line 7: job[0].hosts: \"h9\" is no host",
        ),
        (
            "kind = \"all-reduce\"\nsize = 8\nhosts = \"h3..h1\"\n",
            "line 7: job[0].hosts: h3..h1: the last is before the first",
        ),
        (
            "kind = \"all-reduce\"\nsize = 8\nhosts = [\"h3\", \"h1..h4\"]\n",
            "line 7: job[0].hosts: a host is named twice",
        ),
        (
            "kind = \"all-reduce\"\nsize = 8\nhosts = [\"h3\"]\n",
            "line 5: job[0].kind: a collective needs two hosts",
        ),
        (
            "kind = \"all-reduce\"\nsize = 8\nrepeat = 0\n",
            "0: 1 to 10000",
        ),
        (
            "kind = \"all-to-all\"\n",
            "line 4: job[0].size: an all-to-all has a size, or lengths",
        ),
        (
            "kind = \"arrivals\"\nload = 0.0\nsizes = \"1KB\"\nstop = \"1ms\"\n",
            "a load is above 0, and at most 2",
        ),
        (
            "kind = \"arrivals\"\nload = 0.5\nsizes = \"0\"\nstop = \"1ms\"\n",
            "line 7: job[0].sizes: messages have 1 byte to 2 GiB",
        ),
        (
            "kind = \"arrivals\"\nload = 0.5\nsizes = \"my.cdf\"\nstop = \"1ms\"\n",
            "line 7: job[0].sizes: the text of my.cdf was not given",
        ),
        (
            "kind = \"arrivals\"\nload = 0.5\nsizes = \"1KB\"\nstop = \"1ms\"\nto = \"h3\"\n",
            "line 9: job[0].to: h3 has no other host to send to",
        ),
    ] {
        let text = format!("{STAR}[[job]]\n{job}");
        let built = Scenario::parse(&text).and_then(|scenario| scenario.build(1).map(drop));
        let found = built.expect_err(job).to_string();
        assert!(found.contains(error), "{job}: {found}");
    }
}

#[test]
fn a_job_that_does_not_end_says_what_it_waits_for() {
    let text = format!(
        "[sim]\nuntil = \"10us\"\n{STAR}[[job]]\nkind = \"all-reduce\"\nsize = \"8MB\"\n[expect]\ncompletion_max = \"1s\"\n"
    );
    let report = run(&text);
    let failure = report.jobs[0].failure.as_deref().unwrap_or_default();
    assert!(
        failure.starts_with("rank ") && failure.ends_with(" of 14"),
        "{failure}"
    );
    assert!(
        report.failures[0].starts_with("complete: false"),
        "{:?}",
        report.failures
    );
}
