//! `ibv_get_device_list`, and queries on a device that is not open.

use core::ffi::{c_char, c_int};

use crate::device::{Device, list};
use crate::errno::{Errno, pointer};
use crate::instance;
use crate::layout::ibv_device;

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if !count.is_null() {
        // SAFETY: a place for a number, by the rules of the function.
        unsafe { count.write(0) };
    }
    let devices = instance::check_first().and_then(|()| list());
    pointer(devices.and_then(|devices| {
        let devices: Vec<_> = devices.iter().map(|device| device.as_ptr()).collect();
        let array = terminated(&devices)?;
        if !count.is_null() {
            // SAFETY: as above.
            unsafe { count.write(devices.len() as c_int) };
        }
        Ok(array)
    }))
}

/// A null-terminated array from C's heap.
pub(crate) fn terminated<T>(pointers: &[*mut T]) -> Result<*mut *mut T, Errno> {
    // SAFETY: takes numbers.
    let array = unsafe { libc::calloc(pointers.len() + 1, size_of::<*mut T>()) };
    let array: *mut *mut T = array.cast();
    if array.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: the array has one place more than there are pointers.
    unsafe { array.copy_from_nonoverlapping(pointers.as_ptr(), pointers.len()) };
    Ok(array)
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from `ibv_get_device_list`, by the rules of the function; the devices stay.
    unsafe { libc::free(list.cast()) };
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a device, by the rules of the function.
    unsafe { Device::of(device) }.name()
}

pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: a device, by the rules of the function.
    unsafe { Device::of(device) }.index
}

/// The device's GUID, in network order.
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: a device, by the rules of the function.
    unsafe { Device::of(device) }.guid.to_be()
}
