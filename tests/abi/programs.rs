//! Programs of Debian's packages, unchanged. docs/COMPAT.md lists what is known of them.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::harness::{Ran, addresses, pair, port, program, run};

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
