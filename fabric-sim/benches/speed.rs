//! How fast the simulator is, on one core: what docs/SIMULATION.md has in its table.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures real time"
)]

use fabric_sim::host::StreamSpec;
use fabric_sim::{FabricConfig, HostId, Link, Mode, Rate, Sim, Topology};
use urxe_core::qp::attr::Mtu;

const MESSAGE: u32 = 2_000_000;

fn main() {
    // `cargo test --benches` runs this too: then a small part of it, to see that it works.
    let is_test = !std::env::args().any(|arg| arg == "--bench");
    let (senders, k) = if is_test { (7, 4) } else { (127, 16) };
    println!(
        "{:44} {:>9} {:>9} {:>12} {:>12}",
        "", "packets", "seconds", "packets/s", "events/s"
    );
    for mode in [Mode::Lite, Mode::Bytes] {
        let topology = Topology::single_switch(senders + 1, Link::new(Rate::gbps(100)));
        let to_one = |h| (HostId(h), HostId(senders));
        let name = format!("incast {senders} -> 1, 2 MB each, {mode:?}");
        measure(
            &name,
            topology,
            mode,
            Mtu::Mtu1024,
            (0..senders).map(to_one),
        );
    }
    let topology = Topology::fat_tree(k, Link::new(Rate::gbps(100)));
    let hosts = topology.host_count() as u32;
    // Every host sends to the one that is half of all hosts and a bit away: across the cores.
    let pairs = (0..hosts).map(|h| (HostId(h), HostId((h + hosts / 2 + 1) % hosts)));
    let name = format!("permutation of {hosts} hosts, 2 MB each, Lite");
    measure(&name, topology, Mode::Lite, Mtu::Mtu4096, pairs);
    println!("memory at the most: {} MiB", memory_max_kib() / 1024);
}

fn measure(
    name: &str,
    topology: Topology,
    mode: Mode,
    mtu: Mtu,
    pairs: impl Iterator<Item = (HostId, HostId)>,
) {
    let config = FabricConfig {
        mode,
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(topology, config).expect("builds");
    let mut packets = 0;
    for (from, to) in pairs {
        let mut spec = StreamSpec::write(from, to, MESSAGE);
        spec.options.mtu = mtu;
        sim.add_stream(spec).expect("connects");
        packets += u64::from(MESSAGE.div_ceil(mtu.bytes()));
    }
    let start = cpu_seconds();
    sim.run();
    let seconds = cpu_seconds() - start;
    assert!(
        sim.streams().iter().all(|s| s.is_complete()),
        "{name}: not all arrived"
    );
    assert_eq!(sim.fabric().drops().total(), 0, "{name}: drops");
    println!(
        "{name:44} {packets:9} {seconds:9.3} {:12.0} {:12.0}",
        packets as f64 / seconds,
        sim.fabric().events() as f64 / seconds,
    );
}

/// Seconds that this process was on a processor: the same on a busy machine and an idle one.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells this");
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|first| first.parse::<u64>().ok());
    ns.expect("a number") as f64 * 1e-9
}

/// The most memory that this process had, in KiB; 0 where the system does not tell.
fn memory_max_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}
