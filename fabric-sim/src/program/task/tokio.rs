//! Tasks outside a simulation: those of tokio.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinHandle;

pub(super) struct Handle<T>(JoinHandle<T>);

impl<T> Handle<T> {
    pub(super) fn abort(&self) {
        self.0.abort();
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for Handle<T> {
    type Output = Option<T>;

    /// `None` of a task that was aborted.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx).map(|result| match result {
            Ok(value) => Some(value),
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(_) => None,
            },
        })
    }
}

pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub(super) fn spawn<T, F>(task: F) -> Handle<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    Handle(tokio::spawn(task))
}

pub(super) fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
    tokio::time::sleep(time)
}

/// Words come from blocking programs, too.
pub(super) async fn ask(key: String) -> String {
    let asked = tokio::task::spawn_blocking(move || crate::program::ask(&key));
    asked.await.expect("asking does not panic")
}
