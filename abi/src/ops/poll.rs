//! `ibv_poll_cq`, `ibv_req_notify_cq`.

use core::ffi::c_int;

use urxe::Wc;

use crate::layout::{ibv_cq, ibv_wc};
use crate::object::{Cq, Object};
use crate::verbose::{is_on, tell_failure};

/// `IBV_WC_GRH`, `IBV_WC_WITH_IMM`, `IBV_WC_WITH_INV`
pub(crate) const GRH: u32 = 1 << 0;
pub(crate) const WITH_IMM: u32 = 1 << 1;
pub(crate) const WITH_INV: u32 = 1 << 3;

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wcs: *mut ibv_wc) -> c_int {
    // SAFETY: a live CQ, by the rules of `ibv_poll_cq`.
    let cq = unsafe { Cq::of(cq) };
    let Ok(count) = usize::try_from(count) else {
        return -libc::EINVAL;
    };
    let mut taken = 0;
    let mut failed = Vec::new();
    while taken < count {
        let most = (count - taken).min(urxe::Cq::EACH_MAX);
        let mut place = wcs.wrapping_add(taken);
        let found = cq.urxe.poll_each(most, |wc| {
            if !wc.is_success() {
                note_failure(&mut failed, &wc);
            }
            // SAFETY: the program gives room for `count`, and `count - taken` come at most.
            unsafe { place.write(completion(&wc)) };
            place = place.wrapping_add(1);
        });
        match found {
            Ok(found) => {
                taken += found;
                if found < most {
                    break;
                }
            }
            // Those that were taken are in the program's hands; the error comes next time.
            Err(_) if taken > 0 => break,
            Err(error) => return -error.errno(),
        }
    }
    failed.iter().for_each(|wc| tell_failure(cq, wc));
    taken as c_int
}

/// A failed completion is told once the queue is not locked any more.
#[cold]
fn note_failure(failed: &mut Vec<Wc>, wc: &Wc) {
    if is_on() {
        failed.push(*wc);
    }
}

#[inline]
fn completion(wc: &Wc) -> ibv_wc {
    let (imm_data, wc_flags) = immediate(wc);
    ibv_wc {
        wr_id: wc.wr_id,
        status: wc.status as c_int,
        opcode: wc.opcode as c_int,
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        imm_data,
        qp_num: wc.qp_num.get(),
        src_qp: wc.src_qp.get(),
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: header_kind(wc),
        dlid_path_bits: 0,
    }
}

/// What the service level is on Ethernet, in completions of datagrams: the kind of header that the first 40 bytes
/// hold, RoCE v2 (8) and IPv6 (1) or IPv4 (2). Adapters and programs agree on it: UCX looks for its own address
/// at the place that this gives.
#[inline]
pub(crate) fn header_kind(wc: &Wc) -> u8 {
    match (wc.grh, wc.ipv4) {
        (false, _) => 0,
        (true, false) => 8 | 1,
        (true, true) => 8 | 2,
    }
}

/// The field that holds the immediate data (in network order) or the invalidated rkey, and the flags.
#[inline]
pub(crate) fn immediate(wc: &Wc) -> (u32, u32) {
    let grh = if wc.grh { GRH } else { 0 };
    // `IBV_WC_TM_SYNC_REQ`, `_MATCH`, `_DATA_VALID`.
    let of_tags = u32::from(wc.tm.flags.0);
    let (field, flag) = match (wc.imm_data, wc.invalidated_rkey) {
        (Some(imm), _) => (imm.to_be(), WITH_IMM),
        (None, Some(rkey)) => (rkey.0, WITH_INV),
        (None, None) => (0, 0),
    };
    (field, flag | grh | of_tags)
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: a live CQ, by the rules of `ibv_req_notify_cq`.
    let cq = unsafe { Cq::of(cq) };
    // Without a channel there is no receiver of the event, which adapters allow.
    if cq.channel.is_none() {
        return 0;
    }
    match cq.urxe.req_notify(solicited_only != 0) {
        Ok(()) => 0,
        Err(error) => error.errno(),
    }
}
