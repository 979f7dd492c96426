//! The shared memory: all that touches it is here.
//!
//! No reference to its bytes is ever made, as the other process may change them at any moment: bytes are copied by pointer, and
//! all else goes through atomics.

use core::ptr::{self, NonNull};
use core::sync::atomic::compiler_fence;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::layout::{Geometry, MAGIC, MAGIC_AT};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What keeps the memory as large as it is, whatever the other process does.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// One side's mapping.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// The process that mapped it.
    process: u32,
}

// SAFETY: the mapping belongs to this value and not to a thread; what is in it is accessed by atomics, or by copies in the order that the
// ring's words keep.
unsafe impl Send for Memory {}

impl Memory {
    /// New memory, and a descriptor for the other side.
    pub(crate) fn create(geometry: &Geometry) -> io::Result<(Memory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(c"urxe-ring", flags)?);
        file.set_len(geometry.len() as u64)?;
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        let memory = Memory::map(&file, geometry)?;
        memory.word(MAGIC_AT).store(MAGIC, Ordering::Relaxed);
        Ok((memory, file.into()))
    }

    /// Memory that the other side made.
    pub(crate) fn open(memory: OwnedFd, geometry: &Geometry) -> io::Result<Memory> {
        let file = File::from(memory);
        // Only memory files know of seals.
        let seals = fcntl_get_seals(&file).map_err(|_| unfit("it is no sealed memory"))?;
        if !seals.contains(SEALS) {
            return Err(unfit("its size can change"));
        }
        if file.metadata()?.len() != geometry.len() as u64 {
            return Err(unfit("it has another size"));
        }
        let memory = Memory::map(&file, geometry)?;
        let magic = memory.word(MAGIC_AT).load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(unfit("it is of another version"));
        }
        Ok(memory)
    }

    fn map(file: &File, geometry: &Geometry) -> io::Result<Memory> {
        let len = geometry.len();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses. The file is sealed against shrinking, so that no page of it goes.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        let memory = Memory {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            process: std::process::id(),
        };
        // SAFETY: the mapping is this value's. A child of a fork does not get it, and does not touch it (see `drop`).
        unsafe { madvise(base, len, Advice::LinuxDontFork)? };
        Ok(memory)
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
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len());
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
            ptr::copy_nonoverlapping(self.base.as_ptr().add(at), out.as_mut_ptr(), out.len());
        }
        // What looks at the copy must not be made to read the memory again in its place.
        compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A child of a fork has no such mapping, and may have another one in its place.
        if self.is_own() {
            // SAFETY: the mapping is this value's, and nothing refers to it any more. It cannot fail for one that was made as a whole.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

impl Memory {
    /// False in a child of the process that mapped it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no ring: {why}"))
}
