//! Memory regions.

use core::marker::PhantomData;
use core::ops::{Deref, RangeBounds};
use core::sync::atomic::Ordering;

use urxe_core::mr::{Access, BindMw, MrInit, MrKeys};
use urxe_core::work::Sge;
use urxe_wire::{Lkey, Rkey};

use crate::error::Error;
use crate::mem::{Region, guarded, persist};
use crate::pd::Pd;
use crate::remote_mr::{RemoteMr, bounds};

/// Registered memory.
///
/// Peers that know the rkey may read and write it at any time, as far as its access
/// rights go. So there is no slice of it to borrow: bytes are copied in and out, and
/// words that are polled on are loaded one by one. What a completion reports is in
/// place when the completion is polled; a message's last aligned word is stored after
/// the rest of it.
///
/// Dropping it deregisters the memory: after that no packet touches it.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.8".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// use urxe::Access;
///
/// let region = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// region.write(8, b"hello");
/// let mut back = [0; 5];
/// region.read(8, &mut back);
/// assert_eq!(&back, b"hello");
///
/// // What a work request needs to name bytes 8 to 12:
/// let sge = region.sge(8..13);
/// assert_eq!((sge.addr, sge.length), (region.addr() + 8, 5));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_mr")]
pub struct Mr {
    // Dropped in this order: the keys die before the memory.
    pub(crate) registration: Registration,
    pub(crate) region: Region,
}

/// Keys that die when this is dropped.
pub(crate) struct Registration {
    pub(crate) pd: Pd,
    pub(crate) keys: MrKeys,
    pub(crate) iova: u64,
    pub(crate) access: Access,
}

impl Registration {
    pub(crate) fn new(pd: &Pd, init: MrInit) -> Result<Registration, Error> {
        guarded::protect();
        let keys = pd.shards().register(init)?;
        Ok(Registration {
            pd: pd.clone(),
            keys,
            iova: init.iova,
            access: init.access,
        })
    }

    /// The registration of a region that has an lkey only.
    pub(crate) fn local(pd: &Pd, lkey: Lkey) -> Registration {
        let rkey = Rkey(0);
        Registration {
            pd: pd.clone(),
            keys: MrKeys { lkey, rkey },
            iova: 0,
            access: Access::LOCAL_WRITE,
        }
    }
}

impl Mr {
    pub(crate) fn register(
        pd: &Pd,
        region: Region,
        iova: u64,
        access: Access,
    ) -> Result<Mr, Error> {
        Mr::check_memory(&region, access)?;
        let init = MrInit {
            pd: pd.id(),
            access,
            host_addr: region.expose(),
            iova: Mr::first_address(iova, access),
            len: region.len() as u64,
            remote_invalidate: false,
        };
        Ok(Mr {
            registration: Registration::new(pd, init)?,
            region,
        })
    }

    /// The address of its first byte for work requests.
    pub(crate) fn first_address(iova: u64, access: Access) -> u64 {
        if access.contains(Access::ZERO_BASED) {
            return 0;
        }
        iova
    }

    /// Whether memory like this can have such rights.
    pub(crate) fn check_memory(region: &Region, access: Access) -> Result<(), Error> {
        if access.contains(Access::FLUSH_PERSISTENT) {
            persist::check(region.expose(), region.len())?;
        }
        Ok(())
    }

    /// The key for local work requests. It is never equal to the rkey.
    #[inline]
    pub fn lkey(&self) -> Lkey {
        self.registration.keys.lkey
    }

    /// The key for peers.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        self.registration.keys.rkey
    }

    /// Lets peers take the rkey back by SEND with invalidate, or (as it is at first)
    /// not: then such a SEND is refused as a remote access error.
    ///
    /// # Errors
    /// If the engine has failed, or after a fork in the child; or if the context has several shards.
    pub fn set_remote_invalidate(&self, allowed: bool) -> Result<(), Error> {
        self.pd().shards().check_alone()?;
        let engine = self.pd().engine();
        engine.set_remote_invalidate(self.lkey(), allowed)
    }

    /// The address that work requests and peers name the first byte by.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.registration.iova
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.registration.pd
    }

    /// A scatter/gather entry for a range of its bytes.
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let (start, end) = self.bounds(range);
        let length = u32::try_from(end - start).expect("an entry has less than 4 GiB");
        Sge {
            addr: self.addr() + start as u64,
            length,
            lkey: self.lkey(),
        }
    }

    /// Some of its bytes, for peers: they need the remote rights that the region was registered with.
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    pub fn remote(&self, range: impl RangeBounds<usize>) -> RemoteMr {
        let whole = RemoteMr {
            addr: self.addr(),
            len: self.len() as u64,
            rkey: self.rkey(),
        };
        whole.part(range)
    }

    /// What a memory window is bound to: a range of the bytes, and what peers may do there
    /// (remote rights; for windows of type 2 also [`Access::ZERO_BASED`]).
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    #[doc(alias = "ibv_mw_bind_info")]
    pub fn bind_info(&self, range: impl RangeBounds<usize>, access: Access) -> BindMw {
        let (start, end) = self.bounds(range);
        BindMw {
            lkey: self.lkey(),
            addr: self.addr() + start as u64,
            length: (end - start) as u64,
            access,
        }
    }

    #[inline]
    fn bounds(&self, range: impl RangeBounds<usize>) -> (usize, usize) {
        bounds(range, self.len())
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all inside, as with slices.
    #[track_caller]
    pub fn read(&self, offset: usize, dst: &mut [u8]) {
        self.region.read(offset, dst);
        self.note_access(offset, dst.len(), false);
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not all inside, as with slices.
    #[track_caller]
    pub fn write(&self, offset: usize, src: &[u8]) {
        self.region.write(offset, src);
        self.note_access(offset, src.len(), true);
    }

    /// Loads an aligned word atomically, in host byte order; what was written before
    /// the word by the same message is visible afterwards.
    ///
    /// # Panics
    /// If it is not inside, or not aligned to 8 bytes.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.region.word(offset).load(Ordering::Acquire)
    }

    /// Stores an aligned word atomically, in host byte order.
    ///
    /// # Panics
    /// If it is not inside, or not aligned to 8 bytes.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.region.word(offset).store(value, Ordering::Release);
    }

    /// Loads one byte, to poll on it; what was written before it by the same message is
    /// visible afterwards, if it is the message's last.
    ///
    /// # Panics
    /// If it is not inside.
    #[inline]
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.region.load_u8(offset)
    }

    /// Deregisters the region. Dropping does so too, and unbinds its memory windows.
    ///
    /// # Errors
    /// [`ErrorKind::Register`](crate::ErrorKind::Register) if memory windows are bound to it
    /// (EBUSY); the region comes back with it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn dereg(self) -> Result<(), (Mr, Error)> {
        match self.pd().engine().check_unbound(self.lkey()) {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Deregisters the region and gives its bytes back: of [`Pd::reg_owned`] the memory itself, of others a copy.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.42".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// let region = pd.reg_owned(b"to be sent".to_vec(), urxe::Access::NONE)?;
    /// let bytes = region.into_bytes().map_err(|(_, error)| error)?;
    /// assert_eq!(&*bytes, b"to be sent");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Mr::dereg`].
    pub fn into_bytes(self) -> Result<Box<[u8]>, (Mr, Error)> {
        if let Err(error) = self.pd().engine().check_unbound(self.lkey()) {
            return Err((self, error));
        }
        let Mr {
            registration,
            region,
        } = self;
        // No packet touches the memory after that.
        drop(registration);
        Ok(region.into_bytes())
    }

    /// Strict mode says so if the bytes belong to the adapter.
    #[track_caller]
    fn note_access(&self, offset: usize, len: usize, is_write: bool) {
        let start = self.region.expose() + offset as u64;
        self.pd().engine().on_program_access(start, len, is_write);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.pd.shards().deregister(self.keys.lkey);
    }
}

/// A memory region over borrowed memory: see [`Pd::reg_borrowed`].
#[derive(Debug)]
pub struct BorrowedMr<'m> {
    mr: Mr,
    borrow: PhantomData<&'m mut [u8]>,
}

impl BorrowedMr<'_> {
    pub(crate) fn new(mr: Mr) -> Self {
        BorrowedMr {
            mr,
            borrow: PhantomData,
        }
    }
}

impl Deref for BorrowedMr<'_> {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        &self.mr
    }
}
