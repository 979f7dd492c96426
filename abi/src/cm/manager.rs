//! Which context an address belongs to: the program's devices, opened by the library.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use urxe::cm::{CmError, Manager, Opener};

use super::devices;
use crate::device;
use crate::errno::Errno;
use crate::object::Context;

struct OfDevices;

impl Opener for OfDevices {
    fn context_of(&self, addr: IpAddr) -> Result<urxe::Context, urxe::Error> {
        let (context, _) = devices::of_address(addr).map_err(|_| CmError::NoDevice(addr))?;
        // SAFETY: it stays open.
        Ok(unsafe { Context::of(context) }.urxe.clone())
    }

    fn contexts(&self) -> Result<Vec<urxe::Context>, urxe::Error> {
        let contexts = devices::contexts()
            .map_err(|_| CmError::NoDevice(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))?;
        // SAFETY: as above.
        let of = |context| unsafe { Context::of(context) }.urxe.clone();
        Ok(contexts.into_iter().map(of).collect())
    }
}

/// The one of all channels.
pub(crate) fn manager() -> &'static Manager {
    static MANAGER: OnceLock<Manager> = OnceLock::new();
    MANAGER.get_or_init(|| Manager::new(Arc::new(OfDevices)))
}

/// The source for a destination, where the program names none and the system's choice would be no device's: on loopback
/// it takes 127.0.0.1, whatever address a device has there.
pub(crate) fn source_for(
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<Option<SocketAddr>, Errno> {
    let port = source.map_or(0, |source| source.port());
    if source.is_some_and(|source| !source.ip().is_unspecified()) {
        return Ok(source);
    }
    let devices = device::list()?;
    let mut addresses = devices.iter().flat_map(|device| device.source.addresses());
    let to = destination.ip();
    let own = addresses.clone().find(|addr| **addr == to);
    let near = || {
        addresses
            .find(|addr| to.is_loopback() && addr.is_loopback() && addr.is_ipv4() == to.is_ipv4())
    };
    let found = own.or_else(near).map(|addr| SocketAddr::new(*addr, port));
    Ok(found.or(source))
}

/// Where an id is bound that asks for a loopback address which no device has: on the first device, as kernels do it.
/// (libfabric looks for devices by binding to "localhost".)
pub(super) fn home_of(addr: SocketAddr) -> Result<SocketAddr, Errno> {
    if !addr.ip().is_loopback() {
        return Ok(addr);
    }
    let devices = device::list()?;
    let mut addresses = devices.iter().flat_map(|device| device.source.addresses());
    if addresses.clone().any(|other| *other == addr.ip()) {
        return Ok(addr);
    }
    let first = addresses.find(|other| other.is_ipv4() == addr.is_ipv4());
    Ok(first.map_or(addr, |first| SocketAddr::new(*first, addr.port())))
}
