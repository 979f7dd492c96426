//! Removes the tree of device files at the program's end: `urxe run` becomes the program, so only the program can remove its tree.

use core::ffi::CStr;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the name of a tree begins with; its owner's PID namespace and process id follow. `urxe run` makes such names
/// (`cli/src/launch/tree.rs`).
const NAME: &str = "tree-";

/// Called when the process exits. One that is killed, or ends by `_exit` (which may be called where nothing can be
/// allocated), leaves its tree to the next `urxe run`.
extern "C" fn at_exit() {
    // SAFETY: a string.
    let root = unsafe { libc::getenv(c"URXE_ROOT".as_ptr()) };
    if root.is_null() {
        return;
    }
    // SAFETY: the C library returned a string.
    let root = Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(root) }.to_bytes(),
    ));
    let namespace = std::fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino());
    if namespace.is_ok_and(|namespace| is_tree_of(root, namespace, std::process::id())) {
        // Another process may have been faster.
        let _ = std::fs::remove_dir_all(root);
    }
}

/// True if this process is the tree's owner: children have the variable too, and end earlier; in a PID namespace of its own
/// one may have its parent's number.
fn is_tree_of(root: &Path, namespace: u64, pid: u32) -> bool {
    let name = root.file_name().and_then(OsStr::to_str);
    let owner = name.and_then(|name| name.strip_prefix(NAME));
    owner.is_some_and(|owner| owner == format!("{namespace}.{pid}"))
}

/// The loader calls what is listed here when the process exits.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(test)]
#[test]
fn only_the_owner_takes_the_tree_away() {
    assert!(is_tree_of(Path::new("/dev/shm/urxe-0/tree-7.123"), 7, 123));
    for root in [
        "/dev/shm/urxe-0/tree-7.124",
        "/dev/shm/urxe-0/tree-8.123",
        "/dev/shm/urxe-0/tree-77.123",
        "/dev/shm/urxe-0/7.123",
        "/",
        "",
        "tree-7.123/x",
    ] {
        assert!(!is_tree_of(Path::new(root), 7, 123), "{root}");
    }
    let _ = at_exit as extern "C" fn();
}
