//! Everything that needs `unsafe`: memory that peers and adapters write to behind the
//! compiler's back, and what happens to a process at `fork`.

pub(crate) mod fork;
pub(crate) mod guarded;
mod heap;
mod hidden;
pub(crate) mod many;
pub(crate) mod persist;
mod region;
mod register;
mod scratch;
mod user_memory;
#[cfg(test)]
mod vanish_tests;

pub(crate) use heap::trim_heap;
pub(crate) use hidden::keep_out_of_dumps;
pub(crate) use region::Region;
pub(crate) use scratch::null_scratch;
pub(crate) use user_memory::{UserMemory, touch};

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes a number only.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has pages")
}
