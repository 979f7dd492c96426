//! Tag matching by the engine.

use urxe_core::srq::SrqAttr;
use urxe_core::tm::{TagHandle, TagRecv, TagWr, TmCap};

use crate::cq::Cq;
use crate::error::{Error, ErrorKind};
use crate::pd::Pd;
use crate::srq::{Kind, Srq};

impl Pd {
    /// Creates a shared receive queue with tag matching: beside its receives it has a list of tags with memory
    /// ([`Srq::add_tag`]). QPs of type RC may use it, as any other ([`crate::QpBuilder::srq`]); whatever they receive
    /// completes to `cq`.
    ///
    /// Messages to these QPs begin with a [`crate::Tmh`], of 16 bytes, in the SEND's payload. By its kind:
    ///
    /// | [`crate::TmhOp`] | |
    /// |---|---|
    /// | `Eager` | The rest goes into the memory of the oldest tag that matches: [`crate::WcOpcode::TmRecv`] with [`crate::TmFlags::MATCH`] and `DATA_VALID`, in two completions if it takes more than a packet. If no tag matches it is *unexpected*: it goes into an ordinary receive, with its header, as a `TmRecv` without these flags |
    /// | `Rndv` | A [`crate::Rvh`] follows, and perhaps more, 64 bytes in all at most. If a tag matches, a first completion has `MATCH`; the engine READs the message into the tag's memory, a second completion has `DATA_VALID`, and the sender gets a `Fin` with both headers, for which it needs a receive. If the message does not fit, or 32 are under way on the QP, the tag completes with [`crate::WcStatus::TmRndvIncomplete`] and has the request: the program goes on. If no tag matches it is unexpected |
    /// | `NoTag`, `Fin`, and what is no such header | It goes into an ordinary receive: [`crate::WcOpcode::TmNoTag`] |
    ///
    /// [`urxe_core::tm`] says how the list and the program keep in step about unexpected messages.
    ///
    /// # Errors
    /// [`ErrorKind::Srq`] if a size is not possible, [`ErrorKind::ForeignObject`] if `cq` is of another context.
    ///
    /// ```
    /// use urxe::{Access, ConnectOptions, Context, SendWr, SrqAttr, TagRecv, TmCap, Tmh, TmhOp};
    ///
    /// # fn main() -> Result<(), urxe::Error> {
    /// let receiver = Context::open("127.81.0.33".parse().unwrap())?;
    /// let (pd, cq) = (receiver.alloc_pd()?, receiver.create_cq(64)?);
    /// let srq = pd.create_tm_srq(&cq, &SrqAttr::default(), &TmCap::default())?;
    /// let buffer = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
    /// let to = pd.qp(&cq).srq(&srq).create()?;
    ///
    /// let sender = Context::open("127.81.0.34".parse().unwrap())?;
    /// let from = sender.alloc_pd()?.qp(&sender.create_cq(64)?).create()?;
    /// to.connect(&from.endpoint(), &ConnectOptions::default())?;
    /// from.connect(&to.endpoint(), &ConnectOptions::default())?;
    ///
    /// // The next message with a tag of 0x700 to 0x7ff.
    /// srq.add_tag(&TagRecv { recv_wr_id: 1, tag: 0x700, mask: !0xff, sges: &[buffer.sge(..)] })?;
    ///
    /// let header = Tmh { opcode: TmhOp::Eager as u8, tag: 0x705, ..Tmh::default() };
    /// let message = [&header.emit()[..], b"hello"].concat();
    /// from.post_send(&SendWr::send_inline(2, &message))?;
    ///
    /// let wc = cq.poll_one()?;
    /// assert_eq!((wc.ok()?.wr_id, wc.byte_len, wc.tm.tag), (1, 5, 0x705));
    /// let mut text = [0; 5];
    /// buffer.read(0, &mut text);
    /// assert_eq!(&text, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "IBV_SRQT_TM")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_tm_srq(&self, cq: &Cq, attr: &SrqAttr, cap: &TmCap) -> Result<Srq, Error> {
        if !cq.context().is(self.context()) {
            return Err(ErrorKind::ForeignObject("completion queue").into());
        }
        Srq::with(self, Kind::Tags(cq.clone(), *cap), attr)
    }
}

impl Srq {
    /// Carries out an operation on the list of tags; returns the handle of a tag that was added. It is done when the call
    /// returns.
    ///
    /// # Errors
    /// [`ErrorKind::Post`]: the list is full (`ENOMEM`), no tag ever had the handle, there are too many entries, or the
    /// queue has no tag matching. Nothing is done then, not even reported.
    #[doc(alias = "ibv_post_srq_ops")]
    pub fn post_op(&self, wr: &TagWr<'_>) -> Result<Option<TagHandle>, Error> {
        self.engine().post_srq_op(self.shared(), wr)
    }

    /// Adds a tag behind all others, without a completion for that, and without a report of unexpected messages.
    ///
    /// # Errors
    /// See [`Srq::post_op`].
    #[doc(alias = "IBV_WR_TAG_ADD")]
    pub fn add_tag(&self, recv: &TagRecv<'_>) -> Result<TagHandle, Error> {
        let made = self.post_op(&TagWr::add(*recv))?;
        Ok(made.expect("an ADD returns a handle"))
    }

    /// Removes a tag. If it is gone already, a completion with [`crate::WcStatus::TmErr`] and this `wr_id` says so;
    /// otherwise there is none.
    ///
    /// # Errors
    /// See [`Srq::post_op`].
    #[doc(alias = "IBV_WR_TAG_DEL")]
    pub fn del_tag(&self, wr_id: u64, handle: TagHandle) -> Result<(), Error> {
        let wr = TagWr {
            wr_id,
            ..TagWr::del(handle)
        };
        self.post_op(&wr).map(|_| ())
    }

    /// Reports how many unexpected messages the program has handled since the queue was created, modulo 2^32.
    ///
    /// # Errors
    /// See [`Srq::post_op`].
    #[doc(alias = "IBV_WR_TAG_SYNC")]
    #[doc(alias = "IBV_OPS_TM_SYNC")]
    pub fn sync_tags(&self, unexpected_cnt: u32) -> Result<(), Error> {
        self.post_op(&TagWr::sync(unexpected_cnt)).map(|_| ())
    }
}
