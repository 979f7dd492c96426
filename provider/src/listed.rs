//! The list of devices for programs that cannot name an address: every interface with an
//! address, or what `URXE_DEVICES` names.

use core::fmt;
use core::net::IpAddr;

use urxe_core::qp::attr::Mtu;
use urxe_wire::Gid;

use crate::context::{Context, ContextBuilder};
use crate::device::{Device, devices};
use crate::error::{Error, ErrorKind};
use crate::gid_places::{GidPlace, link_local};
use crate::guid::guid_of;
use crate::host::environment;
use crate::likeness::Likeness;
use crate::network;
use crate::port::interface_mtu;

/// Bytes of a device's name, at most: `IBV_SYSFS_NAME_MAX` with the zero at its end.
const NAME_MAX: usize = 63;

/// A device of the list that the drop-in library offers.
///
/// ```
/// let list = urxe::ListedDevice::parse_list("127.0.0.1, roce1=127.0.0.2").unwrap();
/// assert_eq!(list[0].name(), "urxe0");
/// assert_eq!(list[1].name(), "roce1");
/// assert_eq!(list[1].addresses(), ["127.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_get_device_list")]
pub struct ListedDevice {
    name: String,
    addresses: Vec<IpAddr>,
    interface: Option<String>,
    /// The Ethernet address of that.
    mac: [u8; 6],
    /// The largest that its interface can carry, and all of the list can.
    mtu: Mtu,
    common_mtu: Mtu,
    likeness: Likeness,
}

impl ListedDevice {
    /// The devices that programs see: of `URXE_DEVICES`, or else one for each network interface that
    /// has an address.
    ///
    /// # Errors
    /// If the variable names something that is neither an address nor an interface with one, or `URXE_AS` no adapter.
    pub fn list() -> Result<Vec<ListedDevice>, Error> {
        ListedDevice::list_as(Likeness::of_environment()?)
    }

    /// As [`ListedDevice::list`], with devices that look like this adapter.
    ///
    /// # Errors
    /// See [`ListedDevice::list`].
    pub fn list_as(likeness: Likeness) -> Result<Vec<ListedDevice>, Error> {
        match environment::value(environment::DEVICES) {
            Some(list) => ListedDevice::parse_list_as(&list.to_string_lossy(), likeness),
            None => {
                let usable = devices()?;
                let usable = usable.iter().filter(|d| !d.addresses().is_empty());
                let list = usable.enumerate().map(|(index, device)| {
                    ListedDevice::of_interface(default_name(likeness, index), device, likeness)
                });
                Ok(agree_on_mtu(list.collect()))
            }
        }
    }

    /// The devices of a list `[NAME=]ADDRESS,[NAME=]INTERFACE,...`: those without a name are called `urxe0`,
    /// `urxe1` and so on by their place.
    ///
    /// # Errors
    /// If something in it is neither an address nor an interface with one, or no name for a device.
    pub fn parse_list(text: &str) -> Result<Vec<ListedDevice>, Error> {
        ListedDevice::parse_list_as(text, Likeness::of_environment()?)
    }

    /// As [`ListedDevice::parse_list`], with devices that look like this adapter, and have names as its devices do.
    ///
    /// # Errors
    /// See [`ListedDevice::parse_list`].
    pub fn parse_list_as(text: &str, likeness: Likeness) -> Result<Vec<ListedDevice>, Error> {
        let mut list: Vec<ListedDevice> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let device = parse(part, list.len(), likeness);
            let device = device.map_err(|reason| environment(part, &reason))?;
            if list.iter().any(|other| other.name == device.name) {
                let reason = format!("there is a device {} already", device.name);
                return Err(environment(part, &reason));
            }
            list.push(device);
        }
        Ok(agree_on_mtu(list))
    }

    fn of_interface(name: String, device: &Device, likeness: Likeness) -> ListedDevice {
        ListedDevice {
            name,
            addresses: device.addresses().to_vec(),
            interface: Some(device.interface().to_owned()),
            mtu: device.active_mtu(),
            common_mtu: device.active_mtu(),
            mac: device.mac,
            likeness,
        }
    }

    /// Its name.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, in the interface's order.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The adapter that it looks like.
    pub fn likeness(&self) -> Likeness {
        self.likeness
    }

    /// Its GID table, from index 0 on: what is there, and the GID.
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self) -> Vec<(GidPlace, Gid)> {
        let is_ipv4: Vec<bool> = self.addresses.iter().map(IpAddr::is_ipv4).collect();
        let gid = |place: &GidPlace| match place.address {
            Some(at) => Gid::from(self.addresses[at]),
            None => link_local(self.mac),
        };
        let places = self.likeness.gid_table(&is_ipv4).into_iter();
        places.map(|place| (place, gid(&place))).collect()
    }

    /// The network interface behind it, if it is known.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Its number: a locally administered EUI-64 made of the first address, different for each device of a host.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> u64 {
        guid_of(&self.addresses)
    }

    /// The path MTU that it reports, if `URXE_MTU` says nothing else: the largest that all devices of the list can carry.
    /// Programs that use all devices connect any of them with any other, by the MTU of one.
    pub fn active_mtu(&self) -> Mtu {
        self.common_mtu
    }

    /// Opens it, with all its addresses.
    ///
    /// # Errors
    /// See [`Context::open`].
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, Error> {
        self.builder().open()
    }

    /// Settings of a context with all its addresses.
    pub fn builder(&self) -> ContextBuilder {
        ContextBuilder::new(self.addresses.clone()).common_mtu(Some(self.common_mtu))
    }
}

impl fmt::Display for ListedDevice {
    /// As [`ListedDevice::parse_list`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (&self.interface, &*self.addresses) {
            (_, [only]) => only.to_string(),
            (Some(interface), _) => interface.clone(),
            (None, _) => String::new(),
        };
        write!(f, "{}={what}", self.name)
    }
}

/// Each can do what the one of the smallest MTU can.
fn agree_on_mtu(mut list: Vec<ListedDevice>) -> Vec<ListedDevice> {
    if let Some(common) = list.iter().map(|device| device.mtu).min() {
        for device in &mut list {
            device.common_mtu = common;
        }
    }
    list
}

fn environment(part: &str, reason: &str) -> Error {
    ErrorKind::Environment {
        variable: environment::DEVICES,
        reason: format!("\"{part}\": {reason}"),
    }
    .into()
}

fn default_name(likeness: Likeness, index: usize) -> String {
    format!("{}{index}", likeness.device_prefix())
}

fn parse(part: &str, index: usize, likeness: Likeness) -> Result<ListedDevice, String> {
    let (name, what) = match part.split_once('=') {
        Some((name, what)) => (name.trim().to_owned(), what.trim()),
        None => (default_name(likeness, index), part),
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_letter) || name == ".." {
        return Err(format!(
            "a device's name has letters, digits, \"_\", \"-\" and \".\", {NAME_MAX} at most"
        ));
    }
    let interfaces = devices().map_err(|error| error.to_string())?;
    if let Ok(address) = what.parse::<IpAddr>() {
        // All of 127/8 is the loopback interface's, though it lists only one of them.
        let has = |device: &&Device| {
            let mut addresses = device.addresses().iter();
            addresses.any(|a| *a == address || (a.is_loopback() && address.is_loopback()))
        };
        let network = network::current();
        let simulated = network.and_then(|network| network.interface_mtu(address));
        let mtu = simulated.unwrap_or_else(|| interface_mtu(address));
        let mtu = Mtu::for_interface(mtu);
        let device = interfaces.iter().find(has);
        return Ok(ListedDevice {
            name,
            addresses: vec![address],
            interface: device.map(|d| d.interface().to_owned()),
            mac: device.map_or([0; 6], |d| d.mac),
            mtu,
            common_mtu: mtu,
            likeness,
        });
    }
    match interfaces.iter().find(|device| device.interface() == what) {
        Some(device) if !device.addresses().is_empty() => {
            Ok(ListedDevice::of_interface(name, device, likeness))
        }
        Some(_) => Err(format!("the interface {what} has no address")),
        None => {
            let names: Vec<&str> = interfaces.iter().map(Device::interface).collect();
            Err(format!(
                "{what} is neither an IP address nor an interface of this host ({})",
                names.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<ListedDevice> {
        ListedDevice::parse_list(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn addresses_become_devices_with_guids_of_their_own() {
        let list = list("127.0.0.1, 127.0.0.2,fd00::1");
        let guids: std::collections::BTreeSet<u64> = list.iter().map(ListedDevice::guid).collect();
        assert_eq!((list.len(), guids.len()), (3, 3));
        let names: Vec<&str> = list.iter().map(ListedDevice::name).collect();
        assert_eq!(names, ["urxe0", "urxe1", "urxe2"]);
    }

    #[test]
    fn interfaces_become_devices_with_all_their_addresses() {
        let all = devices().expect("interfaces");
        let Some(lo) = all
            .iter()
            .find(|d| d.addresses().iter().any(IpAddr::is_loopback))
        else {
            println!("skipped: there is no loopback interface");
            return;
        };
        let list = list(&format!("mlx5_0={},127.0.0.9", lo.interface()));
        assert_eq!((list[0].name(), list[1].name()), ("mlx5_0", "urxe1"));
        assert_eq!(list[0].addresses(), lo.addresses());
        assert_eq!(list[0].interface(), Some(lo.interface()));
        assert_eq!(list[1].interface(), Some(lo.interface()));
        for device in &list {
            let again = ListedDevice::parse_list(&device.to_string()).expect("it reads as itself");
            assert_eq!(again, std::slice::from_ref(device));
        }
    }

    /// Packets of the one must fit the other.
    #[test]
    fn devices_of_one_list_report_one_mtu() {
        let mut two = list("127.0.0.1,127.0.0.2");
        two[1].mtu = Mtu::Mtu1024;
        let two = agree_on_mtu(two);
        let reported: Vec<Mtu> = two.iter().map(ListedDevice::active_mtu).collect();
        assert_eq!(reported, [Mtu::Mtu1024; 2]);
        assert_eq!(two[0].mtu, Mtu::Mtu4096);
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("127.0.0.300", "neither"),
            ("127.0.0.1,x", "neither"),
            ("=127.0.0.1", "name"),
            ("a/b=127.0.0.1", "name"),
            ("..=127.0.0.1", "name"),
            ("a=127.0.0.1,a=127.0.0.2", "already"),
            ("urxe1=127.0.0.1,127.0.0.2", "already"),
        ] {
            let error = ListedDevice::parse_list(text).expect_err(text);
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.to_string().contains(environment::DEVICES), "{error}");
            assert_eq!(error.errno(), libc::EINVAL);
        }
    }
}
