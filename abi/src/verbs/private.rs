//! Functions for adapters' own libraries (`libmlx5`, `libefa`), which programs load beside this one.

use core::ffi::c_void;

/// They announce their driver when they are loaded. It has no device here.
pub(crate) unsafe extern "C" fn verbs_register_driver_34(_ops: *const c_void) {}

/// From rdma-core 57 on. Each change of what adapters' libraries and libibverbs share got a name of its own.
pub(crate) unsafe extern "C" fn verbs_register_driver_57(_ops: *const c_void) {}

/// From rdma-core 59 on.
pub(crate) unsafe extern "C" fn verbs_register_driver_59(_ops: *const c_void) {}

/// From rdma-core 64 on.
pub(crate) unsafe extern "C" fn verbs_register_driver_64(_ops: *const c_void) {}

/// From rdma-core 65 on.
pub(crate) unsafe extern "C" fn verbs_register_driver_65(_ops: *const c_void) {}

/// Their diagnostics. Takes more arguments in C, which need not be looked at.
pub(crate) unsafe extern "C" fn __verbs_log() {}
