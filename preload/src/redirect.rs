//! Which paths are redirected, and where to.

use core::ffi::{CStr, c_char};

/// What begins like this is not there without an adapter's driver, or is that of other devices.
const PREFIXES: [&[u8]; 2] = [b"/sys/class/infiniband", b"/dev/infiniband"];
/// Longer paths do not exist.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A path as the C library shall see it. On the stack: programs call from signal handlers and in forked children,
/// where nothing may be allocated.
pub(crate) struct Path {
    buffer: [u8; PATH_MAX],
}

impl Path {
    /// What to take in place of `path`; `None`: `path` itself.
    ///
    /// # Safety
    /// A string, or null.
    #[inline]
    pub(crate) unsafe fn redirected(path: *const c_char) -> Option<Path> {
        // Most paths are others: nothing else happens for them.
        // SAFETY: the caller's promise.
        let path = unsafe { interesting(path) }?;
        // SAFETY: a string.
        let root = unsafe { libc::getenv(c"URXE_ROOT".as_ptr()) };
        if root.is_null() {
            return None;
        }
        // SAFETY: the C library returned a string.
        Path::joined(unsafe { CStr::from_ptr(root) }.to_bytes(), path)
    }

    /// `None` if the root is not absolute, or the whole is too long.
    fn joined(root: &[u8], path: &[u8]) -> Option<Path> {
        if root.first() != Some(&b'/') {
            return None;
        }
        let mut buffer = [0; PATH_MAX];
        let len = root.len() + path.len();
        // One byte is for the end of the string.
        if len >= PATH_MAX {
            return None;
        }
        buffer[..root.len()].copy_from_slice(root);
        buffer[root.len()..len].copy_from_slice(path);
        Some(Path { buffer })
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.buffer.as_ptr().cast()
    }
}

/// The path's bytes, if it is one of ours.
///
/// # Safety
/// A string, or null.
unsafe fn interesting<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    PREFIXES
        .iter()
        .any(|prefix| is_below(bytes, prefix))
        .then_some(bytes)
}

/// True of the prefix itself, of what is in it, and of `infiniband_verbs` and its like beside it.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_device_files_of_rdma_lead_elsewhere() {
        let is_ours = |path: &CStr| {
            // SAFETY: a string.
            unsafe { interesting(path.as_ptr()) }.is_some()
        };
        for path in [
            c"/sys/class/infiniband",
            c"/sys/class/infiniband/urxe0/ports/1",
            c"/sys/class/infiniband_verbs/abi_version",
            c"/dev/infiniband/uverbs0",
        ] {
            assert!(is_ours(path), "{path:?}");
        }
        for path in [
            c"",
            c"/",
            c"infiniband",
            c"/sys/class/infinibands",
            c"/sys/class/net",
            c"/dev/null",
            c"/tmp/sys/class/infiniband",
        ] {
            assert!(!is_ours(path), "{path:?}");
        }
        // SAFETY: null is allowed.
        assert!(unsafe { interesting(core::ptr::null()) }.is_none());
    }

    #[test]
    fn a_path_is_put_below_the_root() {
        let path = Path::joined(b"/run/x", b"/dev/infiniband").expect("short enough");
        // SAFETY: it ends with a zero.
        let text = unsafe { CStr::from_ptr(path.as_ptr()) };
        assert_eq!(text, c"/run/x/dev/infiniband");
        assert!(Path::joined(b"", b"/dev/infiniband").is_none());
        assert!(Path::joined(b"relative", b"/dev/infiniband").is_none());
        let long = [b'/'; PATH_MAX];
        assert!(Path::joined(&long[..PATH_MAX - 4], b"/dev").is_none());
        assert!(Path::joined(&long[..PATH_MAX - 5], b"/dev").is_some());
    }
}
