//! A memory file, sealed and mapped.

use core::ptr::{self, NonNull};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// What keeps the memory as large as it is, whatever the other process does.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[derive(Debug)]
pub(super) struct Mapping {
    /// At a page's beginning.
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    /// The process that mapped it.
    process: u32,
}

impl Mapping {
    /// New memory of zeros, and its descriptor.
    pub(super) fn create(len: usize) -> io::Result<(Mapping, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(c"urxe-ring", flags)?);
        file.set_len(len as u64)?;
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        Ok((Mapping::map(&file, len)?, file.into()))
    }

    /// The memory behind a descriptor, if it is so long and stays so.
    pub(super) fn open(memory: OwnedFd, len: usize) -> io::Result<Mapping> {
        let file = File::from(memory);
        // Only memory files know of seals.
        let seals = fcntl_get_seals(&file).map_err(|_| unfit("it is no sealed memory"))?;
        if !seals.contains(SEALS) {
            return Err(unfit("its size can change"));
        }
        if file.metadata()?.len() != len as u64 {
            return Err(unfit("it has another size"));
        }
        Mapping::map(&file, len)
    }

    /// New memory: as many mappings of it as are wanted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn shared(len: usize) -> io::Result<impl Fn() -> io::Result<Mapping>> {
        let (_, descriptor) = Mapping::create(len)?;
        Ok(move || Mapping::open(descriptor.try_clone()?, len))
    }

    fn map(file: &File, len: usize) -> io::Result<Mapping> {
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
        let mapping = Mapping {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            process: std::process::id(),
        };
        // SAFETY: the mapping is this value's. A child of a fork does not get it, and does not touch it (see `drop`).
        unsafe { madvise(base, len, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// False in a child of the process that mapped it.
    pub(super) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child of a fork has no such mapping, and may have another one in its place.
        if self.is_own() {
            // SAFETY: the mapping is this value's, and nothing refers to it any more. It cannot fail for one that was made as a whole.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

pub(super) fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no ring: {why}"))
}
