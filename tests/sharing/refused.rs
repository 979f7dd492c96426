//! Processes that cannot have the address: another user's, and any while the port is taken by something else. The
//! kernel's own rdma_rxe, which takes it on all addresses, is tried in `tests/interop`.

use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use urxe::{Context, ErrorKind};

use crate::address;

/// Says to this test binary, started again, at which address it shall try its luck.
const STRANGER: &str = "URXE_TEST_STRANGER_AT";

/// The user `nobody`, on every system.
const NOBODY: u32 = 65534;

/// Not a test by itself: another user's process.
#[test]
fn stranger_process() {
    let Ok(addr) = std::env::var(STRANGER) else {
        println!("skipped: this is what the other test starts");
        return;
    };
    match Context::open(addr.parse().expect("an address")) {
        Ok(context) => println!("stranger: opened {}", context.address()),
        Err(error) => println!("stranger: {} ({})", error, error.errno()),
    }
}

/// Tries to open the address as another user; what that process says. `None` if this process may not.
fn as_nobody(addr: IpAddr) -> Option<String> {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can start another user's process");
        return None;
    }
    let program = std::env::current_exe().expect("this test binary");
    let output = Command::new(&program)
        .args(["refused::stranger_process", "--exact", "--nocapture"])
        .env(STRANGER, addr.to_string())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .map_err(|error| println!("skipped: nobody cannot run {}: {error}", program.display()))
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().find_map(|line| {
        let (_, said) = line.split_once("stranger: ")?;
        Some(said.to_owned())
    });
    Some(said.expect("it says what came of it"))
}

#[test]
fn an_address_belongs_to_one_user() {
    let addr = address(2);
    let ours = Context::open(addr).expect("free");
    let Some(said) = as_nobody(addr) else { return };
    // EADDRINUSE, and in words: what is taken, by which program, and what to do.
    for word in ["port 4791", &addr.to_string(), "another user", "(98)"] {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    drop(ours);
    // As below.
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let said = as_nobody(addr).expect("it ran before");
        if said == format!("opened {addr}") {
            break;
        }
        assert!(Instant::now() < patience, "it is free again: {said}");
    }
}

/// As the kernel's rdma_rxe does it, by a socket that is not shared; only that its is on all addresses, which would
/// disturb the other tests.
#[test]
fn a_port_that_something_else_has_is_refused_with_the_reason() {
    let addr = address(3);
    let taken = UdpSocket::bind((addr, 4791)).expect("nobody has this address");
    for share in [true, false] {
        let refused = Context::builder(addr).share(share).open();
        let error = refused.expect_err("the port is taken");
        assert_eq!(error.kind(), &ErrorKind::AddrInUse(addr));
        let text = error.to_string();
        assert!(text.contains("rdma_rxe") && text.contains("4791"), "{text}");
    }
    drop(taken);
    // A process that another test starts has a copy of the socket until it becomes its program.
    let patience = Instant::now() + Duration::from_secs(20);
    while let Err(error) = Context::open(addr) {
        assert!(Instant::now() < patience, "it is free now: {error}");
        std::thread::yield_now();
    }
}
