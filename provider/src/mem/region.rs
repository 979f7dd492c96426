//! Registered memory that urxe owns, and safe ways to access it.
//!
//! Peers write to it at any time: so no reference to its bytes is ever made, and what
//! is read may be a mixture of old and new unless the program has its own order (a
//! completion, or a word that is polled on).

use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use std::sync::Arc;

use memmap2::MmapMut;

/// Bytes at a fixed place.
#[derive(Debug)]
pub(crate) struct Region {
    ptr: *mut u8,
    len: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    /// A boxed slice; freed when dropped.
    Boxed,
    /// A mapping, unmapped when dropped.
    Mapped { _map: MmapMut },
    /// A part of another region, which it keeps.
    Part { _of: Arc<Region> },
    /// The caller's, which promised to keep it.
    Foreign,
}

// SAFETY: the pointer is to memory that any thread may access, and all accesses here
// are raw copies and atomics.
unsafe impl Send for Region {}
// SAFETY: as above; no method hands out a reference to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Takes the bytes over.
    pub(crate) fn boxed(bytes: Box<[u8]>) -> Region {
        let len = bytes.len();
        Region {
            ptr: Box::into_raw(bytes).cast(),
            len,
            backing: Backing::Boxed,
        }
    }

    /// Takes a mapping over.
    pub(crate) fn mapped(mut map: MmapMut) -> Region {
        let (ptr, len) = (map.as_mut_ptr(), map.len());
        Region {
            ptr,
            len,
            backing: Backing::Mapped { _map: map },
        }
    }

    /// A part of a region.
    ///
    /// # Panics
    /// If it is not all inside.
    pub(crate) fn part(of: &Arc<Region>, offset: usize, len: usize) -> Region {
        Region {
            ptr: of.at(offset, len),
            len,
            backing: Backing::Part { _of: of.clone() },
        }
    }

    /// Bytes that the caller owns.
    ///
    /// # Safety
    /// No other code may use them until the region is dropped; and while this type's own
    /// methods are used, mapped, readable and (for those that write) writable.
    pub(crate) unsafe fn foreign(ptr: *mut u8, len: usize) -> Region {
        Region {
            ptr,
            len,
            backing: Backing::Foreign,
        }
    }

    /// Address of the first byte, from which the engine will make pointers.
    pub(crate) fn expose(&self) -> u64 {
        self.ptr.expose_provenance() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes: those that were taken over as a slice, or a copy.
    pub(crate) fn into_bytes(mut self) -> Box<[u8]> {
        if let Backing::Boxed = self.backing {
            // What is freed with the region from now on.
            let nothing: *mut [u8] = Box::into_raw(Box::default());
            let bytes = ptr::slice_from_raw_parts_mut(self.ptr, self.len);
            (self.ptr, self.len) = (nothing.cast(), 0);
            // SAFETY: this is what `Box::into_raw` returned, and is no more the region's.
            return unsafe { Box::from_raw(bytes) };
        }
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes.into()
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all inside.
    pub(crate) fn read(&self, offset: usize, dst: &mut [u8]) {
        let src = self.at(offset, dst.len());
        // SAFETY: `at` checked the bounds; the region is mapped while `self` lives;
        // `dst` is a unique reference, so it is not part of the region.
        unsafe { ptr::copy_nonoverlapping(src.cast_const(), dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not all inside.
    pub(crate) fn write(&self, offset: usize, src: &[u8]) {
        let dst = self.at(offset, src.len());
        // SAFETY: as above; no reference to the region's bytes exists that this could
        // invalidate.
        unsafe { ptr::copy(src.as_ptr(), dst, src.len()) }
    }

    /// One aligned word.
    ///
    /// # Panics
    /// If it is not inside, or not aligned.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let word = self.at(offset, 8).cast::<u64>();
        assert!(
            word.is_aligned(),
            "the word at offset {offset} is not aligned to 8 bytes"
        );
        // SAFETY: inside the region, which lives as long as `self`; aligned.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// One byte, as it is at this moment.
    ///
    /// # Panics
    /// If it is not inside.
    pub(crate) fn load_u8(&self, offset: usize) -> u8 {
        let byte = self.at(offset, 1);
        // SAFETY: inside the region, which lives as long as `self`.
        unsafe { AtomicU8::from_ptr(byte) }.load(Ordering::Acquire)
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            inside,
            "{len} bytes at {offset} are outside a region of {} bytes",
            self.len
        );
        // SAFETY: within (or one past) the same allocation, as just checked.
        unsafe { self.ptr.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Boxed = self.backing {
            let bytes = ptr::slice_from_raw_parts_mut(self.ptr, self.len);
            // SAFETY: this is what `Box::into_raw` returned, given back once.
            drop(unsafe { Box::from_raw(bytes) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_nothing_outside() {
        let region = Region::boxed(vec![7; 32].into());
        region.write(8, &[1, 2, 3]);
        let mut back = [0; 5];
        region.read(7, &mut back);
        assert_eq!(back, [7, 1, 2, 3, 7]);
        assert_eq!(region.load_u8(9), 2);
        region.read(32, &mut []);
        for (offset, len) in [(32, 1), (30, 3), (usize::MAX, 2)] {
            let read = || region.read(offset, &mut vec![0; len]);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
        }
    }

    #[test]
    fn a_mapping_is_a_region() {
        let region = Region::mapped(MmapMut::map_anon(4096).expect("memory"));
        region.word(4088).store(5, Ordering::Release);
        assert_eq!(region.word(4088).load(Ordering::Acquire), 5);
        assert_eq!(region.len(), 4096);
    }
}
