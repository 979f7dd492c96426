//! Completions and events as streams, for programs that run on tokio (feature `tokio`).
//!
//! The runtime waits for the channels' descriptors; the background thread sees to it that
//! they become readable, and moves the packets meanwhile. On a [network](crate::network) of the program's own
//! the network wakes the tasks, and there is no tokio.

mod readable;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use readable::{OnNetwork, Readable, Source};

use crate::async_event::AsyncEvent;
use crate::cm;
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::cq::Cq;
use crate::error::Error;
use crate::wc::Wc;

/// Completions that are taken out of the queue at once.
const BATCH: usize = 64;

/// A completion queue with its completions as a stream.
///
/// Create QPs on its queue ([`CqStream::cq`]); what completes is then polled here. The
/// stream never ends by itself: after an error (an overrun, a fork) it repeats that.
///
/// Must be created within a tokio runtime that has its I/O driver on; or on a [network](crate::network) of the program's own that has
/// [`Tasks`](crate::network::Tasks), without a runtime.
///
/// ```
/// # async fn example(context: &urxe::Context) -> Result<(), urxe::Error> {
/// let mut completions = urxe::CqStream::new(context, 64)?;
/// let qp = context.alloc_pd()?.qp(completions.cq()).create()?;
/// // Connect it, post, and then:
/// let wc = completions.next().await?;
/// println!("{}", qp.explain(&wc)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CqStream {
    cq: Cq,
    /// Before the channel, so that the runtime lets go of its descriptor first.
    readable: Readable<CompChannel>,
    taken: VecDeque<Wc>,
    armed: bool,
}

/// Completion queues that raise an event, one after the other: a [`CompChannel`] as a
/// stream. See [`CompChannel::into_stream`].
#[derive(Debug)]
pub struct CompEvents {
    readable: Readable<CompChannel>,
}

/// A context's asynchronous events as a stream. See [`Context::async_events`].
#[derive(Debug)]
pub struct AsyncEvents {
    readable: Readable<AsyncFdOf>,
}

/// The connection manager's events as a stream. See [`cm::EventChannel::into_stream`].
#[derive(Debug)]
pub struct CmEvents {
    readable: Readable<cm::EventChannel>,
}

/// The descriptor of a context's events.
#[derive(Debug)]
struct AsyncFdOf(Context);

impl Source for AsyncFdOf {
    type Event = AsyncEvent;

    fn take(&self) -> Result<Option<AsyncEvent>, Error> {
        Ok(self.0.poll_async_event())
    }

    fn on_network(&self) -> Option<OnNetwork> {
        let engine = self.0.engine();
        let network = engine.network()?.clone();
        Some(OnNetwork::new(network, engine.events.clone()))
    }
}

impl Source for CompChannel {
    type Event = Cq;

    fn take(&self) -> Result<Option<Cq>, Error> {
        self.try_get()
    }

    fn on_network(&self) -> Option<OnNetwork> {
        let network = self.context().engine().network()?.clone();
        Some(OnNetwork::new(network, self.queue()))
    }
}

impl Source for cm::EventChannel {
    type Event = cm::Event;

    fn take(&self) -> Result<Option<cm::Event>, Error> {
        self.try_next()
    }

    fn on_network(&self) -> Option<OnNetwork> {
        let network = self.network()?.clone();
        Some(OnNetwork::new(network, self.queue().clone()))
    }
}

impl AsRawFd for AsyncFdOf {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.async_fd().as_raw_fd()
    }
}

impl CompChannel {
    /// The channel as a stream of the queues that raised an event. Ask for events with
    /// [`Cq::req_notify`] and poll the queue, as with [`CompChannel::wait`].
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn into_stream(self) -> Result<CompEvents, Error> {
        let readable = Readable::new(self, || "an event of a completion channel".to_owned())?;
        Ok(CompEvents { readable })
    }
}

impl cm::EventChannel {
    /// The channel as a stream of events. Identifiers are made on a clone of the channel.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn into_stream(self) -> Result<CmEvents, Error> {
        self.into_stream_for(|| "an event of the connection manager".to_owned())
    }

    /// The same; `what` says what its events are to bring.
    pub(crate) fn into_stream_for(self, what: impl FnOnce() -> String) -> Result<CmEvents, Error> {
        Readable::new(self, what).map(|readable| CmEvents { readable })
    }
}

impl Context {
    /// The asynchronous events as a stream.
    ///
    /// # Errors
    /// If the runtime cannot watch the descriptor.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn async_events(&self) -> Result<AsyncEvents, Error> {
        let what = || "an asynchronous event".to_owned();
        Readable::new(AsyncFdOf(self.clone()), what).map(|readable| AsyncEvents { readable })
    }
}

impl CqStream {
    /// A completion queue for up to `cqe` completions, with a channel of its own.
    ///
    /// # Errors
    /// If the size is not possible, or the runtime cannot watch the channel.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn new(context: &Context, cqe: usize) -> Result<CqStream, Error> {
        CqStream::of(&context.create_cq(cqe)?)
    }

    /// The completions of a queue that was created without a channel. It can have one stream at a time.
    ///
    /// # Errors
    /// If the queue has a channel, or the runtime cannot watch its own.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if that has no I/O driver.
    pub fn of(cq: &Cq) -> Result<CqStream, Error> {
        let channel = CompChannel::of(cq.context(), cq.own_channel()?);
        let what = || format!("a completion of queue {}", cq.id().0);
        Ok(CqStream {
            cq: cq.clone(),
            readable: Readable::new(channel, what)?,
            taken: VecDeque::with_capacity(BATCH),
            armed: false,
        })
    }

    /// The queue, to create QPs on.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// The next completion.
    ///
    /// # Errors
    /// See [`Cq::poll`].
    pub async fn next(&mut self) -> Result<Wc, Error> {
        poll_fn(|cx| self.poll_wc(cx)).await
    }

    fn poll_wc(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Wc, Error>> {
        loop {
            if let Some(wc) = self.taken.pop_front() {
                return Poll::Ready(Ok(wc));
            }
            let mut wcs = [Wc::default(); BATCH];
            let count = self.cq.look(&mut wcs)?;
            if count > 0 {
                self.taken.extend(&wcs[..count]);
                continue;
            }
            if !self.armed {
                // A completion may have come before this: once more round.
                self.cq.arm_own();
                self.armed = true;
                continue;
            }
            ready!(self.readable.poll_event(cx))?;
            self.cq.ack_events(1);
            self.armed = false;
        }
    }
}

impl CompEvents {
    /// The next queue that raises an event.
    ///
    /// # Errors
    /// See [`CompChannel::try_get`].
    pub async fn next(&mut self) -> Result<Cq, Error> {
        poll_fn(|cx| self.readable.poll_event(cx)).await
    }
}

impl CmEvents {
    /// The next event.
    ///
    /// # Errors
    /// See [`cm::EventChannel::try_next`].
    pub async fn next(&mut self) -> Result<cm::Event, Error> {
        poll_fn(|cx| self.readable.poll_event(cx)).await
    }

    /// The next event, if it comes within a time.
    pub(crate) async fn next_within(&mut self, time: Duration) -> Result<Option<cm::Event>, Error> {
        self.readable.next_within(time).await
    }
}

impl AsyncEvents {
    /// The next event.
    ///
    /// # Errors
    /// If the runtime ended.
    pub async fn next(&mut self) -> Result<AsyncEvent, Error> {
        poll_fn(|cx| self.readable.poll_event(cx)).await
    }
}

impl Stream for CqStream {
    type Item = Result<Wc, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.poll_wc(cx).map(Some)
    }
}

impl Stream for CompEvents {
    type Item = Result<Cq, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.readable.poll_event(cx).map(Some)
    }
}

impl Stream for CmEvents {
    type Item = Result<cm::Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.readable.poll_event(cx).map(Some)
    }
}

impl Stream for AsyncEvents {
    type Item = Result<AsyncEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.readable.poll_event(cx).map(Some)
    }
}
