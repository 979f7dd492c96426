//! Arguments, exit codes and the small commands.

use std::process::Command;

use serde_json::Value;

use crate::harness::{binary, run, urxe};

#[test]
fn without_arguments_it_explains_itself_and_exits_with_2() {
    let ran = run(&mut urxe());
    assert_eq!(ran.code, Some(2));
    for command in ["pingpong", "bench", "devices", "decode", "stat"] {
        assert!(ran.stderr.contains(command), "{}", ran.stderr);
    }
}

#[test]
fn help_is_a_command_an_option_and_says_how_it_ends() {
    let [short, long] =
        [&["help", "run"][..], &["run", "--help"]].map(|args| run(urxe().args(args)));
    assert_eq!((short.code, long.code), (Some(0), Some(0)));
    assert_eq!(short.stdout, long.stdout);
    let all = run(urxe().arg("--help")).expect_success().stdout;
    for part in ["Examples:", "urxe run -- ibv_devinfo", "Exit codes: 0"] {
        assert!(all.contains(part), "no {part}: {all}");
    }
    // Hidden ones stay so.
    assert!(!all.contains("floor-role"), "{all}");
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [
        &["no-such-command"][..],
        &["decode"],
        &["explain"],
        &["explain", "--list", "12"],
        &["pingpong", "--size", "0"],
        &[
            "pingpong",
            "--server",
            "127.0.0.1",
            "--connect",
            "127.0.0.1",
        ],
        &["pingpong", "--local", "127.0.0.1"],
        &["bench"],
        &["bench", "teleport"],
        &["bench", "fairness", "--qps", "0"],
        &["bench", "shards", "--shards", "65"],
        &["bench", "send", "fairness"],
        &["bench", "send", "--mtu", "1000"],
        &["bench", "send", "--size", "1G"],
        &["bench", "send", "-n", "10", "-D", "1"],
        &["bench", "fairness", "--size", "8"],
        &["stat", "--count", "2"],
        &["stat", "--watch", "0"],
        &["bench", "send", "--wire", "copper"],
        &["bench", "fairness", "--wire", "copper"],
        &["bench", "atomic", "--size", "16"],
    ] {
        let ran = run(urxe().args(args));
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}: {}", ran.stdout);
    }
}

#[test]
fn devices_lists_the_loopback_device() {
    let ran = run(urxe().arg("devices")).expect_success();
    let line = ran.stdout.lines().find(|line| line.contains(" lo "));
    let line = line.unwrap_or_else(|| panic!("no lo: {}", ran.stdout));
    assert!(line.starts_with("urxe") && line.contains("up"), "{line}");
    assert!(ran.stdout.contains("::ffff:127.0.0.1"), "{}", ran.stdout);
    let ran = run(urxe().arg("devices").env("URXE_SPEED", "40")).expect_success();
    assert!(ran.stdout.contains("40 Gb/sec (4X QDR)"), "{}", ran.stdout);
}

/// By the names that programs under `urxe run` see.
#[test]
fn devices_are_those_of_urxe_devices() {
    let named = ["URXE_DEVICES", "127.0.0.1,other=127.0.0.2"];
    let ran = run(urxe().args(["devices", "--json"]).env(named[0], named[1])).expect_success();
    let report: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
    let devices = report["devices"].as_array().expect("a list");
    let of = |name: &str| devices.iter().find(|device| device["device"] == name);
    for (name, address) in [("urxe0", "127.0.0.1"), ("other", "127.0.0.2")] {
        let device = of(name).unwrap_or_else(|| panic!("no {name}: {report}"));
        assert_eq!(
            device["addresses"],
            serde_json::json!([address]),
            "{report}"
        );
    }
}

#[test]
fn an_address_of_another_host_is_named() {
    // 192.0.2.0/24 is for documentation: no host has it.
    let ran = run(urxe().args(["pingpong", "--server", "192.0.2.1"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("urxe: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("192.0.2.1"), "{}", ran.stderr);
}

#[test]
fn explain_says_what_numbers_and_names_mean() {
    let ran = run(urxe().args(["explain", "0x202", "IBV_WC_RNR_RETRY_EXC_ERR"])).expect_success();
    for part in [
        "wrong or stale rkey",
        "IBV_WC_REM_ACCESS_ERR",
        "no receive posted",
    ] {
        assert!(ran.stdout.contains(part), "no {part}: {}", ran.stdout);
    }
    // One argument that is a whole line of a program's output.
    let line = "work request 3: RNR retry counter exceeded (remote side: whatever)";
    let ran = run(urxe().args(["explain", line])).expect_success();
    assert!(
        ran.stdout.contains("IBV_WC_RNR_RETRY_EXC_ERR (13)"),
        "{}",
        ran.stdout
    );

    let line = "failed to modify QP state to RTR: Invalid argument";
    let ran = run(urxe().args(["explain", "--json", line])).expect_success();
    let topics: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
    assert_eq!(topics[0]["name"], "EINVAL", "{topics}");
    assert_eq!(topics[0]["number"], 22, "{topics}");

    let ran = run(urxe().args(["explain", "EINVAL", "gibberish"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("EINVAL (22)"), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("\"gibberish\"") && ran.stderr.contains("--list"),
        "{}",
        ran.stderr
    );
}

/// What is typed is named as it was typed, and what to do is said without the words of the library.
#[test]
fn mistakes_are_told_in_the_words_of_the_command() {
    for (args, said) in [
        (&["explain"][..], "urxe: explain what? A number"),
        (&["explain"], "`urxe explain --list` shows"),
        (
            &["run", "--device", "nope", "--", "true"],
            "urxe: --device \"nope\": nope is neither an IP address nor an interface",
        ),
        (
            &["run", "--faults", "drop=200%", "--", "true"],
            "drop=200%: a share is at most 100%",
        ),
        (
            &["bench", "--server", "192.0.2.1"],
            "urxe: cannot open a device on 192.0.2.1: this host has no address",
        ),
    ] {
        let ran = run(urxe().args(args));
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("caller"), "{args:?}: {}", ran.stderr);
    }
}

/// As `cargo install` leaves it.
#[test]
fn a_command_without_its_library_says_where_both_are() {
    let folder = std::env::temp_dir().join(format!("urxe-alone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("can be made");
    let alone = folder.join("urxe");
    std::fs::copy(binary(), &alone).expect("can be copied");
    let ran = run(Command::new(&alone)
        .args(["run", "--", "true"])
        .env_remove("URXE_LIB_DIR"));
    std::fs::remove_dir_all(&folder).expect("can be removed");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for part in ["this is the command alone", "wheel", "URXE_LIB_DIR"] {
        assert!(ran.stderr.contains(part), "no {part}: {}", ran.stderr);
    }
}

#[test]
fn explain_lists_everything() {
    let ran = run(urxe().args(["explain", "--list"])).expect_success();
    for part in [
        "IBV_WC_SUCCESS (0)",
        "IBV_WC_LOC_EEC_OP_ERR (3)\n  local EE context operation error\n  never seen here",
        "vendor_err 0x301",
        "IBV_EVENT_GID_CHANGE (18)",
        "errno ENOMEM (12)",
        "counter drop_no_qp",
        "counter rx_buffer_drops",
        "rule of strict mode lkey-as-rkey",
    ] {
        assert!(ran.stdout.contains(part), "no {part}");
    }
}
