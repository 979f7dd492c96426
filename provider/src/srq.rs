//! Shared receive queues.

use std::sync::Arc;

use urxe_core::srq::{SrqAttr, SrqAttrMask, SrqError, SrqId, SrqInit, SrqXrc};
use urxe_core::tm::{SrqTm, TmCap};
use urxe_wire::Qpn;

use crate::cq::Cq;
use crate::engine::{Engine, SrqShared};
use crate::error::{BadWr, Error};
use crate::pd::Pd;
use crate::qp::bad_wr;
use crate::wr::RecvWr;
use crate::xrcd::Xrcd;

/// A shared receive queue: receives for many QPs, each taken by the QP with the peer that sends
/// next. A program so posts buffers for the messages that it expects in all, not for
/// each connection.
///
/// A receive leaves the queue with a message's first packet, and completes to the
/// receive CQ of the QP that the message came to. When the queue is empty, peers are
/// told to try again later.
///
/// It is a handle: clones are the same queue, which lives until the last of them and the
/// last QP that uses it are gone. Receives that are still in it then make no completions.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.14".parse().unwrap())?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(64)?);
/// use urxe::{Access, RecvWr, SrqAttr};
///
/// let srq = pd.create_srq(&SrqAttr { max_wr: 256, ..SrqAttr::default() })?;
/// let buffers = pd.reg_owned(vec![0; 256 * 64], Access::LOCAL_WRITE)?;
/// for n in 0..256 {
///     srq.post_recv(&RecvWr::new(n as u64, &[buffers.sge(n * 64..n * 64 + 64)]))?;
/// }
/// // An event when fewer than 32 are left.
/// srq.arm_limit(32)?;
///
/// let (a, b) = (pd.qp(&cq).srq(&srq).create()?, pd.qp(&cq).srq(&srq).create()?);
/// # let _ = (a, b);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_srq")]
pub struct Srq {
    inner: Arc<SrqInner>,
}

struct SrqInner {
    pd: Pd,
    /// That of all its QPs.
    engine: Arc<Engine>,
    shard: usize,
    shared: Arc<SrqShared>,
    kind: Kind,
}

/// What a queue needs beside its protection domain.
#[derive(Clone)]
pub(crate) enum Kind {
    Basic,
    /// Of type XRC: its domain, and its CQ.
    Xrc(Xrcd, Cq),
    /// With tag matching: its CQ.
    Tags(Cq, TmCap),
}

impl Srq {
    pub(crate) fn create(pd: &Pd, attr: &SrqAttr) -> Result<Srq, Error> {
        Srq::with(pd, Kind::Basic, attr)
    }

    pub(crate) fn with(pd: &Pd, kind: Kind, attr: &SrqAttr) -> Result<Srq, Error> {
        let shards = pd.shards();
        // The QPs of an XRC domain are in the first shard.
        let shard = match &kind {
            Kind::Xrc(..) => 0,
            _ => shards.next(),
        };
        let engine = shards.at(shard).clone();
        let shared = engine.create_srq(&SrqInit {
            pd: pd.id(),
            attr: *attr,
            xrc: match &kind {
                Kind::Xrc(xrcd, cq) => Some(SrqXrc {
                    xrcd: xrcd.id(),
                    cq: cq.id(),
                }),
                _ => None,
            },
            tm: match &kind {
                Kind::Tags(cq, cap) => Some(SrqTm {
                    cq: cq.id(),
                    cap: *cap,
                }),
                _ => None,
            },
        })?;
        Ok(Srq {
            inner: Arc::new(SrqInner {
                pd: pd.clone(),
                engine,
                shard,
                shared,
                kind,
            }),
        })
    }

    /// Its number, by which requests over XRC name it.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srq_num(&self) -> Qpn {
        self.inner.shared.srqn
    }

    /// Its XRC domain, if it is of type XRC.
    pub fn xrcd(&self) -> Option<&Xrcd> {
        match &self.inner.kind {
            Kind::Xrc(xrcd, _) => Some(xrcd),
            _ => None,
        }
    }

    /// Where its receives complete, if it is of type XRC or has tag matching; otherwise each QP says.
    pub fn cq(&self) -> Option<&Cq> {
        match &self.inner.kind {
            Kind::Xrc(_, cq) | Kind::Tags(cq, _) => Some(cq),
            Kind::Basic => None,
        }
    }

    /// The sizes of its list of tags, if it has tag matching.
    pub fn tm_cap(&self) -> Option<&TmCap> {
        match &self.inner.kind {
            Kind::Tags(_, cap) => Some(cap),
            _ => None,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn shared(&self) -> &SrqShared {
        &self.inner.shared
    }

    /// What [`crate::AsyncEvent::SrqLimitReached`] names it by.
    pub fn id(&self) -> SrqId {
        self.inner.shared.id.of_shard(self.inner.shard as u32)
    }

    /// What its engine names it by.
    pub(crate) fn place(&self) -> SrqId {
        self.inner.shared.id
    }

    pub(crate) fn shard(&self) -> usize {
        self.inner.shard
    }

    /// Its protection domain: that of its receives' memory, whatever the QPs' is.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Post`]; the queue is unchanged.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    #[track_caller]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        self.post_recv_list(std::slice::from_ref(wr))
            .map_err(Error::from)
    }

    /// Posts receives.
    ///
    /// # Errors
    /// [`BadWr`] names the first that was refused; those before it are posted.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    #[track_caller]
    pub fn post_recv_list(&self, wrs: &[RecvWr<'_>]) -> Result<(), BadWr> {
        self.post_recv_iter(wrs.iter().copied())
    }

    /// [`Srq::post_recv_list`] with requests that are made while they are posted. The iterator must not
    /// call into this context: the engine waits for it.
    ///
    /// # Errors
    /// See [`Srq::post_recv_list`].
    #[inline]
    #[track_caller]
    pub fn post_recv_iter<'a>(
        &self,
        wrs: impl IntoIterator<Item = RecvWr<'a>>,
    ) -> Result<(), BadWr> {
        let engine = &*self.inner.engine;
        let at = engine.begin_post()?;
        let wrs = wrs.into_iter().map(|wr| wr.core);
        let posted = self.inner.shared.post_recvs(engine, wrs, at);
        engine.end_call();
        posted.map_err(bad_wr)
    }

    /// Changes the attributes that the mask names, all or none.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Srq`] if a value is not possible.
    #[doc(alias = "ibv_modify_srq")]
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<(), Error> {
        self.inner.engine.modify_srq(&self.inner.shared, attr, mask)
    }

    /// Asks for one [`crate::AsyncEvent::SrqLimitReached`], raised when a message takes
    /// a receive and leaves fewer than `srq_limit`. With 0 there will be none.
    ///
    /// # Errors
    /// If the limit is beyond the size.
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn arm_limit(&self, srq_limit: u32) -> Result<(), Error> {
        let attr = SrqAttr {
            srq_limit,
            ..SrqAttr::default()
        };
        self.modify(&attr, SrqAttrMask::LIMIT)
    }

    /// Gives it another size. Receives that wait stay where they are.
    ///
    /// # Errors
    /// If more receives wait than it would hold, or its limit is beyond the new size.
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&self, max_wr: u32) -> Result<(), Error> {
        let attr = SrqAttr {
            max_wr,
            ..SrqAttr::default()
        };
        self.modify(&attr, SrqAttrMask::MAX_WR)
    }

    /// Its attributes. The limit is 0 once its event was raised.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqAttr, Error> {
        self.inner.engine.query_srq(&self.inner.shared)
    }

    /// Destroys it now, if it has no other user. Dropping it does the same, but waits for
    /// the others.
    ///
    /// # Errors
    /// [`SrqError::InUse`] (`EBUSY`) while QPs, or clones of this handle, use it.
    #[doc(alias = "ibv_destroy_srq")]
    pub fn destroy(self) -> Result<(), Error> {
        match Arc::try_unwrap(self.inner) {
            Ok(_last) => Ok(()),
            Err(shared) => {
                let others = Arc::strong_count(&shared).saturating_sub(1);
                Err(SrqError::InUse(others as u32).into())
            }
        }
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        self.engine.destroy_srq(&self.shared);
    }
}
