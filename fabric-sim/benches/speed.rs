//! How fast the simulator is, on one core, and on two: what docs/SIMULATION.md has in its table.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures real time"
)]

use std::time::Instant;

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
    let link = Link::new(Rate::gbps(100));
    let topology = Topology::fat_tree(k, link, link);
    let hosts = topology.host_count() as u32;
    // Every host sends to the one that is half of all hosts and a bit away: across the cores.
    let pairs = (0..hosts).map(|h| (HostId(h), HostId((h + hosts / 2 + 1) % hosts)));
    let name = format!("permutation of {hosts} hosts, 2 MB each, Lite");
    measure(&name, topology, Mode::Lite, Mtu::Mtu4096, pairs);
    println!("memory at the most: {} MiB", memory_max_kib() / 1024);
    for metres in [30, 2] {
        in_parts(k, metres, if is_test { 1 } else { 5 });
    }
}

/// The permutation in `bytes` mode on one thread and on two, in turns: real time, and what the threads did in it.
fn in_parts(k: u32, metres: u64, turns: usize) {
    println!(
        "\npermutation over a fat tree (k = {k}), cables of {metres} m, 2 MB each, Bytes, on threads:"
    );
    let mut seconds = [Vec::new(), Vec::new()];
    let mut traces = Vec::new();
    for turn in 0..2 * turns {
        let threads = 1 + turn % 2;
        let link = Link::new(Rate::gbps(100)).metres(metres);
        let topology = Topology::fat_tree(k, link, link);
        let hosts = topology.host_count() as u32;
        let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
        sim.set_threads(threads);
        for h in 0..hosts {
            let mut spec =
                StreamSpec::write(HostId(h), HostId((h + hosts / 2 + 1) % hosts), MESSAGE);
            spec.options.mtu = Mtu::Mtu4096;
            sim.add_stream(spec).expect("connects");
        }
        let (start, cpu) = (Instant::now(), cpu_seconds_of_all());
        sim.run();
        let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds_of_all() - cpu);
        seconds[threads - 1].push(took);
        traces.push(sim.fabric().trace());
        let work = sim.work();
        println!(
            "  {threads}: {took:7.3} s, of processors {cpu:7.3} s; {} windows, ran {:.3?}, waited {:.3?}",
            work.windows, work.ran, work.waited
        );
    }
    assert!(traces.windows(2).all(|two| two[0] == two[1]), "one run");
    let [one, two] = seconds.map(|mut list| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    });
    println!(
        "  medians {one:.3} s and {two:.3} s: {:.2} times",
        one / two
    );
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

/// The same of all threads, those that have ended among them.
fn cpu_seconds_of_all() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux tells this");
    let (_, after) = text.rsplit_once(')').expect("a name");
    let fields: Vec<u64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .flat_map(str::parse)
        .collect();
    // In hundredths of seconds.
    fields.iter().sum::<u64>() as f64 / 100.0
}

/// The most memory that this process had, in KiB; 0 where the system does not tell.
fn memory_max_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}
