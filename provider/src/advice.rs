//! Kinds of advice about memory, and why it is refused.

use urxe_core::memory::MemoryFault;
use urxe_core::mr::AccessFault;

/// What will be done with memory, with the numbers of `enum ib_uverbs_advise_mr_advice`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[doc(alias = "ibv_advise_mr_advice")]
pub enum Advice {
    /// The memory will be read: bring the pages in.
    Prefetch = 0,
    /// The memory will be written to: bring the pages in, ready to be changed.
    PrefetchWrite = 1,
    /// Bring in what needs no page fault: which is what is there already, so nothing is
    /// done after the checks.
    PrefetchNoFault = 2,
}

/// Why an entry was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviseFault {
    /// No region has the lkey.
    #[error("no MR has its lkey")]
    Key,
    /// The region is in another protection domain.
    #[error("its MR belongs to another protection domain")]
    Pd,
    /// The region may not be written to.
    #[error("its MR lacks LOCAL_WRITE")]
    Access,
    /// Outside the region.
    #[error("it reaches outside its MR")]
    Bounds,
    /// The memory is not there, or its pages forbid it.
    #[error("its memory cannot be reached")]
    Memory,
    /// The engine has failed, or this is the child of a fork.
    #[error("the engine does not run")]
    Engine,
}

impl AdviseFault {
    pub(crate) fn errno(self) -> i32 {
        match self {
            AdviseFault::Key => libc::ENOENT,
            AdviseFault::Pd | AdviseFault::Access => libc::EPERM,
            AdviseFault::Bounds | AdviseFault::Memory => libc::EFAULT,
            AdviseFault::Engine => libc::ENODEV,
        }
    }
}

impl From<AccessFault> for AdviseFault {
    fn from(fault: AccessFault) -> AdviseFault {
        match fault {
            AccessFault::Key => AdviseFault::Key,
            AccessFault::Pd => AdviseFault::Pd,
            AccessFault::Bounds => AdviseFault::Bounds,
            AccessFault::Access => AdviseFault::Access,
        }
    }
}

impl From<MemoryFault> for AdviseFault {
    fn from(_: MemoryFault) -> AdviseFault {
        AdviseFault::Memory
    }
}
