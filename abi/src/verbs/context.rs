//! `ibv_open_device`, `ibv_close_device`.

use core::ffi::c_int;
use core::ptr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use super::{cq, dm, events, mr, pd, qp_create, query, srq, xrcd};
use crate::blocking::make_blocking;
use crate::device::Device;
use crate::errno::{Errno, minus_one, pointer};
use crate::file::File;
use crate::layout::{CStruct, ibv_context, ibv_device, verbs_context};
use crate::object::Context;
use crate::ops;

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: a device, by the rules of the function.
    pointer(open(unsafe { Device::of(device) }))
}

fn open(device: &'static Device) -> Result<*mut ibv_context, Errno> {
    let urxe = device.open().map_err(|error| told(&error))?;
    crate::exit::prepare();
    crate::caller::prepare();
    // SAFETY: a string and a number.
    let cmd_fd = unsafe { libc::memfd_create(c"urxe".as_ptr(), libc::MFD_CLOEXEC) };
    if cmd_fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just made, and not shared.
    let cmd_fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
    let async_fd = urxe.async_fd().as_raw_fd();
    make_blocking(async_fd)?;
    let file = File::new(&cmd_fd, urxe, device, |file| events::offer(file, async_fd))?;
    give(file, cmd_fd)
}

/// Programs say "couldn't get context": the one error that users meet first, and make by what they tell urxe
/// (addresses, the capture file), deserves its reason, also where nothing else is told.
#[cold]
fn told(error: &urxe::Error) -> Errno {
    eprintln!("urxe: the device is not opened: {error}");
    if error.errno() == libc::EADDRINUSE {
        eprintln!(
            "urxe: another address of this host can be chosen by `urxe run --device` or URXE_DEVICES"
        );
    }
    Errno(error.errno())
}

/// A context of a file, which may have others.
pub(super) fn give(file: Arc<File>, cmd_fd: OwnedFd) -> Result<*mut ibv_context, Errno> {
    let mut verbs = extended();
    verbs.context.device = file.device.as_ptr();
    verbs.context.ops = ops::context_ops();
    verbs.context.cmd_fd = cmd_fd.as_raw_fd();
    verbs.context.async_fd = file.urxe.async_fd().as_raw_fd();
    verbs.context.num_comp_vectors = 1;
    Ok(Context::give(verbs, file, cmd_fd))
}

/// The functions that the header looks for in front of the context.
fn extended() -> verbs_context {
    let mut verbs = verbs_context::zeroed();
    verbs.sz = size_of::<verbs_context>();
    // What says that there is something in front: `__VERBS_ABI_IS_EXTENDED`.
    verbs.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.query_rt_values = Some(query::query_rt_values);
    verbs.create_cq_ex = Some(cq::create_cq_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_qp_ex = Some(qp_create::create_qp_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.post_srq_ops = Some(ops::tags::post_srq_ops);
    verbs.open_qp = Some(qp_create::open_qp);
    verbs.get_srq_num = Some(xrcd::get_srq_num);
    verbs.open_xrcd = Some(xrcd::open_xrcd);
    verbs.close_xrcd = Some(xrcd::close_xrcd);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.advise_mr = Some(mr::advise_mr);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    verbs
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if context.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: a context that the program does not use again, by the rules of the function. Objects that it did not
    // destroy hold what they need.
    minus_one(unsafe { Context::take_back(context) })
}
