//! Strict mode off, on with a correct program, and ending the process.

use super::{assert_clean, pair_of, reports};
use crate::common::{ALL, End, address, bytes, pattern};
use std::process::Command;
use urxe::{Context, Mr, SendWr, StrictMode};

/// Everything at once, as it should be done: whatever the seed decides, no report, and
/// every byte and completion as it must be.
#[test]
fn a_correct_program_gets_no_report() {
    for seed in 100..108 {
        let (a, b) = pair_of(seed);
        let (from, word) = (a.memory(10_000), a.memory(8));
        let (window, counter) = (b.memory(10_000), b.memory(8));
        let inboxes: Vec<Mr> = (0..4).map(|_| b.memory(10_000)).collect();
        for (n, inbox) in inboxes.iter().enumerate() {
            b.recv(n as u64, inbox);
        }
        for round in 0..20u64 {
            let len = [0, 1, 64, 4096, 4097, 10_000][round as usize % 6];
            let data = pattern(seed ^ round, len);
            from.write(0, &data);
            let (part, eight) = ([from.sge(..len)], [word.sge(..)]);
            let (addr, rkey) = (window.addr(), window.rkey());
            let wrs = [
                SendWr::rdma_write(1, &part, addr, rkey),
                SendWr::atomic_fetch_add(2, &eight, counter.addr(), counter.rkey(), 1).signaled(),
                SendWr::send_with_imm(3, &part, round as u32).signaled(),
            ];
            a.qp.post_send_list(&wrs).expect("room");
            let wc = b.succeed();
            assert_eq!((wc.wr_id, wc.imm_data), (round % 4, Some(round as u32)));
            let inbox = &inboxes[round as usize % 4];
            assert!(
                bytes(inbox, len) == data,
                "seed {seed}: SEND of {len} bytes"
            );
            assert!(
                bytes(&window, len) == data,
                "seed {seed}: WRITE of {len} bytes"
            );
            b.recv(round % 4, inbox);
            assert_eq!(
                [a.succeed().wr_id, a.succeed().wr_id],
                [2, 3],
                "seed {seed}"
            );
            assert_eq!(word.load_u64(0), round);
        }
        let reports = reports(&a).into_iter().chain(reports(&b));
        let reports: Vec<String> = reports.map(|report| report.to_string()).collect();
        assert!(reports.is_empty(), "seed {seed}: {}", reports[0]);
    }
}

#[test]
fn without_strict_mode_nothing_is_looked_at() {
    let builder = Context::builder(address()).strict(StrictMode::Off);
    let end = End::on(builder.open().expect("free"));
    end.qp.init(ALL).expect("INIT");
    let to = end.memory(8);
    end.recv(1, &to);
    assert_eq!(bytes(&to, 8), [0; 8], "no poison");
    assert_clean([&end, &end]);
}

/// Aborts the process that it is called in.
fn misuse_under_abort() {
    let builder = Context::builder(address()).strict(StrictMode::Abort);
    let end = End::on(builder.open().expect("free"));
    end.qp.init(ALL).expect("INIT");
    let to = end.memory(8);
    end.recv(1, &to);
    bytes(&to, 8);
}

#[test]
fn abort_ends_the_process_at_the_first_report() {
    const CHILD: &str = "URXE_TEST_ABORTS";
    if std::env::var_os(CHILD).is_some() {
        return misuse_under_abort();
    }
    let output = Command::new(std::env::current_exe().expect("known"))
        .args([
            "--exact",
            "strict::modes::abort_ends_the_process_at_the_first_report",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .env("URXE_SEED", "0x2a")
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    for text in [
        "URXE_SEED=42",
        "urxe strict: receive-buffer-read",
        "aborting",
    ] {
        assert!(stderr.contains(text), "no {text:?} in {stderr}");
    }
}

#[test]
fn a_variable_that_makes_no_sense_is_an_error_that_names_it() {
    const CHILD: &str = "URXE_TEST_SENSELESS";
    if let Ok(variable) = std::env::var(CHILD) {
        let error = Context::builder(address()).open().expect_err("it is set");
        assert!(error.to_string().contains(&variable), "{error}");
        assert_eq!(error.blame(), urxe::Blame::Caller);
        return;
    }
    for (variable, value) in [
        ("URXE_STRICT", "perhaps"),
        ("URXE_SEED", "0x1g"),
        ("URXE_FAULTS", "drop"),
        ("URXE_MTU", "1000"),
        ("URXE_SPEED", "1000"),
        ("URXE_CONGESTION", "delay=5"),
        ("URXE_RECOVERY", "none"),
    ] {
        let output = Command::new(std::env::current_exe().expect("known"))
            .args([
                "--exact",
                "strict::modes::a_variable_that_makes_no_sense_is_an_error_that_names_it",
            ])
            .env(CHILD, variable)
            .env(variable, value)
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{variable}={value}: {text}");
    }
}
