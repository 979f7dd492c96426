//! The program's calls in reports of strict mode: the stack tells where a call came from, and the dynamic linker what
//! is there.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

/// Most frames of this library between the program and strict mode.
const FRAMES_MAX: usize = 32;

/// Makes strict mode name the program's calls.
pub(crate) fn prepare() {
    urxe::name_callers(urxe::Callers { find, name });
}

/// The first address on the stack that is in no part of this library.
fn find() -> Option<usize> {
    let own = lookup(find as fn() -> Option<usize> as usize)?.dli_fbase;
    let mut frames = [ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: there is room for as many.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int) };
    let frames = frames.iter().take(count as usize).map(|at| at.addr());
    frames
        .into_iter()
        // What is on the stack is where the call returns to: the call itself is before it.
        .map(|at| at.wrapping_sub(1))
        .find(|&at| lookup(at).is_some_and(|there| there.dli_fbase != own))
}

/// As in `post_ring (/usr/bin/program+0x11f4)`, for `addr2line -f -e /usr/bin/program 0x11f4`. A program's functions have
/// names here if they are exported (`-rdynamic`).
fn name(at: usize) -> String {
    let Some(there) = lookup(at) else {
        return format!("{at:#x}");
    };
    let offset = at.wrapping_sub(there.dli_fbase.addr());
    // SAFETY: null, or names that the dynamic linker keeps as long as the object is loaded, which a program that calls
    // us is.
    let (file, function) = unsafe { (text(there.dli_fname), text(there.dli_sname)) };
    let file = file.unwrap_or_default();
    match function {
        Some(function) => format!("{function} ({file}+{offset:#x})"),
        None => format!("{file}+{offset:#x}"),
    }
}

fn lookup(at: usize) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: any address may be asked for; where the answer is not 0 the structure is written.
    unsafe {
        let found = libc::dladdr(ptr::without_provenance(at), info.as_mut_ptr());
        (found != 0).then(|| info.assume_init())
    }
}

/// # Safety
/// The pointer must be null, or lead to a text that stays.
unsafe fn text(of: *const c_char) -> Option<String> {
    if of.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned())
}
