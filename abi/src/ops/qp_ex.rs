//! `ibv_qp_ex`: requests built by calls (`ibv_wr_start`, `ibv_wr_send`, `ibv_wr_complete`).

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use urxe::{
    AddressHandle, Error, Flush, Lkey, Placement, Qkey, QpCap, Qpn, Rkey, Selectivity, SendFlags,
    SendWr, SendWrFields, Sge, WrData, WrOpcode,
};

use super::post::sges;
use crate::errno::Errno;
use crate::layout::{array, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};
use crate::object::{Ah, Object, Qp};
use crate::verbs::mw::bind_request;

/// `IBV_QP_EX_WITH_*` of the operations below.
const OPERATIONS: u64 = 0x3ff | 1 << 11 | 1 << 12;

/// Requests between `ibv_wr_start` and `ibv_wr_complete`, and the lock that the first takes and the second gives
/// back: other threads that build requests for the QP wait meanwhile.
pub(crate) struct Batch {
    is_building: AtomicBool,
    requests: UnsafeCell<Requests>,
}

#[derive(Default)]
struct Requests {
    built: Vec<Built>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// Windows that are bound, and what their keys become.
    windows: Vec<(*mut ibv_mw, Rkey)>,
    /// What was wrong with a request: then none of them is posted.
    error: Option<c_int>,
}

struct Built {
    fields: SendWrFields<'static>,
    data: Data,
    datagram: Option<(AddressHandle, Qpn, Qkey)>,
}

/// Which of the collected entries or bytes are the request's.
enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Batch {
    pub(crate) fn new(cap: &QpCap) -> Batch {
        let most = cap.max_send_wr as usize;
        Batch {
            is_building: AtomicBool::new(false),
            requests: UnsafeCell::new(Requests {
                built: Vec::with_capacity(most),
                sges: Vec::with_capacity(most),
                ..Requests::default()
            }),
        }
    }
}

/// Says no to operations that there are not.
pub(crate) fn check(ops: u64) -> Result<(), Errno> {
    if ops & !OPERATIONS != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    Ok(())
}

/// True if `ibv_wr_atomic_write` is among them.
pub(crate) fn takes_value(ops: u64) -> bool {
    ops & (1 << 12) != 0
}

/// The functions of a new QP: of operations that the program named, and those that every request needs.
pub(crate) fn fill(ibv: &mut ibv_qp_ex, ops: u64) {
    let has = |bit: u32| ops & (1 << bit) != 0;
    ibv.wr_rdma_write = has(0).then_some(wr_rdma_write);
    ibv.wr_rdma_write_imm = has(1).then_some(wr_rdma_write_imm);
    ibv.wr_send = has(2).then_some(wr_send);
    ibv.wr_send_imm = has(3).then_some(wr_send_imm);
    ibv.wr_rdma_read = has(4).then_some(wr_rdma_read);
    ibv.wr_atomic_cmp_swp = has(5).then_some(wr_atomic_cmp_swp);
    ibv.wr_atomic_fetch_add = has(6).then_some(wr_atomic_fetch_add);
    ibv.wr_local_inv = has(7).then_some(wr_local_inv);
    ibv.wr_bind_mw = has(8).then_some(wr_bind_mw);
    ibv.wr_send_inv = has(9).then_some(wr_send_inv);
    ibv.wr_flush = has(11).then_some(wr_flush);
    ibv.wr_atomic_write = has(12).then_some(wr_atomic_write);
    ibv.wr_set_ud_addr = Some(wr_set_ud_addr);
    ibv.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    ibv.wr_set_sge = Some(wr_set_sge);
    ibv.wr_set_sge_list = Some(wr_set_sge_list);
    ibv.wr_set_inline_data = Some(wr_set_inline_data);
    ibv.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    ibv.wr_start = Some(wr_start);
    ibv.wr_complete = Some(wr_complete);
    ibv.wr_abort = Some(wr_abort);
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live QP, by the rules of `ibv_wr_start`.
    let Some(batch) = (unsafe { Qp::of(qp.cast()) }).batch.as_deref() else {
        return;
    };
    while batch.is_building.swap(true, Ordering::Acquire) {
        // The thread that builds is between a few function calls.
        std::thread::yield_now();
    }
}

/// Posts all of them, or none (`man ibv_wr_post`).
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: after `ibv_wr_start`, by the rules of `ibv_wr_complete`.
    let (object, requests) = unsafe { building(qp) };
    let result = match requests.error {
        Some(errno) => errno,
        None => {
            let Requests {
                built,
                sges,
                inline,
                ..
            } = &*requests;
            let wrs = built.iter().map(|wr| {
                let data = match &wr.data {
                    Data::Sges(range) => WrData::Sges(&sges[range.clone()]),
                    Data::Inline(range) => WrData::Inline(&inline[range.clone()]),
                };
                let posted = SendWr::from(SendWrFields { data, ..wr.fields });
                match &wr.datagram {
                    Some((ah, qpn, qkey)) => posted.ud_addr(ah, *qpn, *qkey),
                    None => posted,
                }
            });
            // Of one alone there is nothing to be half done.
            let posted = match built.len() {
                1 => object.urxe.post_send_iter(wrs),
                _ => object.urxe.post_send_all(wrs),
            };
            match posted {
                Ok(()) => {
                    for (mw, rkey) in requests.windows.drain(..) {
                        // SAFETY: live windows, by the rules of `ibv_wr_bind_mw`.
                        unsafe { (*mw).rkey = rkey.0 };
                    }
                    0
                }
                Err(bad) => Errno::from(Error::from(bad)).0,
            }
        }
    };
    // SAFETY: as above; `requests` is not used again.
    unsafe { wr_abort(qp) };
    result
}

/// Forgets all of them.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: after `ibv_wr_start`, by the rules of `ibv_wr_abort`.
    let (object, requests) = unsafe { building(qp) };
    requests.built.clear();
    requests.sges.clear();
    requests.inline.clear();
    requests.windows.clear();
    requests.error = None;
    if let Some(batch) = &object.batch {
        batch.is_building.store(false, Ordering::Release);
    }
}

/// The requests that the calling thread builds.
///
/// # Safety
/// A live QP that has a batch, on which the calling thread called `ibv_wr_start`; and one reference at a time.
unsafe fn building<'a>(qp: *mut ibv_qp_ex) -> (&'a Qp, &'a mut Requests) {
    // SAFETY: the caller's promise.
    let object: &'a Qp = unsafe { Qp::of(qp.cast()) };
    let batch = object.batch.as_deref();
    let batch = batch.expect("these functions are given to QPs with a batch only");
    // SAFETY: `is_building` keeps other threads away.
    (object, unsafe { &mut *batch.requests.get() })
}

/// Begins a request with what the program left in the QP's fields.
///
/// # Safety
/// As for [`building`].
unsafe fn begin(
    qp: *mut ibv_qp_ex,
    opcode: WrOpcode,
    set: impl FnOnce(&mut SendWrFields<'static>),
) {
    // SAFETY: the caller's promise; these fields are the program's to write before the call.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: the caller's promise.
    let (_, requests) = unsafe { building(qp) };
    let mut fields = SendWrFields::new(wr_id, opcode, WrData::Sges(&[]));
    let known = SendFlags::FENCE | SendFlags::SIGNALED | SendFlags::SOLICITED;
    fields.flags = SendFlags(flags & known.0);
    set(&mut fields);
    let end = requests.sges.len();
    requests.built.push(Built {
        fields,
        data: Data::Sges(end..end),
        datagram: None,
    });
}

/// Makes a request whole but for its flags, by its id.
fn whole(fields: &mut SendWrFields<'static>, make: impl FnOnce(u64) -> SendWrFields<'static>) {
    let flags = fields.flags;
    *fields = make(fields.wr_id);
    fields.flags = flags;
}

fn remote(fields: &mut SendWrFields<'static>, rkey: u32, addr: u64) {
    (fields.rkey, fields.remote_addr) = (Rkey(rkey), addr);
}

macro_rules! operations {
    ($($name:ident($($arg:ident: $type:ty),*) = $opcode:ident, |$fields:ident| $set:expr;)*) => {
        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $type)*) {
                // SAFETY: after `ibv_wr_start`, by the rules of the function.
                unsafe { begin(qp, WrOpcode::$opcode, |$fields| $set) };
            }
        )*
    };
}

operations! {
    wr_rdma_write(rkey: u32, addr: u64) = RdmaWrite, |fields| remote(fields, rkey, addr);
    wr_rdma_read(rkey: u32, addr: u64) = RdmaRead, |fields| remote(fields, rkey, addr);
    wr_send() = Send, |_fields| ();
    wr_send_imm(imm: u32) = SendWithImm, |fields| fields.imm = imm.to_ne_bytes();
    wr_send_inv(rkey: u32) = SendWithInv, |fields| fields.rkey = Rkey(rkey);
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) = RdmaWriteWithImm, |fields| {
        remote(fields, rkey, addr);
        fields.imm = imm.to_ne_bytes();
    };
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) = AtomicCmpAndSwp, |fields| {
        remote(fields, rkey, addr);
        (fields.compare_add, fields.swap) = (compare, swap);
    };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) = AtomicFetchAndAdd, |fields| {
        remote(fields, rkey, addr);
        fields.compare_add = add;
    };
    wr_local_inv(rkey: u32) = LocalInv, |fields| {
        whole(fields, |wr_id| SendWrFields::local_inv(wr_id, Rkey(rkey)));
    };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: after `ibv_wr_start`, with a live window and a description of a live region, by the rules of the function.
    unsafe {
        let (object, requests) = building(qp);
        match bind_request(object, (*qp).wr_id, mw, rkey, &*info) {
            Ok(request) => {
                requests.windows.push((mw, request.rkey));
                begin(qp, WrOpcode::BindMw, |fields| whole(fields, |_| request));
            }
            Err(errno) => requests.error = Some(errno),
        }
    }
}

/// `type` is one of `enum ibv_placement_type` or both, `level` of `enum ibv_selectivity_level`.
unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    length: usize,
    kind: u8,
    level: u8,
) {
    let selectivity = match level {
        0 => Some(Selectivity::Range),
        1 => Some(Selectivity::Region),
        _ => None,
    };
    let flush = selectivity.and_then(|selectivity| {
        Some(Flush {
            placement: Placement(kind),
            selectivity,
            length: u32::try_from(length).ok()?,
        })
    });
    // SAFETY: after `ibv_wr_start`, by the rules of the function.
    unsafe {
        let Some(flush) = flush else {
            building(qp).1.error = Some(libc::EINVAL);
            return;
        };
        begin(qp, WrOpcode::Flush, |fields| {
            whole(fields, |wr_id| {
                SendWrFields::flush(wr_id, addr, Rkey(rkey), flush)
            });
        });
    }
}

/// The eight bytes are taken now.
unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    value: *const c_void,
) {
    // SAFETY: after `ibv_wr_start`, and eight readable bytes, by the rules of the function.
    unsafe {
        begin(qp, WrOpcode::AtomicWrite, |fields| {
            remote(fields, rkey, addr)
        });
        set_inline(qp, [(value.cast::<u8>(), 8)].into_iter());
    }
}

/// What the handle says is taken now.
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: after a request was begun, with a live address handle, by the rules of the function.
    let (requests, ah) = unsafe { (building(qp).1, Ah::of(ah)) };
    let datagram = (ah.urxe.clone(), Qpn::new(qpn), Qkey(qkey));
    requests.change(|last| last.datagram = Some(datagram));
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: after a request was begun, by the rules of the function.
    let (_, requests) = unsafe { building(qp) };
    requests.change(|last| last.fields.srqn = Some(Qpn::new(srqn)));
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge {
        addr,
        length,
        lkey: Lkey(lkey),
    };
    // SAFETY: after a request was begun, by the rules of the function.
    unsafe { set_sges(qp, &[sge]) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let count = c_int::try_from(count).unwrap_or(-1);
    // SAFETY: after a request was begun, with a list of so many entries, by the rules of the function.
    unsafe {
        match sges(list, count) {
            Ok(list) => set_sges(qp, list),
            Err(errno) => building(qp).1.error = Some(errno),
        }
    }
}

/// # Safety
/// As for [`building`].
unsafe fn set_sges(qp: *mut ibv_qp_ex, list: &[Sge]) {
    // SAFETY: the caller's promise.
    let (_, requests) = unsafe { building(qp) };
    let start = requests.sges.len();
    requests.sges.extend_from_slice(list);
    let range = start..requests.sges.len();
    requests.change(|last| last.data = Data::Sges(range));
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: after a request was begun, with readable bytes, by the rules of the function.
    unsafe { set_inline(qp, [(addr.cast_const().cast::<u8>(), length)].into_iter()) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    if count == 0 {
        return;
    }
    let part = |part: &ibv_data_buf| (part.addr.cast_const().cast::<u8>(), part.length);
    // SAFETY: after a request was begun, with a list of so many readable buffers, by the rules of the function.
    unsafe { set_inline(qp, array(list, count).iter().map(part)) };
}

/// # Safety
/// As for [`building`]; and the parts must be readable.
unsafe fn set_inline(qp: *mut ibv_qp_ex, parts: impl Iterator<Item = (*const u8, usize)>) {
    // SAFETY: the caller's promise.
    let (object, requests) = unsafe { building(qp) };
    let start = requests.inline.len();
    let room = object.urxe.cap().max_inline_data as usize;
    for (addr, length) in parts {
        if requests.inline.len() - start + length > room {
            requests.error = Some(libc::EINVAL);
            return;
        }
        // SAFETY: the caller's promise.
        requests
            .inline
            .extend_from_slice(unsafe { array(addr, length) });
    }
    let range = start..requests.inline.len();
    requests.change(|last| last.data = Data::Inline(range));
}

impl Requests {
    /// Changes the request that was begun last.
    fn change(&mut self, change: impl FnOnce(&mut Built)) {
        match self.built.last_mut() {
            Some(last) => change(last),
            // A setter before any operation.
            None => self.error = Some(libc::EINVAL),
        }
    }
}
