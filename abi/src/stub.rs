//! Functions that programs link to and that this library does not offer: they fail with an error.

use crate::errno::Errno;
use crate::verbose;

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

fn tell(name: &str) {
    if verbose::is_on() {
        eprintln!("urxe: {name} is not offered");
    }
}
