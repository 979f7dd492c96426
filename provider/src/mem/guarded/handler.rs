//! The handler of SIGSEGV and SIGBUS. It only cares for faults inside the routines, and
//! passes everything else on to whoever was there before.
//!
//! # Beside other handlers
//!
//! Handlers that were there before ours keep working: they are called for every fault
//! that is not ours. A program that puts a handler of its own in front later either
//! passes on what it does not know, and then ours still sees it; or it does not, and
//! then vanished memory is a crash until the next registration notices, and puts us in
//! front of it. Such a handler may pass faults on to us, having found us when it
//! came. So each time that we go in front we do so under another address, one
//! [`Entry`] a time, and each knows whom *it* displaced: a chain, not a circle.
//!
//! Nothing is ever taken out: somebody else may have our address by now.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{mem, ptr};
use std::sync::{Mutex, PoisonError};

use super::routines;

type Entry = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Times that we go in front. A program that replaces handlers more often than this is
/// left alone with what it does.
const ENTRIES_MAX: usize = 8;

/// In a table, as a function may have several addresses.
static ENTRIES: [Entry; ENTRIES_MAX] = [
    enter::<0>, enter::<1>, enter::<2>, enter::<3>, enter::<4>, enter::<5>, enter::<6>, enter::<7>,
];

/// Whom each entry displaced, for each signal. What it points at lives forever.
static DISPLACED: [[AtomicPtr<libc::sigaction>; SIGNALS.len()]; ENTRIES_MAX] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS.len()] }; ENTRIES_MAX];

/// Entries used so far, for each signal. Held while handlers are looked at and changed.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// Puts the handler in front, if it is not.
pub(super) fn install() {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    for (place, &signal) in SIGNALS.iter().enumerate() {
        let current = action(signal, None);
        let is_ours = ENTRIES.iter().any(|&e| e as usize == current.sa_sigaction);
        if is_ours || used[place] == ENTRIES_MAX {
            continue;
        }
        let entry = used[place];
        used[place] += 1;
        // Before the entry can be entered; and again, should somebody have been quick.
        displace(entry, place, current);
        let ours = libc::sigaction {
            sa_sigaction: ENTRIES[entry] as usize,
            // The signal stack, as the fault may be an overflow of the other. A handler
            // that relied on being interrupted by its own signal still is.
            sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | current.sa_flags & libc::SA_NODEFER,
            ..current
        };
        let found = action(signal, Some(&ours));
        if found.sa_sigaction != current.sa_sigaction {
            displace(entry, place, found);
        }
    }
}

fn displace(entry: usize, place: usize, action: libc::sigaction) {
    DISPLACED[entry][place].store(Box::into_raw(Box::new(action)), Ordering::Release);
}

/// Asks for the action of a signal, and changes it if a new one is given.
fn action(signal: c_int, new: Option<&libc::sigaction>) -> libc::sigaction {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: all zeros are a valid `sigaction`; the kernel reads one from `new`, if that
    // is not null, and writes one to `old`. What is installed is `enter`, which does in
    // a handler only what is allowed there. The call cannot fail for these signals.
    unsafe {
        let mut old = mem::zeroed();
        libc::sigaction(signal, new, &raw mut old);
        old
    }
}

/// A signal came.
///
/// # Safety
/// Called by the kernel, or by a handler with what the kernel called it with.
unsafe extern "C" fn enter<const N: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes pointers to structures of these types, which nobody else
    // uses while the handler runs. Nothing here allocates, locks or calls anything that
    // a signal handler may not.
    unsafe {
        if !recover(info, context.cast()) {
            pass_on(N, signal, info, context);
        }
    }
}

/// Lets the interrupted routine return, if it was one of ours.
///
/// # Safety
/// The pointers are what a handler gets.
unsafe fn recover(info: *const libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    // Not if somebody sent the signal: nothing is gone.
    // SAFETY: as the caller says; handlers that forward without them are not forgotten.
    let (Some(info), Some(context)) = (unsafe { (info.as_ref(), context.as_mut()) }) else {
        return false;
    };
    let at = routines::program_counter(context);
    let is_ours = routines::ranges()
        .iter()
        .any(|range| range.contains(&(*at as usize)));
    if is_ours && info.si_code > 0 {
        *at = routines::gone as *const () as usize as _;
    }
    is_ours && info.si_code > 0
}

/// Does what would have happened without us.
///
/// # Safety
/// The pointers are what a handler gets.
unsafe fn pass_on(entry: usize, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = usize::from(signal != SIGNALS[0]);
    let displaced = DISPLACED[entry][place].load(Ordering::Acquire);
    // SAFETY: null or a `sigaction` that is never freed; and as the caller says.
    let (displaced, is_fault) = unsafe {
        let is_fault = info.as_ref().is_none_or(|info| info.si_code > 0);
        (displaced.as_ref(), is_fault)
    };
    match displaced {
        Some(action) if action.sa_sigaction == libc::SIG_IGN && !is_fault => {}
        Some(action) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) => {
            // SAFETY: a handler that was installed for this signal, called as the kernel
            // would have called it: with three arguments if it asked for them.
            unsafe {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: Entry = mem::transmute(action.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = mem::transmute(action.sa_sigaction);
                    handler(signal);
                }
            }
        }
        // The default is to end the process. A faulting instruction does that when it
        // is run again; a signal that was sent must be sent again.
        _ => {
            // SAFETY: both calls are allowed in a handler; all zeros are SIG_DFL.
            unsafe {
                let default: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
    }
}
