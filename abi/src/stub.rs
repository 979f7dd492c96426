//! Functions that exist because programs name them, and that this library does not offer.

use std::sync::Once;

use crate::errno::Errno;

/// `EOPNOTSUPP`, as verbs return it.
pub(crate) fn no_verb(name: &str) -> isize {
    tell(name);
    Errno::NOT_SUPPORTED.set();
    libc::EOPNOTSUPP as isize
}

/// Null and `EOPNOTSUPP`.
pub(crate) fn no_pointer(name: &str) -> isize {
    tell(name);
    Errno::NOT_SUPPORTED.set();
    0
}

/// -1 and `ENOSYS`: programs that can do without the connection manager so find out.
pub(crate) fn no_cm(name: &str) -> isize {
    tell_once(name);
    Errno(libc::ENOSYS).set();
    -1
}

fn tell(name: &str) {
    if std::env::var_os("URXE_VERBOSE").is_some() {
        eprintln!("urxe: {name} is not offered");
    }
}

/// A program that needs the connection manager prints something unhelpful of its own; so the reason comes first.
fn tell_once(name: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        eprintln!("urxe: {name}: the connection manager (rdma_*) and rsockets are not there yet");
    });
    tell(name);
}
