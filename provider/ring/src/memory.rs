//! The shared memory: all that touches it is here.
//!
//! No reference to what the other process writes is ever made, as it may change that at any moment: bytes are copied by pointer, and
//! all else goes through atomics. The writer makes references to bytes that it has not published yet ([`Memory::part_mut`]).

#[cfg(not(miri))]
mod mapping;
#[cfg(miri)]
#[path = "memory/heap.rs"]
mod mapping;

use core::ops::Range;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::compiler_fence;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::mapping::Mapping;
use crate::layout::{Geometry, MAGIC, MAGIC_AT, OPENED, OPENED_AT};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One side's mapping.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Those of the mapping: a look at them is no look at it.
    base: NonNull<u8>,
    len: usize,
    /// Shared with the side's [`Window`](crate::Window).
    mapping: Arc<Mapping>,
}

// SAFETY: the mapping belongs to this value, and to those that share it, and not to a thread; what is in it is accessed by atomics, or by
// copies in the order that the ring's words keep. To unmap it needs no certain thread either.
unsafe impl Send for Memory {}

impl Memory {
    /// New memory, and a descriptor for the other side.
    pub(crate) fn create(geometry: &Geometry) -> io::Result<(Memory, OwnedFd)> {
        let (mapping, descriptor) = Mapping::create(geometry.len())?;
        let memory = Memory::of(mapping);
        memory.word(MAGIC_AT).store(MAGIC, Ordering::Relaxed);
        Ok((memory, descriptor))
    }

    /// Memory that the other side made.
    pub(crate) fn open(memory: OwnedFd, geometry: &Geometry) -> io::Result<Memory> {
        let mapping = Mapping::open(memory, geometry.len())?;
        let memory = Memory::of(mapping);
        let magic = memory.word(MAGIC_AT).load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(mapping::unfit("it is of another version"));
        }
        // Once, whatever a process does with the descriptor.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let opened = memory.flag(OPENED_AT);
        if opened
            .compare_exchange(0, OPENED, success, failure)
            .is_err()
        {
            return Err(mapping::unfit("it has a reader, or was taken back"));
        }
        Ok(memory)
    }

    /// New memory without a magic number: as many mappings of it as are wanted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn shared(geometry: Geometry) -> io::Result<impl Fn() -> io::Result<Memory>> {
        let again = Mapping::shared(geometry.len())?;
        Ok(move || Ok(Memory::of(again()?)))
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "what shares it is made to be sent, see above"
    )]
    fn of(mapping: Mapping) -> Memory {
        Memory {
            base: mapping.base,
            len: mapping.len,
            mapping: Arc::new(mapping),
        }
    }

    /// The same memory once more.
    pub(crate) fn share(&self) -> Memory {
        Memory {
            mapping: self.mapping.clone(),
            ..*self
        }
    }

    /// True if both are of one mapping.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
    }

    /// False in a child of the process that mapped it.
    pub(crate) fn is_own(&self) -> bool {
        self.mapping.is_own()
    }

    /// The word at an offset, which must be one of eight bytes and aligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at <= self.len - 8,
            "outside of the memory"
        );
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned: the base is a page's. Both sides access words by atomics
        // alone.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The half-word at an offset.
    #[inline]
    pub(crate) fn flag(&self, at: usize) -> &AtomicU32 {
        assert!(
            at.is_multiple_of(4) && at <= self.len - 4,
            "outside of the memory"
        );
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Copies bytes into the memory.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(
            at <= self.len && bytes.len() <= self.len - at,
            "outside of the memory"
        );
        // SAFETY: inside the mapping, and `bytes` is no part of it: no reference to that is made. The other side reads these bytes after it
        // has seen the word that is stored after them; one that does not keep to this reads a mixture.
        unsafe {
            let to = self.base.as_ptr().add(at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies bytes out of the memory.
    #[inline]
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        assert!(
            at <= self.len && out.len() <= self.len - at,
            "outside of the memory"
        );
        // SAFETY: inside the mapping, and `out` is no part of it. The other side wrote these bytes before the word that was loaded before; if
        // it writes them still, against the rules, the copy is a mixture, and nothing has looked at it yet.
        unsafe {
            let from = self.base.as_ptr().add(at);
            ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
        // What looks at the copy must not be made to read the memory again in its place.
        compiler_fence(Ordering::SeqCst);
    }

    /// Words of the memory, from an offset on that is a multiple of four.
    #[inline]
    pub(crate) fn words(&self, at: usize, words: usize) -> &[AtomicU32] {
        let is_inside = at <= self.len && words <= (self.len - at) / 4;
        assert!(at.is_multiple_of(4) && is_inside, "outside of the memory");
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned: the base is a page's. The other side does not write to a record
        // while this one reads it; one that does against the rules is another process, and changes what these atomics load.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(at).cast(), words) }
    }

    /// Bytes of the memory, to write records there that are published later.
    ///
    /// # Safety
    /// The range is the caller's alone: it holds no published record and no word of the ring, and this side does not reach it otherwise
    /// as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "outside of the memory"
        );
        // SAFETY: inside the mapping, which lives as long as `self`; by the caller's promise nothing else of this process refers to it, and
        // the other side does not touch what is not published. One that does so against the rules changes bytes that are there for it to
        // read: nothing that is in bounds or not depends on them.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().add(range.start), range.len()) }
    }
}
