//! `urxe pingpong`: its result, and that it ends when one of its processes does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    Ran, Running, children, is_alive, kill, project_file, run, urxe, urxe_that_listens_to_signals,
    wait_until,
};
use crate::loopback_pair;

const VARIANTS: [&str; 4] = [
    "send-recv-poll",
    "send-recv-notify",
    "write-read-notify",
    "write-read-unsignaled",
];

fn rows(ran: &Ran) -> Vec<Value> {
    let report: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
    report["rows"].as_array().expect("a list of rows").clone()
}

#[test]
fn four_variants_are_verified_and_reported_as_json() {
    let _pair = loopback_pair();
    let ran = run(urxe().args(["pingpong", "--json", "--iters", "50"])).expect_success();
    let rows = rows(&ran);
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["variant"].as_str())
        .collect();
    assert_eq!(names, VARIANTS);
    for row in &rows {
        assert_eq!(row["verified"], true, "{row}");
        assert_eq!(row["iters"], 50, "{row}");
        let (p50, p99) = (row["rtt_us_p50"].as_f64(), row["rtt_us_p99"].as_f64());
        assert!(p50 > Some(0.0) && p50 <= p99, "{row}");
        for cpu in [
            "client_cpu_user",
            "client_cpu_sys",
            "server_cpu_user",
            "server_cpu_sys",
        ] {
            assert!(row[cpu].as_f64() >= Some(0.0), "{row}");
        }
    }
}

/// The first numbers that a newcomer sees: one program more in the way makes them several times larger.
#[test]
fn a_busy_machine_is_named() {
    let _pair = loopback_pair();
    let is_over = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cpus {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ran = run(urxe().args(["pingpong", "--iters", "5"]));
        is_over.store(true, Ordering::Relaxed);
        ran
    });
    let ran = ran.expect_success();
    assert!(
        ran.stderr.starts_with("urxe: note: other programs use "),
        "{}",
        ran.stderr
    );
}

#[test]
fn messages_of_many_packets_and_odd_sizes() {
    let _pair = loopback_pair();
    for size in ["1", "13", "65537"] {
        let ran = run(urxe().args(["pingpong", "--json", "--iters", "20", "--size", size]));
        let rows = rows(&ran.expect_success());
        assert_eq!(rows.len(), 4);
        assert!(
            rows.iter().all(|row| row["verified"] == true),
            "size {size}: {rows:?}"
        );
    }
}

#[test]
fn the_table_compares_with_the_published_figures() {
    let _pair = loopback_pair();
    let args = ["pingpong", "--iters", "20", "--variant", "send-recv-poll"];
    let ran = run(urxe().args(args)).expect_success();
    let lines = ran.stdout.lines();
    let mut lines = lines.filter(|line| line.starts_with("SEND/RECV, busy polling"));
    let (measured, published) = (lines.next(), lines.next());
    assert!(
        measured.is_some_and(|line| line.ends_with("yes"))
            && published.is_some_and(|line| line.contains("15.7")),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_is_known_is_printed_while_the_rest_is_measured() {
    let _pair = loopback_pair();
    let (mut parent, server, _) = start_endless("send-recv-poll", &[]);
    let begin = parent.next_output();
    assert!(begin.contains("p99 us"), "{begin}");
    assert!(is_alive(server), "{begin}");
    kill(server, Signal::KILL);
    let rest = parent.finish().stdout;
    assert!(rest.starts_with("SEND/RECV, busy polling "), "{rest}");
    assert!(
        rest.lines().next().is_some_and(|row| row.ends_with("NO")),
        "{rest}"
    );
}

/// Starts a ping-pong too long to end by itself, and waits until both processes are in it.
fn start_endless(variant: &str, format: &[&str]) -> (Running, u32, u32) {
    let args = ["pingpong", "--iters", "100000000", "--variant", variant];
    let mut command = urxe_that_listens_to_signals();
    let parent = Running::start(command.args(args).args(format));
    let mut ids = (0, 0);
    wait_until("client and server run", || {
        for (id, line) in children(parent.id()) {
            if line.contains("--server") {
                ids.0 = id;
            } else if line.contains("--connect") {
                ids.1 = id;
            }
        }
        // The client has a device, and with it an engine thread, shortly before the first round.
        let threads = std::fs::read_dir(format!("/proc/{}/task", ids.1));
        ids.0 != 0 && threads.is_ok_and(|threads| threads.count() > 1)
    });
    (parent, ids.0, ids.1)
}

#[test]
fn a_killed_server_is_a_clear_error() {
    let _pair = loopback_pair();
    for variant in VARIANTS {
        let (parent, server, client) = start_endless(variant, &["--json"]);
        let killed = Instant::now();
        kill(server, Signal::KILL);
        let ran = parent.finish();
        assert!(
            killed.elapsed() < Duration::from_secs(30),
            "{variant}: {:?}",
            killed.elapsed()
        );
        assert_eq!(ran.code, Some(1), "{variant}: {ran:?}");
        assert!(ran.stderr.contains("urxe: "), "{variant}: {ran:?}");
        assert_eq!(rows(&ran)[0]["verified"], false, "{variant}");
        assert!(!is_alive(client), "{variant}");
    }
}

#[test]
fn a_killed_client_ends_the_server() {
    let _pair = loopback_pair();
    for variant in VARIANTS {
        let (parent, server, client) = start_endless(variant, &["--json"]);
        kill(client, Signal::KILL);
        let ran = parent.finish();
        assert_eq!(ran.code, Some(1), "{variant}: {ran:?}");
        assert!(
            ran.stderr.contains("killed by signal 9"),
            "{variant}: {ran:?}"
        );
        assert!(!is_alive(server), "{variant}");
    }
}

#[test]
fn ctrl_c_ends_both_processes() {
    let _pair = loopback_pair();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let (parent, server, client) = start_endless("send-recv-notify", &["--json"]);
        parent.signal(signal);
        assert_eq!(parent.finish().code, None, "ended by the signal");
        wait_until("both are gone", || !is_alive(server) && !is_alive(client));
    }
}

#[test]
fn an_address_that_is_not_shared_is_explained() {
    let _pair = loopback_pair();
    let taken = std::net::UdpSocket::bind("127.0.0.1:4791").expect("nobody else has it");
    let ran = run(urxe().args(["pingpong", "--server", "127.0.0.1", "--port", "0"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("4791"), "{ran:?}");
    drop(taken);
}

#[test]
fn two_at_once_share_the_addresses() {
    let _pair = loopback_pair();
    let (_parent, _server, _client) = start_endless("write-read-notify", &["--json"]);
    let ran = run(urxe().args(["pingpong", "--iters", "20", "--json"])).expect_success();
    assert_eq!(
        ran.stdout.matches("\"verified\":true").count(),
        4,
        "{ran:?}"
    );
}

#[test]
fn what_was_sent_decodes_without_a_fault() {
    let _pair = loopback_pair();
    let folder = std::env::temp_dir().join(format!("urxe-tap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let tap = folder.join("%p.pcapng");
    let ran = run(urxe()
        .args(["pingpong", "--iters", "20"])
        .env("URXE_PCAP", &tap));
    ran.expect_success();
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("listed").path())
        .collect();
    assert_eq!(files.len(), 2, "one file a process");
    for file in &files {
        let ran = run(urxe().arg("decode").arg(file)).expect_success();
        let summary = ran.stdout.lines().last().expect("a summary");
        assert!(summary.contains(" 0 ICRC bad"), "{summary}");
        assert!(ran.stdout.contains("RDMA READ Request"), "{}", ran.stdout);
    }
    std::fs::remove_dir_all(&folder).expect("ours to remove");
}

#[test]
fn stat_shows_the_counters_of_running_processes() {
    let _pair = loopback_pair();
    let (_parent, server, _client) = start_endless("send-recv-poll", &["--json"]);
    wait_until("the server's counters show packets", || {
        let ran = run(urxe().args(["stat", "--json"])).expect_success();
        let all: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
        let processes = all["processes"]
            .as_array()
            .expect("a list of processes")
            .clone();
        let of_server = processes.iter().find(|process| process["pid"] == server);
        of_server.is_some_and(|process| process["counters"]["rcvd_pkts"].as_u64() > Some(0))
    });
    let ran = run(urxe().arg("stat")).expect_success();
    assert!(ran.stdout.contains("rcvd_pkts"), "{}", ran.stdout);
    assert!(
        !ran.stdout.contains("rx_empty"),
        "without --engine: {}",
        ran.stdout
    );

    let server = server.to_string();
    let args = [
        "stat", &server, "--engine", "--watch", "50ms", "--count", "3",
    ];
    let shown = run(urxe().args(args)).expect_success().stdout;
    let heads = shown.lines().filter(|line| line.contains("(process"));
    let heads: Vec<&str> = heads.collect();
    let of_server = format!("urxe (process {server})");
    assert!(
        heads.len() == 3 && heads.iter().all(|line| line.starts_with(&of_server)),
        "{shown}"
    );
    // Looks at the sockets, which find nothing where packets go through memory.
    assert!(
        shown.contains("rx_empty") && shown.contains(" more"),
        "{shown}"
    );
    let others = run(urxe().args(["stat", "--program", "no-such-program"])).expect_success();
    assert_eq!(
        others.stdout,
        "No program no-such-program of this user runs on urxe.\n"
    );
    let ran = run(urxe().args(["stat", "1"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("no process 1 "), "{}", ran.stderr);
}

#[test]
fn the_readme_names_the_command() {
    let readme = std::fs::read_to_string(project_file("README.md")).expect("there is a README");
    assert!(readme.contains("cargo run --release -- pingpong"));
}
