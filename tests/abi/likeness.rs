//! Devices that look like a certain adapter, and where in their GID tables programs find what they look for.

use std::process::{Command, Stdio};

use crate::harness::{Ran, addresses, pair, port, program, run, urxe};

const UTILS: &str = "ibverbs-utils";

fn on(options: &str, line: &str) -> Option<Command> {
    let (address, _) = addresses();
    program("ibv_rc_pingpong", UTILS, address)?;
    let mut command = urxe();
    command.args(["run", "--device", "lo"]);
    command.args(options.split_whitespace()).arg("--");
    command.args(line.split_whitespace()).stdin(Stdio::null());
    Some(command)
}

/// Both sides of a ping-pong with a fixed GID index.
fn pingpong(options: &str, index: u32) -> Option<(Ran, Ran)> {
    let port = port();
    let line = format!("ibv_rc_pingpong -n 50 -c -p {port} -g {index}");
    let (server, mut client) = (on(options, &line)?, on(options, &line)?);
    client.arg("127.0.0.1");
    Some(pair(server, client, &port))
}

#[test]
fn programs_with_a_habit_find_ipv4_where_they_look() {
    for (options, index) in [("", 0), ("", 1), ("", 3), ("--as rxe", 1), ("--as mlx5", 3)] {
        let Some((server, client)) = pingpong(options, index) else {
            return;
        };
        for ran in [server, client] {
            assert_eq!(ran.code, Some(0), "{options} {index}: {ran:?}");
            assert!(ran.text.contains("GID ::ffff:127.0.0.1"), "{ran:?}");
        }
    }
}

/// The link-local address, and RoCE v1.
#[test]
fn what_is_only_there_to_be_seen_is_refused_in_words() {
    for (options, index, better) in [("-v --as rxe", 0, 1), ("-v --as mlx5", 2, 3)] {
        let Some((server, client)) = pingpong(options, index) else {
            return;
        };
        let words = format!("at GID index {index}; there is one at index {better}");
        // The client is not answered.
        assert_ne!(client.code, Some(0), "{client:?}");
        assert_ne!(server.code, Some(0), "{server:?}");
        assert!(server.text.contains(&words), "{server:?}");
    }
}

#[test]
fn devices_have_the_names_and_tables_of_the_adapter() {
    for (adapter, parts) in [
        (
            "generic",
            [
                "urxe0",
                "0xffffff",
                "GID[  3]:\t\t::ffff:127.0.0.1, RoCE v2",
            ],
        ),
        (
            "rxe",
            ["rxe0", "0xffffff", "GID[  1]:\t\t::ffff:127.0.0.1, RoCE v2"],
        ),
        (
            "mlx5",
            ["mlx5_0", "0x02c9", "GID[  3]:\t\t::ffff:127.0.0.1, RoCE v2"],
        ),
    ] {
        let Some(command) = on(&format!("--as {adapter}"), "ibv_devinfo -v") else {
            return;
        };
        let ran = run(command);
        for part in parts {
            assert!(ran.text.contains(part), "{adapter}, {part}: {ran:?}");
        }
        let name = parts[0];
        let types = format!("cat /sys/class/infiniband/{name}/ports/1/gid_attrs/types/0");
        let ran = on(&format!("--as {adapter}"), &types)
            .map(run)
            .expect("as before");
        let wanted = if adapter == "mlx5" {
            "IB/RoCE v1\n"
        } else {
            "RoCE v2\n"
        };
        assert_eq!(ran.text, wanted, "{adapter}");
    }
}
