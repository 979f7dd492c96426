//! `rdma_getaddrinfo` and its kin: names to addresses, with what a connection to them needs to know.

use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;

use super::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP};
use crate::errno::{Errno, minus_one};
use crate::layout::{CStruct, rdma_addrinfo};
use crate::verbs::qp_create::{RC, UC, UD, XRC_RECV, XRC_SEND};

const RAI_PASSIVE: c_int = 1;
const RAI_NUMERICHOST: c_int = 2;

/// 0, -1 and `errno`, or what `getaddrinfo` says of a name.
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: hints or null, by the rules of the function.
    let hints = unsafe { hints.as_ref() };
    let has_name = !(node.is_null() && service.is_null());
    let found = match hints {
        None if !has_name => return minus_one(Err(Errno::INVAL)),
        // SAFETY: strings or nulls, by the rules of the function.
        _ if has_name => unsafe { by_name(node, service, hints) },
        Some(hints) => Ok(by_hints(hints)),
        None => Err(libc::EAI_NONAME),
    };
    let info = match found {
        Ok(info) => info,
        Err(code) => return code,
    };
    let place = allocate(&info);
    // SAFETY: `place` is null or ours; and a place for a pointer, by the rules of the function.
    unsafe {
        if place.is_null() {
            return minus_one(Err(Errno(libc::ENOMEM)));
        }
        res.write(place);
    }
    0
}

/// # Safety
/// Strings, or nulls.
unsafe fn by_name(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<rdma_addrinfo, c_int> {
    let wanted = hints.map(to_system);
    let mut list = ptr::null_mut();
    let wanted = wanted.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's promise; hints that live, and a place for a list.
    let code = unsafe { libc::getaddrinfo(node, service, wanted, &raw mut list) };
    if code != 0 {
        return Err(code);
    }
    // SAFETY: a list that was just made has at least one entry.
    let info = from_system(unsafe { &*list }, hints);
    // SAFETY: as above; what is kept of it was copied.
    unsafe { libc::freeaddrinfo(list) };
    Ok(info)
}

/// Copies of what the program has already: addresses alone.
fn by_hints(hints: &rdma_addrinfo) -> rdma_addrinfo {
    let mut info = rdma_addrinfo::zeroed();
    info.ai_flags = hints.ai_flags;
    info.ai_family = hints.ai_family;
    info.ai_qp_type = hints.ai_qp_type;
    info.ai_port_space = hints.ai_port_space;
    copy_source(&mut info, hints);
    (info.ai_dst_addr, info.ai_dst_len) = copy_address(hints.ai_dst_addr, hints.ai_dst_len);
    info
}

/// What the system's `getaddrinfo` shall look for.
fn to_system(hints: &rdma_addrinfo) -> libc::addrinfo {
    let mut wanted = libc::addrinfo::zeroed();
    if hints.ai_flags & RAI_PASSIVE != 0 {
        wanted.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        wanted.ai_flags |= libc::AI_NUMERICHOST;
    }
    wanted.ai_family = hints.ai_family;
    wanted.ai_socktype = match (hints.ai_qp_type, hints.ai_port_space) {
        (UD, _) | (0, PS_UDP | PS_IPOIB) => libc::SOCK_DGRAM,
        (RC | UC | XRC_SEND | XRC_RECV, _) | (0, PS_TCP | PS_IB) => libc::SOCK_STREAM,
        _ => 0,
    };
    wanted
}

fn from_system(found: &libc::addrinfo, hints: Option<&rdma_addrinfo>) -> rdma_addrinfo {
    let mut info = rdma_addrinfo::zeroed();
    info.ai_family = found.ai_family;
    (info.ai_qp_type, info.ai_port_space) = match found.ai_socktype {
        libc::SOCK_DGRAM => (UD, PS_UDP),
        _ => (RC, PS_TCP),
    };
    if let Some(hints) = hints {
        info.ai_flags = hints.ai_flags;
        if hints.ai_qp_type != 0 {
            info.ai_qp_type = hints.ai_qp_type;
        }
        if hints.ai_port_space != 0 {
            info.ai_port_space = hints.ai_port_space;
        }
    }
    let address = copy_address(found.ai_addr, found.ai_addrlen);
    // SAFETY: null, or a string: what the system's `getaddrinfo` says of a host's name.
    let name = unsafe { copy_string(found.ai_canonname) };
    if info.ai_flags & RAI_PASSIVE != 0 {
        (info.ai_src_addr, info.ai_src_len) = address;
        info.ai_src_canonname = name;
    } else {
        (info.ai_dst_addr, info.ai_dst_len) = address;
        info.ai_dst_canonname = name;
    }
    if let Some(hints) = hints
        && info.ai_src_len == 0
    {
        copy_source(&mut info, hints);
    }
    info
}

fn copy_source(info: &mut rdma_addrinfo, hints: &rdma_addrinfo) {
    (info.ai_src_addr, info.ai_src_len) = copy_address(hints.ai_src_addr, hints.ai_src_len);
}

/// A copy that `rdma_freeaddrinfo` can free. None of none.
fn copy_address(addr: *const libc::sockaddr, len: u32) -> (*mut libc::sockaddr, u32) {
    if addr.is_null() || len == 0 {
        return (ptr::null_mut(), 0);
    }
    // SAFETY: takes a number.
    let copy = unsafe { libc::malloc(len as usize) };
    if copy.is_null() {
        return (ptr::null_mut(), 0);
    }
    // SAFETY: an address with its length, from the system or by the rules of `rdma_getaddrinfo`; and as much room.
    unsafe { ptr::copy_nonoverlapping(addr.cast::<c_void>(), copy, len as usize) };
    (copy.cast(), len)
}

/// # Safety
/// Null, or a string.
unsafe fn copy_string(text: *const c_char) -> *mut c_char {
    if text.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { libc::strdup(text) }
}

/// From the C library's heap: programs put pieces of theirs into such structures.
fn allocate(info: &rdma_addrinfo) -> *mut rdma_addrinfo {
    // SAFETY: takes a number.
    let place = unsafe { libc::malloc(size_of::<rdma_addrinfo>()) }.cast::<rdma_addrinfo>();
    if !place.is_null() {
        // SAFETY: room for one.
        unsafe { ptr::copy_nonoverlapping(info, place, 1) };
    }
    place
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: from `rdma_getaddrinfo`, and not used again, by the rules of the function; its parts are from the C
        // library's heap, or null.
        unsafe {
            let info = &*next;
            for part in [
                info.ai_src_addr.cast::<c_void>(),
                info.ai_dst_addr.cast(),
                info.ai_src_canonname.cast(),
                info.ai_dst_canonname.cast(),
                info.ai_route,
                info.ai_connect,
            ] {
                libc::free(part);
            }
            let this = next;
            next = info.ai_next;
            libc::free(this.cast());
        }
    }
}

/// A list that goes with its owner.
pub(super) struct Found(*mut rdma_addrinfo);

// SAFETY: it is handed on, and one thread has it at a time.
unsafe impl Send for Found {}

impl Found {
    /// A list of `rdma_getaddrinfo`.
    pub(super) fn new(list: *mut rdma_addrinfo) -> Found {
        Found(list)
    }

    /// It is the caller's from now on.
    pub(super) fn into_list(self) -> *mut rdma_addrinfo {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: from `rdma_getaddrinfo`, and given to no other place.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}
