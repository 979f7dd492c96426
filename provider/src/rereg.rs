//! Registering a region again.

use memmap2::MmapMut;
use urxe_core::mr::{Access, MrChange};

use crate::error::{Error, ErrorKind};
use crate::mem::Region;
use crate::mr::Mr;
use crate::pd::Pd;

/// What [`Mr::rereg`] is to change: anything that is not named stays as it is.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.25".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// use urxe::{Access, Rereg};
///
/// let mut region = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
/// region.rereg(Rereg::new().access(Access::REMOTE_READ))?;
/// region.rereg(Rereg::new().owned(vec![1; 128]))?;
/// assert_eq!((region.len(), region.load_u8(127)), (128, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[doc(alias = "ibv_rereg_mr")]
pub struct Rereg {
    access: Option<Access>,
    pd: Option<Pd>,
    memory: Option<(Region, Option<u64>)>,
}

impl Rereg {
    /// Nothing changes.
    pub fn new() -> Rereg {
        Rereg::default()
    }

    /// Other rights.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub fn access(mut self, access: Access) -> Rereg {
        self.access = Some(access);
        self
    }

    /// Another protection domain of the same context.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub fn pd(mut self, pd: &Pd) -> Rereg {
        self.pd = Some(pd.clone());
        self
    }

    /// Other memory, which the region then owns.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub fn owned(self, bytes: impl Into<Box<[u8]>>) -> Rereg {
        self.region(Region::boxed(bytes.into()), None)
    }

    /// A mapping in place of the memory.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub fn mapped(self, map: MmapMut) -> Rereg {
        self.region(Region::mapped(map), None)
    }

    /// Memory under an address that the program chose, or any.
    pub(crate) fn region(mut self, region: Region, iova: Option<u64>) -> Rereg {
        self.memory = Some((region, iova));
        self
    }
}

impl Mr {
    /// Changes the region's rights, domain or memory, and keeps its keys. Work requests that
    /// are under way meet the new region from the next packet on. Memory that the region
    /// owned before is given back.
    ///
    /// # Errors
    /// [`ErrorKind::Register`], and nothing has changed; with the error number EBUSY if
    /// memory windows are bound to it.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn rereg(&mut self, change: Rereg) -> Result<(), Error> {
        let Rereg { access, pd, memory } = change;
        let is_foreign = |pd: &Pd| !pd.context().is(self.pd().context());
        if pd.as_ref().is_some_and(is_foreign) {
            return Err(ErrorKind::ForeignObject("protection domain").into());
        }
        // The rights and the memory after the change must suit each other.
        let after = access.unwrap_or(self.registration.access);
        let (region, iova) = match &memory {
            Some((region, iova)) => {
                let any = || self.pd().region_addr(region);
                (region, iova.unwrap_or_else(any))
            }
            None => (&self.region, self.addr()),
        };
        let iova = Mr::first_address(iova, after);
        Mr::check_memory(region, after)?;
        let change = MrChange {
            translation: Some((region.expose(), iova, region.len() as u64)),
            pd: pd.as_ref().map(Pd::id),
            access,
        };
        self.pd().shards().reregister(self.lkey(), &change)?;
        let registration = &mut self.registration;
        (registration.iova, registration.access) = (iova, after);
        if let Some(pd) = pd {
            registration.pd = pd;
        }
        if let Some((region, _)) = memory {
            self.region = region;
        }
        Ok(())
    }
}
