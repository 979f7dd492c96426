//! Queue pairs of ids: made ready by the library, which knows from the handshake what they need.

use core::ffi::{c_int, c_void};
use core::ptr;

use urxe::cm::Follower;
use urxe::{AttrMask, Error, QpAttr, QpState, QpType, bring_to_rts};

use super::devices;
use super::id::Id;
use crate::errno::{Errno, minus_one};
use crate::layout::{
    CStruct, ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_sge, rdma_cm_id,
};
use crate::object::{Context, Object, Qp};
use crate::verbs::comp_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::verbs::qp::{from_attr, modify, state};
use crate::verbs::qp_create::{XRC_RECV, XRC_SEND, create_qp_ex, ibv_destroy_qp};

/// `IBV_QP_INIT_ATTR_*`
const PD: u32 = 1 << 0;
const XRCD: u32 = 1 << 1;

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: an id, a PD or null, and attributes, by the rules of the function.
    minus_one(unsafe { create_basic(id, pd, &mut *attr) })
}

/// # Safety
/// As for `rdma_create_qp`.
pub(super) unsafe fn create_basic(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let mut wanted = ibv_qp_init_attr_ex::zeroed();
    // SAFETY: they begin as the basic ones.
    unsafe { (&raw mut wanted).cast::<ibv_qp_init_attr>().write(*attr) };
    wanted.pd = pd;
    wanted.comp_mask = if pd.is_null() { 0 } else { PD };
    // SAFETY: the caller's promise.
    unsafe { create(id, &mut wanted) }?;
    // SAFETY: as above.
    *attr = unsafe { (&raw const wanted).cast::<ibv_qp_init_attr>().read() };
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: an id and attributes, by the rules of the function.
    minus_one(unsafe { create(id, &mut *attr) })
}

/// # Safety
/// As for `rdma_create_qp_ex`.
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: an id, by the caller's promise; the program does not touch it meanwhile.
    let (object, ibv) = unsafe { (Id::of(id), &mut *id) };
    if !ibv.qp.is_null() || ibv.verbs.is_null() {
        return Err(Errno::INVAL);
    }
    if attr.comp_mask & PD == 0 || attr.pd.is_null() {
        attr.pd = ibv.pd;
        attr.comp_mask |= PD;
    }
    // SAFETY: a PD, by the rules of the function, or the id's own.
    let context = unsafe { (*attr.pd).context };
    // A domain of another device, or of a context that the program opened by itself.
    if context != ibv.verbs {
        return Err(Errno::INVAL);
    }
    let queues: [(*mut c_void, *mut c_void); 3] = [
        (ibv.recv_cq.cast(), attr.recv_cq.cast()),
        (ibv.send_cq.cast(), attr.send_cq.cast()),
        (ibv.srq.cast(), attr.srq.cast()),
    ];
    let is_torn = |(own, given): &(*mut c_void, *mut c_void)| {
        !own.is_null() && !given.is_null() && own != given
    };
    if queues.iter().any(is_torn) {
        return Err(Errno::INVAL);
    }
    if attr.srq.is_null() {
        attr.srq = ibv.srq;
    }
    // Adapters, and the kernel's rdma_rxe, give as much inline data as there is room for anyway, and programs of
    // librdmacm lean on it: rdma_xclient asks for none and posts 16 bytes.
    let room = attr
        .cap
        .max_send_sge
        .saturating_mul(size_of::<ibv_sge>() as u32);
    attr.cap.max_inline_data = attr.cap.max_inline_data.max(room);
    // SAFETY: the id's objects are alive.
    let made = unsafe { make_queues(ibv, attr) }.and_then(|()| {
        // SAFETY: live objects, by the caller's promise.
        let qp = unsafe { create_qp_ex(ibv.verbs, attr) };
        if qp.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: just made.
        object.own_qp(unsafe { Qp::of(qp) }).inspect_err(|_| {
            // SAFETY: just made, and not shared yet.
            unsafe { ibv_destroy_qp(qp) };
        })?;
        Ok(qp)
    });
    ibv.qp = made.inspect_err(|_| {
        // SAFETY: those that were just made; nothing uses them.
        unsafe { destroy_queues(ibv) };
    })?;
    ibv.pd = attr.pd;
    Ok(())
}

/// Completion queues, with a channel each, where the program brings none.
///
/// # Safety
/// An id with a device.
unsafe fn make_queues(ibv: &mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    if attr.qp_type == XRC_RECV {
        if attr.comp_mask & XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = devices::xrcd_of(ibv.verbs)?;
            attr.comp_mask |= XRCD;
        }
        return Ok(());
    }
    if attr.recv_cq.is_null() && ibv.recv_cq.is_null() && attr.qp_type != XRC_SEND {
        // SAFETY: the caller's promise.
        (ibv.recv_cq_channel, ibv.recv_cq) = unsafe { make_queue(ibv, attr.cap.max_recv_wr) }?;
    }
    if attr.send_cq.is_null() && ibv.send_cq.is_null() {
        // SAFETY: as above.
        (ibv.send_cq_channel, ibv.send_cq) = unsafe { make_queue(ibv, attr.cap.max_send_wr) }?;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = ibv.recv_cq;
    }
    if attr.send_cq.is_null() {
        attr.send_cq = ibv.send_cq;
    }
    Ok(())
}

/// A channel and a queue on it, of an id's device.
///
/// # Safety
/// An id with a device.
pub(super) unsafe fn make_queue(
    ibv: &mut rdma_cm_id,
    depth: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    let depth = depth.max(1) as c_int;
    let id: *mut rdma_cm_id = ibv;
    // SAFETY: the id's context, and a channel of it.
    unsafe {
        let channel = ibv_create_comp_channel(ibv.verbs);
        if channel.is_null() {
            return Err(Errno::last());
        }
        let cq = ibv_create_cq(ibv.verbs, depth, id.cast(), channel, 0);
        if cq.is_null() {
            let errno = Errno::last();
            ibv_destroy_comp_channel(channel);
            return Err(errno);
        }
        Ok((channel, cq))
    }
}

/// Those that the library made.
///
/// # Safety
/// They are alive.
pub(super) unsafe fn destroy_queues(ibv: &mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        for cq in [&mut ibv.recv_cq, &mut ibv.send_cq] {
            if !cq.is_null() {
                ibv_destroy_cq(*cq);
                *cq = ptr::null_mut();
            }
        }
        for channel in [&mut ibv.recv_cq_channel, &mut ibv.send_cq_channel] {
            if !channel.is_null() {
                ibv_destroy_comp_channel(*channel);
                *channel = ptr::null_mut();
            }
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: an id, by the rules of the function.
    let (object, ibv) = unsafe { (Id::of(id), &mut *id) };
    if ibv.qp.is_null() {
        return;
    }
    object.disown_qp();
    // SAFETY: the id's, by the rules of the function.
    unsafe { ibv_destroy_qp(ibv.qp) };
    ibv.qp = ptr::null_mut();
    // The queue for receives of an XRC id is its SRQ's.
    if ibv.qp_type != XRC_RECV || ibv.srq.is_null() {
        // SAFETY: its queues, that nothing uses now.
        unsafe { destroy_queues(ibv) };
    }
}

impl Id {
    /// What has to happen when a QP is made for the id: it can be posted to at once.
    fn own_qp(&self, qp: &Qp) -> Result<(), Errno> {
        self.name_qp(qp);
        let (attr, mask) = self.urxe.init_qp_attr(QpState::Init)?;
        let service = qp.urxe.qp_type();
        if service == QpType::Ud {
            let step = |attr: &QpAttr, mask| modify(qp, attr, mask);
            return Ok(bring_to_rts(service, QpState::Reset, &attr, step)?);
        }
        Ok(modify(qp, &attr, mask)?)
    }
}

impl Follower for Qp {
    fn qp_type(&self) -> QpType {
        self.urxe.qp_type()
    }

    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        modify(self, attr, mask)
    }

    fn set_ece(&self, ece: &urxe::Ece) -> Result<(), Error> {
        self.urxe.set_ece(ece)
    }
}

pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: an id and attributes, by the rules of the function.
    let (object, wanted) = unsafe { (Id::of(id), (*attr).qp_state) };
    let found = state(wanted).and_then(|state| {
        let (found, bits) = object.urxe.init_qp_attr(state)?;
        // SAFETY: the program's part; null, or a context that lives longer.
        let context = unsafe { (*object.ibv.get()).verbs };
        if context.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: as above.
        Ok((from_attr(unsafe { Context::of(context) }, &found), bits))
    });
    minus_one(found.map(|(found, bits)| {
        // SAFETY: places for both, by the rules of the function.
        unsafe {
            attr.write(found);
            mask.write(bits.0 as c_int);
        }
    }))
}
