//! The counter of x86 processors, which programs read without a call (`rdtsc`): the system has each look be a fault, and its handler
//! answers with virtual time, in nanoseconds.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{sigaction, siginfo_t, ucontext_t};

use crate::clock;

const RDTSC: [u8; 2] = [0x0f, 0x31];
const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];
/// The fault of an instruction that is forbidden is by no address.
const SI_KERNEL: c_int = 0x80;

/// What was to be done about faults before.
static BEFORE: AtomicPtr<sigaction> = AtomicPtr::new(ptr::null_mut());

/// Has reading the counter be a fault from now on. Where the system cannot, programs read the real one.
pub(crate) fn trap() {
    // SAFETY: all zeros are an action, and the places are ours; what is asked for next changes how one instruction behaves, which the handler does in its place.
    unsafe {
        let mut action: sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        let mut before: sigaction = MaybeUninit::zeroed().assume_init();
        if sigaction(libc::SIGSEGV, &raw const action, &raw mut before) == 0 {
            BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Relaxed);
            libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV);
        }
    }
}

/// As the kernel calls it.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel gives to a handler; an instruction that was executed can be read.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        if (*info).si_code == SI_KERNEL
            && let Some(len) = len_at(registers[libc::REG_RIP as usize] as *const u8)
        {
            let now = clock::now_ns();
            registers[libc::REG_RAX as usize] = (now & 0xffff_ffff) as i64;
            registers[libc::REG_RDX as usize] = (now >> 32) as i64;
            if len == RDTSCP.len() {
                // Which processor it was.
                registers[libc::REG_RCX as usize] = 0;
            }
            registers[libc::REG_RIP as usize] += len as i64;
            return;
        }
        pass_on(signal, info, context);
    }
}

/// The length of the instruction there, if it reads the counter.
///
/// # Safety
/// An instruction.
unsafe fn len_at(at: *const u8) -> Option<usize> {
    // SAFETY: the caller's promise; the third byte is looked at only where the first two are no whole instruction.
    unsafe {
        let two = [*at, *at.add(1)];
        if two == RDTSC {
            return Some(RDTSC.len());
        }
        (two == RDTSCP[..2] && *at.add(2) == RDTSCP[2]).then_some(RDTSCP.len())
    }
}

/// # Safety
/// What the kernel gave to the handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = BEFORE.load(Ordering::Relaxed);
    // SAFETY: it was made once and stays; a handler has the parameters that its flags say.
    unsafe {
        match before.as_ref() {
            Some(before) if before.sa_sigaction > libc::SIG_IGN => {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        transmute(before.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: unsafe extern "C" fn(c_int) = transmute(before.sa_sigaction);
                    handler(signal);
                }
            }
            // The instruction is tried again, and ends the process; a signal that was sent is sent again.
            _ => {
                libc::signal(signal, libc::SIG_DFL);
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(test)]
#[test]
fn only_what_reads_the_counter_is_taken_for_that() {
    for (bytes, len) in [
        (&[0x0f, 0x31, 0x90][..], Some(2)),
        (&[0x0f, 0x01, 0xf9], Some(3)),
        (&[0x0f, 0x01, 0xf8], None),
        (&[0x90, 0x0f, 0x31], None),
    ] {
        // SAFETY: bytes of a slice.
        assert_eq!(unsafe { len_at(bytes.as_ptr()) }, len, "{bytes:x?}");
    }
}
