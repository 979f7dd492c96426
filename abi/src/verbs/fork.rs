//! Fork support: memory is not pinned, so there is nothing to protect.

use core::ffi::{c_int, c_void};

/// `IBV_FORK_UNNEEDED`
const UNNEEDED: c_int = 2;

pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
    UNNEEDED
}

pub(crate) unsafe extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

pub(crate) unsafe extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}
