//! Tasks at the end of the program. Many programs end without closing their devices, and those that connect by
//! addresses cannot close them: the library opened them.

use std::sync::Once;

use crate::{file, verbose};

/// Registers a handler for the exit of the process, where there is a capture to be completed (`URXE_PCAP`), or
/// the program was told to print what faults on purpose did, and what failed (`URXE_VERBOSE`).
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("URXE_PCAP") || verbose::is_on() {
        ONCE.call_once(|| {
            // SAFETY: the function is of a library that is never unloaded. Without memory for it nothing is done.
            unsafe { libc::atexit(at_exit) };
        });
    }
}

extern "C" fn at_exit() {
    urxe::flush_open_captures();
    if verbose::is_on() {
        urxe::report_open_faults();
        for file in file::open_files() {
            if let Some(registry) = file.registry_of_this_process() {
                verbose::tell_rest_of_all(&registry);
            }
        }
    }
}
