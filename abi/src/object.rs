//! The objects behind the pointers that programs hold: C's structure first, then ours.
//!
//! A pointer becomes a reference by [`Object::of`] with no look-up: the data path leans on it. Other calls look it up first
//! ([`live`]).

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::device::Device;
use crate::errno::Errno;
use crate::events::Acks;
use crate::file::{File, Registry};
use crate::layout::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_dm, ibv_mr, ibv_mw, ibv_pd,
    ibv_qp, ibv_qp_ex, ibv_srq, ibv_td, ibv_xrcd, verbs_context,
};
use crate::live;
use crate::lock::lock;
use crate::read::Reading;
use crate::verbose::Failures;

/// A structure with `UnsafeCell<C>` as its first field: the program may write to its part at any time.
///
/// # Safety
/// The layout must be `repr(C)`, with C's part at offset 0.
pub(crate) unsafe trait Object: Kind {
    /// `EBUSY` while others need it.
    fn may_go(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// The pointer must come from [`new`] for this type, and not be freed while the reference is used.
    #[inline]
    unsafe fn of<'a>(ptr: *mut Self::C) -> &'a Self {
        // SAFETY: the caller's promise; C's part is at offset 0.
        unsafe { &*ptr.cast::<Self>() }
    }

    /// The object behind a program's pointer, looked up first.
    ///
    /// # Safety
    /// As for [`live::find`].
    unsafe fn find<'a>(ptr: *mut Self::C) -> Result<&'a Self, Errno> {
        // SAFETY: the caller's promise.
        unsafe { live::find(ptr) }
    }
}

/// What programs hold pointers to, and may ask to be destroyed.
pub(crate) trait Kind: Sized + 'static {
    /// C's structure.
    type C;

    /// What C calls its handle, if that is in the structure.
    ///
    /// # Safety
    /// The object lives.
    unsafe fn handle(_ptr: *const Self::C) -> u32 {
        0
    }
}

/// Gives an object to the program.
pub(crate) fn new<T: Object>(object: T) -> *mut T::C {
    Box::into_raw(Box::new(object)).cast()
}

/// Takes it back.
///
/// # Safety
/// As for [`Object::of`]; the pointer, or a reference made of it, must not be used again.
pub(crate) unsafe fn delete<T: Object>(ptr: *mut T::C) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ptr.cast::<T>()) });
}

/// How many objects use this one: it cannot go before them.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// `EBUSY` while there are some.
    pub(crate) fn check_none(&self) -> Result<(), Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Errno::BUSY),
        }
    }
}

/// A pointer that may go to other threads: what it points to takes care of itself.
pub(crate) struct Shared<T>(pub(crate) *mut T);

// SAFETY: a pointer as such is harmless; the objects are made to be used by many threads.
unsafe impl<T> Send for Shared<T> {}

/// A use of an object for as long as something made of it lives.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Users>);

impl Hold {
    pub(crate) fn of(users: &Arc<Users>) -> Hold {
        users.add();
        Hold(users.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Behind `ibv_context`, which is the last part of `verbs_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) ibv: UnsafeCell<verbs_context>,
    pub(crate) urxe: urxe::Context,
    pub(crate) device: &'static Device,
    /// What it shares with contexts that were imported from it.
    pub(crate) file: Arc<File>,
    /// The program's name for the file; nothing is read from it.
    pub(crate) _cmd_fd: OwnedFd,
}

impl Kind for Context {
    type C = ibv_context;
}

impl Context {
    pub(crate) fn give(ibv: verbs_context, file: Arc<File>, cmd_fd: OwnedFd) -> *mut ibv_context {
        let context = Box::into_raw(Box::new(Context {
            ibv: UnsafeCell::new(ibv),
            urxe: file.urxe.clone(),
            device: file.device,
            file,
            _cmd_fd: cmd_fd,
        }));
        let context = context
            .cast::<ibv_context>()
            .wrapping_byte_add(offset_of!(verbs_context, context));
        // SAFETY: just made.
        unsafe { live::add::<Context>(context) };
        context
    }

    /// The context behind a program's pointer.
    ///
    /// # Safety
    /// The pointer must be from [`Context::give`], and not taken back while the reference is used.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: the caller's promise.
        unsafe { &*Context::outer(context) }
    }

    /// Takes it back, if it is one.
    ///
    /// # Safety
    /// As for [`Context::of`]; the pointer, or a reference made of it, must not be used again.
    pub(crate) unsafe fn take_back(context: *mut ibv_context) -> Result<(), Errno> {
        live::remove::<Context>(context)?;
        // SAFETY: it was one until now; and the caller's promise.
        unsafe { live::bury_at(Context::outer(context)) };
        Ok(())
    }

    fn outer(context: *mut ibv_context) -> *mut Context {
        context
            .wrapping_byte_sub(offset_of!(verbs_context, context))
            .cast()
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.file.registry()
    }
}

/// Behind `ibv_pd`: a domain, or a parent domain, which stands for the one it was made of.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) ibv: UnsafeCell<ibv_pd>,
    pub(crate) urxe: urxe::Pd,
    /// Counted once, however many handles there are.
    pub(crate) users: Arc<Users>,
    /// The domain and perhaps the thread domain that a parent domain was made of.
    pub(crate) parents: Option<(Hold, Option<Hold>)>,
}

/// Behind `ibv_td`. There is nothing that a promise about threads would change.
#[repr(C)]
pub(crate) struct Td {
    pub(crate) ibv: UnsafeCell<ibv_td>,
    pub(crate) users: Arc<Users>,
}

#[repr(C)]
pub(crate) struct Mr {
    pub(crate) ibv: UnsafeCell<ibv_mr>,
    pub(crate) state: Arc<MrState>,
}

/// What all handles of a region share.
pub(crate) struct MrState {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    length: AtomicUsize,
    /// Registering again changes it; nothing of it is needed to post. `None` once it is deregistered.
    pub(crate) memory: Mutex<Option<(Memory, Hold)>>,
}

impl MrState {
    pub(crate) fn new(lkey: u32, rkey: u32, length: usize, memory: Memory, pd: Hold) -> MrState {
        MrState {
            lkey,
            rkey,
            length: AtomicUsize::new(length),
            memory: Mutex::new(Some((memory, pd))),
        }
    }

    /// The region, locked against changes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<(Memory, Hold)>> {
        lock(&self.memory)
    }

    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    pub(crate) fn set_length(&self, length: usize) {
        self.length.store(length, Ordering::Relaxed);
    }
}

/// The memory behind a region.
pub(crate) enum Memory {
    Region(urxe::Mr),
    Null(#[allow(dead_code, reason = "kept for its drop")] urxe::NullMr),
    All(#[allow(dead_code, reason = "kept for its drop")] urxe::ImplicitMr),
}

#[repr(C)]
pub(crate) struct Mw {
    pub(crate) ibv: UnsafeCell<ibv_mw>,
    pub(crate) urxe: urxe::Mw,
    pub(crate) _pd: Hold,
}

#[repr(C)]
pub(crate) struct Dm {
    pub(crate) ibv: UnsafeCell<ibv_dm>,
    pub(crate) urxe: urxe::Dm,
}

#[repr(C)]
pub(crate) struct Channel {
    pub(crate) ibv: UnsafeCell<ibv_comp_channel>,
    /// Goes before the descriptor.
    pub(crate) _reading: Option<Reading>,
    pub(crate) urxe: urxe::CompChannel,
    pub(crate) users: Arc<Users>,
}

/// Behind `ibv_cq` and `ibv_cq_ex`, which begins like it.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) ibv: UnsafeCell<ibv_cq_ex>,
    pub(crate) urxe: urxe::Cq,
    pub(crate) channel: Option<Hold>,
    /// What `ibv_start_poll` and `ibv_next_poll` found: one thread polls at a time.
    pub(crate) current: UnsafeCell<crate::ops::cq_ex::Current>,
    pub(crate) users: Arc<Users>,
    pub(crate) comp_events: Acks,
    pub(crate) async_events: Acks,
}

#[repr(C)]
pub(crate) struct Srq {
    pub(crate) ibv: UnsafeCell<ibv_srq>,
    pub(crate) urxe: urxe::Srq,
    pub(crate) users: Arc<Users>,
    /// Of an XRC one the domain, and of that and one with tags the queue that its completions go to.
    pub(crate) _holds: Vec<Hold>,
    pub(crate) async_events: Acks,
    pub(crate) _pd: Hold,
}

#[repr(C)]
pub(crate) struct Xrcd {
    pub(crate) ibv: UnsafeCell<ibv_xrcd>,
    pub(crate) urxe: urxe::Xrcd,
    pub(crate) users: Arc<Users>,
}

/// Behind `ibv_qp` and `ibv_qp_ex`, which begins with it.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) ibv: UnsafeCell<ibv_qp_ex>,
    pub(crate) urxe: urxe::Qp,
    /// What its send requests name beside the connection.
    pub(crate) names: Names,
    pub(crate) sq_sig_all: bool,
    /// The requests under construction, if it was made for `ibv_wr_*`.
    pub(crate) batch: Option<Box<crate::ops::qp_ex::Batch>>,
    pub(crate) async_events: Acks,
    pub(crate) failures: Failures,
    /// Domains and queues, as far as its service has them.
    pub(crate) _made_of: [Option<Hold>; 5],
}

/// What a send request of a QP has to say about where it goes, by the QP's service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// Nothing: the QP is connected.
    Nothing,
    /// Address handle, QPN and Q_Key (UD).
    Datagram,
    /// The shared receive queue at the other end (XRC).
    Srq,
}

#[repr(C)]
pub(crate) struct Ah {
    pub(crate) ibv: UnsafeCell<ibv_ah>,
    pub(crate) urxe: urxe::AddressHandle,
    pub(crate) _pd: Hold,
}

macro_rules! objects {
    // The handle, if that is in C's structure, and the count of users, if others may need it.
    ($($name:ident: $c:ident ($($handle:ident)?) ($($users:ident)?);)*) => {
        $(
            // SAFETY: repr(C), and `ibv` is first.
            unsafe impl Object for $name {
                $(fn may_go(&self) -> Result<(), Errno> {
                    self.$users.check_none()
                })?
            }

            impl Kind for $name {
                type C = $c;

                $(unsafe fn handle(ptr: *const $c) -> u32 {
                    // SAFETY: the caller's promise; the program does not write to it during the calls that look.
                    unsafe { (*ptr).$handle }
                })?
            }

            impl $name {
                /// The context that the program made it of.
                #[allow(dead_code, reason = "some kinds have no use for it")]
                pub(crate) fn c_context(&self) -> *mut ibv_context {
                    // SAFETY: the program's part begins as `$c`; this field never changes.
                    unsafe { (*self.ibv.get().cast::<$c>()).context }
                }

                /// Its handle, if that is in C's structure.
                #[allow(dead_code, reason = "some kinds have none")]
                pub(crate) fn c_handle(&self) -> u32 {
                    // SAFETY: the object lives, and the program's part begins as `$c`.
                    unsafe { Self::handle(self.ibv.get().cast::<$c>()) }
                }

                /// The object behind that.
                #[allow(dead_code, reason = "some kinds have no use for it")]
                pub(crate) fn context(&self) -> &Context {
                    // SAFETY: it lives longer.
                    unsafe { Context::of(self.c_context()) }
                }
            }
        )*
    };
}

objects! {
    Pd: ibv_pd (handle) (users);
    Td: ibv_td () (users);
    Mr: ibv_mr (handle) ();
    Mw: ibv_mw (handle) ();
    Dm: ibv_dm (handle) ();
    Channel: ibv_comp_channel () (users);
    Cq: ibv_cq (handle) (users);
    Srq: ibv_srq (handle) (users);
    Xrcd: ibv_xrcd () (users);
    Qp: ibv_qp (handle) ();
    Ah: ibv_ah (handle) ();
}
