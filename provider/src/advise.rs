//! Advice about memory that will be used.

use urxe_core::memory::MemoryFault;
use urxe_core::mr::AccessFault;
use urxe_core::work::Sge;

use crate::error::{Error, ErrorKind};
use crate::pd::Pd;

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

impl Pd {
    /// Brings the pages behind scatter/gather entries into memory, so that their first use
    /// finds them there. It is done when this returns (as with `IBV_ADVISE_MR_FLAG_FLUSH`).
    /// Regions of every kind may be named, not only those registered on demand.
    ///
    /// # Errors
    /// [`ErrorKind::Advise`] for the first entry that cannot be used so; those before it
    /// were brought in.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.21".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// use urxe::{Access, Advice};
    ///
    /// let region = pd.reg_owned(vec![0; 1 << 20], Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    /// pd.advise_mr(Advice::PrefetchWrite, &[region.sge(..)])?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<(), Error> {
        self.context().engine().check_process()?;
        for (entry, sge) in sges.iter().enumerate() {
            let outcome = self.context().engine().prefetch(self.id(), advice, sge);
            outcome.map_err(|fault| ErrorKind::Advise { entry, fault })?;
        }
        Ok(())
    }
}
