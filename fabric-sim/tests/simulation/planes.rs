//! Hosts with several ports, one in each plane.

use fabric_sim::scenario::{Report, Scenario, Setting};
use fabric_sim::topology::{PortId, PortName};
use fabric_sim::{Sim, Span};

/// `h0` and `h1` write to `h2`, over so many planes.
const PLANES: &str = r#"
[sim]
mode = "lite"
[topology]
kind = "leaf-spine"
leaves = 3
spines = 2
hosts_per_switch = 1
planes = 4
rate = "100Gbps"
[host]
recovery = "selective"
window = "4MB"
[[flow]]
op = "write"
from = "h0"
to = "h2"
size = "4MB"
count = 8
depth = 2
mtu = 4096
[[flow]]
op = "write"
from = "h1"
to = "h2"
size = "4MB"
count = 8
depth = 2
mtu = 4096
"#;

fn scenario(settings: &[&str]) -> Scenario {
    let settings: Vec<Setting> = settings.iter().map(|s| s.parse().expect(s)).collect();
    let read = Scenario::parse(PLANES).expect("a scenario");
    read.with(&settings).expect("settings")
}

fn run(settings: &[&str]) -> Report {
    let report = scenario(settings).run(1).expect("runs");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report
}

/// Goodput of each flow as a part of what one plane carries.
fn shares(report: &Report) -> Vec<f64> {
    let rates = report
        .flows
        .iter()
        .map(|flow| flow.goodput.expect("complete"));
    rates
        .map(|rate| rate.as_bps() as f64 / 100e9 / (4096.0 / 4178.0))
        .collect()
}

#[test]
fn sprayed_flows_use_all_planes_and_share_them() {
    let two = shares(&run(&["host.planes=spray"]));
    let sum: f64 = two.iter().sum();
    // A floor of our own: packets that are overtaken for long are sent twice, and narrow windows.
    assert!((3.6..=4.001).contains(&sum), "{two:?}");
    assert!((two[0] / two[1] - 1.0).abs() < 0.1, "{two:?}");
}

#[test]
fn flows_on_rails_of_their_own_do_not_meet() {
    let apart = shares(&run(&["flow[0].plane=1", "flow[1].plane=3"]));
    assert!(apart.iter().all(|share| *share > 0.98), "{apart:?}");
    let together = shares(&run(&["flow[0].plane=2", "flow[1].plane=2"]));
    assert!(
        together.iter().all(|share| (0.45..0.55).contains(share)),
        "{together:?}"
    );
}

#[test]
fn a_hash_keeps_a_flow_in_one_plane() {
    let sim = scenario(&[]).build(1).expect("builds");
    let sent = sent_by_plane(sim);
    let used = sent.iter().filter(|&&frames| frames > 0).count();
    assert_eq!(used, 1, "{sent:?}");
    let sprayed = sent_by_plane(scenario(&["host.planes=spray"]).build(1).expect("builds"));
    // Two flows share a plane that carries some 3000 in this time. What a flow sends beyond its 7813 packets is sent again for nothing.
    assert!(sprayed.iter().all(|&frames| frames > 1350), "{sprayed:?}");
    let mut ended = scenario(&["host.planes=spray"]).build(1).expect("builds");
    ended.run_for(Span::from_ms(5));
    let all: u64 = sent_by_plane(ended).iter().sum();
    assert!((7813..7813 * 11 / 10).contains(&all), "{all}");
}

/// Frames of class 3 that the first host has sent by each port a millisecond from now.
fn sent_by_plane(mut sim: Sim) -> Vec<u64> {
    sim.run_for(Span::from_us(1000));
    let host = sim.fabric().topology().hosts().next().expect("three");
    let ports = sim.fabric().ports_of(host).iter();
    ports
        .map(|&port| sim.fabric().port_stats(port).sent_frames[3])
        .collect()
}

#[test]
fn flows_go_on_in_the_planes_that_are_left() {
    let cut = format!(
        "{PLANES}[[fault]]\nkind = \"link-down\"\nlink = \"h2-leaf2.p3\"\nfrom = \"100us\"\nreroute = \"50us\"\n"
    );
    let settings = ["host.planes=spray".parse().expect("a setting")];
    let read = Scenario::parse(&cut).expect("a scenario");
    let report = read
        .with(&settings)
        .expect("settings")
        .run(1)
        .expect("runs");
    assert!(report.flows.iter().all(|flow| flow.failure.is_none()));
    let sum: f64 = shares(&report).iter().sum();
    // Three are left, and some time went by until that was known.
    assert!((2.0..=3.2).contains(&sum), "{sum}");
}

#[test]
fn a_slow_host_stops_all_its_switches_and_loses_nothing() {
    let report = run(&["host.planes=spray", "host.rx_rate=80Gbps"]);
    let lost: u64 = report.drops.iter().map(|(_, count)| count).sum();
    assert_eq!(lost, 0, "{:?}", report.drops);
    let stopped: Vec<&str> = report
        .pauses
        .iter()
        .map(|(port, _)| port.as_str())
        .collect();
    for plane in ["h2>leaf2", "h2>leaf2.p1", "h2>leaf2.p2", "h2>leaf2.p3"] {
        assert!(stopped.contains(&plane), "{plane}: {stopped:?}");
    }
}

#[test]
fn both_modes_are_one_run() {
    let spray = |mode| {
        run(&[
            "host.planes=spray",
            "flow[0].count=2",
            "flow[1].count=2",
            mode,
        ])
    };
    let (lite, bytes) = (spray("sim.mode=lite"), spray("sim.mode=bytes"));
    assert_eq!((lite.trace, lite.end), (bytes.trace, bytes.end));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fault = |setting: &str| {
        let read = Scenario::parse(PLANES).expect("a scenario");
        let with = read.with(&[setting.parse().expect(setting)]);
        with.and_then(|scenario| scenario.build(1))
            .expect_err(setting)
            .to_string()
    };
    assert!(fault("flow[0].plane=4").contains("h2 has 4, counted from 0"));
    assert!(fault("topology.planes=0").contains("0: 1 to 8"));
    assert!(fault("topology.planes=9").contains("9: 1 to 8"));
    assert!(fault("host.planes=best").contains("best"));
    assert!(fault("topology.hosts_per_switch=20000").contains("at most"));
}

/// Machines with four adapters, in two groups: each rail has a leaf in each group, and two spines join them all.
const RAILS: &str = r#"
[sim]
mode = "lite"
[topology]
kind = "rails"
rails = 4
groups = 2
spines = 2
hosts_per_switch = 2
rate = "100Gbps"
[host]
recovery = "selective"
window = "4MB"
[[flow]]
op = "write"
from = "h0"
to = "h1"
size = "4MB"
count = 4
depth = 2
mtu = 4096
plane = 1
"#;

fn on_rails(settings: &[&str], more: &str) -> Scenario {
    let settings: Vec<Setting> = settings.iter().map(|s| s.parse().expect(s)).collect();
    let read = Scenario::parse(&format!("{RAILS}{more}")).expect("a scenario");
    read.with(&settings).expect("settings")
}

/// The ports that sent frames of class 3 in the first 500 us, without those that sent but acknowledgements.
fn busy_ports(scenario: &Scenario) -> Vec<String> {
    let mut sim = scenario.build(1).expect("builds");
    sim.run_for(Span::from_us(500));
    let (fabric, topology) = (sim.fabric(), sim.fabric().topology());
    let is_busy = |port: &PortId| fabric.port_stats(*port).sent_bytes[3] > 1 << 20;
    let busy = topology.ports().filter(is_busy);
    busy.map(|port| PortName(topology, port).to_string())
        .collect()
}

#[test]
fn a_rail_is_one_switch_in_a_group_and_goes_over_a_spine_between_groups() {
    let within = busy_ports(&on_rails(&[], ""));
    assert_eq!(within, ["h0>leaf0.r1", "leaf0.r1>h1"]);
    for (settings, last) in [
        (&["flow[0].to=h3"][..], "leaf1.r1>h3"),
        // From rail to rail, of another group and of the own.
        (&["flow[0].to=h3", "flow[0].to_plane=2"], "leaf1.r2>h3"),
        (&["flow[0].to_plane=2"], "leaf0.r2>h1"),
    ] {
        let between = busy_ports(&on_rails(settings, ""));
        let [first, up, down, end] = &sorted_by_way(between, last)[..] else {
            panic!("{settings:?}: four cables");
        };
        assert_eq!((first.as_str(), end.as_str()), ("h0>leaf0.r1", last));
        assert!(up.starts_with("leaf0.r1>spine"), "{up}");
        let leaf = last.split('>').next().expect("a leaf");
        assert!(down.starts_with("spine") && down.ends_with(leaf), "{down}");
        let report = on_rails(settings, "").run(1).expect("runs");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
    }
}

/// Cables of one way, the first first.
fn sorted_by_way(mut ports: Vec<String>, last: &str) -> Vec<String> {
    ports.sort_by_key(|name| {
        (
            name == last,
            name.starts_with("spine"),
            name.starts_with("leaf"),
        )
    });
    ports
}

#[test]
fn all_adapters_of_a_machine_together_have_all_its_rails() {
    let other = "[[flow]]\nop = \"write\"\nfrom = \"h1\"\nto = \"h0\"\nsize = \"4MB\"\ncount = 4\ndepth = 2\nmtu = 4096\n";
    let report = on_rails(&["host.planes=spray"], other)
        .run(1)
        .expect("runs");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    // Each has four rails, one switch away.
    for share in shares(&report) {
        assert!((3.5..=4.001).contains(&share), "{share}");
    }
}

#[test]
fn frames_take_another_rail_to_a_machine_that_has_lost_one() {
    let cut = "[[fault]]\nkind = \"link-down\"\nlink = \"h3-leaf1.r1\"\nfrom = \"100us\"\nreroute = \"50us\"\n";
    let report = on_rails(&["flow[0].to=h3"], cut).run(1).expect("runs");
    assert!(report.flows.iter().all(|flow| flow.failure.is_none()));
    let share = shares(&report)[0];
    assert!(share > 0.3, "{share}");
}

#[test]
fn rails_that_make_no_sense_are_refused() {
    let fault = |scenario: &str, setting: &str| {
        let read = Scenario::parse(scenario).expect("a scenario");
        let with = read.with(&[setting.parse().expect(setting)]);
        with.and_then(|scenario| scenario.build(1))
            .expect_err(setting)
            .to_string()
    };
    assert!(fault(RAILS, "flow[0].to_plane=4").contains("h1 has 4, counted from 0"));
    assert!(fault(RAILS, "topology.rails=9").contains("9: 1 to 8"));
    assert!(fault(RAILS, "topology.planes=3").contains("12 cables"));
    assert!(fault(RAILS, "topology.hosts_per_switch=20000").contains("at most"));
    assert!(fault(PLANES, "flow[0].to_plane=1").contains("kind = \"rails\""));
}
