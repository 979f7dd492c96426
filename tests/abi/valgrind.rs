//! Programs on the drop-in library under Valgrind: they run, and neither they nor the library touch memory that is not
//! theirs or decide by bytes that were never written.

use crate::cm_ends::cm_ends;
use crate::ends::{User, alone};
use crate::harness::{pair_of, port, program};

/// Prints what it finds and nothing else; its threads take turns, as they poll.
const VALGRIND: &str = concat!(
    "valgrind --quiet --fair-sched=try --error-exitcode=9 --suppressions=",
    env!("CARGO_MANIFEST_DIR"),
    "/abi/valgrind.supp"
);

/// Valgrind begins its lines so.
#[track_caller]
fn check_clean(name: &str, text: &str) {
    assert!(!text.contains("=="), "{name}: {text}");
}

/// One of rdma-core's ping-pongs; false if it or Valgrind is missing.
fn pingpong(line: &str) -> bool {
    let _alone = alone();
    let (device, port) = (User::Myself.address(), port());
    let name = line.split_whitespace().next().expect("a program");
    if program(name, "ibverbs-utils", device).is_none() {
        return false;
    }
    let mut words = VALGRIND.split_whitespace();
    let valgrind = words.next().expect("a program");
    let start = || {
        let mut command = program(valgrind, valgrind, device)?;
        command.args(words.clone()).args(line.split_whitespace());
        command.args(["-g", "0", "-n", "20", "-p", &port]);
        Some(command)
    };
    let Some((server, client)) = pair_of(start, &port) else {
        return false;
    };
    for end in [server, client] {
        assert_eq!(end.code, Some(0), "{line}: {}", end.text);
        check_clean(line, &end.text);
    }
    true
}

#[test]
fn pingpongs_of_every_service_run_under_valgrind() {
    for line in [
        "ibv_rc_pingpong -e",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong -q 4",
        "ibv_xsrq_pingpong",
    ] {
        if !pingpong(line) {
            return;
        }
    }
}

#[test]
fn connections_by_address_run_under_valgrind() {
    let end = "-a ADDR -p PORT -C 10 -V";
    if program("rping", "rdmacm-utils", User::Myself.address()).is_none() {
        return;
    }
    let ends = cm_ends(
        User::Myself,
        "valgrind",
        &format!("{VALGRIND} rping -s {end}"),
        &format!("{VALGRIND} rping -c {end}"),
    );
    let Some((server, client)) = ends else {
        return;
    };
    check_clean("the server", &server);
    check_clean("the client", &client);
}
