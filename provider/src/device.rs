//! Devices: the host's network interfaces.

use core::net::IpAddr;

use pnet_datalink::NetworkInterface;
use urxe_core::qp::attr::Mtu;

use crate::context::{Context, ContextBuilder};
use crate::error::{Error, ErrorKind};

/// All network interfaces of this host, as RDMA devices.
///
/// # Errors
/// None at present: hosts without interfaces have none.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// for device in urxe::devices()? {
///     println!("{}: {:?}", device.name(), device.addresses());
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<Device>, Error> {
    Ok(pnet_datalink::interfaces()
        .into_iter()
        .map(Device::new)
        .collect())
}

pub(crate) fn find_by_address(addr: IpAddr) -> Option<Device> {
    let mut all = pnet_datalink::interfaces().into_iter().map(Device::new);
    all.find(|device| device.addresses().contains(&addr))
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_device")]
pub struct Device {
    name: String,
    interface: String,
    addresses: Vec<IpAddr>,
    pub(crate) index: u32,
    mtu: u32,
    is_up: bool,
    pub(crate) mac: [u8; 6],
}

impl Device {
    fn new(interface: NetworkInterface) -> Device {
        // Addresses of the local link would need the interface's number with them.
        let is_usable = |addr: &IpAddr| match addr {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        };
        Device {
            name: format!("urxe_{}", interface.name),
            addresses: interface
                .ips
                .iter()
                .map(|net| net.ip())
                .filter(is_usable)
                .collect(),
            index: interface.index,
            mtu: interface_mtu(&interface.name),
            is_up: interface.is_up(),
            mac: interface.mac.map_or([0; 6], |mac| mac.octets()),
            interface: interface.name,
        }
    }

    /// Its name: `urxe_` and the interface's.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The network interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The interface's addresses: the GID table of a context opened on this device.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The interface's MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The largest RDMA MTU that fits it.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::for_interface(self.mtu)
    }

    /// True if the interface is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Opens a context that owns port 4791 on all addresses of the interface.
    ///
    /// # Errors
    /// See [`Context::open`]; and if the interface has no address.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, Error> {
        if self.addresses.is_empty() {
            return Err(ErrorKind::NoAddressOnDevice.into());
        }
        ContextBuilder::new(self.addresses.clone()).open()
    }
}

fn interface_mtu(name: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap_or_default();
    // Elsewhere than on Linux, what every Ethernet can do.
    text.trim().parse().unwrap_or(1500)
}
