//! Functions for adapters' own libraries (`libmlx5`, `libefa`), which programs load beside this one.

use core::ffi::c_void;

/// They announce their driver when they are loaded. It has no device here.
pub(crate) unsafe extern "C" fn verbs_register_driver_34(_ops: *const c_void) {}

/// Their diagnostics. Takes more arguments in C, which need not be looked at.
pub(crate) unsafe extern "C" fn __verbs_log() {}
