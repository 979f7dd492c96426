//! The devices that programs see: every network interface with an address, loopback too, or what `URXE_DEVICES`
//! names.

use core::ffi::{c_char, c_void};
use core::net::IpAddr;
use core::ptr;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use crate::errno::Errno;
use crate::layout::{CStruct, ibv_device};

/// `IBV_NODE_CA`
const NODE_CA: i32 = 1;
/// Addresses to offer, one device each, instead of the interfaces.
const VARIABLE: &str = "URXE_DEVICES";

/// What a program's `ibv_device` pointer leads to. It lives as long as the process.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    /// Providers' libraries compare this with tables of their own to find their devices. It is not theirs.
    ops: *const c_void,
    pub(crate) source: Source,
    pub(crate) guid: u64,
    pub(crate) index: i32,
}

/// What is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// An interface, with all its addresses.
    Interface(urxe::Device),
    /// One address.
    Address(IpAddr),
}

// SAFETY: nothing in it changes once it is made.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The present devices. One that was there before is the same again.
pub(crate) fn list() -> Result<Vec<&'static Device>, Errno> {
    static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let sources = match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => named(&text)?,
        _ => interfaces()?,
    };
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

fn named(text: &str) -> Result<Vec<Source>, Errno> {
    let addresses = text.split(',').map(str::trim).filter(|a| !a.is_empty());
    let sources = addresses.map(|address| {
        let parsed = address.parse().map_err(|_| {
            eprintln!("urxe: {VARIABLE}: \"{address}\" is no IP address");
            Errno::INVAL
        });
        parsed.map(Source::Address)
    });
    sources.collect()
}

fn interfaces() -> Result<Vec<Source>, Errno> {
    let usable = urxe::devices()?
        .into_iter()
        .filter(|device| !device.addresses().is_empty());
    Ok(usable.map(Source::Interface).collect())
}

impl Device {
    fn new(index: i32, source: Source) -> Device {
        let (name, dev_name) = (format!("urxe{index}"), format!("uverbs{index}"));
        let sys = crate::verbs::sysfs::root();
        let mut ibv = ibv_device::zeroed();
        ibv.node_type = NODE_CA;
        copy_text(&mut ibv.name, &name);
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
            guid: guid(&source),
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

    pub(crate) fn open(&self) -> Result<urxe::Context, Errno> {
        Ok(match &self.source {
            Source::Interface(device) => device.open()?,
            Source::Address(addr) => urxe::Context::open(*addr)?,
        })
    }

    /// The system's number of the network interface, 0 if it is not known.
    pub(crate) fn interface_index(&self) -> u32 {
        let name = match &self.source {
            Source::Interface(device) => device.interface().to_owned(),
            Source::Address(addr) => interface_of(*addr).unwrap_or_default(),
        };
        let Ok(name) = CString::new(name) else {
            return 0;
        };
        // SAFETY: a string.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    }
}

/// The interface that has an address; all of 127/8 is loopback's.
fn interface_of(addr: IpAddr) -> Option<String> {
    let devices = urxe::devices().ok()?;
    let has = |device: &&urxe::Device| {
        let mut addresses = device.addresses().iter();
        addresses.any(|a| *a == addr || (a.is_loopback() && addr.is_loopback()))
    };
    Some(devices.iter().find(has)?.interface().to_owned())
}

/// A locally administered EUI-64 made of the first address, different for each device of a host.
fn guid(source: &Source) -> u64 {
    let addr = match source {
        Source::Interface(device) => device.addresses()[0],
        Source::Address(addr) => *addr,
    };
    let low = match addr {
        IpAddr::V4(v4) => v4.to_bits(),
        // Any mixture will do: FNV-1a.
        IpAddr::V6(v6) => v6.octets().iter().fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        }),
    };
    u64::from_be_bytes([0x02, b'u', b'r', b'x', 0, 0, 0, 0]) | u64::from(low)
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
    fn addresses_become_devices_with_guids_of_their_own() {
        let sources = named("127.0.0.1, 127.0.0.2,fd00::1").expect("addresses");
        let guids: std::collections::BTreeSet<u64> = sources.iter().map(guid).collect();
        assert_eq!((sources.len(), guids.len()), (3, 3));
        assert_eq!(named("127.0.0.1,x"), Err(Errno::INVAL));
    }

    #[test]
    fn text_is_cut_and_ends_with_a_zero() {
        let mut field = [1; 4];
        field[3] = 0;
        copy_text(&mut field, "abcdef");
        assert_eq!(field, [b'a', b'b', b'c', 0].map(|b| b as c_char));
    }
}
