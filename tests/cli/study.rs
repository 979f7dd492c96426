//! `urxe study`: the frame of all, and that what is planted outside the command is found by it.

use std::fs;

use serde_json::Value;

use crate::harness::{run, urxe};
use crate::loopback_pair;

fn chapters(stdout: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(stdout).expect("--json prints JSON");
    all.as_array().expect("a list of chapters").clone()
}

#[test]
fn the_list_has_names_and_questions() {
    let ran = run(urxe().args(["study", "list"])).expect_success();
    for line in ran.stdout.lines() {
        let (name, question) = line.split_once(": ").expect("a name and a question");
        assert!(!name.contains(' ') && question.ends_with('?'), "{line}");
    }
    assert!(ran.stdout.contains("pingpong: "), "{}", ran.stdout);
    let ran = run(urxe().args(["study", "nothing"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("no study nothing: there are"),
        "{ran:?}"
    );
    assert_eq!(run(urxe().arg("study")).code, Some(2), "a name is needed");
}

#[test]
fn a_delay_of_all_packets_is_found_in_every_ping_pong() {
    let _pair = loopback_pair();
    let mut study = urxe();
    study.args(["study", "pingpong", "--quick", "--json"]);
    let ran = run(study.env("URXE_FAULTS", "delay=2ms,seed=7")).expect_success();
    let chapters = chapters(&ran.stdout);
    let rows = &chapters[0]["tables"][0]["rows"];
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{}", ran.stdout);
    for row in rows {
        // Through sockets and through memory: there and back.
        for column in [2, 3] {
            assert!(row[column].as_f64() >= Some(4000.0), "{row}");
        }
    }
}

/// Over urxe alone: what goes over TCP meets no fault.
#[test]
fn a_delay_of_all_packets_is_found_in_messages_of_mpi() {
    let _pair = loopback_pair();
    let mut study = urxe();
    study.args(["study", "mpi", "--quick", "--json"]);
    let ran = run(study.env("URXE_FAULTS", "delay=3ms,seed=7")).expect_success();
    let chapters = chapters(&ran.stdout);
    for lack in chapters[0]["lacks"].as_array().expect("a list") {
        println!("skipped: {lack}");
    }
    for table in chapters[0]["tables"].as_array().expect("tables") {
        let row = &table["rows"][0];
        assert_eq!(row[0], "osu_latency", "{table}");
        assert!(row[3].as_f64() >= Some(3000.0), "{table}");
        // Between hosts, a busy machine makes TCP's messages wait as long.
        if table["title"].as_str().expect("text").contains("this host") {
            assert!(row[4].as_f64() < Some(3000.0), "{table}");
        }
    }
}

#[test]
fn an_mpi_that_is_missing_is_named_with_its_packages() {
    let mut study = urxe();
    study.args(["study", "mpi", "--quick", "--json"]);
    let ran = run(study.env("PATH", "/nonexistent")).expect_success();
    let chapters = chapters(&ran.stdout);
    let lacks = chapters[0]["lacks"].as_array().expect("a list");
    let packages = ["libopenmpi-dev", "libmpich-dev"];
    assert_eq!(lacks.len(), packages.len(), "{lacks:?}");
    for (lack, package) in lacks.iter().zip(packages) {
        assert!(lack.as_str().expect("text").contains(package), "{lack}");
    }
}

#[test]
fn a_page_a_book_and_its_pictures_are_written() {
    let folder = std::env::temp_dir().join(format!("urxe-study-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let path = |name: &str| folder.join(name);
    let mut study = urxe();
    study.args(["study", "registration", "--quick"]);
    study.arg("--html").arg(path("page.html"));
    study.arg("--svg").arg(path("pictures"));
    study.arg("--markdown").arg(path("book.md"));
    let ran = run(&mut study).expect_success();
    assert!(ran.stdout.contains("the critique says"), "{}", ran.stdout);
    let read = |name: &str| fs::read_to_string(path(name)).expect("written");
    assert!(read("page.html").contains("<svg"));
    assert!(read("pictures/registration.svg").contains("<polyline"));
    let book = read("book.md");
    assert!(book.contains("](pictures/registration.svg)"), "{book}");
    fs::remove_dir_all(&folder).expect("ours to remove");

    let mut study = urxe();
    study.args([
        "study",
        "registration",
        "--quick",
        "--html",
        "/nowhere/page.html",
    ]);
    let ran = run(&mut study);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("cannot write /nowhere/page.html"),
        "{ran:?}"
    );
}
