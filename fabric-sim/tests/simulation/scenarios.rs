//! Scenarios as users write them: outages, latency, what cannot be.

use fabric_sim::scenario::{Scenario, Setting};
use fabric_sim::switch::headroom::required;
use fabric_sim::{Link, Rate, Sim, Span, Time};

fn scenario(text: &str, settings: &[&str]) -> Scenario {
    let settings: Vec<Setting> = settings.iter().map(|s| s.parse().expect(s)).collect();
    let read = Scenario::parse(text).expect("a scenario");
    read.with(&settings).expect("settings")
}

/// Bytes of a stream that arrived between two times.
fn progress(sim: &mut Sim, stream: usize, from: Span, to: Span) -> u64 {
    let id = fabric_sim::host::StreamId(stream as u32);
    sim.run_until(Time::ZERO + from);
    let before = sim.stream_bytes(id);
    sim.run_until(Time::ZERO + to);
    sim.stream_bytes(id) - before
}

/// `h0` writes to a host behind the spines and to its neighbour on the same leaf; one uplink goes down for 10 ms, and routes change.
const OUTAGE: &str = r#"
[sim]
until = "20ms"
mode = "lite"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_switch = 2
rate = "25Gbps"
[switch]
buffer = "2MB"
threshold = "100KB"
[host]
window = "4MB"
[[flow]]
op = "write"
from = "h0"
to = "h2"
size = "1MB"
count = 100
depth = 8
[[flow]]
op = "write"
from = "h0"
to = "h1"
size = "1MB"
count = 100
depth = 8
[[fault]]
kind = "link-down"
link = "leaf0-spine0"
from = "5ms"
to = "15ms"
reroute = "100us"
[[fault]]
kind = "link-down"
link = "leaf0-spine1"
from = "5ms"
to = "5.01ms"
reroute = "100us"
"#;

#[test]
fn a_queue_without_carrier_stops_no_other_flow() {
    let ms = Span::from_ms;
    let neighbour = |settings: &[&str], seed| {
        let mut sim = scenario(OUTAGE, settings).build(seed).expect("builds");
        progress(&mut sim, 1, ms(6), ms(15))
    };
    for seed in 1..=4 {
        let bytes = neighbour(&[], seed);
        println!("seed {seed}: {bytes} bytes to the neighbour in 9 ms of the outage");
        // A quarter of the link at least: 7 MB.
        assert!(bytes > 7_000_000, "seed {seed}: {bytes}");
    }
    let kept = (1..=4).map(|seed| neighbour(&["switch.dead_queue=keep"], seed));
    assert_eq!(kept.min(), Some(0), "kept, a queue stops the neighbour too");
}

#[test]
fn a_switch_that_restarts_is_routed_around() {
    let text = r#"
[sim]
until = "60ms"
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_switch = 2
rate = "25Gbps"
[host]
timeout = 8
[[flow]]
op = "write"
from = ["h0", "h1"]
to = "h3"
size = "1MB"
count = 20
depth = 4
[[fault]]
kind = "crash"
switch = "spine0"
reroute = "100us"
from = "2ms"
to = "6ms"
[expect]
complete = true
sometimes = ["link-down"]
"#;
    for seed in 1..=4 {
        let report = scenario(text, &[]).run(seed).expect("runs");
        assert!(
            report.failures.is_empty(),
            "seed {seed}: {:?}",
            report.failures
        );
    }
    // Without other ways the flows wait for it.
    let error = scenario(text, &["fault[0].switch=h0"]).build(1);
    let error = error.expect_err("a host is no switch").to_string();
    assert!(error.contains("is no switch"), "{error}");
}

#[test]
fn a_deadlock_of_credits_is_found_also_when_nothing_else_happens() {
    let mut text = r#"
[sim]
until = "2s"
mode = "lite"
[topology]
kind = "ring"
switches = 5
hosts_per_switch = 2
rate = "40Gbps"
[switch]
buffer = "1MB"
threshold = "20KB"
[qos]
flow_control = "credits"
credit_buffer = "32KiB"
credit_update = "4KiB"
"#
    .to_owned();
    for from in 0..10 {
        let to = (from + 4) % 10;
        text += &format!("[[flow]]\nop = 'frames'\nfrom = 'h{from}'\nto = 'h{to}'\nstop = '5ms'\n");
    }
    let report = scenario(&text, &[]).run(1).expect("runs");
    let failures = report.failures.join("\n");
    assert!(failures.contains("deadlock"), "{failures}");
    let with_pfc = scenario(&text, &["qos.flow_control=pfc"]).run(1);
    let failures = with_pfc.expect("runs").failures.join("\n");
    assert!(failures.contains("deadlock"), "{failures}");
}

const ONE: &str = r#"
[topology]
kind = "single-switch"
hosts = 2
rate = "25Gbps"
[[flow]]
op = "write"
from = "h0"
to = "h1"
size = 8
"#;

fn completion(settings: &[&str]) -> Span {
    let report = scenario(ONE, settings).run(1).expect("runs");
    report.flows[0].completion.expect("completes")
}

#[test]
fn latency_of_adapters_and_switches_adds_up() {
    let bare = completion(&[]);
    let settings = ["host.latency=600ns", "switch.latency=300ns"];
    // There and back: sending adapter, switch, receiving adapter.
    assert_eq!(
        completion(&settings),
        bare + Span::from_ns(2 * (600 + 300 + 600))
    );
}

/// What is in pipelines when a pause takes effect is more to make room for.
#[test]
fn headroom_covers_latency() {
    let incast = r#"
[sim]
until = "2ms"
mode = "lite"
[topology]
kind = "single-switch"
hosts = 9
rate = "100Gbps"
[switch]
threshold = "20KB"
latency = "800ns"
[host]
latency = "1.5us"
window = "1MB"
[[flow]]
op = "write"
from = "all"
to = "h8"
size = "1MB"
count = 100
depth = 4
[expect]
lossless_drops = 0
"#;
    let report = scenario(incast, &[]).run(1).expect("runs");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}

#[test]
fn timeouts_retries_and_dcqcn_are_settings() {
    let lossy = "\n[[fault]]\nkind = 'loss'\nlink = 's0-h1'\np = 1.0\n";
    let gives_up = |settings: &[&str]| {
        let report = scenario(&format!("{ONE}{lossy}"), settings).run(1);
        let report = report.expect("runs");
        assert!(report.flows[0].completion.is_none());
        report.end
    };
    let (long, short) = (
        gives_up(&[]),
        gives_up(&["host.timeout=8", "host.retry_cnt=1"]),
    );
    println!("gives up at {long}, and with a timeout of 2^8 and one retry at {short}");
    assert!(short.since(Time::ZERO) * 4 < long.since(Time::ZERO));
    // Rates that were cut come back in milliseconds; with such timers, not within the run.
    let rate = |settings: &[&str]| {
        let text = "[sim]\nmode = 'lite'\nuntil = '20ms'\n[topology]\nkind = 'single-switch'\nhosts = 3\nrate = '40Gbps'\n\
            [switch]\necn = { kmin = '5KB', kmax = '200KB', pmax = 0.01 }\n[host]\ncc = 'dcqcn'\n\
            [[flow]]\nop = 'write'\nfrom = ['h0', 'h1']\nto = 'h2'\nsize = '1MB'\ncount = 1000\ndepth = 4\n";
        let report = scenario(text, settings).run(1).expect("runs");
        let rates = report.flows.iter().filter_map(|flow| flow.goodput);
        rates.map(|rate| rate.as_gbps_f64()).sum::<f64>()
    };
    let usual = rate(&[]);
    let slow = rate(&[
        "host.dcqcn.increase_timer=1s",
        "host.dcqcn.increase_bytes=4GB",
    ]);
    println!("{usual:.2} Gb/s, and {slow:.2} with timers that never run out");
    assert!(usual > 1.2 * slow);
    for (bad, words) in [
        ("host.timeout=32", "at most 31"),
        ("host.retry_cnt=8", "at most 7"),
    ] {
        let error = scenario(ONE, &[bad]).build(1).expect_err(bad).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_cannot_be_is_told_before_it_runs() {
    let endless =
        "[topology]\nkind = 'back-to-back'\n[[flow]]\nop = 'frames'\nfrom = 'h0'\nto = 'h1'\n";
    let split = r#"
[topology]
kind = "edges"
edges = """
h0 s0 100Gbps 2m
h1 s1 100Gbps 2m
"""
[[flow]]
op = "write"
from = "h0"
to = "h1"
"#;
    let cases = [
        (endless.to_owned(), vec![], "goes on for ever"),
        (
            ONE.to_owned(),
            vec!["topology.mtu=1000"],
            "a packet has up to 1084 bytes",
        ),
        (split.to_owned(), vec![], "there is no way from h0 to h1"),
        (
            ONE.to_owned(),
            vec!["topology={ kind = 'fat-tree', k = 64 }"],
            "at most 32768",
        ),
    ];
    for (text, settings, words) in cases {
        let error = scenario(&text, &settings)
            .build(1)
            .expect_err(words)
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Two leaves with two ways between them, one of them slow, and two hosts each.
const UNEVEN: &str = r#"
[sim]
until = "300us"
mode = "lite"
[topology]
kind = "edges"
edges = """
h0 leaf0 100Gbps 2m
h1 leaf0 100Gbps 2m
h2 leaf1 100Gbps 2m
h3 leaf1 100Gbps 2m
leaf0 fast 100Gbps 2m
leaf1 fast 100Gbps 2m
leaf0 slow 25Gbps 2m
leaf1 slow 25Gbps 2m
"""
[switch]
threshold = "50KB"
[[flow]]
op = "frames"
from = "h0"
to = "h2"
mtu = 4096
[[flow]]
op = "frames"
from = "h1"
to = "h3"
mtu = 4096
"#;

#[test]
fn uneven_ways_are_filled_by_the_shortest_queue_and_halved_by_lots() {
    // Both ways full are 125 Gb/s; as much by the fast one as by the slow one are 50.
    for (balance, expected) in [("adaptive", 125.0), ("spray", 50.0), ("rotate", 50.0)] {
        let report = scenario(UNEVEN, &[&format!("switch.balance={balance}")])
            .run(1)
            .expect("runs");
        let bytes: u64 = report.flows.iter().map(|flow| flow.bytes).sum();
        let gbps = bytes as f64 * 8e-9 / 300e-6 * 4178.0 / 4096.0;
        let off = gbps / expected - 1.0;
        assert!(off.abs() < 0.15, "{balance}: {gbps} Gb/s of {expected}");
    }
}

/// A host that sends a frame every 10 us over a tree in which one way is 3 us longer than the other.
const PAUSES: &str = r#"
[sim]
until = "2ms"
mode = "lite"
[topology]
kind = "edges"
edges = """
h0 leaf0 100Gbps 2m
h1 leaf1 100Gbps 2m
leaf0 near 100Gbps 2m
leaf1 near 100Gbps 2m
leaf0 far 100Gbps 1500ns
leaf1 far 100Gbps 1500ns
"""
[switch]
balance = "flowlets"
[[flow]]
op = "frames"
from = "h0"
to = "h1"
mtu = 1024
rate = "1Gbps"
"#;

#[test]
fn flowlets_change_their_way_after_a_pause_and_keep_their_order() {
    let run = |settings: &[&str]| {
        let mut sim = scenario(PAUSES, settings).build(3).expect("builds");
        sim.run_until(Time::ZERO + Span::from_ms(2));
        let topology = sim.fabric().topology();
        let sent = |spine: &str| {
            let (Some(leaf), Some(spine)) = (topology.find("leaf0"), topology.find(spine)) else {
                panic!("named so")
            };
            let port = topology.port_between(leaf, spine).expect("a cable");
            sim.fabric()
                .port_stats(port)
                .sent_frames
                .iter()
                .sum::<u64>()
        };
        (sent("near"), sent("far"), sim.flows()[0].reordered)
    };
    // A pause of 8.8 us between two frames is more than the gap: each goes where it likes, and none overtakes.
    let (near, far, reordered) = run(&["switch.flowlet_gap=5us"]);
    assert!(
        near.min(far) > 50 && reordered == 0,
        "{near} {far} {reordered}"
    );
    // It is less: all go one way.
    let (near, far, _) = run(&[]);
    assert!(near.min(far) == 0 && near + far > 200, "{near} {far}");
    // Nothing waits for a pause: frames that are 0.1 us apart overtake each other.
    let fast = ["switch.balance=spray", "flow[0].rate=90Gbps"];
    let (.., reordered) = run(&fast);
    assert!(reordered > 1000, "{reordered}");
}

#[test]
fn a_gap_without_flowlets_is_refused() {
    let settings = ["switch.balance=spray", "switch.flowlet_gap=1us"];
    let read = Scenario::parse(UNEVEN).expect("a scenario");
    let settings: Vec<Setting> = settings.iter().map(|s| s.parse().expect(s)).collect();
    let built = read.with(&settings).expect("settings").build(1);
    let error = built.expect_err("makes no sense").to_string();
    assert_eq!(
        error,
        "line 17: switch.flowlet_gap: it is for balance = \"flowlets\""
    );
    assert!(
        read.with(&["switch.balance=best".parse().expect("a setting")])
            .is_err()
    );
}

/// Four hosts write 2 MB each to one.
const FOUR_TO_ONE: &str = r#"
[sim]
mode = "lite"
[topology]
kind = "single-switch"
hosts = 5
[switch]
threshold = "300KB"
[[flow]]
op = "write"
from = "all"
to = "h4"
size = "2MB"
"#;

#[test]
fn control_from_papers_keeps_the_queue_short_enough_to_stop_nobody() {
    let pauses = |cc: &str| {
        let report = scenario(FOUR_TO_ONE, &[&format!("host.cc={cc}"), "host.window=1MB"])
            .run(1)
            .expect("runs");
        assert!(report.flows.iter().all(|f| f.completion.is_some()), "{cc}");
        assert!(report.failures.is_empty(), "{cc}: {:?}", report.failures);
        report.pauses.iter().map(|(_, count)| count).sum::<u64>()
    };
    assert!(pauses("none") > 0);
    assert_eq!((pauses("hpcc"), pauses("swift:10us")), (0, 0));
    // It begins at the rate of the link and needs some time to come down.
    pauses("timely:20us");
    let read = Scenario::parse(FOUR_TO_ONE).expect("a scenario");
    let fault = |cc: &str| {
        let setting = format!("host.cc={cc}").parse().expect("a setting");
        read.with(&[setting]).expect_err(cc).to_string()
    };
    assert!(fault("swift").contains("swift:TIME, timely:TIME, hpcc, nscc, nscc:TIME or rccc"));
    assert!(fault("swift:0us").contains("a time above 0 is needed"));
    assert!(fault("timely:fast").contains("fast"));
}

#[test]
fn marks_come_back_to_the_sender_of_the_data_in_both_modes() {
    let run = |text: &str, more: &[&str]| {
        let mut settings = vec![
            "host.cc=nscc",
            "host.window=1MB",
            "topology.cable=1us",
            "switch.ecn.kmin=3KB",
            "switch.ecn.kmax=10KB",
            "switch.ecn.pmax=1.0",
        ];
        settings.extend(more);
        let report = scenario(text, &settings).run(1).expect("runs");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(report.flows.iter().all(|flow| flow.completion.is_some()));
        report
    };
    let lite = run(FOUR_TO_ONE, &[]);
    assert!(lite.pauses.is_empty(), "{:?}", lite.pauses);
    assert_eq!(run(FOUR_TO_ONE, &["sim.mode=bytes"]).trace, lite.trace);
    // A tag moves the packet in its frame.
    let tagged = |mode| run(FOUR_TO_ONE, &["qos.trust=pcp", mode]).trace;
    assert_eq!(tagged("sim.mode=lite"), tagged("sim.mode=bytes"));
    // A mark that is wiped out tells nothing: windows stay wide for longer.
    let bleached = format!("{FOUR_TO_ONE}[[fault]]\nkind = \"bleach-ecn\"\nswitch = \"s0\"\n");
    assert_ne!(run(&bleached, &[]).trace, lite.trace);
}

#[test]
fn credit_from_the_receiver_stops_nobody_and_comes_through_losses() {
    let rccc = ["host.cc=rccc", "host.window=1MB", "topology.cable=1us"];
    let report = scenario(FOUR_TO_ONE, &rccc).run(1).expect("runs");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(report.flows.iter().all(|flow| flow.completion.is_some()));
    assert!(report.pauses.is_empty(), "{:?}", report.pauses);
    let bytes = [&rccc[..], &["sim.mode=bytes"]].concat();
    let other = scenario(FOUR_TO_ONE, &bytes).run(1).expect("runs");
    assert_eq!(report.trace, other.trace);
    // Data, acknowledgements and credit are lost alike.
    let lossy = format!("{FOUR_TO_ONE}[[fault]]\nkind = \"loss\"\np = 0.02\n");
    for seed in 0..10 {
        let report = scenario(&lossy, &rccc).run(seed).expect("runs");
        assert!(report.failures.is_empty(), "{seed}: {:?}", report.failures);
        let complete = report.flows.iter().all(|flow| flow.completion.is_some());
        assert!(complete, "seed {seed}: {:?}", report.flows);
    }
    // Messages one after the other: each asks for credit of its own.
    let many = ["flow[0].size=16KB", "flow[0].count=200"];
    let report = scenario(FOUR_TO_ONE, &[&rccc[..], &many].concat())
        .run(1)
        .expect("runs");
    assert!(report.flows.iter().all(|flow| flow.completion.is_some()));
}

/// Two hosts send more to each of two others than its link takes.
const CROWDED: &str = r#"
[sim]
until = "300us"
mode = "lite"
[topology]
kind = "edges"
edges = """
h0 s0 25Gbps 2m
h1 s0 25Gbps 2m
s0 s1 100Gbps 2m
h2 s1 10Gbps 2m
h3 s1 10Gbps 2m
"""
[switch]
ecn = { kmin = "1GB", kmax = "1GB", pmax = 1.0 }
[[flow]]
op = "frames"
from = ["h0", "h1"]
to = "h2"
stop = "300us"
[[flow]]
op = "frames"
from = ["h0", "h1"]
to = "h3"
stop = "300us"
"#;

/// The crowded network with such overrides, at its end.
fn crowded(overrides: &str) -> Sim {
    let text = format!("{CROWDED}{overrides}");
    let mut sim = scenario(&text, &[]).build(1).expect("it is possible");
    sim.run_until(Time::ZERO + Span::from_us(300));
    sim
}

#[test]
fn single_switches_and_ports_have_settings_of_their_own() {
    let seen = |overrides: &str| {
        let sim = crowded(overrides);
        let (fabric, topology) = (sim.fabric(), sim.fabric().topology());
        let node = |name: &str| topology.find(name).expect("a name");
        let stats = |from: &str, to: &str| {
            let port = topology.port_between(node(from), node(to));
            fabric.port_stats(port.expect("a cable"))
        };
        let marked = [("s1", "h2"), ("s1", "h3"), ("s0", "s1")].map(|(a, b)| stats(a, b).marked);
        let paused = [("h0", "s0"), ("s0", "s1")].map(|(a, b)| stats(a, b).pauses_received);
        (marked, paused, fabric.drops().lossless_overruns())
    };
    let (marked, paused, lost) = seen("");
    assert_eq!((marked, paused, lost), ([0; 3], [0; 2], 0), "room for all");
    // Marked at one port alone, and at all ports of a switch, of which one has no queue long enough.
    let ecn = "ecn = { kmin = '50KB', kmax = '50KB', pmax = 1.0 }\n";
    let (marked, ..) = seen(&format!("[[override]]\nport = 's1>h2'\n{ecn}"));
    assert!(marked[0] > 0 && marked[1..] == [0, 0], "{marked:?}");
    let (marked, ..) = seen(&format!("[[override]]\nswitch = 's1'\n{ecn}"));
    assert!(
        marked[0] > 0 && marked[1] > 0 && marked[2] == 0,
        "{marked:?}"
    );
    // What is said of a port goes before what is said of its switch.
    let never = "ecn = { kmin = '1GB', kmax = '1GB', pmax = 1.0 }\n";
    let both = format!("[[override]]\nport = 's1>h3'\n{never}[[override]]\nswitch = 's1'\n{ecn}");
    let (marked, ..) = seen(&both);
    assert!(marked[0] > 0 && marked[1] == 0, "{marked:?}");
    // A small share of one switch: its neighbour has to stop, and has room for all that then waits.
    for small in ["threshold = '64KB'", "buffer = '400KB'\nalpha = 0.25"] {
        let (_, paused, lost) = seen(&format!("[[override]]\nswitch = 's1'\n{small}\n"));
        assert!(
            paused[0] == 0 && paused[1] > 0 && lost == 0,
            "{small}: {paused:?}, {lost}"
        );
    }
    // No headroom where the frames come in: what is on its way when the neighbour stops is lost.
    let none = "[[override]]\nswitch = ['s1']\nthreshold = '64KB'\n[[override]]\nport = ['s1>s0']\nheadroom = 0\n";
    let (_, paused, lost) = seen(none);
    assert!(paused[1] > 0 && lost > 0, "{paused:?}, {lost}");
}

#[test]
fn overrides_that_cannot_be_are_told_with_their_line() {
    let line = CROWDED.lines().count() + 2;
    for (text, words) in [
        (
            "port = 's1-h2'\nheadroom = 0",
            "override[0].port: \"s1-h2\" is no port",
        ),
        (
            "port = 'h2>s1'\nheadroom = 0",
            "\"h2>s1\" is a port of a host",
        ),
        (
            "switch = ['s1', 'h2']\nheadroom = 0",
            "override[0].switch: \"h2\" is no switch",
        ),
        ("switch = []\nheadroom = 0", "it names none"),
        (
            "switch = 's1'\nport = 's1>h2'\nheadroom = 0",
            "one of switch, port and link is needed",
        ),
        ("switch = 's1'", "it changes nothing"),
    ] {
        let text = format!("{CROWDED}[[override]]\n{text}\n");
        let error = scenario(&text, &[]).build(1).expect_err(words).to_string();
        assert!(
            error.starts_with(&format!("line {line}: override[0].")),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
    }
    for (text, words) in [
        ("headroom = 0", "one of switch, port and link is needed"),
        (
            "switch = 's1'\nrate = '1Gbps'",
            "override[0].rate: ports have one each: name ports or links",
        ),
        (
            "link = 's1-h2'\nrate = '1Gbps'\nheadroom = 0",
            "override[0].headroom: a cable has a rate alone",
        ),
        (
            "link = 's1-h9'\nrate = '1Gbps'",
            "override[0].link: \"s1-h9\" is no cable",
        ),
        ("link = 's1-h2'", "override[0].link: it changes nothing"),
        (
            "port = 'h2>s9'\nrate = '1Gbps'",
            "override[0].port: \"h2>s9\" is no port",
        ),
        (
            "port = []\nrate = '1Gbps'",
            "override[0].port: it names none",
        ),
        (
            "port = 's1>h2'\nbuffer = '1MB'",
            "all ports of a switch share it",
        ),
        (
            "port = 's1>h2'\nalpha = 1.0",
            "override[0].alpha: all ports of a switch share it",
        ),
        (
            "switch = 's1'\nbuffer = '1KB'",
            "switch s1: a buffer of 1000 bytes is too small",
        ),
        (
            "port = 's1>h2'\necn = { kmin = '2KB', kmax = '1KB', pmax = 0.5 }",
            "override[0].ecn: kmin <= kmax is needed",
        ),
    ] {
        let text = format!("{CROWDED}[[override]]\n{text}\n");
        let error = scenario(&text, &[]).build(1).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    for rate in ["0Gbps", "10", "fast"] {
        let text = format!("{CROWDED}[[override]]\nport = 's1>h2'\nrate = '{rate}'\n");
        let error = Scenario::parse(&text).expect_err(rate).to_string();
        assert!(error.contains("a rate like 40Gbps"), "{error}");
        assert!(error.contains(&format!("line {}", line + 1)), "{error}");
    }
    let text = format!("{CROWDED}[[override]]\nswitch = 's1'\nbalance = 'spray'\n");
    let error = Scenario::parse(&text).expect_err("no such key").to_string();
    assert!(error.contains("unknown field `balance`"), "{error}");
}

/// A plain flow of a hundred frames each way, one after the other.
const BOTH_WAYS: &str = r#"
[sim]
mode = "lite"
[topology]
kind = "edges"
edges = """
h0 s0 100Gbps 2m
h1 s0 100Gbps 2m
"""
[[flow]]
op = "frames"
from = "h0"
to = "h1"
size = "102400"
[[flow]]
op = "frames"
from = "h1"
to = "h0"
size = "102400"
start = "1ms"
"#;

/// The times of both flows are what rates and lengths say, to the picosecond: the slowest port sends all frames one behind the other, and the first
/// (or last) of them takes its time at the other port.
#[test]
fn a_ports_rate_is_its_own_and_a_links_that_of_both_ends() {
    // A frame of 1024 bytes of payload with headers and check sequence, preamble and gap: 80 ps a byte at 100 Gb/s.
    let frame = |gbps: u64| (1024 + 62 + 20) * 8_000 / gbps;
    let cables = 2 * 2 * 5_000;
    let time = |first: u64, second: u64| {
        let (fast, slow) = (first.max(second), first.min(second));
        Some(Span::from_ps(100 * frame(slow) + frame(fast) + cables))
    };
    for (overrides, there, back) in [
        ("", (100, 100), (100, 100)),
        ("port = 's0>h1'\nrate = '10Gbps'", (100, 10), (100, 100)),
        ("port = 'h0>s0'\nrate = '40Gbps'", (40, 100), (100, 100)),
        (
            "port = ['s0>h0', 's0>h1']\nrate = '25Gbps'",
            (100, 25),
            (100, 25),
        ),
        ("link = 's0-h0'\nrate = '1Gbps'", (1, 100), (100, 1)),
        // What is said of a port goes before what is said of its link, and of several for one place the last holds.
        (
            "port = 's0>h0'\nrate = '50Gbps'\n[[override]]\nlink = ['h0-s0', 'h1-s0']\nrate = '10Gbps'\n\
             [[override]]\nlink = 'h1-s0'\nrate = '20Gbps'",
            (10, 20),
            (20, 50),
        ),
    ] {
        let table = if overrides.is_empty() {
            ""
        } else {
            "[[override]]\n"
        };
        let text = format!("{BOTH_WAYS}{table}{overrides}\n");
        let report = scenario(&text, &[]).run(1).expect("runs");
        let times: Vec<_> = report.flows.iter().map(|flow| flow.completion).collect();
        let expected = [time(there.0, there.1), time(back.0, back.1)];
        assert_eq!(times, expected, "{overrides}");
    }
}

/// Headroom takes into account that a pause leaves a slow port late, while a fast neighbour goes on.
#[test]
fn a_slow_port_has_room_for_what_its_fast_neighbour_sends_before_the_pause() {
    let drops = |headroom: &str| {
        let text = format!(
            r#"
[sim]
until = "4ms"
mode = "lite"
[topology]
kind = "edges"
edges = """
h0 s0 100Gbps 2m
h1 s0 10Gbps 2m
"""
[switch]
threshold = "100KB"
[[override]]
port = "s0>h0"
rate = "1Gbps"
{headroom}
[[flow]]
op = "frames"
from = "h0"
to = "h1"
stop = "3ms"
[[flow]]
op = "frames"
from = "h1"
to = "h0"
stop = "3ms"
"#
        );
        let mut sim = scenario(&text, &[]).build(1).expect("it is possible");
        sim.run_until(Time::ZERO + Span::from_ms(4));
        let fabric = sim.fabric();
        let topology = fabric.topology();
        let [host, switch] = ["h0", "s0"].map(|name| topology.find(name).expect("a name"));
        let port = topology.port_between(host, switch).expect("a cable");
        assert!(fabric.port_stats(port).pauses_received > 0);
        fabric.drops().lossless_overruns()
    };
    assert_eq!(drops(""), 0);
    // What is right for a cable of 100 Gb/s both ways.
    let both = required(&Link::new(Rate::gbps(100)), 1);
    assert!(drops(&format!("headroom = {both}")) > 0);
}
