//! Checks in C, by the distribution's headers (`verbs.c`, `cm.c`, `handles.c`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Ran, addresses, program, run};

const VERBS: &str = "abi/verbs.c";
const CM: &str = "abi/cm.c";
const HANDLES: &str = "abi/handles.c";

/// A C program of this folder, or of another one of the repository, compiled by the distribution's headers. It is removed
/// when this is dropped.
pub(crate) struct Compiled {
    folder: PathBuf,
    pub(crate) binary: String,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // It is ours; what is left of it does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// None, with the reason printed, where there is no compiler or no header.
pub(crate) fn compile(source: &str, libraries: &[&str]) -> Option<Compiled> {
    compile_with("cc", source, libraries)
}

/// By another compiler, which knows where its libraries are.
pub(crate) fn compile_with(compiler: &str, source: &str, libraries: &[&str]) -> Option<Compiled> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for (header, package) in [
        ("infiniband/verbs.h", "libibverbs-dev"),
        ("rdma/rdma_cma.h", "librdmacm-dev"),
    ] {
        if !Path::new("/usr/include").join(header).exists() {
            println!("skipped: {header} is missing (apt-get install {package})");
            return None;
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("urxe-c-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    // Users without rights run it too.
    let rights = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&folder, rights).expect("it is ours");
    let path = folder.join("program");
    let compiled = Compiled {
        binary: path.to_str().expect("a path in UTF-8").to_owned(),
        folder,
    };
    let made = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&path)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(libraries)
        .output();
    let Ok(made) = made else {
        println!("skipped: there is no C compiler");
        return None;
    };
    let errors = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{errors}");
    Some(compiled)
}

/// Compiles the program, and runs one of its checks.
fn check(source: &str, name: &str) {
    let Some(compiled) = compile(source, &["-lrdmacm", "-libverbs", "-ldl", "-lpthread"]) else {
        return;
    };
    let ran = run_check(&compiled, name, None);
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.text);
}

/// Runs a check of a compiled program, with one variable more in its environment.
fn run_check(compiled: &Compiled, name: &str, variable: Option<&str>) -> Ran {
    let (device, _) = addresses();
    let mut command = program(&compiled.binary, "gcc", device).expect("it was just made");
    command.arg(name).arg(device.to_string());
    if let Some(variable) = variable {
        command.env(variable, "1");
    }
    run(command)
}

/// What a check prints on standard error with this variable; nothing without it.
fn told(name: &str, variable: &str) -> Option<String> {
    // With the names of the program's own functions for the dynamic linker.
    let compiled = compile(VERBS, &["-libverbs", "-ldl", "-rdynamic"])?;
    let silent = run_check(&compiled, name, None);
    assert_eq!((silent.code, &silent.text[..]), (Some(0), ""), "{name}");
    let ran = run_check(&compiled, name, Some(variable));
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.text);
    Some(ran.text)
}

/// A missing GRH, which posts were refused and why, the first failure of a QP, and how many followed; and what the side
/// found that refused the request, where no completion fails. In strict mode, too.
#[test]
fn verbose_tells_refused_posts_and_failed_completions() {
    for variable in ["URXE_VERBOSE", "URXE_STRICT"] {
        let Some(text) = told("verbose", variable) else {
            return;
        };
        tells_of_failures(&text);
    }
}

#[track_caller]
fn tells_of_failures(text: &str) {
    let lines: Vec<&str> = text.lines().filter(|line| is_of_verbose(line)).collect();
    let [grh, opcode, full, failed, detail, more, refused] = lines[..] else {
        panic!("{text}");
    };
    assert!(grh.contains("is_global is 0"), "{grh}");
    assert!(opcode.contains("refused: an opcode that there is not"));
    assert!(full.contains("the queue is full"), "{full}");
    assert!(failed.contains("remote access error"), "{failed}");
    assert!(detail.contains("expected"), "{detail}");
    assert!(
        more.contains("3 more of its requests were flushed"),
        "{more}"
    );
    let found = "expected the rkey of a registered MR, found 0x0000dead";
    assert!(refused.contains(found), "{refused}");
}

/// Not of a report of strict mode, nor its seed.
fn is_of_verbose(line: &str) -> bool {
    let others = ["  ", "urxe strict", "urxe: strict mode"];
    !others.iter().any(|start| line.starts_with(start))
}

#[test]
fn strict_mode_names_the_calls_of_a_program_in_c() {
    let Some(text) = told("strict", "URXE_STRICT") else {
        return;
    };
    for function in ["write_through", "post_write_through"] {
        let call = format!("call: {function} (");
        assert_eq!(text.matches(&call).count(), 1, "{text}");
    }
}

#[test]
fn a_receivers_timer_has_five_bits() {
    let Some(text) = told("timer", "URXE_VERBOSE") else {
        return;
    };
    assert!(text.contains("min_rnr_timer is 41"), "{text}");
}

#[test]
fn a_batch_is_posted_whole_or_not_at_all() {
    check(VERBS, "batch");
}

#[test]
fn flush_and_atomic_write_through_the_extended_functions() {
    check(VERBS, "placement");
}

#[test]
fn descriptors_are_readable_for_each_event_once() {
    check(VERBS, "events");
}

#[test]
fn functions_of_newer_releases() {
    check(VERBS, "newer");
}

#[test]
fn regions_by_a_structure_and_of_the_librarys_buffers() {
    check(VERBS, "buffers");
}

#[test]
fn imported_handles_are_of_the_same_objects() {
    check(VERBS, "import");
}

#[test]
fn a_bind_is_of_the_window_that_it_names() {
    check(VERBS, "windows");
}

#[test]
fn entries_of_requests_may_be_at_odd_addresses() {
    check(VERBS, "packed");
}

#[test]
fn zero_based_regions_and_windows_count_from_their_beginning() {
    check(VERBS, "zero_based");
}

#[test]
fn a_regions_keys_are_one_number() {
    check(VERBS, "one_key");
}

#[test]
fn what_was_destroyed_is_not_destroyed_again() {
    check(HANDLES, "twice");
}

#[test]
fn what_is_in_use_stays() {
    check(HANDLES, "busy");
}

#[test]
fn what_is_gone_is_not_used() {
    check(HANDLES, "gone");
}

#[test]
fn a_handle_of_another_object_is_refused() {
    check(HANDLES, "another");
}

/// What state machines rely on that expect their SEND to complete before its answer comes.
#[test]
fn a_message_completes_before_its_answer() {
    let Some(compiled) = compile("abi/order.c", &["-libverbs"]) else {
        return;
    };
    for mode in ["events", "poll", "queues", "other"] {
        let (device, _) = addresses();
        let mut command = program(&compiled.binary, "gcc", device).expect("it was just made");
        command.arg(mode);
        let ran = run(command);
        assert_eq!(ran.code, Some(0), "{mode}: {}", ran.text);
    }
}

#[test]
fn names_and_hints_become_addresses() {
    check(CM, "addrinfo");
}

#[test]
fn names_told_of_by_an_event_and_events_of_the_programs_own() {
    check(CM, "own_events");
}

#[test]
fn an_event_channel_is_a_descriptor() {
    check(CM, "channel");
}

#[test]
fn what_cannot_be_done_is_refused_with_its_number() {
    check(CM, "errors");
}

#[test]
fn both_ends_of_a_connection_in_one_thread() {
    check(CM, "connection");
}

#[test]
fn the_qp_that_a_program_puts_into_an_id_is_the_connections() {
    check(CM, "moved");
}

#[test]
fn endpoints_that_wait_by_themselves() {
    check(CM, "endpoints");
}

#[test]
fn a_refusal_brings_its_data() {
    check(CM, "refusal");
}

#[test]
fn a_client_that_cannot_get_ready_refuses_the_server() {
    check(CM, "unready");
}

#[test]
fn destroying_an_id_waits_for_its_events() {
    check(CM, "acknowledge");
}
