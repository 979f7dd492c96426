//! What is in the place of tasks outside a simulation, without the feature `tokio`.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// There is none.
pub(super) struct Handle<T>(Infallible, PhantomData<fn() -> T>);

impl<T> Handle<T> {
    pub(super) fn abort(&self) {
        match self.0 {}
    }

    pub(super) fn is_finished(&self) -> bool {
        match self.0 {}
    }
}

impl<T> Future for Handle<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        match self.0 {}
    }
}

fn refuse() -> ! {
    panic!(
        "outside a simulation tasks are tokio's: it takes the feature `tokio` of urxe-fabric-sim"
    )
}

pub(super) fn block_on<F: Future>(_: F) -> F::Output {
    refuse()
}

pub(super) fn spawn<F: Future>(_: F) -> Handle<F::Output> {
    refuse()
}

pub(super) fn sleep(_: Duration) -> core::future::Ready<()> {
    refuse()
}

pub(super) async fn ask(_: String) -> String {
    refuse()
}
