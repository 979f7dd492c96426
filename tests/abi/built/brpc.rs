//! brpc's example of calls over RDMA (`example/rdma_performance`).

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::built::tree;
use crate::cm_ends::Talking;
use crate::ends::alone;
use crate::harness::{LIMIT, addresses, port, run, urxe, wait_for_listener};

const CALLS: u64 = 500;
const BYTES: u64 = 65_536;
/// No packet has more bytes of a message.
const MTU: u64 = 4096;
/// What the server says where its own race has made it drop a connection. A client confirms RDMA by TCP, and calls over
/// RDMA at once; where the call comes first, the server takes it for what follows the confirmation.
const RACED: &str = "Too many bytes in handshake ACK, drop connection";
/// It loses this race in one of three attempts.
const ATTEMPTS: u32 = 20;

#[test]
fn calls_go_over_rdma() {
    let Some(tree) = tree("brpc") else { return };
    let _alone = alone();
    let folder = tree.join("example/rdma_performance/bld");
    for options in [&[][..], &["-rdma_use_polling"]] {
        let mut attempts = (0..ATTEMPTS).map(|_| call(&folder, options));
        assert!(attempts.any(|is_done| is_done), "{RACED}, each time");
    }
}

/// Each call's bytes go to the server and back. brpc turns to TCP without a word where RDMA fails, so the server's
/// counters have to tell of them. False if the server lost the race.
fn call(folder: &Path, options: &[&str]) -> bool {
    let (address, _) = addresses();
    let (meeting, other) = (port(), port());
    let end = |name: &str| {
        let mut command = urxe();
        command.args(["run", "--device", &address.to_string(), "--"]);
        // The log, too.
        command.args(["sh", "-c", "exec \"$0\" \"$@\" 2>&1"]);
        command.arg(folder.join(name)).args(options);
        command
    };
    let mut server = end("server");
    server.arg(format!("-port={meeting}"));
    let server = Talking::start(server);
    wait_for_listener(&meeting);
    let mut client = end("client");
    client.arg(format!("-servers=127.0.0.1:{meeting}"));
    client.arg(format!("-test_iterations={CALLS}"));
    client.arg(format!("-attachment_size={BYTES}"));
    client.arg(format!("-dummy_port={other}"));
    client.args(["-echo_attachment", "-thread_num=1", "-queue_depth=4"]);
    let client = run(client);
    if client.code == Some(1) && server.said().contains(RACED) {
        return false;
    }
    let (said, client_said) = (server.said(), &client.text);
    assert_eq!(client.code, Some(0), "{client_said}\nserver: {said}");
    let is_whole = client_said.contains("Throughput: ") && !client_said.contains("failed");
    assert!(is_whole, "{client_said}\nserver: {said}");
    let start = Instant::now();
    // The counters are told some ten times a second.
    while let Some(few) = packets(server.id()).find(|count| *count < CALLS * BYTES / MTU) {
        assert!(start.elapsed() < LIMIT, "{few} packets: {said}");
        thread::sleep(Duration::from_millis(50));
    }
    true
}

/// How many packets a running process has sent and received, as `urxe stat` says.
fn packets(pid: u32) -> impl Iterator<Item = u64> {
    let mut command = urxe();
    command.args(["stat", "--json", &pid.to_string()]);
    let ran = run(command);
    let all: Value = serde_json::from_str(&ran.text).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    ["sent_pkts", "rcvd_pkts"].into_iter().map(move |name| {
        let count = &all["processes"][0]["counters"][name];
        count.as_u64().unwrap_or_else(|| panic!("{name}: {all}"))
    })
}
