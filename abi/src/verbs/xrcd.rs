//! Domains of extended reliable connections.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use urxe::XrcdOpen;

use crate::errno::{Errno, number, pointer, store};
use crate::layout::{ibv_context, ibv_srq, ibv_xrcd, ibv_xrcd_init_attr};
use crate::live;
use crate::object::{Context, Object, Srq, Xrcd};

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: a context and attributes, by the rules of `ibv_open_xrcd`.
    let (owner, attr) = unsafe { (Context::of(context), &*attr) };
    pointer(open(owner, attr).map(|urxe| {
        live::give(Xrcd {
            ibv: UnsafeCell::new(ibv_xrcd { context }),
            urxe,
            users: Arc::default(),
        })
    }))
}

fn open(owner: &Context, attr: &ibv_xrcd_init_attr) -> Result<urxe::Xrcd, Errno> {
    const FD_AND_OFLAGS: u32 = 1 << 0 | 1 << 1;
    if attr.comp_mask != FD_AND_OFLAGS {
        return Err(Errno::INVAL);
    }
    let has = |flag| attr.oflags & flag != 0;
    if attr.fd == -1 {
        // One without a file is always new.
        return if has(libc::O_CREAT) {
            Ok(owner.urxe.open_xrcd()?)
        } else {
            Err(Errno::INVAL)
        };
    }
    // SAFETY: a number that is no descriptor makes the call below fail; the program does not close it meanwhile.
    let is_open = unsafe { libc::fcntl(attr.fd, libc::F_GETFD) } >= 0;
    if !is_open {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: it is open, and stays so during this call, by the rules of `ibv_open_xrcd`.
    let file = unsafe { BorrowedFd::borrow_raw(attr.fd) };
    let how = match (has(libc::O_CREAT), has(libc::O_EXCL)) {
        (true, true) => XrcdOpen::CreateNew,
        (true, false) => XrcdOpen::Create,
        (false, _) => XrcdOpen::Existing,
    };
    Ok(owner.urxe.open_xrcd_on(file, how)?)
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: a domain that the program does not use again, by the rules of `ibv_close_xrcd`.
    unsafe { live::destroy(xrcd, |_: &Xrcd| ()) }
}

/// The number by which senders name an XRC queue.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: an SRQ, by the rules of `ibv_get_srq_num`.
    let object = unsafe { Srq::find(srq) };
    let found = object.and_then(|object| {
        object.urxe.xrcd().ok_or(Errno::INVAL)?;
        Ok(object.urxe.srq_num().get())
    });
    // SAFETY: a place for a number, by the same rules.
    number(unsafe { store(srq_num, found) })
}
