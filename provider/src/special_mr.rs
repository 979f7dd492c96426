//! Regions without bytes of their own: null regions, and the whole address space.

use urxe_core::work::Sge;
use urxe_wire::{Lkey, Rkey};

use crate::error::Error;
use crate::mem;
use crate::mr::Registration;
use crate::pd::Pd;

/// A region without bytes, for scatter/gather entries that are to be skipped: what is sent
/// from it is zeros, and what is received into it is thrown away. Every address is in it.
/// It has no rkey.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.23".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// # let region = pd.reg_owned(vec![0; 64], urxe::Access::LOCAL_WRITE)?;
/// let null = pd.alloc_null_mr()?;
/// // The first 40 bytes of a message are of no interest.
/// let sges = [null.sge(40), region.sge(..)];
/// # let _ = sges;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_alloc_null_mr")]
pub struct NullMr {
    registration: Registration,
}

impl NullMr {
    /// The key for local work requests.
    pub fn lkey(&self) -> Lkey {
        self.registration.keys.lkey
    }

    /// An entry of so many bytes.
    pub fn sge(&self, length: u32) -> Sge {
        Sge {
            addr: 0,
            length,
            lkey: self.lkey(),
        }
    }
}

/// All memory of the process as one region: see [`Pd::reg_implicit`].
pub struct ImplicitMr {
    registration: Registration,
}

impl ImplicitMr {
    pub(crate) fn new(registration: Registration) -> ImplicitMr {
        ImplicitMr { registration }
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> Lkey {
        self.registration.keys.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> Rkey {
        self.registration.keys.rkey
    }

    /// An entry for `length` bytes at a pointer's address.
    pub fn sge(&self, at: *const u8, length: u32) -> Sge {
        Sge {
            addr: at.expose_provenance() as u64,
            length,
            lkey: self.lkey(),
        }
    }
}

impl Pd {
    /// A region without bytes.
    ///
    /// # Errors
    /// When there is no room for more regions, or no memory.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn alloc_null_mr(&self) -> Result<NullMr, Error> {
        let scratch = mem::null_scratch()?;
        let lkey = self.shards().register_null(self.id(), scratch)?;
        Ok(NullMr {
            registration: Registration::local(self, lkey),
        })
    }
}
