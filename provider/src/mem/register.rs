//! Registration of memory that the program owns: unsafe, as no type guards it.

use urxe_core::mr::{Access, MrInit};

use super::Region;
use crate::error::Error;
use crate::mr::{BorrowedMr, Mr, Registration};
use crate::pd::Pd;
use crate::rereg::Rereg;
use crate::special_mr::ImplicitMr;

impl Pd {
    /// Registers memory that stays borrowed for as long as the region lives.
    ///
    /// The borrow keeps other code from touching the bytes meanwhile; use
    /// [`Mr::read`] and [`Mr::write`].
    ///
    /// # Safety
    /// The region must be dropped (or deregistered) before the borrow ends. The borrow
    /// checker sees to it, unless the region is leaked: `std::mem::forget` and the like
    /// would leave peers writing into memory that is used for something else by then.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.1".parse().unwrap())?;
    /// let pd = context.alloc_pd()?;
    /// let mut bytes = vec![0u8; 100];
    /// // SAFETY: `region` is dropped at the end of this block.
    /// let region = unsafe { pd.reg_borrowed(&mut bytes, urxe::Access::LOCAL_WRITE) }?;
    /// region.write(0, b"hello");
    /// drop(region);
    /// assert_eq!(&bytes[..5], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn reg_borrowed<'m>(
        &self,
        bytes: &'m mut [u8],
        access: Access,
    ) -> Result<BorrowedMr<'m>, Error> {
        // SAFETY: the bytes are borrowed for 'm, and the caller promises to drop the
        // region within it.
        let region = unsafe { Region::foreign(bytes.as_mut_ptr(), bytes.len()) };
        let iova = self.region_addr(&region);
        Ok(BorrowedMr::new(Mr::register(self, region, iova, access)?))
    }

    /// Registers any memory, under any address: what `ibv_reg_mr` and
    /// `ibv_reg_mr_iova` do. Work requests and peers name the first byte as `iova`.
    ///
    /// # Safety
    /// Until the region is dropped, no other code may use the memory. No reference to it
    /// may be used while a work request or a peer can write to it.
    ///
    /// It may be unmapped meanwhile, or lose rights, as long as nothing else is mapped in
    /// its place: accesses then fail with an error completion ([SAFETY.md](https://github.com/urxe/urxe/blob/main/docs/SAFETY.md), "Memory that
    /// vanishes"), except those by the [`Mr`]'s own methods, which fault.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "ibv_reg_mr_iova")]
    pub unsafe fn reg_raw(
        &self,
        ptr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr, Error> {
        // SAFETY: the caller's promise is the same.
        let region = unsafe { Region::foreign(ptr, len) };
        Mr::register(self, region, iova, access)
    }

    /// Registers all memory that the process has now or will have: work requests and peers
    /// name bytes by their addresses (`ibv_reg_mr` of address 0, length SIZE_MAX, with
    /// ON_DEMAND). Addresses where nothing is mapped fail as [SAFETY.md](https://github.com/urxe/urxe/blob/main/docs/SAFETY.md) says.
    ///
    /// # Safety
    /// Every use of the lkey, and of the rkey by a peer that learns it, must be such that the
    /// same use of a region made by [`Pd::reg_raw`] would be right. With remote rights a
    /// peer can change every byte of the process.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.27".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// // SAFETY: without rights, bytes are only read by our own SENDs.
    /// let all = unsafe { pd.reg_implicit(urxe::Access::NONE) }?;
    /// let sges = [all.sge(b"hello".as_ptr(), 5)];
    /// # let _ = sges;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub unsafe fn reg_implicit(&self, access: Access) -> Result<ImplicitMr, Error> {
        let init = MrInit {
            pd: self.id(),
            access: access | Access::ON_DEMAND,
            host_addr: 0,
            iova: 0,
            len: u64::MAX,
            remote_invalidate: false,
        };
        Ok(ImplicitMr::new(Registration::new(self, init)?))
    }
}

impl Rereg {
    /// Any other memory, under any address, as with [`Pd::reg_raw`].
    ///
    /// # Safety
    /// As for [`Pd::reg_raw`].
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub unsafe fn raw(self, ptr: *mut u8, len: usize, iova: u64) -> Rereg {
        // SAFETY: the caller's promise is the same.
        self.region(unsafe { Region::foreign(ptr, len) }, Some(iova))
    }
}
