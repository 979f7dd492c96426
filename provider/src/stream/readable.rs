//! What tells a task that there are events: a descriptor that tokio watches, or a network of the program's own.

use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, ErrorKind};
use crate::network::{Network, Ready};

/// What a stream takes its events from. Each owns what its descriptor belongs to, and never changes it.
pub(super) trait Source: AsRawFd {
    type Event;

    /// The next event, if there is one.
    fn take(&self) -> Result<Option<Self::Event>, Error>;

    /// Where it is, if it is not on this host's own network.
    fn on_network(&self) -> Option<OnNetwork>;
}

/// A network, and what is there to wait for.
#[derive(Debug)]
pub(super) struct OnNetwork {
    network: Arc<dyn Network>,
    event: Arc<dyn Ready>,
}

#[derive(Debug)]
pub(super) struct Readable<T: AsRawFd>(Inner<T>);

#[derive(Debug)]
enum Inner<T: AsRawFd> {
    Descriptor(AsyncFd<T>),
    Network(T, OnNetwork),
}

/// An event of one stream: tasks of other streams may wait for the same.
#[derive(Debug)]
struct Awaited {
    event: Arc<dyn Ready>,
    what: String,
}

impl OnNetwork {
    pub(super) fn new(network: Arc<dyn Network>, event: Arc<dyn Ready>) -> OnNetwork {
        OnNetwork { network, event }
    }
}

impl Ready for Awaited {
    fn is_ready(&self) -> bool {
        self.event.is_ready()
    }

    fn what(&self) -> String {
        self.what.clone()
    }
}

impl<T: Source> Readable<T> {
    /// `what` says what is waited for, where a network asks that.
    pub(super) fn new(inner: T, what: impl FnOnce() -> String) -> Result<Readable<T>, Error> {
        let Some(mut on) = inner.on_network() else {
            return watch(inner).map(|watched| Readable(Inner::Descriptor(watched)));
        };
        if on.network.tasks().is_none() {
            let text = "this network wakes no tasks: wait in a thread of the program";
            return Err(ErrorKind::Unsupported(text).into());
        }
        on.event = Arc::new(Awaited {
            event: on.event,
            what: what(),
        });
        Ok(Readable(Inner::Network(inner, on)))
    }

    /// Takes an event, or sees to it that the task is woken when there is one.
    pub(super) fn poll_event(&self, cx: &mut TaskContext<'_>) -> Poll<Result<T::Event, Error>> {
        match &self.0 {
            Inner::Descriptor(readable) => poll_descriptor(readable, cx),
            Inner::Network(inner, on) => poll_network(inner, on, None, cx),
        }
    }

    /// The next event, if it comes within a time.
    pub(super) async fn next_within(&self, time: Duration) -> Result<Option<T::Event>, Error> {
        let Inner::Network(inner, on) = &self.0 else {
            let next = poll_fn(|cx| self.poll_event(cx));
            return tokio::time::timeout(time, next).await.ok().transpose();
        };
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let end = on.network.now_ns().saturating_add(ns);
        poll_fn(|cx| match poll_network(inner, on, Some(end), cx) {
            Poll::Ready(event) => Poll::Ready(event.map(Some)),
            Poll::Pending if on.network.now_ns() >= end => Poll::Ready(Ok(None)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

fn poll_network<T: Source>(
    inner: &T,
    on: &OnNetwork,
    deadline_ns: Option<u64>,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<T::Event, Error>> {
    if let Some(event) = inner.take()? {
        return Poll::Ready(Ok(event));
    }
    // It has them since the stream was made. Nothing comes in between: events come while the program waits.
    if let Some(tasks) = on.network.tasks() {
        tasks.wake_when(&on.event, deadline_ns, cx.waker());
    }
    Poll::Pending
}

fn poll_descriptor<T: Source>(
    readable: &AsyncFd<T>,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<T::Event, Error>> {
    loop {
        if let Some(event) = readable.get_ref().take()? {
            return Poll::Ready(Ok(event));
        }
        let mut guard = ready!(readable.poll_read_ready(cx))
            .map_err(Error::io("waiting for an event in the tokio runtime"))?;
        // Once more with the readiness in hand: what comes after this look is readiness
        // that is newer, and clearing does not touch that.
        if let Some(event) = readable.get_ref().take()? {
            return Poll::Ready(Ok(event));
        }
        guard.clear_ready();
    }
}

#[allow(
    deprecated,
    reason = "only the newest tokio has the replacement, which is unsafe for other kinds of `inner`"
)]
fn watch<T: AsRawFd>(inner: T) -> Result<AsyncFd<T>, Error> {
    AsyncFd::with_interest(inner, Interest::READABLE)
        .map_err(Error::io("handing a descriptor to the tokio runtime"))
}
