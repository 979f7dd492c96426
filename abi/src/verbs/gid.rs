//! The GID and P_Key tables.

use core::ffi::c_int;
use core::net::IpAddr;

use urxe::{Gid, RoceVersion};

use crate::errno::{Errno, minus_one, number, store};
use crate::layout::{ibv_context, ibv_gid, ibv_gid_entry};
use crate::object::Context;
use crate::verbose;

/// `IBV_GID_TYPE_ROCE_V1` and `_V2`, as `ibv_gid_entry` has them; `ibv_query_gid_type` has one less.
const ROCE_V1: u32 = 1;
const ROCE_V2: u32 = 2;
/// What is read from a place without an address.
const EMPTY: Gid = Gid([0; 16]);
/// Full member of the default partition.
const PKEY: u16 = 0xffff;

pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let found = table_entry(context, port, index).map(from_gid);
    // SAFETY: a place for a GID, by the rules of the function.
    minus_one(unsafe { store(gid, found) })
}

pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let index = c_int::try_from(index).unwrap_or(-1);
    let found = table_entry(context, port, index);
    let found = found.map(|gid| match gid {
        EMPTY => 0,
        _ => version(context, index as u32) as c_int - 1,
    });
    // SAFETY: a place for a number, by the rules of the function.
    minus_one(unsafe { store(kind, found) })
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let fits = flags == 0 && size >= size_of::<ibv_gid_entry>();
    let Ok(port @ 1) = u8::try_from(port) else {
        return number(Err(Errno::INVAL));
    };
    if !fits {
        return number(Err(Errno::INVAL));
    }
    let index = c_int::try_from(index).unwrap_or(-1);
    let found = table_entry(context, port, index).and_then(|gid| match gid {
        EMPTY => Err(Errno(libc::ENODATA)),
        gid => Ok(gid_entry(context, index as u32, gid)),
    });
    // SAFETY: a place for an entry, by the rules of the function.
    number(unsafe { store(entry, found) })
}

/// Returns the number of entries, or a negative error number.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    let table: Vec<(u32, Gid)> = (0..context.device.gids.len() as u32)
        .filter_map(|index| Some((index, table_entry(context, 1, index as c_int).ok()?)))
        .filter(|(_, gid)| *gid != EMPTY)
        .collect();
    if flags != 0 || size < size_of::<ibv_gid_entry>() || table.len() > room {
        return -(libc::EINVAL as isize);
    }
    for (place, (index, gid)) in table.iter().enumerate() {
        let at = entries.cast::<u8>().wrapping_add(place * size);
        // SAFETY: the program has room for `room` entries of `size` bytes.
        unsafe {
            at.cast::<ibv_gid_entry>()
                .write(gid_entry(context, *index, *gid))
        };
    }
    table.len() as isize
}

fn gid_entry(context: &Context, index: u32, gid: Gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: from_gid(gid),
        gid_index: index,
        port_num: 1,
        gid_type: version(context, index),
        ndev_ifindex: context.device.interface_index(),
    }
}

/// The protocol of a place in the table.
fn version(context: &Context, index: u32) -> u32 {
    match context.device.gids.get(index as usize) {
        Some((place, _)) if place.version == RoceVersion::V1 => ROCE_V1,
        _ => ROCE_V2,
    }
}

fn table_entry(context: &Context, port: u8, index: c_int) -> Result<Gid, Errno> {
    let index = u32::try_from(index).map_err(|_| Errno::INVAL)?;
    if port != 1 || index as usize >= table_len(context) {
        // The engine's table is shorter, and ends before such an index too.
        return Ok(context.urxe.query_gid(port, index)?);
    }
    match context.device.gids.get(index as usize) {
        // The address may be gone meanwhile.
        Some((place, gid)) => match place.address {
            Some(at) => Ok(context.urxe.query_gid(1, at as u32)?),
            None => Ok(*gid),
        },
        None => Ok(EMPTY),
    }
}

/// Places in the table. Like an adapter's it has some that are empty: programs look for those.
pub(super) fn table_len(context: &Context) -> usize {
    (context.device.gids.len() + 1).next_multiple_of(16)
}

/// The address that packets come from by an index.
pub(super) fn local_address(context: &Context, index: u8) -> Result<IpAddr, Errno> {
    let place = context.device.gids.get(usize::from(index));
    let at = place.and_then(|(place, _)| place.source()).ok_or_else(|| {
        verbose::tell_gid_index(index, first_source(context));
        Errno::INVAL
    })?;
    Ok(context.urxe.query_gid(1, at as u32)?.into())
}

/// The first index that packets can come by.
fn first_source(context: &Context) -> Option<usize> {
    let mut gids = context.device.gids.iter();
    gids.position(|(place, _)| place.source().is_some())
}

/// The first index of an address.
pub(super) fn index_of(context: &Context, address: IpAddr) -> Option<usize> {
    let at = context.urxe.addresses().position(|addr| addr == address)?;
    let mut gids = context.device.gids.iter();
    gids.position(|(place, _)| place.source() == Some(at))
}

pub(crate) fn from_gid(gid: Gid) -> ibv_gid {
    let (high, low) = gid.0.split_at(8);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    ibv_gid {
        raw: [word(high), word(low)],
    }
}

pub(super) fn to_gid(gid: ibv_gid) -> Gid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&gid.raw[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&gid.raw[1].to_ne_bytes());
    Gid(bytes)
}

pub(crate) unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if port != 1 || index != 0 {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: a place for a P_Key, by the rules of the function.
    unsafe { pkey.write(PKEY.to_be()) };
    0
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    _context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    // Membership does not count.
    if port == 1 && u16::from_be(pkey) & 0x7fff == PKEY & 0x7fff {
        return 0;
    }
    minus_one(Err(Errno::INVAL))
}
