//! Programs under faults, by words in front of them: `urxe run --faults`.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::harness::{Ran, addresses, pair_of, port, program, run, urxe};

const SPEC: &str = "drop=2%,dup=1%,reorder=1%,corrupt=0.5%,seed=7";

/// `urxe run` with faults in front of a program; none where it is not installed.
fn impaired(name: &str, package: &str, device: Ipv4Addr) -> Option<Command> {
    program(name, package, device)?;
    let mut command = urxe();
    command
        .args(["run", "--verbose", "--faults", SPEC, "--device"])
        .args([&device.to_string(), "--", name])
        .stdin(std::process::Stdio::null());
    Some(command)
}

/// Both sides under faults, on one address as a user would try it; both must end well and tell of every kind of fault.
fn pair_under_faults(name: &str, package: &str, args: &[&str]) {
    let (address, _) = addresses();
    let port = port();
    let start = || {
        let mut command = impaired(name, package, address)?;
        command.args(["-p", &port]).args(args);
        Some(command)
    };
    let Some((server, client)) = pair_of(start, &port) else {
        return;
    };
    let mut sums = [0; 4];
    for Ran { code, text } in [&server, &client] {
        assert_eq!(*code, Some(0), "{text}");
        let line = text.lines().find(|line| line.starts_with("urxe: faults"));
        let line = line.unwrap_or_else(|| panic!("no line about faults: {text}"));
        assert!(line.contains(SPEC), "{line}");
        for (sum, what) in
            sums.iter_mut()
                .zip([" dropped", " duplicated", " reordered", " corrupted"])
        {
            *sum += count(line, what);
        }
    }
    assert!(
        sums.iter().all(|sum| *sum > 0),
        "{sums:?}: {server:?} {client:?}"
    );
}

/// The number in front of a word.
fn count(line: &str, what: &str) -> u64 {
    let before = line.split(what).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn ibv_rc_pingpong_checks_its_data_under_faults() {
    let args = ["-g", "0", "-c", "-n", "500"];
    pair_under_faults("ibv_rc_pingpong", "ibverbs-utils", &args);
}

#[test]
fn ib_write_bw_under_faults() {
    let args = ["-x", "0", "-n", "300"];
    pair_under_faults("ib_write_bw", "perftest", &args);
}

/// A test that was to run under faults must not run without them.
#[test]
fn a_mistake_in_the_environment_is_an_error() {
    let (address, _) = addresses();
    for (variable, value) in [
        ("URXE_FAULTS", "drop=2"),
        ("URXE_MTU", "1500"),
        ("URXE_SPEED", "99"),
    ] {
        let Some(mut command) = program("ibv_devinfo", "ibverbs-utils", address) else {
            return;
        };
        command.env(variable, value).env("URXE_VERBOSE", "1");
        let ran = run(command);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.text.contains(variable), "{ran:?}");
    }
}

#[test]
fn a_limited_mtu_is_the_ports() {
    let (address, _) = addresses();
    if program("ibv_devinfo", "ibverbs-utils", address).is_none() {
        return;
    }
    let mut command = urxe();
    command.args(["run", "--mtu", "512", "--device", &address.to_string()]);
    command.args(["--", "ibv_devinfo"]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.text.lines().find(|line| line.contains("active_mtu"));
    assert!(line.is_some_and(|line| line.contains("512")), "{ran:?}");
}
