//! Completion queues.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;

use crate::errno::{Errno, number, pointer};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_modify_cq_attr,
};
use crate::live::{self, bury};
use crate::object::{Channel, Context, Cq, Shared, Users};
use crate::ops::cq_ex;

/// What is asked for, by either function.
struct Wanted {
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    timestamps: bool,
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = u32::try_from(cqe).and_then(|cqe| {
        Ok(Wanted {
            cqe,
            cq_context,
            channel,
            comp_vector: u32::try_from(comp_vector)?,
            timestamps: false,
        })
    });
    let wanted = wanted.map_err(|_| Errno::INVAL);
    // SAFETY: a context, and a channel or null, by the rules of the function.
    pointer(wanted.and_then(|wanted| unsafe { create(context, &wanted) }))
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
        Errno::NOT_SUPPORTED.set();
        return ptr::null_mut();
    }
    let wanted = Wanted {
        cqe: attr.cqe,
        cq_context: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector,
        timestamps: attr.wc_flags & cq_ex::TIMESTAMPS != 0,
    };
    // SAFETY: as in `ibv_create_cq`.
    pointer(unsafe { create(context, &wanted) }).cast()
}

/// # Safety
/// A live context, and a live channel or null.
unsafe fn create(context: *mut ibv_context, wanted: &Wanted) -> Result<*mut ibv_cq, Errno> {
    // SAFETY: the caller's promise.
    let owner = unsafe { Context::of(context) };
    let channel = (!wanted.channel.is_null()).then_some(wanted.channel);
    // SAFETY: the caller's promise.
    let channel_object = channel.map(|channel| unsafe { Channel::find(channel) });
    let channel_object = channel_object.transpose()?;
    let mut builder = owner
        .urxe
        .cq(wanted.cqe as usize)
        .comp_vector(wanted.comp_vector);
    if let Some(channel) = channel_object {
        builder = builder.channel(&channel.urxe);
    }
    if wanted.timestamps {
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
    if let Some(channel) = channel_object {
        channel.users.add();
    }
    let cq = live::give(Cq {
        ibv: UnsafeCell::new(ibv),
        urxe,
        channel,
        current: UnsafeCell::default(),
        users: Users::default(),
        comp_events: Acks::default(),
        async_events: Acks::default(),
    });
    owner.registry().cqs.insert(id, Shared(cq));
    Ok(cq)
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: a CQ, by the rules of the function.
    let object = match unsafe { live::take::<Cq>(cq, |cq| cq.users.check_none()) } {
        Ok(object) => object,
        Err(errno) => return number(Err(errno)),
    };
    // SAFETY: the program's part; its context never changes, and lives longer.
    let context = unsafe { Context::of((*object.ibv.get()).context) };
    context.registry().cqs.remove(&object.urxe.id().0);
    object.comp_events.wait();
    object.async_events.wait();
    if let Some(channel) = object.channel {
        // SAFETY: the channel cannot be destroyed before its queues.
        unsafe { Channel::of(channel) }.users.remove();
    }
    // SAFETY: it is no longer used, by the counts and the rules of the function.
    unsafe { bury::<Cq>(cq) };
    0
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
