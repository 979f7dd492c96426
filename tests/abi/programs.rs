//! Programs of Debian's packages, unchanged. docs/COMPAT.md lists what is known of them.

use std::net::Ipv4Addr;

use crate::ends::alone;
use crate::harness::{addresses, pair, port, program, run, urxe};

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
    for part in ["PORT_ACTIVE (4)", "Ethernet", "ATOMIC_HCA (1)", &gid] {
        assert!(ran.text.contains(part), "no {part}: {}", ran.text);
    }
}

/// What programs choose devices by: the library's words, and the file that `urxe run` shows.
#[test]
fn the_speed_of_the_port_can_be_set() {
    let (address, _) = addresses();
    let Some(mut command) = program("ibv_devinfo", UTILS, address) else {
        return;
    };
    command.arg("-v").env("URXE_SPEED", "25 Gb/s");
    let ran = run(command);
    for part in ["1X (1)", "25.0 Gbps (32)"] {
        assert!(ran.text.contains(part), "no {part}: {}", ran.text);
    }
    let mut command = urxe();
    command.args(["run", "--speed", "200", "--device", &address.to_string()]);
    let script = "cat /sys/class/infiniband/urxe0/ports/1/rate; ibv_devinfo -v";
    command.args(["--", "sh", "-c", script]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in ["200 Gb/sec (4X HDR)", "4X (2)", "50.0 Gbps (64)"] {
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

/// Each side with an address of its own. (Elsewhere they share one.)
#[test]
fn two_programs_on_two_addresses() {
    let (first, second) = addresses();
    let port = port();
    let start = |address| {
        let mut command = program("ibv_rc_pingpong", UTILS, address)?;
        command.args(["-g", "0", "-n", "200", "-p", &port]);
        Some(command)
    };
    let (Some(server), Some(mut client)) = (start(first), start(second)) else {
        return;
    };
    client.arg("127.0.0.1");
    let _alone = alone();
    let (server, client) = pair(server, client, &port);
    assert_eq!(
        (server.code, client.code),
        (Some(0), Some(0)),
        "{server:?} {client:?}"
    );
}
