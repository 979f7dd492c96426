//! A libibverbs that urxe does not stand in front of: linked into the program or into a library of its own, or a copy that
//! binds to itself. It finds no device, and says nothing more; so this says it, when it looks for some.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::path::PathBuf;

/// The end of the paths where libibverbs looks for devices: below `/sys/class`, or below a device's own folder. They may
/// lie in the tree already, where it takes the beginning from `ibv_get_sysfs_path`.
const LOOKED_AT: &[u8] = b"/infiniband_verbs";
/// What is in each libibverbs, however it is linked: its warnings begin like this.
const MARK: &[u8] = b"libibverbs: Warning";
/// From the hook to its caller there are fewer.
const FRAMES: usize = 16;

/// Takes note of a path, in the function of the C library that is asked for it.
///
/// # Safety
/// A string, or null.
#[inline]
pub(crate) unsafe fn notice(path: *const c_char) {
    if path.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    if path.to_bytes().ends_with(LOOKED_AT) {
        tell();
    }
}

/// Once, if it is a libibverbs that asks.
#[cold]
fn tell() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.load(Ordering::Relaxed) {
        return;
    }
    let Some(caller) = caller() else { return };
    if has_mark(caller) && !TOLD.swap(true, Ordering::Relaxed) {
        let name = name_of(caller);
        eprintln!(
            "urxe: {} brings a libibverbs that urxe does not reach: it finds none of urxe's devices",
            name.display()
        );
    }
}

/// An address in the code that called a function of this library.
fn caller() -> Option<*const c_void> {
    let mut frames = [core::ptr::null_mut(); FRAMES];
    // SAFETY: room for so many.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    let ours = file_at(tell as *const c_void)?.dli_fbase;
    let frames = &frames[..usize::try_from(count).unwrap_or(0)];
    let mut callers = frames.iter().map(|frame| frame.cast_const());
    callers.find(|frame| file_at(*frame).is_some_and(|file| file.dli_fbase != ours))
}

/// The program or library that an address is in.
fn file_at(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: a place for the result, which is written if there is one.
    unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) }
}

fn name_of(address: *const c_void) -> PathBuf {
    let Some(file) = file_at(address) else {
        return PathBuf::new();
    };
    // The program's own name is as it was called.
    // SAFETY: a string of the loader's, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(file.dli_fname) };
    PathBuf::from(name.to_string_lossy().into_owned())
}

/// Where to look, and what was found.
struct Search {
    address: usize,
    is_found: bool,
}

/// Whether the program or library that an address is in has the mark in it.
fn has_mark(address: *const c_void) -> bool {
    let mut search = Search {
        address: address as usize,
        is_found: false,
    };
    // SAFETY: the function below, and what it takes.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.is_found
}

/// Looks at one loaded file; returns 1 if it was the one.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _len: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: what the loader gives, and what `has_mark` gave.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: so many headers.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let segments: Vec<(usize, usize, u32)> = loaded
        .map(|header| {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            (start, header.p_memsz as usize, header.p_flags)
        })
        .collect();
    let is_in =
        |(start, len, _): &(usize, usize, u32)| (*start..start + len).contains(&search.address);
    if !segments.iter().any(is_in) {
        return 0;
    }
    let constant = |flags: u32| flags & libc::PF_R != 0 && flags & libc::PF_W == 0;
    search.is_found = segments.iter().any(|(start, len, flags)| {
        let (start, mark) = (*start as *const c_void, MARK.as_ptr().cast());
        // SAFETY: a segment of a file that is loaded, and the mark, each with its length.
        constant(*flags) && !unsafe { libc::memmem(start, *len, mark, MARK.len()) }.is_null()
    });
    1
}
