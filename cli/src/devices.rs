//! `urxe devices`: every network interface with an address is a device, by the name that programs see.

use std::net::IpAddr;

use serde::Serialize;
use urxe::{Device, ListedDevice, PortSpeed};

use crate::args::DevicesArgs;
use crate::error::{CliError, Context};
use crate::output::print_report;
use crate::table::{Align, Table};

#[derive(Debug, Serialize)]
struct Row {
    /// What programs under `urxe run` call it; None for an interface without an address, which is none.
    device: Option<String>,
    interface: Option<String>,
    is_up: Option<bool>,
    interface_mtu: Option<u32>,
    /// Bytes of payload in the largest packet that the interface can carry.
    path_mtu: Option<u32>,
    addresses: Vec<IpAddr>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// What ports say of their speed.
    speed: String,
    devices: Vec<Row>,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), CliError> {
    let interfaces = urxe::devices().context("cannot list the interfaces")?;
    let listed = ListedDevice::list().context("cannot list the devices")?;
    let speed = PortSpeed::of_environment().context("cannot tell the speed")?;
    let report = Report {
        speed: speed.to_string(),
        devices: rows(&listed, &interfaces),
    };
    print_report(args.json, &report, || text(&report))
}

/// The devices that programs see, then the interfaces that none of them is.
fn rows(listed: &[ListedDevice], interfaces: &[Device]) -> Vec<Row> {
    let of = |device: &ListedDevice| {
        let has = |interface: &&Device| {
            let addresses = device.addresses();
            addresses
                .iter()
                .any(|address| interface.addresses().contains(address))
        };
        let named = interfaces
            .iter()
            .find(|i| Some(i.interface()) == device.interface());
        named.or_else(|| interfaces.iter().find(has))
    };
    let row = |device: Option<&ListedDevice>, interface: Option<&Device>| Row {
        device: device.map(|device| device.name().to_owned()),
        interface: interface.map(|interface| interface.interface().to_owned()),
        is_up: interface.map(Device::is_up),
        interface_mtu: interface.map(Device::mtu),
        path_mtu: interface.map(|interface| interface.active_mtu().bytes()),
        addresses: device.map_or(Vec::new(), |device| device.addresses().to_vec()),
    };
    let is_without = |interface: &&Device| interface.addresses().is_empty();
    let without = interfaces.iter().filter(is_without);
    let devices = listed.iter().map(|device| row(Some(device), of(device)));
    devices.chain(without.map(|i| row(None, Some(i)))).collect()
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("interface", Align::Left),
        ("state", Align::Left),
        ("interface MTU", Align::Right),
        ("path MTU", Align::Right),
        ("speed", Align::Left),
        ("GIDs", Align::Left),
    ]);
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    for row in &report.devices {
        let state = match row.is_up {
            Some(true) => "up",
            Some(false) => "down",
            None => "",
        };
        let gids = row.addresses.iter().map(|&address| gid_text(address));
        let mut gids = gids.collect::<Vec<String>>().into_iter();
        let none = || "(no address)".to_owned();
        table.row(vec![
            row.device.clone().unwrap_or_else(|| "-".to_owned()),
            row.interface.clone().unwrap_or_default(),
            state.to_owned(),
            number(row.interface_mtu),
            number(row.path_mtu),
            report.speed.clone(),
            gids.next().unwrap_or_else(none),
        ]);
        for gid in gids {
            let mut row = vec![String::new(); 6];
            row.push(gid);
            table.row(row);
        }
    }
    table.to_string()
}

/// A GID as verbs tools print it: an IPv4 address in its IPv6-mapped form.
fn gid_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_string(),
        IpAddr::V6(v6) => v6.to_string(),
    }
}
