//! `rsetsockopt`, `rgetsockopt`.

use core::ffi::{c_int, c_void};

use urxe::cm::CmOption;

use super::datagram::Datagram;
use super::keepalive;
use super::settings::Settings;
use super::stream::{Phase, State};
use super::sys;
use super::table::{self, Socket};
use crate::errno::{Errno, minus_one};

/// Level of the options that only rsockets have, and these.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    minus_one(table::find(socket).and_then(|socket| {
        if value.is_null() || (len as usize) < size_of::<c_int>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: at least so many bytes, by the rules of the function. (Of `linger` it is the first field.)
        let number = unsafe { value.cast::<c_int>().read_unaligned() };
        match &*socket {
            Socket::Stream(stream) => set(&mut stream.lock(), level, name, number)?,
            Socket::Datagram(datagram) => return set_datagram(datagram, level, name, number),
        }
        if let (libc::SOL_SOCKET, libc::SO_KEEPALIVE) | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) =
            (level, name)
        {
            keepalive::watch(socket.clone());
        }
        Ok(())
    }))
}

fn set(state: &mut State, level: c_int, name: c_int, number: c_int) -> Result<(), Errno> {
    let is_on = number != 0;
    let size = number.cast_unsigned();
    let mut kept = c_int::from(is_on);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => state.set_option(CmOption::ReuseAddr(is_on))?,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => state.set_option(CmOption::AfOnly(is_on))?,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if number <= 0 => return Err(Errno::INVAL),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => kept = number,
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {
            // As in the kernel, twice of what was asked for.
            let bytes = size.saturating_mul(2);
            match name {
                _ if state.is_made() => {}
                libc::SO_RCVBUF => state.settings.recv_bytes = bytes,
                _ => state.settings.send_bytes = bytes,
            }
            return Ok(());
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG) => {
            return Ok(());
        }
        (SOL_RDMA, _) if state.phase != Phase::Idle && state.phase != Phase::Listening => {
            return Err(Errno::INVAL);
        }
        (SOL_RDMA, _) => return set_size(&mut state.settings, name, size),
        _ => {}
    }
    let place = state.settings.kept.get_mut(&(level, name));
    *place.ok_or(Errno::NOT_SUPPORTED)? = kept;
    Ok(())
}

/// Sizes that only rsockets have.
fn set_size(settings: &mut Settings, name: c_int, size: u32) -> Result<(), Errno> {
    match name {
        RDMA_SQSIZE => settings.send_depth = size.min(0xfffe),
        RDMA_RQSIZE => settings.recv_depth = size.min(0xfffe),
        RDMA_INLINE => settings.inline = size.min(0xfffe),
        RDMA_IOMAPSIZE => {
            let places = u16::try_from(size).map_err(|_| Errno::INVAL)?;
            settings.iomap_size = super::wire::from_scale(super::wire::to_scale(places));
        }
        _ => return Err(Errno::NOT_SUPPORTED),
    }
    Ok(())
}

fn get_size(settings: &Settings, name: c_int) -> Result<c_int, Errno> {
    match name {
        RDMA_SQSIZE => Ok(settings.send_depth.cast_signed()),
        RDMA_RQSIZE => Ok(settings.recv_depth.cast_signed()),
        RDMA_INLINE => Ok(settings.inline.cast_signed()),
        RDMA_IOMAPSIZE => Ok(c_int::from(settings.iomap_size)),
        _ => Err(Errno::NOT_SUPPORTED),
    }
}

/// The others are those of its UDP socket.
fn set_datagram(
    datagram: &Datagram,
    level: c_int,
    name: c_int,
    number: c_int,
) -> Result<(), Errno> {
    let mut state = datagram.lock();
    let size = number.cast_unsigned();
    match (level, name) {
        (SOL_RDMA, _) if state.is_made() => Err(Errno::INVAL),
        (SOL_RDMA, _) => set_size(&mut state.settings, name, size),
        _ => sys::set_option(datagram.fd(), level, name, number),
    }
}

fn get_datagram(datagram: &Datagram, level: c_int, name: c_int) -> Result<c_int, Errno> {
    match level {
        SOL_RDMA => get_size(&datagram.lock().settings, name),
        _ => sys::option(datagram.fd(), level, name),
    }
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut libc::socklen_t,
) -> c_int {
    minus_one(table::find(socket).and_then(|socket| {
        let found = match &*socket {
            Socket::Stream(stream) => get(&mut stream.lock(), level, name)?,
            Socket::Datagram(datagram) => get_datagram(datagram, level, name)?,
        };
        let linger = [found, 0];
        let wanted = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => &linger[..],
            _ => &linger[..1],
        };
        if value.is_null() || len.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: room for what the length says, by the rules of the function.
        unsafe {
            let room = (*len as usize).min(size_of_val(wanted));
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(wanted.as_ptr().cast(), room);
            len.write(room as libc::socklen_t);
        }
        Ok(())
    }))
}

fn get(state: &mut State, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let settings = &state.settings;
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => std::mem::take(&mut state.error),
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(state.phase == Phase::Listening),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.recv_bytes.cast_signed(),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_bytes.cast_signed(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => 1,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 2048,
        (SOL_RDMA, _) => return get_size(settings, name),
        kept => *settings.kept.get(&kept).ok_or(Errno::NOT_SUPPORTED)?,
    })
}
