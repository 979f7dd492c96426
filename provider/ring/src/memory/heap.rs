//! What Miri has in place of a mapping: it knows no memory files. There are no descriptors, only [`Mapping::shared`].

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    _heap: Arc<Heap>,
}

/// Memory that goes with the last that has it.
#[derive(Debug)]
struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory belongs to no thread, and nothing is reached through this.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and nothing refers to it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Mapping {
    pub(super) fn create(_len: usize) -> io::Result<(Mapping, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn open(_memory: OwnedFd, _len: usize) -> io::Result<Mapping> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn shared(len: usize) -> io::Result<impl Fn() -> io::Result<Mapping>> {
        let layout = Layout::from_size_align(len, 4096).map_err(io::Error::other)?;
        // SAFETY: every ring has a header, so it is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        let base = base.ok_or(io::ErrorKind::OutOfMemory)?;
        let heap = Arc::new(Heap { base, layout });
        Ok(move || {
            Ok(Mapping {
                base,
                len,
                _heap: heap.clone(),
            })
        })
    }

    pub(super) fn is_own(&self) -> bool {
        true
    }
}

pub(super) fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
