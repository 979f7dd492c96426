//! What must not be left when all are gone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use urxe::Context;

/// No QPNs and no place in the registry, no port, and the address is free for one alone.
pub(crate) fn nothing_is_left(addr: IpAddr, pids: &BTreeSet<u32>) {
    for participant in urxe::participants().expect("a registry") {
        assert!(
            !pids.contains(&participant.pid) && !participant.addresses.contains(&addr),
            "left behind: {participant:?}"
        );
    }
    assert_eq!(sockets_on(addr), 0, "ports are left");
    // Reading the counters removes those of processes that were killed.
    urxe::stat_file::read_all().expect("readable");
    let files = std::fs::read_dir(urxe::user_directory().expect("a folder"));
    for file in files.expect("readable").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let of = name
            .strip_prefix("stat.")
            .and_then(|rest| rest.split('.').next());
        let of = of.and_then(|pid| pid.parse().ok());
        assert!(
            of.is_none_or(|pid| !pids.contains(&pid)),
            "left behind: {name}"
        );
    }
    let alone = Context::builder(addr).share(false).open();
    let alone = alone.expect("nobody else has the address");
    assert_eq!(sockets_on(addr), 1, "the table shows them");
    drop(alone);
}

/// Rings in memory that a process has mapped.
pub(crate) fn rings_of(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_ring = |line: &&str| line.contains("urxe-ring");
    maps.lines().filter(is_ring).count()
}

/// UDP ports of RoCEv2 and of sealed packets.
const PORTS: [u16; 2] = [4791, 14791];

/// UDP sockets on those ports of an address, by the kernel's table.
fn sockets_on(addr: IpAddr) -> usize {
    let IpAddr::V4(v4) = addr else {
        unreachable!("the tests have IPv4 addresses");
    };
    let addr = u32::from_ne_bytes(v4.octets());
    let locals = PORTS.map(|port| format!("{addr:08X}:{port:04X}"));
    let table = std::fs::read_to_string("/proc/net/udp").expect("a table");
    let is_there = |line: &&str| {
        let local = line.split_whitespace().nth(1);
        locals.iter().any(|of_ours| Some(of_ours.as_str()) == local)
    };
    table.lines().filter(is_there).count()
}
