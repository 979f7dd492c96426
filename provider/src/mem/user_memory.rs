//! The core's door to registered memory: raw copies, never references.

use core::ptr;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::MrSpan;

/// The memory of this process. A span's address is a pointer.
///
/// That a span's bytes are mapped is the promise of whoever registered the region:
/// kept by the types for owned regions, by an unsafe call's contract for others.
#[derive(Debug)]
pub(crate) struct UserMemory;

impl Memory for UserMemory {
    #[inline]
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        assert_eq!(
            span.len(),
            dst.len(),
            "the caller's slice has the span's length"
        );
        // SAFETY: the span passed the bounds check of a live region, whose owner keeps it
        // mapped until deregistration, which waits for the lock that is held during this
        // call. `dst` is ours, so it does not overlap. Concurrent writes by the application
        // can tear the bytes, which then go on the wire as data and are interpreted by
        // nobody.
        unsafe {
            ptr::copy_nonoverlapping(pointer(span).cast_const(), dst.as_mut_ptr(), dst.len());
        }
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
        unsafe { copy_last_word_last(pointer(span), src) };
        Ok(())
    }

    #[inline]
    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let word = atomic(span)?;
        let old = word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Ok(old.unwrap_or_else(|found| found))
    }

    #[inline]
    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        Ok(atomic(span)?.fetch_add(add, Ordering::AcqRel))
    }
}

#[inline]
fn pointer(span: MrSpan) -> *mut u8 {
    // Registration exposed the provenance of the region's pointer.
    ptr::with_exposed_provenance_mut(span.host_addr() as usize)
}

/// The 8 bytes of a span as an atomic.
#[inline]
fn atomic<'a>(span: MrSpan) -> Result<&'a AtomicU64, MemoryFault> {
    let word = pointer(span).cast::<u64>();
    if span.len() != 8 || !word.is_aligned() {
        return Err(MemoryFault);
    }
    // SAFETY: mapped as in `copy_out`; aligned and of 8 bytes as just checked. Other
    // accesses to it in this process are the application's, which is told to use atomics.
    Ok(unsafe { AtomicU64::from_ptr(word) })
}

/// Copies so that whoever polls on the end of the bytes finds the rest there: the last
/// aligned word is stored by itself, after everything else. (A plain copy may well
/// begin at the end.) So an aligned number of 8 or 4 bytes never tears, either.
///
/// # Safety
/// `dst` is valid for writes of `src.len()` bytes, which do not overlap `src`.
#[inline]
unsafe fn copy_last_word_last(dst: *mut u8, src: &[u8]) {
    let len = src.len();
    let end = dst.addr() + len;
    let last = [8, 4, 2, 1]
        .into_iter()
        .find(|&n| len >= n && end.is_multiple_of(n));
    let Some(last) = last else { return };
    let (bulk, word) = src.split_at(len - last);
    // SAFETY: `bulk` is the first part of `src`, so its length is within the caller's
    // promise; `at` has `last` more bytes behind it within that promise, and is a
    // multiple of `last`, as `end` is.
    unsafe {
        ptr::copy_nonoverlapping(bulk.as_ptr(), dst, bulk.len());
        let at = dst.add(bulk.len());
        fence(Ordering::Release);
        match *word {
            [a, b, c, d, e, f, g, h] => AtomicU64::from_ptr(at.cast()).store(
                u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                Ordering::Relaxed,
            ),
            [a, b, c, d] => AtomicU32::from_ptr(at.cast())
                .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed),
            [a, b] => {
                AtomicU16::from_ptr(at.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Relaxed);
            }
            _ => at.write_volatile(word[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_length_at_every_alignment() {
        let src: Vec<u8> = (1..=64).collect();
        for offset in 0..8 {
            for len in 0..=40 {
                let mut dst = vec![0u64; 8];
                let base = dst.as_mut_ptr().cast::<u8>();
                // SAFETY: 64 bytes are there, and at most 7 + 40 are written.
                unsafe { copy_last_word_last(base.add(offset), &src[..len]) };
                let bytes: Vec<u8> = dst.iter().flat_map(|w| w.to_ne_bytes()).collect();
                let mut expected = vec![0; 64];
                expected[offset..offset + len].copy_from_slice(&src[..len]);
                assert_eq!(bytes, expected, "{len} bytes at offset {offset}");
            }
        }
    }
}
