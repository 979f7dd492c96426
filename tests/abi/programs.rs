//! Programs of Debian's packages, unchanged. docs/COMPAT.md lists what is known of them.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::harness::{Ran, addresses, pair, port, program, run, urxe};

const UTILS: &str = "ibverbs-utils";

#[test]
fn ibv_devices_lists_the_device() {
    let (address, _) = addresses();
    let Some(command) = program("ibv_devices", UTILS, address) else {
        return;
    };
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("urxe0"), "{ran:?}");
}

#[test]
fn ibv_devinfo_shows_port_and_gid() {
    let (address, _) = addresses();
    let Some(mut command) = program("ibv_devinfo", UTILS, address) else {
        return;
    };
    command.arg("-v");
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let gid = format!("::ffff:{address}, RoCE v2");
    for part in ["PORT_ACTIVE (4)", "Ethernet", "ATOMIC_GLOB (2)", &gid] {
        assert!(ran.text.contains(part), "no {part}: {}", ran.text);
    }
}

#[test]
fn a_device_that_is_no_address_is_an_error() {
    let Some(mut command) = program("ibv_devices", UTILS, Ipv4Addr::LOCALHOST) else {
        return;
    };
    command.env("URXE_DEVICES", "127.0.0.300");
    let ran = run(command);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("127.0.0.300"), "{ran:?}");
}

#[test]
fn urxe_run_finds_the_library() {
    let (address, _) = addresses();
    if program("ibv_devinfo", UTILS, address).is_none() {
        return;
    }
    let mut command = urxe();
    command.args([
        "run",
        "--device",
        &address.to_string(),
        "--",
        "ibv_devinfo",
        "-v",
    ]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains(&format!("::ffff:{address}")), "{ran:?}");
}

/// A program that needs what is not there is told so, and ends.
#[test]
fn the_connection_manager_says_that_it_is_missing() {
    let Some(mut command) = program("rping", "rdmacm-utils", Ipv4Addr::LOCALHOST) else {
        return;
    };
    command.args(["-c", "-a", "127.0.0.1"]);
    let ran = run(command);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("connection manager"), "{ran:?}");
}

/// Server and client with the same arguments, both of which must end well.
fn pingpong(name: &str, args: &[&str]) {
    let (server, client) = addresses();
    let port = port();
    let start = |device: Ipv4Addr| -> Option<Command> {
        let mut command = program(name, UTILS, device)?;
        command.args(["-g", "0", "-p", &port]).args(args);
        Some(command)
    };
    let (Some(first), Some(_)) = (start(server), start(client)) else {
        return;
    };
    let second = || {
        let mut command = start(client).expect("as a moment ago");
        command.arg("127.0.0.1");
        command
    };
    let (server, client) = pair(first, second, &port);
    for Ran { code, text } in [server, client] {
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("iters in"), "{text}");
    }
}

#[test]
fn ibv_rc_pingpong_polling() {
    pingpong("ibv_rc_pingpong", &[]);
}

#[test]
fn ibv_rc_pingpong_checks_its_data() {
    pingpong("ibv_rc_pingpong", &["-c", "-s", "70000", "-n", "50"]);
}

#[test]
fn ibv_rc_pingpong_sleeping_on_events() {
    pingpong("ibv_rc_pingpong", &["-e"]);
}

#[test]
fn ibv_rc_pingpong_by_the_extended_functions() {
    // ibv_wr_start and its like; with -t, ibv_start_poll and timestamps too.
    pingpong("ibv_rc_pingpong", &["-N"]);
    pingpong("ibv_rc_pingpong", &["-N", "-t", "-n", "200"]);
}

#[test]
fn ibv_uc_pingpong_polling() {
    pingpong("ibv_uc_pingpong", &["-n", "200"]);
}

#[test]
fn ibv_ud_pingpong_both_ways_of_waiting() {
    pingpong("ibv_ud_pingpong", &["-n", "200"]);
    pingpong("ibv_ud_pingpong", &["-n", "200", "-e"]);
}

#[test]
fn ibv_srq_pingpong_with_many_connections() {
    pingpong("ibv_srq_pingpong", &["-n", "200", "-q", "16"]);
}

/// Both sides on one address: processes share it.
#[test]
fn two_programs_on_one_address() {
    let (address, _) = addresses();
    let port = port();
    let start = || {
        let mut command = program("ibv_rc_pingpong", UTILS, address)?;
        command.args(["-g", "0", "-n", "200", "-p", &port]);
        Some(command)
    };
    let Some(server) = start() else { return };
    let client = || {
        let mut command = start().expect("as a moment ago");
        command.arg("127.0.0.1");
        command
    };
    let (server, client) = pair(server, client, &port);
    assert_eq!(
        (server.code, client.code),
        (Some(0), Some(0)),
        "{server:?} {client:?}"
    );
}

/// XRC: it prints no numbers, only how it ended.
#[test]
fn ibv_xsrq_pingpong_ends_well() {
    let (first, second) = addresses();
    let port = port();
    let start = |device| {
        let mut command = program("ibv_xsrq_pingpong", UTILS, device)?;
        command.args(["-g", "0", "-n", "200", "-p", &port]);
        Some(command)
    };
    let Some(server) = start(first) else { return };
    let client = || {
        let mut command = start(second).expect("as a moment ago");
        command.arg("127.0.0.1");
        command
    };
    let (server, client) = pair(server, client, &port);
    for Ran { code, text } in [server, client] {
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("success"), "{text}");
    }
}

/// Server and client of a tool of perftest; the client prints a line of numbers.
fn perftest(name: &str, args: &[&str]) {
    let (first, second) = addresses();
    let port = port();
    let start = |device| {
        let mut command = program(name, "perftest", device)?;
        command.args(["-x", "0", "-p", &port]).args(args);
        Some(command)
    };
    let Some(server) = start(first) else { return };
    let client = || {
        let mut command = start(second).expect("as a moment ago");
        command.arg("127.0.0.1");
        command
    };
    let (server, client) = pair(server, client, &port);
    assert_eq!(
        (server.code, client.code),
        (Some(0), Some(0)),
        "{server:?} {client:?}"
    );
    let mut lines = client.text.lines();
    lines
        .find(|line| line.contains("#bytes"))
        .expect("a head line");
    let first = lines.next().and_then(|line| line.split_whitespace().nth(1));
    assert!(
        first.is_some_and(|n| n.parse::<u64>().is_ok()),
        "{}",
        client.text
    );
}

#[test]
fn perftest_bandwidth() {
    for name in ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"] {
        perftest(name, &["-n", "200"]);
    }
    perftest("ib_send_bw", &["-n", "200", "-e"]);
    perftest("ib_send_bw", &["-n", "200", "-c", "UD"]);
    perftest("ib_send_bw", &["-n", "200", "-r", "64", "--use-srq"]);
    perftest("ib_write_bw", &["-n", "200", "-q", "8"]);
}

#[test]
fn perftest_latency() {
    for name in [
        "ib_send_lat",
        "ib_write_lat",
        "ib_read_lat",
        "ib_atomic_lat",
    ] {
        perftest(name, &["-n", "100"]);
    }
}
