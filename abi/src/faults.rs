//! What faults on purpose (`URXE_FAULTS`) did, told when the program ends. Many end without closing their devices.

use std::sync::Once;

/// With `URXE_VERBOSE` in the environment, has the C library call [`report`] when the process exits.
pub(crate) fn report_at_exit() {
    static ONCE: Once = Once::new();
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("URXE_FAULTS") && is_set("URXE_VERBOSE") {
        ONCE.call_once(|| {
            // SAFETY: the function is of a library that is never unloaded. Without memory for it nothing is reported.
            unsafe { libc::atexit(report) };
        });
    }
}

extern "C" fn report() {
    urxe::report_open_faults();
}
