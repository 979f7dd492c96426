//! Handlers of the program that were there first are called as their flags say. Each case is a process of its own.

use core::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::{env, ptr};

use generator::Gn;
use libc::{c_int, c_void};

use super::protect;
use crate::Context;
use crate::network::{self, Adapter, Network, Packet, Pause, Stopped};

static CALLS: AtomicU32 = AtomicU32::new(0);
static WAS_ON_SIGNAL_STACK: AtomicBool = AtomicBool::new(false);
static PAGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
const PAGE_LEN: usize = 4096;

/// A page that nothing may be written to.
fn no_rights() -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_LEN, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page
}

/// A fault in the program's own code.
fn fault() {
    let page = no_rights();
    PAGE.store(page, Ordering::Relaxed);
    // SAFETY: mapped; a handler gives it its rights back, or the process ends.
    unsafe { page.cast::<u8>().write_volatile(1) };
}

/// A fault in one of the routines.
fn vanish() {
    let page = no_rights();
    // SAFETY: nothing else uses the page.
    let outcome = unsafe { super::fetch_add(page.cast(), 1) };
    assert!(outcome.is_err(), "the page is not accessible");
}

/// Tells the parent process, and gives up when it is called for ever.
fn say_called() {
    // SAFETY: allowed in a handler.
    unsafe {
        libc::write(2, c"called\n".as_ptr().cast(), 7);
        if CALLS.fetch_add(1, Ordering::Relaxed) == 5 {
            libc::_exit(3);
        }
    }
}

fn repair() {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a page of `fault`.
    unsafe { libc::mprotect(PAGE.load(Ordering::Relaxed), PAGE_LEN, rights) };
}

/// "Print and die": the fault comes again when it returns.
extern "C" fn print(_: c_int) {
    say_called();
}

extern "C" fn print_with_three(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's, as `SA_SIGINFO` was asked for.
    let at = unsafe { (*info).si_addr() };
    if at == PAGE.load(Ordering::Relaxed) {
        say_called();
    }
}

/// The first call faults itself, the second repairs.
extern "C" fn fault_once_more(_: c_int) {
    say_called();
    if CALLS.load(Ordering::Relaxed) == 1 {
        // SAFETY: as in `fault`.
        unsafe { PAGE.load(Ordering::Relaxed).cast::<u8>().write_volatile(1) };
    } else {
        repair();
    }
}

extern "C" fn note_stack(_: c_int) {
    // SAFETY: the kernel writes the structure.
    let stack = unsafe {
        let mut stack: libc::stack_t = core::mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut stack);
        stack
    };
    WAS_ON_SIGNAL_STACK.store(stack.ss_flags & libc::SS_ONSTACK != 0, Ordering::Relaxed);
    say_called();
    repair();
}

fn install(handler: usize, flags: c_int) {
    // SAFETY: the handlers here do what handlers may, and take what their flags say.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &raw const new, ptr::null_mut()),
            0
        );
    }
    protect();
    vanish();
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A network without anything on it.
#[derive(Debug)]
struct Nowhere;

impl Network for Nowhere {
    fn now_ns(&self) -> u64 {
        0
    }

    fn random(&self) -> u64 {
        4
    }

    fn interface_mtu(&self, addr: IpAddr) -> Option<u32> {
        (addr == HERE).then_some(1500)
    }

    fn attach(&self, _: Adapter) {}

    fn detached(&self, _: &[(&'static str, u64)]) {}

    fn grant_qpns(&self) -> Option<u16> {
        Some(1)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn send(&self, _: &Packet<'_>) {}

    fn pause(&self, _: &Pause) -> Result<(), Stopped> {
        Ok(())
    }
}

/// A coroutine of the crate `generator` overflows its stack, and that crate's handler ends it. (Programs on simulated hosts are such coroutines.)
fn overflow() {
    fn depth(left: u64) -> u64 {
        let here = core::hint::black_box([left; 64]);
        match left {
            0 => 0,
            _ => 1 + depth(left - 1) + here[left as usize % 64],
        }
    }
    const WORDS: usize = 1 << 15;
    let mut coroutine = Gn::<()>::new_opt(WORDS, || depth(u64::MAX));
    let turn = catch_unwind(AssertUnwindSafe(|| coroutine.raw_send(None)));
    assert!(turn.is_err(), "it has no end otherwise");
    core::mem::forget(coroutine);
}

fn run(case: &str) {
    match case {
        "coroutines first" | "coroutines later" | "coroutines later, with a context" => {
            if case != "coroutines first" {
                protect();
            }
            overflow();
            if case == "coroutines later, with a context" {
                let _network = network::enter(Arc::new(Nowhere));
                Context::open(HERE).expect("an address");
            } else {
                protect();
            }
            for _ in 0..3 {
                vanish();
                overflow();
            }
            return;
        }
        "once" => install(print as *const () as usize, libc::SA_RESETHAND),
        "once, three arguments" => install(
            print_with_three as *const () as usize,
            libc::SA_RESETHAND | libc::SA_SIGINFO,
        ),
        "deferred" => install(fault_once_more as *const () as usize, 0),
        "not deferred" => install(fault_once_more as *const () as usize, libc::SA_NODEFER),
        "once, not deferred" => install(
            fault_once_more as *const () as usize,
            libc::SA_RESETHAND | libc::SA_NODEFER,
        ),
        "thread's stack" => install(note_stack as *const () as usize, 0),
        "signal stack" => install(note_stack as *const () as usize, libc::SA_ONSTACK),
        _ => panic!("no case {case}"),
    }
    fault();
    let is_on_signal_stack = WAS_ON_SIGNAL_STACK.load(Ordering::Relaxed);
    assert_eq!(is_on_signal_stack, case == "signal stack", "{case}");
}

#[test]
fn one_case() {
    match env::var("URXE_TEST_DISPLACED") {
        Ok(case) => run(&case),
        Err(_) => println!("nothing to do: this is a part of the other tests"),
    }
}

/// How a case ended, and how often its handler was called.
fn ended(case: &str) -> (Output, usize) {
    let name = "mem::guarded::displaced_tests::one_case";
    let output = Command::new(env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env("URXE_TEST_DISPLACED", case)
        .output()
        .expect("starts");
    let calls = String::from_utf8_lossy(&output.stderr)
        .matches("called\n")
        .count();
    (output, calls)
}

#[track_caller]
fn dies_after(case: &str, calls: usize) {
    let (output, called) = ended(case);
    assert_eq!(
        (output.status.signal(), called),
        (Some(libc::SIGSEGV), calls),
        "{case}: {output:?}"
    );
}

#[track_caller]
fn goes_on_after(case: &str, calls: usize) {
    let (output, called) = ended(case);
    assert_eq!(
        (output.status.code(), called),
        (Some(0), calls),
        "{case}: {output:?}"
    );
}

#[test]
fn a_handler_that_asked_for_one_call_gets_one_and_then_the_process_ends() {
    dies_after("once", 1);
    dies_after("once, three arguments", 1);
}

#[test]
fn a_fault_inside_of_a_handler_is_the_end_unless_it_asked_for_that() {
    dies_after("deferred", 1);
    goes_on_after("not deferred", 2);
    dies_after("once, not deferred", 1);
}

#[test]
fn a_handler_runs_on_the_stack_that_it_asked_for() {
    goes_on_after("thread's stack", 1);
    goes_on_after("signal stack", 1);
}

/// Memory that vanished is found, and so are stacks that overflow, whichever handler came first.
#[test]
fn coroutines_and_vanished_memory_do_not_disturb_each_other() {
    goes_on_after("coroutines first", 0);
    goes_on_after("coroutines later", 0);
    goes_on_after("coroutines later, with a context", 0);
}
