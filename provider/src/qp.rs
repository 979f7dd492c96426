//! Queue pairs.

use core::ops::Range;
use std::sync::{Arc, Weak};

use urxe_core::cm::VendorOptions as Ece;
use urxe_core::qp::attr::{AttrMask, QpAttr, QpCap};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::work::{RecvQueue, SendQueue};
use urxe_core::{ErrorDetail, QpInit};
use urxe_wire::{Psn, Qpn};

use crate::cm::{FailQp, FollowingQp};
use crate::context::Shards;
use crate::cq::Cq;
use crate::ece;
use crate::engine::{Engine, QpShared, Refused};
use crate::error::{BadWr, Error, ErrorKind};
use crate::mem::many::{Steps, prefetch_ahead, range_of};
use crate::pd::Pd;
use crate::queues::CompletingQp;
use crate::srq::Srq;
use crate::wc::Wc;
use crate::xrcd::Xrcd;

/// The attributes with which a QP is created.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QpInitAttr<'a> {
    /// The completion queue of sends.
    pub send_cq: &'a Cq,
    /// The completion queue of receives.
    pub recv_cq: &'a Cq,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Its service.
    pub qp_type: QpType,
    /// Every send makes a completion, flagged or not.
    pub sq_sig_all: bool,
    /// The shared queue that its receives come from, instead of one of its own.
    pub srq: Option<&'a Srq>,
    /// What it sends to a multicast group that it is attached to does not come back (UD).
    /// As with adapters it does otherwise.
    #[doc(alias = "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB")]
    pub block_self_mcast_lb: bool,
    /// The shard of the context that it is in ([`crate::ContextBuilder::shards`]), if the program has a choice of its own.
    pub shard: Option<u32>,
}

impl<'a> QpInitAttr<'a> {
    /// A reliable connection with queues of 128 requests.
    pub fn new(send_cq: &'a Cq, recv_cq: &'a Cq) -> QpInitAttr<'a> {
        QpInitAttr {
            send_cq,
            recv_cq,
            cap: QpCap::default(),
            qp_type: QpType::Rc,
            sq_sig_all: false,
            srq: None,
            block_self_mcast_lb: false,
            shard: None,
        }
    }
}

/// A QP that is to be created; see [`Pd::qp`].
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.13".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// let cq = context.create_cq(256)?;
/// let qp = pd.qp(&cq).max_send_wr(512).max_inline_data(256).signal_all().create()?;
/// assert_eq!(qp.cap().max_send_wr, 512);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct QpBuilder<'a> {
    pd: Pd,
    init: QpInitAttr<'a>,
}

impl<'a> QpBuilder<'a> {
    pub(crate) fn new(pd: Pd, init: QpInitAttr<'a>) -> Self {
        QpBuilder { pd, init }
    }

    /// Completions of receives go to another queue than those of sends.
    #[must_use]
    pub fn recv_cq(mut self, cq: &'a Cq) -> Self {
        self.init.recv_cq = cq;
        self
    }

    /// The most send requests that may be outstanding.
    #[must_use]
    pub fn max_send_wr(mut self, count: u32) -> Self {
        self.init.cap.max_send_wr = count;
        self
    }

    /// The most receives that may be outstanding.
    #[must_use]
    pub fn max_recv_wr(mut self, count: u32) -> Self {
        self.init.cap.max_recv_wr = count;
        self
    }

    /// The most scatter/gather entries in a request of either kind.
    #[must_use]
    pub fn max_sge(mut self, count: u32) -> Self {
        self.init.cap.max_send_sge = count;
        self.init.cap.max_recv_sge = count;
        self
    }

    /// The most inline bytes in a send request.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.init.cap.max_inline_data = bytes;
        self
    }

    /// Every send makes a completion, flagged or not.
    #[must_use]
    pub fn signal_all(mut self) -> Self {
        self.init.sq_sig_all = true;
        self
    }

    /// Its receives come from a shared queue; it has none of its own.
    #[must_use]
    pub fn srq(mut self, srq: &'a Srq) -> Self {
        self.init.srq = Some(srq);
        self
    }

    /// The initiator of an extended reliable connection: it sends to the shared receive
    /// queues of the domain that the target at the other end serves ([`Xrcd`]), and
    /// receives nothing.
    #[must_use]
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    pub fn xrc_send(mut self) -> Self {
        self.init.qp_type = QpType::XrcSend;
        self
    }

    /// Its service, if not reliable connection.
    #[must_use]
    pub fn qp_type(mut self, qp_type: QpType) -> Self {
        self.init.qp_type = qp_type;
        self
    }

    /// Messages that it sends to a multicast group of its own do not come back.
    #[must_use]
    #[doc(alias = "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB")]
    pub fn block_self_mcast_lb(mut self) -> Self {
        self.init.block_self_mcast_lb = true;
        self
    }

    /// The shard of the context that it is in ([`crate::ContextBuilder::shards`]).
    #[must_use]
    pub fn shard(mut self, shard: u32) -> Self {
        self.init.shard = Some(shard);
        self
    }

    /// Creates the QP.
    ///
    /// # Errors
    /// See [`Pd::create_qp`].
    pub fn create(self) -> Result<Qp, Error> {
        self.pd.create_qp(&self.init)
    }
}

/// A queue pair: one end of a connection. It is a handle: clones are the same QP,
/// which is destroyed with the last of them.
///
/// Any thread may post at any time. What was outstanding when a QP is destroyed makes
/// no completions, and those that were not polled go with it, as drivers of adapters have it.
#[derive(Clone)]
#[doc(alias = "ibv_qp")]
pub struct Qp {
    inner: Arc<QpInner>,
    /// Also in `inner`, as the two below; here posts find them without waiting for that.
    engine: Arc<Engine>,
    pd: Pd,
    shared: Arc<QpShared>,
    /// Where the core has it, if there are so many QPs that a post finds it out of the cache.
    place: Option<Range<usize>>,
}

pub(crate) struct QpInner {
    engine: Arc<Engine>,
    shard: usize,
    pd: Pd,
    shared: Arc<QpShared>,
    cap: QpCap,
    first_psn: Psn,
    send_cq: Cq,
    recv_cq: Cq,
    srq: Option<Srq>,
    qp_type: QpType,
    /// The domain that it is a target of.
    xrcd: Option<Xrcd>,
}

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInitAttr<'_>, xrcd: Option<&Xrcd>) -> Result<Qp, Error> {
        let QpInitAttr {
            send_cq,
            recv_cq,
            mut cap,
            qp_type,
            sq_sig_all,
            srq,
            block_self_mcast_lb,
            shard,
        } = *init;
        if [send_cq, recv_cq]
            .into_iter()
            .any(|cq| !cq.context().is(pd.context()))
        {
            return Err(ErrorKind::ForeignObject("completion queue").into());
        }
        if srq.is_some_and(|srq| !srq.pd().context().is(pd.context())) {
            return Err(ErrorKind::ForeignObject("shared receive queue").into());
        }
        // It has no such queue (`man ibv_create_qp`: ignored).
        if srq.is_some() || matches!(qp_type, QpType::XrcSend | QpType::XrcRecv) {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        if srq.is_some_and(|srq| srq.tm_cap().is_some()) {
            cap = cap.with_tags();
        }
        if qp_type == QpType::XrcRecv {
            (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
        }
        let shard = shard_of(pd.shards(), init, shard)?;
        let engine = pd.shards().at(shard).clone();
        for cq in [send_cq, recv_cq] {
            cq.core().note_shard(shard);
        }
        let (shared, place) = engine.create_qp(&QpInit {
            pd: pd.id(),
            qp_type,
            send_cq: send_cq.id(),
            recv_cq: recv_cq.id(),
            cap,
            sq_sig_all,
            srq: srq.map(Srq::place),
            xrcd: xrcd.map(Xrcd::id),
            block_self_mcast_lb,
        })?;
        if let Some(place) = &place {
            pd.huge_pages().note(place.start);
        }
        Ok(Qp {
            engine: engine.clone(),
            pd: pd.clone(),
            shared: shared.clone(),
            place,
            inner: Arc::new(QpInner {
                shard,
                pd: pd.clone(),
                shared,
                cap,
                first_psn: Psn::new(engine.random()? as u32),
                engine,
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                srq: srq.cloned(),
                qp_type,
                xrcd: xrcd.cloned(),
            }),
        })
    }

    /// For a list that does not keep it alive.
    pub(crate) fn downgrade(&self) -> Weak<QpInner> {
        Arc::downgrade(&self.inner)
    }

    /// The QP again, if it still is.
    pub(crate) fn upgrade(weak: &Weak<QpInner>) -> Option<Qp> {
        weak.upgrade().map(|inner| Qp {
            engine: inner.engine.clone(),
            pd: inner.pd.clone(),
            shared: inner.shared.clone(),
            place: None,
            inner,
        })
    }

    /// Its service.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// The XRC domain that it is a target of.
    pub fn xrcd(&self) -> Option<&Xrcd> {
        self.inner.xrcd.as_ref()
    }

    /// Its number, which the peer must know.
    pub fn qp_num(&self) -> Qpn {
        self.shared.qpn
    }

    /// Brings it into the cache, if there are so many that a post would wait for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(place) = &self.place {
            thread_local! {
                static STEPS: [Steps; 2] = const { [const { Steps::new() }; 2] };
            }
            let shared = range_of(&*self.shared);
            STEPS.with(|[places, shareds]| {
                prefetch_ahead(places, place.clone());
                prefetch_ahead(shareds, shared);
            });
        }
    }

    /// The same for a receive, which needs less.
    #[inline]
    pub(crate) fn prefetch_for_recv(&self) {
        if self.place.is_some() {
            thread_local! {
                static STEPS: Steps = const { Steps::new() };
            }
            let shared = range_of(&*self.shared);
            STEPS.with(|steps| prefetch_ahead(steps, shared));
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &QpShared {
        &self.shared
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The shard of its context that it is in ([`crate::ContextBuilder::shards`]): 0 is the first.
    pub fn shard(&self) -> usize {
        self.inner.shard
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The completion queue of its sends.
    pub fn send_cq(&self) -> &Cq {
        &self.inner.send_cq
    }

    /// The completion queue of its receives.
    pub fn recv_cq(&self) -> &Cq {
        &self.inner.recv_cq
    }

    /// The shared queue that its receives come from.
    pub fn srq(&self) -> Option<&Srq> {
        self.inner.srq.as_ref()
    }

    /// Options that it negotiates with a peer that is urxe too: to tell each other which packets are lost
    /// ([docs/RECOVERY.md](https://github.com/urxe/urxe/blob/main/docs/RECOVERY.md)). None of datagrams and unreliable connections.
    #[doc(alias = "ibv_query_ece")]
    pub fn query_ece(&self) -> Ece {
        let offers = self.engine.may_be_selective(self.shared());
        if offers.unwrap_or(false) {
            ece::OFFER
        } else {
            Ece::default()
        }
    }

    /// Sets options that both sides have: what the peer answered to those of [`Qp::query_ece`], or what the peer offered, if it will be
    /// answered with this QP's. [`crate::cm`] does it by itself. RESET forgets them.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if any other option is set.
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&self, ece: &Ece) -> Result<(), Error> {
        match ece {
            Ece { options: 0, .. } => Ok(()),
            ece if *ece == ece::OFFER && self.query_ece() == ece::OFFER => {
                self.engine.set_selective_peer(self.shared())
            }
            _ => Err(ErrorKind::Unsupported("no such connection options (ECE) are offered").into()),
        }
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        self.inner.cap
    }

    /// Bytes of memory that its queues take: the part of its cost that the program
    /// chose by [`Qp::cap`].
    pub fn queue_bytes(&self) -> usize {
        let cap = self.cap();
        SendQueue::bytes(
            cap.max_send_wr,
            cap.max_send_sge as usize,
            cap.max_inline_data as usize,
        ) + RecvQueue::bytes(cap.max_recv_wr, cap.max_recv_sge as usize)
    }

    /// The PSN that its connections begin with: random, so that strangers cannot guess
    /// what the peer expects.
    pub(crate) fn first_psn(&self) -> Psn {
        self.inner.first_psn
    }

    /// Changes the attributes that the mask names, all or none.
    ///
    /// # Errors
    /// [`ErrorKind::Modify`] if the transition does not exist, needs other attributes, or
    /// a value is out of range; [`ErrorKind::Privilege`] if a Q_Key with the high bit is
    /// given by a program without CAP_NET_RAW.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        self.engine.modify_qp(&self.shared, attr, mask)
    }

    /// Brings it into a state that needs no further attributes: RESET or ERR, or RTS from
    /// SQD.
    ///
    /// # Errors
    /// See [`Qp::modify`].
    pub fn modify_state(&self, qp_state: QpState) -> Result<(), Error> {
        self.modify(
            &QpAttr {
                qp_state,
                ..QpAttr::default()
            },
            AttrMask::STATE,
        )
    }

    /// Where the core has it, and its number, by which one knows whether it is still there.
    pub(crate) fn following(&self) -> FollowingQp {
        let engine = Arc::<Engine>::downgrade(&self.engine);
        FollowingQp {
            index: self.shared.index,
            qpn: self.shared.qpn,
            elsewhere: (self.shard() > 0).then_some(engine as Weak<dyn FailQp>),
        }
    }

    /// Where it completes.
    pub(crate) fn completing(&self) -> CompletingQp {
        CompletingQp {
            qpn: self.shared.qpn,
            queues: [self.send_cq(), self.recv_cq()].map(|cq| Arc::downgrade(cq.core())),
        }
    }

    /// All its attributes.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr, Error> {
        let (attr, _) = self.engine.query_qp(&self.shared)?;
        Ok(attr)
    }

    /// Why it failed, in words: what was expected, what was found, where to look. `None`
    /// if it did not fail since it was created or reset.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn last_error(&self) -> Result<Option<ErrorDetail>, Error> {
        self.engine.last_error(&self.shared)
    }

    /// A completion of this QP in words: what ended it and, if that is what the QP failed
    /// with, what was expected and found. Of a flushed request it says what the QP failed
    /// with before.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn explain(&self, wc: &Wc) -> Result<String, Error> {
        let mut text = wc.to_string();
        if wc.is_success() {
            return Ok(text);
        }
        if let Some(detail) = self.last_error()? {
            let is_it = detail.fault == wc.fault();
            if is_it || wc.fault() == urxe_core::error::Fault::Flushed {
                // What is wrong stands in the first line already if it is this.
                text.push_str(&if is_it {
                    format!("\n{}", detail.finding())
                } else {
                    format!("\nthe QP failed before: {detail}")
                });
            }
        }
        Ok(text)
    }

    /// Its state.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query()?.qp_state)
    }
}

/// Where a QP is to be created: with its shared receive queue, where the program says, or as its completion queues are used.
fn shard_of(shards: &Shards, init: &QpInitAttr<'_>, asked: Option<u32>) -> Result<usize, Error> {
    let tied = match (init.srq, init.qp_type) {
        (Some(srq), _) => Some(srq.shard()),
        (None, QpType::XrcRecv) => Some(0),
        _ => None,
    };
    let Some(asked) = asked.map(|asked| asked as usize) else {
        let cqs = [init.send_cq, init.recv_cq].map(|cq| &**cq.core());
        return Ok(tied.unwrap_or_else(|| shards.choose(cqs)));
    };
    let allowed = match tied {
        Some(tied) if tied != asked => {
            "it is that of the shared receive queue, or of XRC targets: 0"
        }
        _ if asked >= shards.count() => "the context has fewer",
        _ => return Ok(asked),
    };
    Err(Error::value("the shard of a QP", asked as u64, allowed))
}

#[cold]
pub(crate) fn bad_wr(refused: Refused) -> BadWr {
    match refused {
        Refused::Wr(index, error) => BadWr {
            index,
            error: error.into(),
        },
        Refused::Poisoned => BadWr {
            index: 0,
            error: ErrorKind::EngineFailed.into(),
        },
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if let Some(xrcd) = &self.xrcd {
            xrcd.forget(self.shared.qpn);
        }
        self.engine.destroy_qp(&self.shared);
    }
}
