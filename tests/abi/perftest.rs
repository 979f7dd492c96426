//! perftest: bandwidth and latency of every operation, with the options that change what the library has to do.

use crate::cm_ends::cm_ends;
use crate::ends::{User, both_ends};

/// Sizes that `-a` goes through: 2 to 8388608 bytes, and up to the MTU for datagrams.
const ALL_SIZES: usize = 23;
/// Iterations: the ends poll, on processors that they share with others.
const FEW: &str = "-n 50";
/// Iterations if all sizes are run.
const FEWER: &str = "-n 5";

/// Both sides end well, and the client prints so many lines of numbers.
fn perftest(user: User, name: &str, options: &str, lines: usize) {
    let args: Vec<&str> = options.split_whitespace().collect();
    let Some((_, client)) = both_ends(user, "perftest", name, &args, "-x") else {
        return;
    };
    check_numbers(&format!("{name} {options}"), &client, lines);
}

fn check_numbers(told: &str, client: &str, lines: usize) {
    let numbers = client
        .lines()
        .skip_while(|line| !line.contains("#bytes"))
        .skip(1)
        .map_while(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let sizes: Vec<u64> = numbers.collect();
    assert_eq!(sizes.len(), lines, "{told}: {client}");
    assert!(sizes.is_sorted(), "{told}: {client}");
}

/// `-R`: the sides meet by the connection manager, which also exchanges what they otherwise tell each other over TCP.
fn by_addresses(user: User, tool: &str) {
    let server = format!("{tool} -R -F -p PORT {FEW}");
    let Some((_, client)) = cm_ends(user, "perftest", &server, &format!("{server} ADDR")) else {
        return;
    };
    check_numbers(&format!("{tool} -R"), &client, 1);
}

fn one(user: User, name: &str, options: &str) {
    perftest(user, name, &format!("{FEW} {options}"), 1);
}

/// What there is for each operation: services, events (which perftest does not offer for WRITE), many QPs, both
/// directions at once, inline. Messages without acknowledgement are so few and short that the receiver's socket
/// holds them all: perftest waits for every one, and none comes again.
fn bandwidth(user: User) {
    for options in [
        "",
        "-e",
        "-q 16",
        "-b",
        "-b -e",
        "-I 64 -s 64",
        "-c UC -s 1024",
        "-c UC -s 256 -q 4",
        "-c UD -s 1024",
        "-c UD -s 1024 -e",
        "-c UD -s 1024 -b",
        "-r 64 --use-srq",
    ] {
        one(user, "ib_send_bw", options);
    }
    for options in ["", "-q 16", "-b", "-I 64 -s 64", "-c UC", "-c UC -b"] {
        one(user, "ib_write_bw", options);
    }
    for name in ["ib_read_bw", "ib_atomic_bw"] {
        for options in ["", "-e", "-q 16", "-b"] {
            one(user, name, options);
        }
    }
}

fn latency(user: User) {
    for options in [
        "",
        "-e",
        "-I 64 -s 64",
        "-c UC",
        "-c UC -e",
        "-c UD",
        "-c UD -e",
        "-I 0 -s 4096",
    ] {
        one(user, "ib_send_lat", options);
    }
    for options in ["", "-I 64 -s 64", "-I 0 -s 4096", "-c UC"] {
        one(user, "ib_write_lat", options);
    }
    for name in ["ib_read_lat", "ib_atomic_lat"] {
        for options in ["", "-e"] {
            one(user, name, options);
        }
    }
}

#[test]
fn bandwidth_of_every_operation() {
    bandwidth(User::Myself);
}

/// XRC. Not as another user: perftest leaves its domain's file in /tmp to the user that ran it first.
#[test]
fn extended_reliable_connections() {
    for options in ["", "-e", "-q 4", "-b"] {
        one(User::Myself, "ib_send_bw", &format!("-c XRC {options}"));
    }
    for name in ["ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat"] {
        one(User::Myself, name, "-c XRC");
    }
}

#[test]
fn latency_of_every_operation() {
    latency(User::Myself);
}

#[test]
fn every_operation_as_an_ordinary_user() {
    if User::Nobody.is_available() {
        for kind in ["bw", "lat"] {
            for operation in ["send", "write", "read", "atomic"] {
                one(User::Nobody, &format!("ib_{operation}_{kind}"), "");
            }
        }
        for options in ["-q 16", "-b -e", "-c UC -s 1024", "-c UD -s 1024"] {
            one(User::Nobody, "ib_send_bw", options);
        }
        one(User::Nobody, "ib_send_lat", "-e");
    }
}

#[test]
fn messages_of_all_sizes() {
    for name in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        perftest(User::Myself, name, &format!("{FEWER} -a"), ALL_SIZES);
    }
    perftest(
        User::Myself,
        "ib_send_bw",
        &format!("{FEWER} -a -b"),
        ALL_SIZES,
    );
    perftest(
        User::Myself,
        "ib_write_bw",
        &format!("{FEWER} -a -c UC"),
        ALL_SIZES,
    );
    // `-a` measures the processor's clock anew for each size of a latency: half a minute on a busy machine.
    for name in ["ib_send_lat", "ib_write_lat", "ib_read_lat"] {
        for size in [2, 1000, 65_536, 1 << 20] {
            one(User::Myself, name, &format!("-s {size}"));
        }
    }
}

/// For as long as it is told: `-D`. docs/COMPAT.md says what ran for longer.
#[test]
fn for_a_duration() {
    for operation in ["send", "write", "read", "atomic"] {
        for kind in ["bw", "lat"] {
            perftest(
                User::Myself,
                &format!("ib_{operation}_{kind}"),
                "-D 2 -f 0",
                1,
            );
        }
    }
}

/// perftest tells its client to come, and listens then: a client that comes first is refused, and asks again.
#[test]
fn every_operation_by_addresses() {
    for tool in [
        "ib_send_bw",
        "ib_send_bw -q 4",
        "ib_send_bw -b -e",
        "ib_send_bw -c UD -s 1024",
        "ib_write_bw",
        "ib_read_bw",
        "ib_send_lat",
        "ib_send_lat -c UD",
        "ib_write_lat",
        "ib_read_lat",
        "ib_atomic_lat",
    ] {
        by_addresses(User::Myself, tool);
    }
}

#[test]
fn by_addresses_as_an_ordinary_user() {
    if User::Nobody.is_available() {
        for tool in ["ib_send_bw", "ib_write_lat"] {
            by_addresses(User::Nobody, tool);
        }
    }
}
