//! Completion queues.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::errno::{Errno, number, pointer};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_modify_cq_attr,
};
use crate::live;
use crate::object::{Channel, Context, Cq, Hold, Object, Shared};
use crate::ops::cq_ex;

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let (Ok(cqe), Ok(comp_vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return pointer(Err(Errno::INVAL));
    };
    let attr = ibv_cq_init_attr_ex {
        cqe,
        cq_context,
        channel,
        comp_vector,
        ..ibv_cq_init_attr_ex::zeroed()
    };
    // SAFETY: a context, and a channel or null, by the rules of the function.
    pointer(unsafe { create(context, &attr) })
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const FLAGS: u32 = 1 << 0;
    const PARENT_DOMAIN: u32 = 1 << 1;
    const SINGLE_THREADED: u32 = 1 << 0;
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &*attr };
    let flags = if attr.comp_mask & FLAGS != 0 {
        attr.flags
    } else {
        0
    };
    let unknown = attr.comp_mask & !(FLAGS | PARENT_DOMAIN) != 0 || flags & !SINGLE_THREADED != 0;
    if unknown || attr.wc_flags & !cq_ex::FIELDS != 0 {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    // SAFETY: as in `ibv_create_cq`.
    pointer(unsafe { create(context, attr) }).cast()
}

/// # Safety
/// A live context, and a live channel or null.
unsafe fn create(
    context: *mut ibv_context,
    wanted: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq, Errno> {
    // SAFETY: the caller's promise.
    let owner = unsafe { Context::of(context) };
    // SAFETY: the caller's promise.
    let channel = unsafe { live::find_some::<Channel>(wanted.channel) }?;
    let mut builder = owner
        .urxe
        .cq(wanted.cqe as usize)
        .comp_vector(wanted.comp_vector);
    if let Some(channel) = channel {
        builder = builder.channel(&channel.urxe);
    }
    if wanted.wc_flags & cq_ex::TIMESTAMPS != 0 {
        builder = builder.timestamps();
    }
    let urxe = builder.create()?;
    let id = urxe.id().0;
    let mut ibv = ibv_cq_ex::zeroed();
    ibv.context = context;
    ibv.channel = wanted.channel;
    ibv.cq_context = wanted.cq_context;
    ibv.handle = id;
    ibv.cqe = urxe.capacity() as c_int;
    cq_ex::fill(&mut ibv);
    let cq = live::give(Cq {
        ibv: UnsafeCell::new(ibv),
        urxe,
        channel: channel.map(|channel| Hold::of(&channel.users)),
        current: UnsafeCell::default(),
        users: Arc::default(),
        comp_events: Acks::default(),
        async_events: Acks::default(),
    });
    owner.registry().cqs.insert(id, Shared(cq));
    Ok(cq)
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let end = |cq: &Cq| {
        cq.context().registry().cqs.remove(&cq.urxe.id().0);
        cq.comp_events.wait();
        cq.async_events.wait();
    };
    // SAFETY: a CQ that the program does not use again, by the rules of the function.
    unsafe { live::destroy(cq, end) }
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: a CQ, by the rules of the function.
    let object = unsafe { Cq::find(cq) };
    number(object.and_then(|object| {
        let cqe = usize::try_from(cqe).map_err(|_| Errno::INVAL)?;
        object.urxe.resize(cqe)?;
        // SAFETY: the program's part, which it does not touch during this call.
        unsafe { (*object.ibv.get()).cqe = object.urxe.capacity() as c_int };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    const MODERATE: u32 = 1 << 0;
    // SAFETY: a CQ and attributes, by the rules of the function.
    let (object, attr) = unsafe { (Cq::find(cq), &*attr) };
    number(object.and_then(|object| {
        if attr.attr_mask != MODERATE {
            return Err(Errno::INVAL);
        }
        let moderate = attr.moderate;
        Ok(object.urxe.modify(moderate.cq_count, moderate.cq_period)?)
    }))
}
