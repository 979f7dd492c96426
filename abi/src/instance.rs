//! Refuses a second copy of the library in a process.
//!
//! Both libraries are one file, and the loader maps it once, whichever name it is asked for. Two *copies* of the
//! file would be two worlds: a queue pair that the one made is unknown to the other. So the second one refuses.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::errno::Errno;

/// Files that may be a copy of this one.
const NAMES: [&str; 3] = ["libibverbs.so", "librdmacm.so", "liburxe_verbs.so"];
/// Every copy exports it (`symbols.txt`).
const MARKER: &CStr = c"urxe_verbs_instance";

/// `EBUSY` if another copy of this library was loaded first. Says so the first time.
pub(crate) fn check_first() -> Result<(), Errno> {
    if is_second() {
        Err(Errno::BUSY)
    } else {
        Ok(())
    }
}

fn is_second() -> bool {
    static SECOND: OnceLock<bool> = OnceLock::new();
    *SECOND.get_or_init(|| {
        let own = base_of(verbs_marker as extern "C" fn() as usize);
        let Some(first) = loaded().iter().find_map(marker_in) else {
            return false;
        };
        let is_second = own != first;
        if is_second {
            eprintln!(
                "urxe: libibverbs.so.1 and librdmacm.so.1 are two copies of one library in this process; make one \
                 a symbolic link to the other"
            );
        }
        is_second
    })
}

/// Paths of loaded libraries that have one of the names, in the order in which they were loaded.
fn loaded() -> Vec<CString> {
    extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid structure with a string or null in it, and what `loaded` passed.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *list.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: not null, so it is a string that lives as long as the library.
            list.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut list: Vec<CString> = Vec::new();
    // SAFETY: `note` gets `list` while it is borrowed for nothing else, and does not call the loader.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    let has_name = |path: &CString| {
        let path = path.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or_default();
        NAMES.iter().any(|name| file.starts_with(name))
    };
    list.retain(has_name);
    list
}

/// Where the copy of this library was mapped that is loaded under a path, if it is one.
fn marker_in(path: &CString) -> Option<usize> {
    // SAFETY: asks for a library that is loaded; none is loaded by this.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is valid; the name is a string.
    let marker = unsafe { libc::dlsym(handle, MARKER.as_ptr()) };
    // SAFETY: given back once.
    unsafe { libc::dlclose(handle) };
    (!marker.is_null()).then(|| base_of(marker as usize))
}

/// Where the library that has this address was mapped.
fn base_of(address: usize) -> usize {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null::<c_char>(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: writes what it finds into `info`; any address may be asked for.
    unsafe { libc::dladdr(address as *const c_void, &raw mut info) };
    info.dli_fbase as usize
}

extern "C" fn verbs_marker() {}
