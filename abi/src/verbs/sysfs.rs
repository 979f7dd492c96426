//! The part of `/sys` that describes RDMA devices.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::io::Read;
use std::sync::OnceLock;

use crate::errno::{Errno, minus_one};

/// Folder that stands for `/`: `urxe run` sets it to a tree that it made.
const VARIABLE: &str = "URXE_ROOT";

/// Where programs shall look: a tree of our own, or the system's, which knows no device of ours.
pub(crate) fn root() -> &'static str {
    path().to_str().unwrap_or("/sys")
}

fn path() -> &'static CStr {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        let root = std::env::var(VARIABLE).unwrap_or_default();
        CString::new(format!("{root}/sys")).unwrap_or_else(|_| c"/sys".to_owned())
    })
}

pub(crate) unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    path().as_ptr()
}

/// Reads a file without its last newline. Returns the number of bytes, or -1.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: strings, by the rules of the function.
    let (folder, file) = unsafe { (CStr::from_ptr(folder), CStr::from_ptr(file)) };
    let path = format!("{}/{}", folder.to_string_lossy(), file.to_string_lossy());
    let mut text = vec![0; size];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut text));
    let mut len = match read {
        Ok(len) => len,
        Err(error) => return minus_one(Err(error.into())),
    };
    if text[..len].last() == Some(&b'\n') {
        len -= 1;
        text[len] = 0;
    } else if len < size {
        text[len] = 0;
    } else {
        // No room for the end of the string.
        return minus_one(Err(Errno(libc::EOVERFLOW)));
    }
    // SAFETY: the program has room for `size` bytes, which is what `text` has.
    unsafe { libc::memcpy(buffer.cast(), text.as_ptr().cast::<c_void>(), len + 1) };
    len as c_int
}
