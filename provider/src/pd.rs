//! Protection domains: which QPs may use which memory.

use std::sync::Arc;

use memmap2::MmapMut;
use urxe_core::mr::{Access, PdId};
use urxe_core::srq::SrqAttr;

use crate::context::{Context, Shards};
use crate::engine::Engine;
use crate::error::Error;
use crate::mem::Region;
use crate::mem::many::HugePages;
use crate::mr::Mr;
use crate::qp::{Qp, QpBuilder, QpInitAttr};
use crate::srq::Srq;

/// A protection domain: QPs reach only memory regions of their own domain.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.6".parse().unwrap())?;
/// let pd = context.alloc_pd()?;
/// let buffer = pd.reg_owned(vec![0; 4096], urxe::Access::LOCAL_WRITE)?;
/// assert_eq!(buffer.len(), 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_pd")]
pub struct Pd {
    inner: Arc<PdInner>,
}

struct PdInner {
    context: Context,
    id: PdId,
    /// Those of its QPs.
    huge_pages: HugePages,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        self.context.pd_numbers().give_back(self.id);
    }
}

impl Pd {
    pub(crate) fn new(context: &Context, id: PdId) -> Pd {
        Pd {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
                huge_pages: HugePages::default(),
            }),
        }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.inner.context.engine()
    }

    pub(crate) fn shards(&self) -> &Shards {
        self.inner.context.shards()
    }

    pub(crate) fn huge_pages(&self) -> &HugePages {
        &self.inner.huge_pages
    }

    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }

    /// Registers memory that the region then owns. Read and write it through the
    /// [`Mr`]: peers may be writing to it at the same time.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_owned(&self, bytes: impl Into<Box<[u8]>>, access: Access) -> Result<Mr, Error> {
        self.register(Region::boxed(bytes.into()), access)
    }

    /// Registers a memory mapping: page-aligned memory (`MmapMut::map_anon`), or a file
    /// that peers shall read and write.
    ///
    /// A mapping of a file on a disk may have [`Access::FLUSH_PERSISTENT`]: a peer's FLUSH
    /// then writes the bytes back to the disk (`msync`) before it is answered. Everything
    /// else that the context does waits meanwhile, as long as the disk takes.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let context = urxe::Context::open("127.81.0.7".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// let map = memmap2::MmapMut::map_anon(1 << 20)?;
    /// let region = pd.reg_mapped(map, urxe::Access::LOCAL_WRITE)?;
    /// assert_eq!(region.addr() % 4096, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mapped(&self, map: MmapMut, access: Access) -> Result<Mr, Error> {
        self.register(Region::mapped(map), access)
    }

    /// Creates a QP, in RESET.
    ///
    /// # Errors
    /// If a capability is beyond the limits, or an object is of another context.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&self, init: &QpInitAttr<'_>) -> Result<Qp, Error> {
        Qp::create(self, init, None)
    }

    /// A QP to be created with moderate queues; its completions all go to `cq`.
    pub fn qp<'a>(&self, cq: &'a crate::Cq) -> QpBuilder<'a> {
        QpBuilder::new(self.clone(), QpInitAttr::new(cq, cq))
    }

    /// Creates a shared receive queue; its receives use memory of this domain.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Srq`] if a size is not possible.
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, attr: &SrqAttr) -> Result<Srq, Error> {
        Srq::create(self, attr)
    }

    fn register(&self, region: Region, access: Access) -> Result<Mr, Error> {
        let iova = self.region_addr(&region);
        Mr::register(self, region, iova, access)
    }

    /// The address by which work requests name a region's first byte, if the program does not say.
    pub(crate) fn region_addr(&self, region: &Region) -> u64 {
        let here = region.expose();
        match self.engine().network() {
            Some(network) => network.region_addr(here, region.len() as u64),
            None => here,
        }
    }
}
