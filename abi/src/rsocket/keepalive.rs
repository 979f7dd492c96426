//! Signs of life (`SO_KEEPALIVE`): a connection that is silent for `TCP_KEEPIDLE` seconds gets a message that its peer's QP
//! acknowledges, and the peer's program does not see. Without an acknowledgement the QP's retries end the connection.
//!
//! So `TCP_KEEPINTVL` and `TCP_KEEPCNT` have no part in it: the transport repeats by its own rules.

use core::mem::MaybeUninit;
use core::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock::{lock, whole};

/// A socket, as this sees it.
pub(super) trait Peered: Send + Sync {
    /// How long it may be silent, and how much came so far; `None` if it is to be left alone.
    fn silence(&self) -> Option<(Duration, u32)>;

    /// Asks the peer for a sign of life.
    fn probe(&self);
}

/// A socket that wants it.
struct Watched {
    socket: Weak<dyn Peered>,
    /// What had come from the peer when it was last looked at, and when the next look is due.
    news: u32,
    due: Instant,
}

struct Keeper {
    watched: Vec<Watched>,
    /// The process that has a thread for it: no child of a fork has it. It ends when no socket is left.
    runs_in: Option<u32>,
}

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper {
    watched: Vec::new(),
    runs_in: None,
});
static CHANGED: Condvar = Condvar::new();

/// Takes note of a socket's options, which are new or have changed.
pub(super) fn watch(socket: Arc<dyn Peered>) {
    let Some((idle, news)) = socket.silence() else {
        // The next look finds that it no longer wants it.
        return;
    };
    let mut keeper = lock(&KEEPER);
    let socket = Arc::downgrade(&socket);
    keeper
        .watched
        .retain(|watched| !watched.socket.ptr_eq(&socket));
    keeper.watched.push(Watched {
        socket,
        news,
        due: Instant::now() + idle,
    });
    let process = Some(std::process::id());
    if keeper.runs_in == process {
        CHANGED.notify_one();
        return;
    }
    // Without a thread the option does nothing.
    keeper.runs_in = process.filter(|_| start().is_ok());
}

/// Starts the thread. It takes none of the program's signals.
fn start() -> std::io::Result<()> {
    let mut before = MaybeUninit::uninit();
    let mut all = MaybeUninit::uninit();
    // SAFETY: places for two masks, of which the first call fills one and the second one the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let name = "urxe-keepalive".to_owned();
    let started = thread::Builder::new().name(name).spawn(keep);
    // SAFETY: the mask of a moment ago.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started.map(drop)
}

fn keep() {
    let mut keeper = lock(&KEEPER);
    loop {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut keeper.watched)
            .into_iter()
            .partition::<Vec<_>, _>(|watched| watched.due <= now);
        keeper.watched = later;
        // A socket's own lock is not taken under this one, which `watch` takes last.
        drop(keeper);
        let looked: Vec<Watched> = due.into_iter().filter_map(|one| one.look(now)).collect();
        keeper = add(lock(&KEEPER), looked);
        let next = keeper.watched.iter().map(|watched| watched.due).min();
        let Some(next) = next else {
            keeper.runs_in = None;
            return;
        };
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            (keeper, _) = whole(CHANGED.wait_timeout(keeper, left));
        }
    }
}

/// Those that were looked at, unless they were noted anew meanwhile.
fn add(mut keeper: MutexGuard<'_, Keeper>, looked: Vec<Watched>) -> MutexGuard<'_, Keeper> {
    for one in looked {
        if !keeper
            .watched
            .iter()
            .any(|known| known.socket.ptr_eq(&one.socket))
        {
            keeper.watched.push(one);
        }
    }
    keeper
}

impl Watched {
    /// Asks the peer if nothing came from it; when to look again. `None` once the socket is closed, or no longer wants it.
    fn look(self, now: Instant) -> Option<Watched> {
        let socket = self.socket.upgrade()?;
        let (idle, news) = socket.silence()?;
        if news == self.news {
            socket.probe();
        }
        Some(Watched {
            news,
            due: now + idle,
            ..self
        })
    }
}
