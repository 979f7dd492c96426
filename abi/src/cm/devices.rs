//! Contexts that the library opened by itself: one a device and process, never closed (`man rdma_get_devices`).

use core::ffi::c_int;
use core::net::IpAddr;
use core::ptr;
use std::sync::{Mutex, MutexGuard};

use crate::device::{Device, list};
use crate::errno::{Errno, pointer};
use crate::instance;
use crate::layout::{CStruct, ibv_context, ibv_pd, ibv_xrcd, ibv_xrcd_init_attr};
use crate::lock::lock;
use crate::object::{Context, Shared};
use crate::verbs::context::ibv_open_device;
use crate::verbs::device::terminated;
use crate::verbs::pd::ibv_alloc_pd;
use crate::verbs::xrcd::open_xrcd;

/// What ids on one device have in common.
struct Opened {
    device: &'static Device,
    context: Shared<ibv_context>,
    /// For programs that bring no domain. Null until there is an id.
    pd: Shared<ibv_pd>,
    /// The domain for XRC.
    xrcd: Shared<ibv_xrcd>,
}

/// A process and what it opened: a child has to begin anew, as no thread serves its parent's.
struct Open {
    process: u32,
    devices: Vec<Opened>,
}

static OPEN: Mutex<Open> = Mutex::new(Open {
    process: 0,
    devices: Vec::new(),
});

fn open() -> MutexGuard<'static, Open> {
    let mut open = lock(&OPEN);
    let process = std::process::id();
    if open.process != process {
        open.process = process;
        // What they point to stays: the parent's program may hold it.
        open.devices.clear();
    }
    open
}

/// What this process has opened so far.
pub(super) fn opened() -> Vec<urxe::Context> {
    // SAFETY: contexts that are never closed.
    let of = |opened: &Opened| unsafe { Context::of(opened.context.0) }.urxe.clone();
    open().devices.iter().map(of).collect()
}

impl Open {
    /// The device's, opened if need be.
    fn get(&mut self, device: &'static Device) -> Result<&mut Opened, Errno> {
        let known = |opened: &Opened| ptr::eq(opened.device, device);
        if let Some(index) = self.devices.iter().position(known) {
            return Ok(&mut self.devices[index]);
        }
        // SAFETY: a device of the list.
        let context = unsafe { ibv_open_device(device.as_ptr()) };
        if context.is_null() {
            return Err(Errno::last());
        }
        self.devices.push(Opened {
            device,
            context: Shared(context),
            pd: Shared(ptr::null_mut()),
            xrcd: Shared(ptr::null_mut()),
        });
        Ok(self.devices.last_mut().expect("just pushed"))
    }
}

/// The context of the device that has an address, and the domain for ids on it. `ENODEV` if none has it.
pub(super) fn of_address(ip: IpAddr) -> Result<(*mut ibv_context, *mut ibv_pd), Errno> {
    instance::check_first()?;
    let has = |device: &&&'static Device| device.source.addresses().contains(&ip);
    let device = *list()?.iter().find(has).ok_or(Errno(libc::ENODEV))?;
    let mut open = open();
    let opened = open.get(device)?;
    if opened.pd.0.is_null() {
        // SAFETY: a context that stays open.
        opened.pd.0 = unsafe { ibv_alloc_pd(opened.context.0) };
    }
    if opened.pd.0.is_null() {
        return Err(Errno::last());
    }
    Ok((opened.context.0, opened.pd.0))
}

/// The XRC domain for ids on the device of a context from [`of_address`].
pub(super) fn xrcd_of(context: *mut ibv_context) -> Result<*mut ibv_xrcd, Errno> {
    const FD: u32 = 1 << 0;
    const OFLAGS: u32 = 1 << 1;
    let mut open = open();
    let is_its = |opened: &&mut Opened| opened.context.0 == context;
    let opened = open.devices.iter_mut().find(is_its).ok_or(Errno::INVAL)?;
    if opened.xrcd.0.is_null() {
        let mut attr = ibv_xrcd_init_attr::zeroed();
        attr.comp_mask = FD | OFLAGS;
        // One of this process alone.
        attr.fd = -1;
        attr.oflags = libc::O_CREAT;
        // SAFETY: a context that stays open, and attributes.
        opened.xrcd.0 = unsafe { open_xrcd(context, &raw mut attr) };
    }
    if opened.xrcd.0.is_null() {
        return Err(Errno::last());
    }
    Ok(opened.xrcd.0)
}

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    pointer(contexts().and_then(|contexts| {
        let array = terminated(&contexts)?;
        if !count.is_null() {
            // SAFETY: a place for a number, by the rules of the function.
            unsafe { count.write(contexts.len() as c_int) };
        }
        Ok(array)
    }))
}

/// A context for each device that can be opened. `ENODEV` if there is none.
pub(super) fn contexts() -> Result<Vec<*mut ibv_context>, Errno> {
    instance::check_first()?;
    let devices = list()?;
    let mut open = open();
    let contexts = devices
        .into_iter()
        .filter_map(|device| Some(open.get(device).ok()?.context.0));
    let contexts: Vec<_> = contexts.collect();
    if contexts.is_empty() {
        return Err(Errno(libc::ENODEV));
    }
    Ok(contexts)
}

pub(crate) unsafe extern "C" fn rdma_free_devices(array: *mut *mut ibv_context) {
    // SAFETY: from `rdma_get_devices`, by the rules of the function, or null; the contexts stay.
    unsafe { libc::free(array.cast()) };
}
