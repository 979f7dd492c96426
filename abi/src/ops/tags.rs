//! `ibv_post_srq_ops`: the list of tags of a shared receive queue.

use core::ffi::c_int;

use urxe::{TagHandle, TagOp, TagRecv, TagWr};

use super::post::sges;
use crate::errno::Errno;
use crate::layout::{ibv_ops_wr, ibv_srq};
use crate::object::{Object, Srq};

/// `enum ibv_ops_wr_opcode`
const ADD: c_int = 0;
const DEL: c_int = 1;
const SYNC: c_int = 2;
/// `enum ibv_ops_flags`
const SIGNALED: c_int = 1 << 0;
const TM_SYNC: c_int = 1 << 1;

/// Each is carried out, and its handle written, before the next is looked at: so one list may add a tag and remove it.
pub(crate) unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    mut op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: a live SRQ, by the rules of the function.
    let srq = unsafe { Srq::of(srq) };
    // SAFETY: a list of operations, by the same rules; nothing else refers to it meanwhile.
    while let Some(wr) = unsafe { op.as_mut() } {
        // SAFETY: the same rules.
        if let Err(errno) = unsafe { carry_out(srq, wr) } {
            // SAFETY: a place for it, by the same rules.
            unsafe { bad_op.write(op) };
            return errno;
        }
        op = wr.next;
    }
    0
}

/// # Safety
/// An operation as `ibv_post_srq_ops` takes it, with a readable list of entries.
unsafe fn carry_out(srq: &Srq, wr: &mut ibv_ops_wr) -> Result<(), c_int> {
    let add = &wr.tm.add;
    let op = match wr.opcode {
        ADD => TagOp::Add(TagRecv {
            recv_wr_id: add.recv_wr_id,
            tag: add.tag,
            mask: add.mask,
            // SAFETY: the caller's promise.
            sges: unsafe { sges(add.sg_list, add.num_sge) }?,
        }),
        DEL => TagOp::Del(TagHandle(wr.tm.handle)),
        SYNC => TagOp::Sync,
        _ => return Err(libc::EINVAL),
    };
    if wr.flags & !(SIGNALED | TM_SYNC) != 0 {
        return Err(libc::EINVAL);
    }
    let posted = srq.urxe.post_op(&TagWr {
        wr_id: wr.wr_id,
        op,
        is_signaled: wr.flags & SIGNALED != 0,
        unexpected_cnt: (wr.flags & TM_SYNC != 0).then_some(wr.tm.unexpected_cnt),
    });
    let handle = posted.map_err(|error| Errno::from(error).0)?;
    if let Some(TagHandle(handle)) = handle {
        wr.tm.handle = handle;
    }
    Ok(())
}
