//! `ibv_cq_ex`: completions one by one (`ibv_start_poll`, `ibv_next_poll`, `ibv_wc_read_*`).

use core::ffi::{c_int, c_uint, c_void};

use urxe::Wc;

use super::poll::{header_kind, immediate};
use crate::layout::{ibv_cq_ex, ibv_wc_tm_info};
use crate::object::{Cq, Object};
use crate::verbose::tell_failure;

/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`, and the one on the system's clock.
pub(crate) const TIMESTAMPS: u64 = 1 << 7 | 1 << 11;
/// `IBV_WC_EX_WITH_TM_INFO`
const TM_INFO: u64 = 1 << 10;
/// What a completion can tell: byte_len, imm, qp_num, src_qp, slid, sl, dlid_path_bits, timestamps, tags.
pub(crate) const FIELDS: u64 = 0x7f | TIMESTAMPS | TM_INFO;

/// The completion that the program looks at.
#[derive(Default)]
pub(crate) struct Current {
    wc: Wc,
    completion_ts: Option<u64>,
}

/// The functions of a new queue.
pub(crate) fn fill(ibv: &mut ibv_cq_ex) {
    ibv.start_poll = Some(start_poll);
    ibv.next_poll = Some(next_poll);
    ibv.end_poll = Some(end_poll);
    ibv.read_opcode = Some(read_opcode);
    ibv.read_vendor_err = Some(read_vendor_err);
    ibv.read_byte_len = Some(read_byte_len);
    ibv.read_imm_data = Some(read_imm_data);
    ibv.read_qp_num = Some(read_qp_num);
    ibv.read_src_qp = Some(read_src_qp);
    ibv.read_wc_flags = Some(read_wc_flags);
    ibv.read_slid = Some(read_slid);
    ibv.read_sl = Some(read_sl);
    ibv.read_dlid_path_bits = Some(read_path_bits);
    ibv.read_tm_info = Some(read_tm_info);
    ibv.read_completion_ts = Some(read_completion_ts);
    ibv.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut c_void) -> c_int {
    // `ibv_poll_cq_attr`: nothing in it is defined yet.
    // SAFETY: null or attributes that begin with a mask, by the rules of `ibv_start_poll`.
    if !attr.is_null() && unsafe { *attr.cast::<u32>() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the same rules.
    unsafe { look_at(cq, urxe::Cq::start_poll) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live CQ, by the rules of `ibv_next_poll`.
    unsafe { look_at(cq, urxe::Cq::continue_poll) }
}

/// # Safety
/// A live CQ.
unsafe fn look_at(
    cq: *mut ibv_cq_ex,
    take: impl FnOnce(&urxe::Cq) -> Result<Option<urxe::CqPoll<'_>>, urxe::Error>,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { Cq::of(cq.cast()) };
    match take(&object.urxe) {
        Ok(Some(poll)) => {
            let (wc, completion_ts) = (*poll.wc(), poll.completion_ts());
            if !wc.is_success() {
                tell_failure(object, &wc);
            }
            // SAFETY: one thread polls an extended queue at a time, by the rules of `ibv_start_poll`.
            unsafe {
                let ibv = object.ibv.get();
                (*ibv).wr_id = wc.wr_id;
                (*ibv).status = wc.status as c_int;
                object.current.get().write(Current { wc, completion_ts });
            }
            0
        }
        Ok(None) => libc::ENOENT,
        Err(error) => error.errno(),
    }
}

/// No lock is held between the calls.
unsafe extern "C" fn end_poll(_cq: *mut ibv_cq_ex) {}

/// # Safety
/// A live CQ of which the calling thread polls, as `ibv_wc_read_*` want it.
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a Current {
    // SAFETY: the caller's promise; only `next_poll` writes to it.
    unsafe { &*Cq::of(cq.cast()).current.get() }
}

macro_rules! readers {
    ($($name:ident: $result:ty = |$wc:ident| $value:expr;)*) => {
        $(
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $result {
                // SAFETY: between `ibv_start_poll` and `ibv_end_poll`, by the rules of the function.
                let $wc = unsafe { &current(cq).wc };
                $value
            }
        )*
    };
}

readers! {
    read_opcode: c_int = |wc| wc.opcode as c_int;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_imm_data: u32 = |wc| immediate(wc).0;
    read_qp_num: u32 = |wc| wc.qp_num.get();
    read_src_qp: u32 = |wc| wc.src_qp.get();
    read_wc_flags: c_uint = |wc| immediate(wc).1;
    // InfiniBand's addresses, which Ethernet does not have.
    read_slid: u32 = |_wc| 0;
    read_path_bits: u8 = |_wc| 0;
    read_sl: u8 = |wc| header_kind(wc);
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: as for the other readers, and a place for the answer.
    unsafe {
        let tm = current(cq).wc.tm;
        (*info).tag = tm.tag;
        (*info).r#priv = tm.app_ctx;
    }
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as for the other readers.
    unsafe { current(cq) }.completion_ts.unwrap_or(0)
}

unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as for the other readers.
    let (object, current) = unsafe { (Cq::of(cq.cast()), current(cq)) };
    let wallclock = |raw| object.urxe.context().wallclock_ns(raw);
    current.completion_ts.map_or(0, wallclock)
}
