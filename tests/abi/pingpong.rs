//! The ping-pongs of ibverbs-utils, with every option that they have.

use std::net::Ipv6Addr;

use crate::ends::{User, alone, ended_well, loopback, run_both_ends};
use crate::harness::{pair_of, port, program};

const UTILS: &str = "ibverbs-utils";

/// A completion that comes between `ibv_req_notify_cq` and `ibv_start_poll` is polled, and raises an event. With `-t -e` the program ends with an error at
/// that event, as there is nothing to poll: on any device.
const OWN_RACE: &str = "poll CQ failed 2";

/// Both sides end well, and data that is checked was found right.
fn pingpong(user: User, name: &str, options: &str) {
    let args: Vec<&str> = options.split_whitespace().collect();
    let mut tries = 0;
    let ends = loop {
        let Some(ends) = run_both_ends(user, UTILS, name, &args, "-g") else {
            return;
        };
        tries += 1;
        let meets_own_race = args.ends_with(&["-t", "-e"])
            && [&ends.0, &ends.1].map(|end| end.text.contains(OWN_RACE)) != [false; 2];
        if tries == 5 || !meets_own_race {
            break ends;
        }
        println!("{name} {options} was told of a completion that it had polled: once more");
    };
    let (server, client) = ended_well(name, &args, ends);
    // The one for XRC prints no numbers, only how it ended.
    let end = if name == "ibv_xsrq_pingpong" {
        "success"
    } else {
        "iters in"
    };
    for text in [server, client] {
        assert!(text.contains(end), "{name} {options}: {text}");
        // The exit status does not tell.
        assert!(!text.contains("invalid data"), "{name} {options}: {text}");
    }
}

fn rc(user: User) {
    for options in [
        "",
        "-e",
        "-c",
        "-c -s 70000 -m 4096",
        "-c -e",
        "-t",
        "-t -e",
        "-o -c",
        "-O",
        "-N",
        "-N -c -e",
        "-N -t",
        "-N -o",
        "-j",
        "-n 200",
    ] {
        pingpong(user, "ibv_rc_pingpong", &format!("-n 50 {options}"));
    }
}

fn others(user: User) {
    for name in ["ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"] {
        for options in ["", "-e", "-c", "-c -e"] {
            pingpong(user, name, &format!("-n 50 {options}"));
        }
    }
    pingpong(user, "ibv_srq_pingpong", "-n 50 -q 4 -o");
    for options in ["", "-e", "-o"] {
        pingpong(user, "ibv_xsrq_pingpong", &format!("-n 50 {options}"));
    }
}

#[test]
fn ibv_rc_pingpong_with_every_option() {
    rc(User::Myself);
}

#[test]
fn ibv_uc_ud_srq_and_xsrq_pingpong() {
    others(User::Myself);
}

/// Over IPv6 there is no Identification, by which a packet in the middle of a train that the
/// kernel joined could be refused: of an unreliable connection it is not sent again.
#[test]
fn ibv_uc_pingpong_of_long_messages_over_ipv6() {
    let (_loopback, _alone) = (loopback(), alone());
    let port = port();
    let start = || {
        let mut command = program("ibv_uc_pingpong", UTILS, Ipv6Addr::LOCALHOST)?;
        command.args(["-g", "0", "-p", &port, "-s", "60000", "-n", "1000"]);
        Some(command)
    };
    let Some((server, client)) = pair_of(start, &port) else {
        return;
    };
    for end in [server, client] {
        assert_eq!(end.code, Some(0), "{}", end.text);
        assert!(end.text.contains("iters in"), "{}", end.text);
    }
}

#[test]
fn all_pingpongs_as_an_ordinary_user() {
    if User::Nobody.is_available() {
        rc(User::Nobody);
        others(User::Nobody);
    }
}
