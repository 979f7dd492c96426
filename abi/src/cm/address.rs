//! Socket addresses between C and Rust.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::errno::Errno;
use crate::layout::{CStruct, Storage};

/// What a program passes as `struct sockaddr *`. `EINVAL` if it is neither IPv4 nor IPv6, or null.
///
/// # Safety
/// Null, or as many readable bytes as its family has.
pub(crate) unsafe fn read(addr: *const libc::sockaddr) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    match c_int_of(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Ok(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )))
        }
        _ => Err(Errno::INVAL),
    }
}

/// Reads an address that may be null: then there is none.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn read_some(addr: *const libc::sockaddr) -> Result<Option<SocketAddr>, Errno> {
    if addr.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read(addr) }.map(Some)
}

/// The C form, and how much of it counts.
pub(crate) fn write(addr: SocketAddr) -> (Storage, u32) {
    let mut storage = Storage::default();
    let place = storage.as_mut_ptr();
    let len = match addr {
        SocketAddr::V4(v4) => {
            let sin = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than any socket address, and aligned for all of them.
            unsafe { place.cast::<libc::sockaddr_in>().write(sin) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(sin6) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as u32)
}

/// Writes an address where a program wants it, as `getsockname` does: cut to the room that there is, with the length
/// that it has.
///
/// # Safety
/// Two nulls, or a place for a length and as much room as it says.
pub(crate) unsafe fn give(addr: SocketAddr, place: *mut libc::sockaddr, len: *mut u32) {
    if place.is_null() || len.is_null() {
        return;
    }
    let (storage, has) = write(addr);
    // SAFETY: the caller's promise; the storage has at least `has` bytes.
    unsafe {
        let room = (*len).min(has) as usize;
        core::ptr::copy_nonoverlapping(storage.as_ptr().cast::<u8>(), place.cast(), room);
        len.write(has);
    }
}

fn c_int_of(family: libc::sa_family_t) -> i32 {
    i32::from(family)
}

// SAFETY: numbers only.
unsafe impl CStruct for libc::addrinfo {
    #[cfg(test)]
    const FIELDS: &'static [(&'static str, usize, usize)] = &[];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.1.2.3:4791", "[fe80::1%7]:65535", "[::]:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            let (storage, len) = write(addr);
            assert!(len as usize <= size_of_val(&storage));
            // SAFETY: just written.
            let back = unsafe { read(storage.as_ptr().cast()) };
            assert_eq!(back, Ok(addr));
        }
    }

    #[test]
    fn other_families_are_refused() {
        let mut storage = Storage::default();
        storage[0] = 27; // AF_IB
        // SAFETY: larger than any address.
        let back = unsafe { read(storage.as_ptr().cast()) };
        assert_eq!(back, Err(Errno::INVAL));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(core::ptr::null()) }, Err(Errno::INVAL));
    }
}
