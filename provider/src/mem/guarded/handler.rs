//! The handler of SIGSEGV and SIGBUS. It only cares for faults inside the routines, and
//! passes everything else on to the handler that was there before.
//!
//! # Beside other handlers
//!
//! Handlers that were there before ours keep working: they are called for every fault
//! that is not ours. A program that puts a handler of its own in front later either
//! passes on what it does not know, and then ours still sees it; or it does not, and
//! then vanished memory is a crash until the next registration notices, and puts us in
//! front of it. Such a handler may pass faults on to us, having found us when it
//! came. So each time that we go in front we do so under another address, one
//! [`Entry`] a time, and each knows the handler that *it* displaced: a chain, not a circle.
//!
//! Nothing is ever taken out: another handler may have saved our address by now.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{mem, ptr};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard};

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

/// The handler that each entry displaced, for each signal. What it points at lives forever.
static DISPLACED: [[AtomicPtr<libc::sigaction>; SIGNALS.len()]; ENTRIES_MAX] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS.len()] }; ENTRIES_MAX];

/// Entries used so far, for each signal. Held while handlers are looked at and changed.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// Puts the handler in front, if it is not.
pub(super) fn install() {
    // Most often it is, and nothing is to be locked.
    if SIGNALS.iter().all(|&signal| is_ours(&action(signal, None))) {
        return;
    }
    let mut used = lock();
    for (place, &signal) in SIGNALS.iter().enumerate() {
        let mut current = action(signal, None);
        if is_ours(&current) || used[place] == ENTRIES_MAX {
            continue;
        }
        let entry = used[place];
        used[place] += 1;
        loop {
            // Before the entry can be entered.
            displace(entry, place, current);
            let found = action(signal, Some(&in_front_of(&current, entry)));
            // Again, in case another thread was faster.
            if is_ours(&found) || found.sa_sigaction == current.sa_sigaction {
                break;
            }
            current = found;
        }
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    ENTRIES.iter().any(|&e| e as usize == action.sa_sigaction)
}

fn lock() -> Used {
    crate::lock::lock(&USED)
}

type Used = MutexGuard<'static, [usize; SIGNALS.len()]>;

thread_local! {
    /// The lock, in the thread that forks. (Without a destructor: there may be no memory for one.)
    static FORKING: Cell<Option<ManuallyDrop<Used>>> = const { Cell::new(None) };
}

/// No other thread has the lock when this one forks: the child could never take it.
pub(crate) fn before_fork() {
    FORKING.set(Some(ManuallyDrop::new(lock())));
}

/// In the parent and in the child.
pub(crate) fn after_fork() {
    drop(FORKING.take().map(ManuallyDrop::into_inner));
}

/// What the kernel is to do for an entry: as for the handler that it displaces, which is called from it, on
/// the same stack and with the same signals blocked.
fn in_front_of(displaced: &libc::sigaction, entry: usize) -> libc::sigaction {
    let flags = if is_handler(displaced) {
        // The entry sees to it that this one is called once only.
        displaced.sa_flags & !libc::SA_RESETHAND
    } else {
        // The signal stack, as the fault may be an overflow of the other. Calls that a
        // signal interrupts which is ignored go on.
        libc::SA_ONSTACK | libc::SA_RESTART
    };
    libc::sigaction {
        sa_sigaction: ENTRIES[entry] as usize,
        sa_flags: flags | libc::SA_SIGINFO,
        ..*displaced
    }
}

/// True unless nothing is called.
fn is_handler(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
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
    // SAFETY: the kernel passes pointers to structures of these types, which no other code
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
    // SAFETY: as the caller says; handlers that forward without them are not forgotten.
    let (Some(info), Some(context)) = (unsafe { (info.as_ref(), context.as_mut()) }) else {
        return false;
    };
    let at = routines::program_counter(context);
    let mut ranges = routines::copies().into_iter().chain(words());
    let is_ours = ranges.any(|range| range.contains(&(*at as usize)));
    // Not if it was sent: nothing is gone.
    if is_ours && is_fault(info) {
        *at = routines::gone as *const () as usize as _;
        return true;
    }
    false
}

/// Where a fault may be caught beside copies.
fn words() -> [Range<usize>; 6] {
    use routines::{compare_swap, fetch_add, store_u8, store_u16, store_u32, store_u64};
    let word = |routine: usize| routine..routine + routines::WORD_SIZE;
    [
        word(store_u64 as *const () as usize),
        word(store_u32 as *const () as usize),
        word(store_u16 as *const () as usize),
        word(store_u8 as *const () as usize),
        word(compare_swap as *const () as usize),
        word(fetch_add as *const () as usize),
    ]
}

/// True if the interrupted instruction is why the signal came. Others were sent: by a process, or by the
/// kernel, which tells of broken memory that is not being accessed (`BUS_MCEERR_AO`).
fn is_fault(info: &libc::siginfo_t) -> bool {
    let is_notice = info.si_signo == libc::SIGBUS && info.si_code == libc::BUS_MCEERR_AO;
    info.si_code > 0 && !is_notice
}

/// Does what would have happened without us.
///
/// # Safety
/// The pointers are what a handler gets.
unsafe fn pass_on(entry: usize, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let displaced = &DISPLACED[entry][usize::from(signal != SIGNALS[0])];
    let action = displaced.load(Ordering::Acquire);
    // SAFETY: null or a `sigaction` that is never freed; and as the caller says.
    let (mut found, is_fault) = unsafe {
        let is_fault = info.as_ref().is_none_or(is_fault);
        (action.as_ref(), is_fault)
    };
    if found.is_some_and(|found| is_handler(found) && found.sa_flags & libc::SA_RESETHAND != 0)
        // Once: from now on there is the default.
        && displaced.swap(ptr::null_mut(), Ordering::AcqRel).is_null()
    {
        // Another thread was called meanwhile.
        found = None;
    }
    match found {
        Some(action) if action.sa_sigaction == libc::SIG_IGN && !is_fault => {}
        Some(action) if is_handler(action) => {
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

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_notice_of_broken_memory_is_no_fault_of_the_copy_that_it_interrupts() {
        let at = routines::copy as *const () as usize;
        for (signal, code, is_gone) in [
            (libc::SIGBUS, libc::BUS_ADRERR, true),
            (libc::SIGBUS, libc::BUS_MCEERR_AR, true),
            (libc::SIGBUS, libc::BUS_MCEERR_AO, false),
            // The same number means something else here.
            (libc::SIGSEGV, libc::BUS_MCEERR_AO, true),
            (libc::SIGSEGV, libc::SI_TKILL, false),
        ] {
            // SAFETY: plain numbers and pointers, of which all zeros are valid.
            let (mut info, mut context): (libc::siginfo_t, libc::ucontext_t) =
                unsafe { (mem::zeroed(), mem::zeroed()) };
            (info.si_signo, info.si_code) = (signal, code);
            *routines::program_counter(&mut context) = at as _;
            // SAFETY: what a handler gets.
            let recovered = unsafe { recover(&raw const info, &raw mut context) };
            assert_eq!(recovered, is_gone, "{signal} {code}");
            let goes_on_at = *routines::program_counter(&mut context) as usize;
            assert_eq!(goes_on_at == at, !is_gone, "{signal} {code}");
        }
    }

    #[test]
    fn a_child_finds_the_lock_free_whoever_has_it_at_the_fork() {
        let _ = crate::mem::fork::Generation::current();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _held = lock();
                    (0..1000).for_each(|_| core::hint::spin_loop());
                }
            });
            for _ in 0..50 {
                // SAFETY: the child looks at the lock and ends.
                let child = unsafe {
                    match libc::fork() {
                        0 => libc::_exit(c_int::from(USED.try_lock().is_err())),
                        child => child,
                    }
                };
                let mut status = -1;
                // SAFETY: the kernel writes an int.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "a thread that the child does not have holds it");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
