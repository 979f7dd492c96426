//! The core's access to registered memory: raw copies, never references.

use core::ptr;
use core::sync::atomic::AtomicU32;

use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::MrSpan;
use urxe_wire::Qpn;

use super::guarded::{self, Gone};
use super::page_size;

/// The memory of this process. A span's address is a pointer.
///
/// That a span's bytes belong to the region is the promise of the code that registered it:
/// kept by the types for owned regions, by an unsafe call's contract for others. That
/// they are still mapped is not promised: if not, the access fails.
#[derive(Debug)]
pub(crate) struct UserMemory;

impl From<Gone> for MemoryFault {
    #[cold]
    fn from(_: Gone) -> MemoryFault {
        MemoryFault
    }
}

impl Memory for UserMemory {
    #[inline]
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        assert_eq!(
            span.len(),
            dst.len(),
            "the caller's slice has the span's length"
        );
        // SAFETY: the span passed the bounds check of a live region; its bytes are for
        // such accesses until deregistration, which waits for the lock that is held during
        // this call; or they are not mapped any more. `dst` is ours, so it does not overlap.
        // Concurrent writes by the application can tear the bytes, which then go on the wire
        // as data and are not interpreted.
        unsafe { guarded::copy(dst.as_mut_ptr(), pointer(span), dst.len()) }?;
        Ok(())
    }

    #[inline]
    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(
            span.len(),
            src.len(),
            "the caller's slice has the span's length"
        );
        // SAFETY: as above, and the region has the right to be written to.
        unsafe { guarded::copy_last_word_last(pointer(span), src) }?;
        Ok(())
    }

    #[inline]
    fn copy_words_in(&self, span: MrSpan, src: &[AtomicU32]) -> Result<(), MemoryFault> {
        assert_eq!(
            span.len(),
            size_of_val(src),
            "the caller's slice has the span's length"
        );
        // SAFETY: as above; what else changes the words does so as it likes.
        unsafe { guarded::copy_words_last_word_last(pointer(span), src) }?;
        Ok(())
    }

    #[inline]
    fn place_written_words(
        &self,
        qpn: Qpn,
        span: MrSpan,
        src: &[AtomicU32],
    ) -> Result<(), MemoryFault> {
        let _ = qpn;
        self.copy_words_in(span, src)
    }

    #[inline]
    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let word = atomic(span)?;
        // SAFETY: 8 bytes of a live region, as above, which may be written to; `atomic`
        // checked the alignment. Other accesses to it in this process are the
        // application's, which is told to use atomics.
        Ok(unsafe { guarded::compare_swap(word, compare, swap) }?)
    }

    #[inline]
    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        // SAFETY: as above.
        Ok(unsafe { guarded::fetch_add(atomic(span)?, add) }?)
    }

    fn persist(&self, span: MrSpan) -> Result<(), MemoryFault> {
        super::persist::write_back(span)
    }
}

/// Brings a span's pages in, for reading or for writing.
///
/// # Errors
/// [`MemoryFault`] when a page cannot be reached like this.
pub(crate) fn touch(span: MrSpan, for_writing: bool) -> Result<(), MemoryFault> {
    let page = page_size();
    let (start, end) = (pointer(span), pointer(span).addr() + span.len());
    let mut at = start;
    while at.addr() < end {
        let mut byte = 0;
        // SAFETY: a byte of a live region, as in `copy_out`; adding nothing to an aligned
        // word of it changes nothing, and a word does not reach into the next page.
        unsafe {
            guarded::copy(&raw mut byte, at, 1)?;
            let word = at.map_addr(|addr| addr & !7);
            if for_writing {
                guarded::fetch_add(word, 0)?;
            }
        }
        at = at.map_addr(|addr| (addr & !(page - 1)) + page);
    }
    Ok(())
}

#[inline]
fn pointer(span: MrSpan) -> *mut u8 {
    // Registration exposed the provenance of the region's pointer.
    ptr::with_exposed_provenance_mut(span.host_addr() as usize)
}

/// The place of an atomic, which must be one word.
#[inline]
fn atomic(span: MrSpan) -> Result<*mut u8, MemoryFault> {
    let word = pointer(span);
    if span.len() == 8 && word.cast::<u64>().is_aligned() {
        Ok(word)
    } else {
        Err(MemoryFault)
    }
}
