//! Posting to the queues of a QP.

use crate::error::{BadWr, Error};
use crate::qp::{Qp, bad_wr};
use crate::wr::{RecvWr, SendWr};

impl Qp {
    /// Posts one send request. Its packets leave before the call returns, unless another
    /// thread drives the engine at this moment, or a window is full.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Post`]; the queue is unchanged.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    #[track_caller]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.post_send_list(std::slice::from_ref(wr))
            .map_err(Error::from)
    }

    /// Posts send requests, as with `ibv_post_send` and a linked list: packets of many
    /// small requests leave together, which is many times faster.
    ///
    /// # Errors
    /// [`BadWr`] names the first that was refused; those before it are posted.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    #[track_caller]
    pub fn post_send_list(&self, wrs: &[SendWr<'_>]) -> Result<(), BadWr> {
        self.post_send_iter(wrs.iter().copied())
    }

    /// [`Qp::post_send_list`] with requests that are made while they are posted. The iterator must not
    /// call into this context: the engine waits for it.
    ///
    /// # Errors
    /// See [`Qp::post_send_list`].
    #[inline]
    #[track_caller]
    pub fn post_send_iter<'a>(
        &self,
        wrs: impl IntoIterator<Item = SendWr<'a>>,
    ) -> Result<(), BadWr> {
        self.prefetch();
        let engine = self.engine();
        let at = engine.begin_post()?;
        let wrs = wrs.into_iter().map(|wr| wr.core);
        let posted = self.shared().post_sends(engine, wrs, at);
        engine.end_call();
        posted.map_err(bad_wr)
    }

    /// Posts all requests of a list, or none. The list is iterated twice.
    ///
    /// # Errors
    /// [`BadWr`] names the first that would be refused; the queue is unchanged.
    #[doc(alias = "ibv_wr_complete")]
    #[track_caller]
    pub fn post_send_all<'a, I>(&self, wrs: I) -> Result<(), BadWr>
    where
        I: IntoIterator<Item = SendWr<'a>, IntoIter: Clone>,
    {
        let engine = self.engine();
        let at = engine.begin_post()?;
        let wrs = wrs.into_iter().map(|wr| wr.core);
        let posted = self.shared().post_all_sends(engine, wrs, at);
        engine.end_call();
        posted.map_err(bad_wr)
    }

    /// Posts one receive. It has to be there before the peer's message is: a reliable peer is told to try again until then,
    /// [`crate::ConnectOptions::rnr_retry`] times or for ever. A program that hangs: `URXE_STRICT=1` names the receive that is
    /// missing.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Post`]; the queue is unchanged. A QP with a shared receive queue takes
    /// none: [`crate::Srq::post_recv`].
    #[doc(alias = "ibv_post_recv")]
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
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    #[track_caller]
    pub fn post_recv_list(&self, wrs: &[RecvWr<'_>]) -> Result<(), BadWr> {
        self.post_recv_iter(wrs.iter().copied())
    }

    /// [`Qp::post_recv_list`] with requests that are made while they are posted. The iterator must not
    /// call into this context: the engine waits for it.
    ///
    /// # Errors
    /// See [`Qp::post_recv_list`].
    #[inline]
    #[track_caller]
    pub fn post_recv_iter<'a>(
        &self,
        wrs: impl IntoIterator<Item = RecvWr<'a>>,
    ) -> Result<(), BadWr> {
        self.prefetch_for_recv();
        let engine = self.engine();
        let at = engine.begin_post()?;
        let wrs = wrs.into_iter().map(|wr| wr.core);
        let posted = self.shared().post_recvs(engine, wrs, at);
        engine.end_call();
        posted.map_err(bad_wr)
    }
}
