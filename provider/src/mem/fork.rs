//! Detects that this process is the child of a fork.
//!
//! A child has the parent's objects but not its threads, and its locks may be held by
//! threads that do not exist. Worse, its sockets are the parent's: what it sent would
//! look like the parent's packets. So everything that was opened before a fork is dead
//! in the child. Asking for the process id at every call would cost a system call;
//! a handler that the fork itself runs costs one load.
//!
//! A child made by the bare system call (not by libc's `fork`) is not noticed.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Once;

use super::guarded;

/// Forks between the start of the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process. Forks are noticed from now on.
    pub(crate) fn current() -> Generation {
        INSTALL.call_once(|| {
            // SAFETY: the handlers are functions of this library, which is never unloaded
            // while its code runs. They take and let go a lock that is held for some
            // system calls and never at a fork, and in the child add to an atomic: that is
            // allowed between fork and exec. A failure (no memory) leaves forks unnoticed.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        });
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// True if a fork happened since: this is a child of the process it was made in.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

extern "C" fn before() {
    guarded::before_fork();
}

extern "C" fn in_parent() {
    guarded::after_fork();
}

extern "C" fn in_child() {
    guarded::after_fork();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let null = NULL.load(Ordering::Relaxed);
    for place in &DESCRIPTORS {
        let fd = place.fd.load(Ordering::Acquire);
        let is_ours = || identity(fd) == Some(place.identity.load(Ordering::Relaxed));
        // Not if the program has closed it and opened something of its own there.
        if fd >= 0 && null >= 0 && is_ours() {
            // SAFETY: takes numbers only. Both are open: they were when the parent forked.
            unsafe { libc::syscall(libc::SYS_dup3, null, fd, libc::O_CLOEXEC) };
        }
    }
}

/// A number that another file at the same descriptor would not have. None if nothing is open there.
fn identity(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeros are valid; the kernel writes the structure. Allowed between fork and exec.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let is_open = libc::fstat(fd, &raw mut stat) == 0;
        is_open.then(|| stat.st_dev.rotate_left(32) ^ stat.st_ino)
    }
}

/// Descriptors that a child must not keep open: as long as it has them, the kernel takes
/// the parent's sockets for alive, and its locks, even after the parent's death. The
/// child closes them by putting /dev/null in their place: their numbers stay taken, as
/// objects in the child still name (and close) them.
static DESCRIPTORS: [Place; 1024] = [const { Place::free() }; 1024];
static NULL: AtomicI32 = AtomicI32::new(-1);

/// Room for a descriptor.
struct Place {
    fd: AtomicI32,
    /// Written before `fd`.
    identity: AtomicU64,
}

/// No descriptor; one is being entered.
const FREE: i32 = -1;
const TAKEN: i32 = -2;

impl Place {
    const fn free() -> Place {
        Place {
            fd: AtomicI32::new(FREE),
            identity: AtomicU64::new(0),
        }
    }

    /// False if it is not free.
    fn enter(&self, fd: RawFd, identity: u64) -> bool {
        let (order, not) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_mine = self.fd.compare_exchange(FREE, TAKEN, order, not).is_ok();
        if is_mine {
            self.identity.store(identity, Ordering::Relaxed);
            self.fd.store(fd, Ordering::Release);
        }
        is_mine
    }
}

/// Notes descriptors that children must close. Those that there is no room for stay open there.
pub(crate) fn close_in_child<'f>(fds: impl Iterator<Item = BorrowedFd<'f>>) {
    if NULL.load(Ordering::Relaxed) < 0
        && let Ok(null) = File::open("/dev/null")
    {
        let null = null.into_raw_fd();
        let first = NULL.compare_exchange(-1, null, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            // SAFETY: made just now, and it has no other owner.
            drop(unsafe { OwnedFd::from_raw_fd(null) });
        }
    }
    for fd in fds {
        let fd = fd.as_raw_fd();
        if let Some(identity) = identity(fd) {
            let _ = DESCRIPTORS.iter().find(|place| place.enter(fd, identity));
        }
    }
}

/// They are about to be closed here, too.
pub(crate) fn forget<'f>(fds: impl Iterator<Item = BorrowedFd<'f>>) {
    for fd in fds {
        let fd = fd.as_raw_fd();
        for place in &DESCRIPTORS {
            let (order, not) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = place.fd.compare_exchange(fd, FREE, order, not);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use crate::testing::address;
    use crate::{Access, Advice, Blame, Context, ErrorKind, MwType, Rereg, SendWr, Wc};

    /// Runs `in_child` in a fork of this process; true if that returned true.
    fn fork(in_child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs code of this library only, on objects that are dead in
        // it, and ends without returning. It takes no lock that other threads of the
        // parent could hold: that is what the test is about. (It allocates little, which
        // libc makes safe after fork.)
        match unsafe { libc::fork() } {
            0 => {
                let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child));
                // SAFETY: ends the process at once, as a child of a fork should.
                unsafe { libc::_exit(if ok.unwrap_or(false) { 0 } else { 1 }) }
            }
            child => {
                let mut status = -1;
                // SAFETY: the kernel writes an int to `status`.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                waited == child && status == 0
            }
        }
    }

    #[test]
    fn what_was_opened_before_a_fork_is_dead_in_the_child_and_alive_in_the_parent() {
        let context = Context::open(address().into()).expect("free");
        let pd = context.alloc_pd().expect("a PD");
        let channel = context.create_comp_channel().expect("a channel");
        let cq = context.create_cq_with_channel(16, &channel).expect("a CQ");
        let (a, b) = (
            pd.qp(&cq).create().expect("a QP"),
            pd.qp(&cq).create().expect("a QP"),
        );
        a.connect(&b.endpoint(), &crate::ConnectOptions::default())
            .expect("connects");
        b.connect(&a.endpoint(), &crate::ConnectOptions::default())
            .expect("connects");
        let mut mr = pd
            .reg_owned(vec![0; 8], Access::LOCAL_WRITE)
            .expect("memory");
        let window = pd.alloc_mw(MwType::Type1).expect("a window");
        let part = mr.bind_info(.., Access::REMOTE_READ);
        let null = pd.alloc_null_mr().expect("a null region");
        let dm = context.alloc_dm(8).expect("device memory");
        let dm_access = Access::ZERO_BASED;
        let mine = (
            context.clone(),
            pd.clone(),
            channel.clone(),
            cq.clone(),
            a.clone(),
        );
        let all_fail = || {
            let (context, pd, channel, cq, a) = mine;
            let is_dead = |error: Option<crate::Error>| {
                error.is_some_and(|e| {
                    e.kind() == &ErrorKind::Forked && e.blame() == Blame::Caller && e.errno() == 19
                })
            };
            let dead = [
                is_dead(a.post_send(&SendWr::send_inline(0, b"x")).err()),
                is_dead(a.query().err()),
                is_dead(cq.poll(&mut [Wc::default()]).err()),
                is_dead(cq.req_notify(false).err()),
                is_dead(channel.wait().err()),
                is_dead(context.alloc_pd().err()),
                is_dead(context.create_cq(1).err()),
                is_dead(pd.reg_owned(vec![0; 8], Access::NONE).err()),
                is_dead(context.counters().err()),
                is_dead(pd.alloc_mw(MwType::Type2).err()),
                is_dead(a.bind_mw(&window, 1, &part, true).err()),
                is_dead(pd.alloc_null_mr().err()),
                is_dead(pd.reg_dm_mr(&dm, 0, 8, dm_access).err()),
                is_dead(mr.rereg(Rereg::new().access(Access::NONE)).err()),
                is_dead(pd.advise_mr(Advice::Prefetch, &[]).err()),
                is_dead(context.alloc_td().err()),
            ];
            // Device memory is memory, and needs nothing that is dead.
            let own = context.alloc_dm(8);
            let copied =
                dm.copy_to(0, b"x").is_ok() && own.is_ok_and(|own| own.copy_to(0, b"x").is_ok());
            drop((window, null, dm));
            drop((a, cq, channel, pd, context, mr));
            dead == [true; 16] && copied
        };
        assert!(
            fork(all_fail),
            "the child found something alive, or could not drop it"
        );
        // The parent's goes on.
        let to = pd
            .reg_owned(vec![0; 8], Access::LOCAL_WRITE)
            .expect("memory");
        b.post_recv(&crate::RecvWr::new(1, &[to.sge(..)]))
            .expect("room");
        a.post_send(&SendWr::send_inline(0, b"x")).expect("room");
        assert!(cq.poll_one().expect("polls").is_success());
    }

    #[test]
    fn a_child_can_open_its_own() {
        // Forks are noticed from the first context on.
        let parents = Context::open(address().into()).expect("free");
        assert!(fork(|| Context::open(address().into()).is_ok()));
        drop(parents);
    }

    #[test]
    fn a_child_keeps_what_the_program_opened_where_a_descriptor_was_closed_behind_our_back() {
        let _ = super::Generation::current();
        let open = |name: &str| super::File::open(name).expect("it is there");
        let (ours, theirs) = (open("/proc/self/status"), open("/proc/self/maps"));
        super::close_in_child([ours.as_fd()].into_iter());
        let kept = |file: &super::File| super::identity(file.as_raw_fd());
        let (before, other) = (kept(&ours), kept(&theirs));
        assert!(fork(|| kept(&ours) != before), "the child keeps it open");
        // SAFETY: takes numbers.
        let number = unsafe { libc::dup2(theirs.as_raw_fd(), ours.as_raw_fd()) };
        assert_eq!(number, ours.as_raw_fd());
        assert!(fork(|| kept(&ours) == other), "the child lost its file");
        super::forget([ours.as_fd()].into_iter());
    }

    #[test]
    fn a_child_does_not_keep_its_parents_addresses() {
        let addr = address().into();
        let context = Context::open(addr).expect("free");
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        // SAFETY: the child waits in a read and ends; it touches nothing else.
        let child = match unsafe { libc::fork() } {
            0 => {
                drop(writer);
                let _ = std::io::Read::read(&mut reader, &mut [0]);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        drop(context);
        // With the child's copy of the socket open this would be refused. Children that
        // other tests make close theirs at once, or exec at once.
        let start = std::time::Instant::now();
        while let Err(error) = Context::builder(addr).share(false).open() {
            assert!(start.elapsed().as_secs() < 20, "{error}");
            std::thread::yield_now();
        }
        let _ = std::io::Write::write(&mut writer, &[0]);
        drop(writer);
        // SAFETY: the child is ours, and no status is asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}
