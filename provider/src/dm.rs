//! Device memory: memory of the adapter's own, which is ordinary memory here.

use std::sync::Arc;

use memmap2::MmapMut;
use urxe_core::mr::Access;

use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::limits::LIMITS;
use crate::mem::Region;
use crate::mr::Mr;
use crate::pd::Pd;

/// Memory that a program asks the adapter for. It is reached by copying, and by peers through
/// a region over a part of it. On an adapter it is near the wire; here it is as fast as any.
///
/// It lives as long as this or a region over it.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.24".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// use urxe::Access;
///
/// let dm = context.alloc_dm(4096)?;
/// dm.copy_to(100, b"hello")?;
/// let access = Access::ZERO_BASED | Access::LOCAL_WRITE | Access::REMOTE_READ;
/// let region = pd.reg_dm_mr(&dm, 100, 5, access)?;
/// assert_eq!((region.addr(), region.len()), (0, 5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_dm")]
pub struct Dm {
    context: Context,
    region: Arc<Region>,
}

impl Context {
    /// Memory of the adapter, all zeros.
    ///
    /// The child of a fork may ask for some too, as programs do that hand work to processes: it is memory and
    /// needs no engine. Registering it there is another matter.
    ///
    /// # Errors
    /// If there is not so much ([`crate::DeviceAttr::max_dm_size`]), or none is asked for.
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_dm(&self, len: usize) -> Result<Dm, Error> {
        if len == 0 || len as u64 > LIMITS.max_dm_size {
            let name = "the length of device memory";
            let allowed = "it must be at least 1 and at most max_dm_size";
            return Err(Error::value(name, len as u64, allowed));
        }
        let map = MmapMut::map_anon(len).map_err(Error::io("mapping device memory"))?;
        Ok(Dm {
            context: self.clone(),
            region: Arc::new(Region::mapped(map)),
        })
    }
}

impl Dm {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// False: there is no device memory without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// If they are not all inside.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn copy_to(&self, offset: usize, src: &[u8]) -> Result<(), Error> {
        self.check(offset, src.len())?;
        self.region.write(offset, src);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// If they are not all inside.
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn copy_from(&self, offset: usize, dst: &mut [u8]) -> Result<(), Error> {
        self.check(offset, dst.len())?;
        self.region.read(offset, dst);
        Ok(())
    }

    /// Gives it back, which dropping does too. Regions over it keep it.
    #[doc(alias = "ibv_free_dm")]
    pub fn free(self) {}

    fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        let (name, allowed) = ("a place in device memory", "all bytes must be inside");
        Err(Error::value(name, offset as u64, allowed))
    }
}

impl Pd {
    /// Registers a part of device memory. Its addresses count from 0, and `access` must say
    /// so ([`Access::ZERO_BASED`]).
    ///
    /// # Errors
    /// If the part is not inside, the rights contradict each other, or there is no room for
    /// more regions.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm_mr(
        &self,
        dm: &Dm,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Mr, Error> {
        if !dm.context.is(self.context()) {
            return Err(ErrorKind::ForeignObject("device memory").into());
        }
        dm.check(offset, len)?;
        if !access.contains(Access::ZERO_BASED) {
            let name = "the access flags of device memory";
            let allowed = "they must include ZERO_BASED";
            return Err(Error::value(name, access.0.into(), allowed));
        }
        Mr::register(self, Region::part(&dm.region, offset, len), 0, access)
    }
}
