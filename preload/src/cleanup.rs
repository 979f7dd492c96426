//! The end of the tree: `urxe run` becomes the program, so nobody is left to take its tree away but the program.

use core::ffi::CStr;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the name of a tree begins with; its owner's process id follows the last dot. `urxe run` makes such names
/// (`cli/src/launch/tree.rs`).
const NAME: &str = "urxe-tree.";

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
    if is_tree_of(root, std::process::id()) {
        // Somebody may have been faster.
        let _ = std::fs::remove_dir_all(root);
    }
}

/// True if this process is the tree's owner: children have the variable too, and end earlier.
fn is_tree_of(root: &Path, pid: u32) -> bool {
    let name = root.file_name().and_then(OsStr::to_str);
    let owner = name
        .and_then(|name| name.strip_prefix(NAME))
        .and_then(|rest| rest.rsplit('.').next());
    owner.is_some_and(|owner| owner == pid.to_string())
}

/// The loader calls what is listed here when the process exits.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(test)]
#[test]
fn only_the_owner_takes_the_tree_away() {
    assert!(is_tree_of(Path::new("/dev/shm/urxe-tree.0.123"), 123));
    for root in [
        "/dev/shm/urxe-tree.0.124",
        "/dev/shm/123",
        "/",
        "",
        "urxe-tree.0.123/x",
    ] {
        assert!(!is_tree_of(Path::new(root), 123), "{root}");
    }
    let _ = at_exit as extern "C" fn();
}
