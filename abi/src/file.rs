//! Objects that contexts of one command descriptor share.
//!
//! To programs a context is the file `cmd_fd`, with the kernel's objects behind it under numbers ("handles"). A program with a
//! duplicate of the descriptor can make a second context of it (`ibv_import_device`) and, by their numbers, second
//! handles of its protection domains, regions and device memory.

use std::collections::BTreeMap;
use std::fs::File as SystemFile;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::device::Device;
use crate::errno::Errno;
use crate::layout::{ibv_cq, ibv_qp, ibv_srq};
use crate::lock::lock;
use crate::object::{MrState, Shared, Users};
use crate::read::Reading;

/// The one file that several contexts may stand for.
pub(crate) struct File {
    /// Of asynchronous events. Goes before their descriptor.
    _reading: Option<Reading>,
    pub(crate) urxe: urxe::Context,
    pub(crate) device: &'static Device,
    registry: Mutex<Registry>,
    next_handle: AtomicU32,
    /// The process that opened it.
    process: u32,
}

/// Objects by number: by what the engine's events name them, and by their handles. In trees, which have no memory left
/// when thousands of objects are gone.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) cqs: BTreeMap<u32, Shared<ibv_cq>>,
    pub(crate) qps: BTreeMap<u32, Shared<ibv_qp>>,
    pub(crate) srqs: BTreeMap<u32, Shared<ibv_srq>>,
    pub(crate) pds: BTreeMap<u32, (urxe::Pd, Arc<Users>)>,
    pub(crate) mrs: BTreeMap<u32, Weak<MrState>>,
    pub(crate) dms: BTreeMap<u32, urxe::Dm>,
}

/// Device and inode number: what all duplicates of a descriptor have in common.
type Identity = (u64, u64);

/// The files that are open, to find one by its duplicate.
static OPEN: Mutex<Vec<(Identity, Weak<File>)>> = Mutex::new(Vec::new());

impl File {
    /// A file for a descriptor that was just made; `offer` has its asynchronous events read.
    pub(crate) fn new(
        fd: &OwnedFd,
        urxe: urxe::Context,
        device: &'static Device,
        offer: impl FnOnce(&Weak<File>) -> Option<Reading>,
    ) -> Result<Arc<File>, Errno> {
        let identity = identity(fd.as_fd())?;
        let file = Arc::new_cyclic(|file| File {
            _reading: offer(file),
            urxe,
            device,
            registry: Mutex::default(),
            next_handle: AtomicU32::new(1),
            process: std::process::id(),
        });
        let mut open = lock(&OPEN);
        open.retain(|(_, file)| file.strong_count() > 0);
        open.push((identity, Arc::downgrade(&file)));
        Ok(file)
    }

    /// The one that a descriptor is a duplicate of.
    pub(crate) fn find(fd: BorrowedFd<'_>) -> Result<Arc<File>, Errno> {
        let identity = identity(fd)?;
        let open = lock(&OPEN);
        let found = open.iter().find(|(known, _)| *known == identity);
        let file = found.and_then(|(_, file)| file.upgrade());
        // Another process's: its objects are in its memory.
        file.ok_or(Errno::NOT_SUPPORTED)
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// The registry, unless this process is a child of the one that opened the file: a thread that is not there may hold
    /// the lock for ever.
    pub(crate) fn registry_of_this_process(&self) -> Option<MutexGuard<'_, Registry>> {
        (self.process == std::process::id()).then(|| self.registry())
    }

    /// A number for an object that has none.
    pub(crate) fn handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn open_files() -> impl Iterator<Item = Arc<File>> {
    let open: Vec<_> = lock(&OPEN)
        .iter()
        .filter_map(|(_, file)| file.upgrade())
        .collect();
    open.into_iter()
}

fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let metadata = SystemFile::from(fd.try_clone_to_owned()?).metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
