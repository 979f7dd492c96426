//! Events that a program takes by `read` on a descriptor, as from the kernel (`reads.c`).

use std::fs;

use crate::c_program::{Compiled, compile};
use crate::harness::{Ran, addresses, library, run, urxe};

const SOURCE: &str = "abi/reads.c";
const PRELOAD: &str = "liburxe_preload.so";

fn program() -> Option<Compiled> {
    compile(SOURCE, &["-libverbs", "-lpthread"])
}

/// By `urxe run`, with these options and variables.
fn reads(program: &Compiled, check: &str, options: &[&str], variables: &[(&str, &str)]) -> Ran {
    let (address, _) = addresses();
    let mut command = urxe();
    command.args(["run", "--device", &address.to_string()]);
    command.args(options).args(["--", &program.binary, check]);
    command.envs(variables.iter().copied());
    run(command)
}

/// Under `urxe run`, the check holds, and nothing is said.
#[track_caller]
fn holds(check: &str) {
    let Some(program) = program() else {
        return;
    };
    let ran = reads(&program, check, &[], &[]);
    assert_eq!((ran.code, &ran.text[..]), (Some(0), ""), "{check}");
}

#[test]
fn a_read_of_a_channel_gives_the_queue_of_one_event() {
    holds("completions");
}

#[test]
fn a_read_of_a_contexts_descriptor_gives_one_event() {
    holds("async");
}

#[test]
fn other_descriptors_are_read_as_ever() {
    holds("others");
}

#[test]
fn each_event_is_read_by_one_of_several_threads() {
    holds("threads");
}

#[test]
fn a_child_reads_its_own_channels_and_files_that_have_numbers_of_its_parents() {
    holds("fork");
}

#[test]
fn channels_with_high_numbers_are_read() {
    holds("high");
}

#[test]
fn strict_mode_finds_no_fault_in_reads() {
    let Some(program) = program() else {
        return;
    };
    for check in ["completions", "async", "threads"] {
        let ran = reads(&program, check, &[], &[("URXE_STRICT", "1")]);
        assert_eq!(ran.code, Some(0), "{check}: {}", ran.text);
        assert!(!ran.text.contains("urxe strict:"), "{check}: {}", ran.text);
    }
}

#[test]
fn two_copies_of_the_preload_library_do_no_harm() {
    let Some(program) = program() else {
        return;
    };
    let copy = format!("{}-second.so", program.binary);
    fs::copy(library().join(PRELOAD), &copy).expect("room for it");
    for check in ["completions", "others", "fork"] {
        let ran = reads(&program, check, &[], &[("LD_PRELOAD", &copy)]);
        assert_eq!((ran.code, &ran.text[..]), (Some(0), ""), "{check}");
    }
}

/// What the documents say of programs that are not reached.
#[test]
fn without_the_preload_library_a_descriptor_counts() {
    let Some(program) = program() else {
        return;
    };
    for options in ["--no-sysfs", "--no-preload"] {
        let ran = reads(&program, "plain", &[options], &[]);
        assert_eq!((ran.code, &ran.text[..]), (Some(0), ""), "{options}");
    }
}
