//! The devices that programs see: every network interface with an address, loopback too, or what `URXE_DEVICES`
//! names.

use core::ffi::{c_char, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Mutex;

use urxe::{Gid, GidPlace, ListedDevice};

use crate::errno::Errno;
use crate::layout::{CStruct, ibv_device};
use crate::lock::lock;

/// `IBV_NODE_CA`
const NODE_CA: i32 = 1;

/// What a program's `ibv_device` pointer leads to. It lives as long as the process.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    /// Providers' libraries compare this with tables of their own to find their devices. It is not theirs.
    ops: *const c_void,
    pub(crate) source: ListedDevice,
    pub(crate) guid: u64,
    pub(crate) index: i32,
    /// What is at which place of its GID table.
    pub(crate) gids: Vec<(GidPlace, Gid)>,
}

// SAFETY: nothing in it changes once it is made.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The present devices. One that was there before is the same again.
pub(crate) fn list() -> Result<Vec<&'static Device>, Errno> {
    static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());
    let mut known = lock(&KNOWN);
    let sources = ListedDevice::list().map_err(|error| {
        // A mistake in the environment is for the user, and the user sees no error numbers.
        eprintln!("urxe: {error}");
        Errno(error.errno())
    })?;
    let mut devices = Vec::new();
    for (index, source) in sources.into_iter().enumerate() {
        let index = i32::try_from(index).map_err(|_| Errno::INVAL)?;
        let same = |device: &&&Device| device.index == index && device.source == source;
        let device = known.iter().find(same).copied().unwrap_or_else(|| {
            let device: &'static Device = Box::leak(Box::new(Device::new(index, source)));
            known.push(device);
            device
        });
        devices.push(device);
    }
    Ok(devices)
}

impl Device {
    pub(crate) fn new(index: i32, source: ListedDevice) -> Device {
        let (name, dev_name) = (source.name(), format!("uverbs{index}"));
        let sys = crate::verbs::sysfs::root();
        let mut ibv = ibv_device::zeroed();
        ibv.node_type = NODE_CA;
        copy_text(&mut ibv.name, name);
        copy_text(&mut ibv.dev_name, &dev_name);
        copy_text(
            &mut ibv.dev_path,
            &format!("{sys}/class/infiniband_verbs/{dev_name}"),
        );
        copy_text(
            &mut ibv.ibdev_path,
            &format!("{sys}/class/infiniband/{name}"),
        );
        Device {
            ibv,
            ops: ptr::null(),
            guid: source.guid(),
            gids: source.gid_table(),
            source,
            index,
        }
    }

    /// The device behind a program's pointer.
    ///
    /// # Safety
    /// The pointer must be from [`Device::as_ptr`].
    pub(crate) unsafe fn of(device: *mut ibv_device) -> &'static Device {
        // SAFETY: the caller's promise; devices are never freed.
        unsafe { &*device.cast::<Device>() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn name(&self) -> *const c_char {
        self.ibv.name.as_ptr()
    }

    pub(crate) fn open(&self) -> Result<urxe::Context, urxe::Error> {
        // Some programs send peers the lkey for the rkey, which most adapters make equal.
        self.source.builder().equal_keys(true).open()
    }

    /// The system's number of the network interface, 0 if it is not known.
    pub(crate) fn interface_index(&self) -> u32 {
        let name = self.source.interface().unwrap_or_default();
        let Ok(name) = CString::new(name) else {
            return 0;
        };
        // SAFETY: a string.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    }
}

/// Copies text into a field, cut so that it ends with a zero.
pub(crate) fn copy_text(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_ends_with_a_zero() {
        let mut field = [1; 4];
        field[3] = 0;
        copy_text(&mut field, "abcdef");
        assert_eq!(field, [b'a', b'b', b'c', 0].map(|b| b as c_char));
    }
}
