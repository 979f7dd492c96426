//! Memory windows.

use core::sync::atomic::{AtomicU32, Ordering};

use urxe_core::mr::{BindMw, MwType, inc_rkey};
use urxe_core::work;
use urxe_wire::Rkey;

use crate::error::{Error, ErrorKind};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::wr::SendWr;

/// A memory window: an rkey for a part of a region, given and taken back by work requests
/// rather than by registration.
///
/// * A window of [`MwType::Type1`] is bound by [`Qp::bind_mw`], as often as wanted, with a new
///   rkey each time that opens to all QPs of the protection domain. Binding no bytes unbinds
///   it. It cannot be invalidated.
/// * A window of [`MwType::Type2`] is bound by posting [`Mw::bind`] when it is free. Its rkey
///   opens to the QP that bound it, and no other (the variant called 2B). It is free again
///   after [`SendWr::local_inv`], or a SEND with invalidate from the peer.
///
/// The region needs [`crate::Access::MW_BIND`], and LOCAL_WRITE if the window allows writes
/// or atomics. A bind that fails completes as `MwBindErr` and fails the QP. Bind and
/// invalidate requests are carried out in the order of the send queue, when all requests
/// before them are complete.
///
/// Dropping the window deallocates it, bound or not. Dropping the region that it is bound to
/// unbinds it; [`crate::Mr::dereg`] refuses instead.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// use urxe::{Access, ConnectOptions, Context, MwType, SendWr};
///
/// let context = Context::open("127.81.0.22".parse().unwrap())?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
/// let (a, b) = (pd.qp(&cq).create()?, pd.qp(&cq).create()?);
/// a.connect(&b.endpoint(), &ConnectOptions::default())?;
/// b.connect(&a.endpoint(), &ConnectOptions::default())?;
///
/// let region = pd.reg_owned(vec![0; 4096], Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let window = pd.alloc_mw(MwType::Type2)?;
/// let part = region.bind_info(1024..2048, Access::REMOTE_WRITE);
/// a.post_send(&window.bind(1, &part).signaled())?;
/// assert!(cq.poll_one()?.is_success());
///
/// // The peer writes through it, and cannot after it was taken back.
/// b.post_send(&SendWr::rdma_write_inline(2, b"hello", part.addr, window.rkey()).signaled())?;
/// assert!(cq.poll_one()?.is_success());
/// a.post_send(&SendWr::local_inv(3, window.rkey()).signaled())?;
/// assert!(cq.poll_one()?.is_success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_mw")]
pub struct Mw {
    pd: Pd,
    mw_type: MwType,
    rkey: AtomicU32,
}

impl Pd {
    /// A window that is bound to nothing yet.
    ///
    /// # Errors
    /// When there is no room for more regions and windows; or if the context has several shards.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<Mw, Error> {
        self.shards().check_alone()?;
        let rkey = self.engine().alloc_mw(self.id(), mw_type)?;
        Ok(Mw {
            pd: self.clone(),
            mw_type,
            rkey: AtomicU32::new(rkey.0),
        })
    }
}

impl Mw {
    /// The key that the latest bind request gives it. Peers can use it once that request is
    /// complete.
    pub fn rkey(&self) -> Rkey {
        Rkey(self.rkey.load(Ordering::Relaxed))
    }

    /// Its type.
    pub fn mw_type(&self) -> MwType {
        self.mw_type
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// A request that binds the window, with its next rkey, which [`Mw::rkey`] tells from
    /// here on. For windows of type 2; those of type 1 have [`Qp::bind_mw`].
    ///
    /// # Panics
    /// If the window is of type 1.
    #[doc(alias = "IBV_WR_BIND_MW")]
    pub fn bind(&self, wr_id: u64, bind: &BindMw) -> SendWr<'static> {
        assert_eq!(
            self.mw_type,
            MwType::Type2,
            "windows of type 1 are bound by Qp::bind_mw"
        );
        self.request(wr_id, bind)
    }

    /// The rkey with these low 8 bits, for a request that binds the window
    /// ([`SendWrFields::bind_mw`](crate::SendWrFields::bind_mw)). Any will do, those that it has now too. [`Mw::rkey`] tells
    /// it from here on.
    pub fn choose_rkey(&self, low: u8) -> Rkey {
        let rkey = Rkey(self.rkey().0 & !0xff | u32::from(low));
        self.rkey.store(rkey.0, Ordering::Relaxed);
        rkey
    }

    /// Takes the window back, which dropping does too.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn dealloc(self) {}

    fn request(&self, wr_id: u64, bind: &BindMw) -> SendWr<'static> {
        let next = |rkey| Some(inc_rkey(Rkey(rkey)).0);
        // The closure always has a next key, so this cannot fail.
        let before = self
            .rkey
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let rkey = inc_rkey(Rkey(before.unwrap_or_else(|rkey| rkey)));
        let mut wr = work::SendWr::bind_mw(wr_id, rkey, bind);
        wr.flags = work::SendFlags::NONE;
        wr.into()
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.pd.engine().dealloc_mw(self.rkey());
    }
}

impl Qp {
    /// Binds a window of type 1 to a part of a region ([`crate::Mr::bind_info`]); a length of
    /// 0 unbinds it. It is a send request: it makes a completion, if `signaled`, when it is
    /// done. Returns the new rkey. A window of another protection domain than the QP makes it fail, as what
    /// the request says of the region can: with `MwBindErr`, in its completion.
    ///
    /// # Errors
    /// If the window is of type 2 or of another context, or the request cannot be posted; then the window keeps what it
    /// is bound to.
    #[doc(alias = "ibv_bind_mw")]
    #[track_caller]
    pub fn bind_mw(
        &self,
        mw: &Mw,
        wr_id: u64,
        bind: &BindMw,
        signaled: bool,
    ) -> Result<Rkey, Error> {
        if mw.mw_type != MwType::Type1 {
            return Err(ErrorKind::WindowType.into());
        }
        if !mw.pd.context().is(self.pd().context()) {
            return Err(ErrorKind::ForeignObject("memory window").into());
        }
        let before = mw.rkey();
        let wr = mw.request(wr_id, bind);
        let wr = if signaled { wr.signaled() } else { wr };
        let rkey = mw.rkey();
        if let Err(error) = self.post_send(&wr) {
            mw.rkey.store(before.0, Ordering::Relaxed);
            return Err(error);
        }
        Ok(rkey)
    }
}

impl SendWr<'_> {
    /// Takes back the rkey of a type 2 window of this QP: peers cannot use it any more when
    /// the request is complete, and the window can be bound again.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn local_inv(wr_id: u64, rkey: Rkey) -> SendWr<'static> {
        let mut wr = work::SendWr::local_inv(wr_id, rkey);
        wr.flags = work::SendFlags::NONE;
        wr.into()
    }
}
