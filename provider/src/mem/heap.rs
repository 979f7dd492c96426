//! Returns freed memory to the system.

/// Makes the C library give back what the program has freed. glibc keeps freed memory that is not at the end of its heap
/// until it is told to return it; other libraries need not be told, and programs with an allocator of their own lose nothing.
/// Threads that allocate meanwhile wait, for milliseconds where the heap is large.
///
/// Returns false where there is no such call.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn trim_heap() -> bool {
    // SAFETY: takes a number and the heap's own locks; memory that is in use stays where it is.
    unsafe { libc::malloc_trim(0) };
    true
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim_heap() -> bool {
    false
}
