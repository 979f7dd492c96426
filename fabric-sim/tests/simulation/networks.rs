//! Networks of scenarios: each key of `[topology]` is heeded, or refused.

use std::collections::BTreeSet;

use fabric_sim::Span;
use fabric_sim::scenario::Scenario;
use fabric_sim::topology::{Node, Topology};

const ALL_KEYS: &str = r#"
rate = "25Gbps"
cable = "10m"
uplink_rate = "50Gbps"
uplink_cable = "200m"
mtu = 3000
bit_error_rate = 1e-12
planes = 2
"#;

fn build(topology: &str) -> Result<Topology, String> {
    let scenario = Scenario::parse(&format!("[topology]\n{topology}"));
    let sim = scenario.and_then(|scenario| scenario.build(1));
    let sim = sim.map_err(|error| error.to_string())?;
    Ok(sim.fabric().topology().clone())
}

/// Rates in Gb/s and delays of the cables of hosts, and of those between switches.
fn links(topology: &Topology) -> [BTreeSet<(u64, Span)>; 2] {
    let mut links = [BTreeSet::new(), BTreeSet::new()];
    for cable in topology.cables() {
        let is_switch = |node: Node| matches!(node, Node::Switch(_));
        let place = usize::from(is_switch(cable.a) && is_switch(cable.b));
        for link in [cable.link, cable.back] {
            links[place].insert((link.rate.as_bps() / 1_000_000_000, link.delay));
        }
    }
    links
}

#[test]
fn cables_between_switches_are_as_the_file_says() {
    for kind in [
        "kind = \"dumbbell\"\nleft = 2\nright = 2",
        "kind = \"parking-lot\"\nswitches = 3\nhosts_per_switch = 1",
        "kind = \"ring\"\nswitches = 3\nhosts_per_switch = 1",
        "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_switch = 2",
        "kind = \"rails\"\nrails = 2\ngroups = 2\nspines = 2\nhosts_per_switch = 2",
        "kind = \"fat-tree\"\nk = 4",
        "kind = \"dragonfly\"\nrouters = 2\nhosts_per_switch = 1\nglobal = 1",
    ] {
        let topology = build(&format!("{kind}{ALL_KEYS}")).expect(kind);
        let [edge, up] = links(&topology);
        assert_eq!(edge, BTreeSet::from([(25, Span::of_cable(10))]), "{kind}");
        assert_eq!(up, BTreeSet::from([(50, Span::of_cable(200))]), "{kind}");
        let one = build(&format!("{kind}{}", ALL_KEYS.replace("planes = 2", ""))).expect(kind);
        assert_eq!(topology.cables().len(), 2 * one.cables().len(), "{kind}");
    }
}

#[test]
fn frames_and_bit_errors_are_as_the_file_says() {
    let more = "mtu = 3000\nbit_error_rate = 1e-12\nplanes = 2";
    for kind in [
        "kind = \"single-switch\"\nhosts = 2",
        "kind = \"back-to-back\"",
        "kind = \"edges\"\nedges = \"h0 s0 100Gbps 3m\\nh1 s0 25Gbps 7m\"",
        "kind = \"fat-tree\"\nk = 2",
    ] {
        let topology = build(&format!("{kind}\n{more}")).expect(kind);
        for cable in topology.cables() {
            for link in [cable.link, cable.back] {
                assert_eq!((link.mtu, link.bit_error_rate), (3000, 1e-12), "{kind}");
            }
        }
    }
}

#[test]
fn keys_that_would_change_nothing_are_refused() {
    let edges = "kind = \"edges\"\nedges = \"h0 s0 100Gbps 3m\\nh1 s0 25Gbps 7m\"";
    for (kind, keys) in [
        (
            "kind = \"single-switch\"\nhosts = 2",
            &["uplink_rate", "uplink_cable"][..],
        ),
        ("kind = \"back-to-back\"", &["uplink_rate", "uplink_cable"]),
        (edges, &["rate", "cable", "uplink_rate", "uplink_cable"]),
    ] {
        for key in keys {
            let line = ALL_KEYS.lines().find(|line| line.starts_with(key));
            let text = format!("{kind}\n{}", line.expect(key));
            let fault = build(&text).expect_err(key);
            assert!(fault.contains(&format!("topology.{key}: ")), "{fault}");
            assert!(fault.starts_with("line "), "{fault}");
        }
    }
}
