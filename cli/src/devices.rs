//! `urxe devices`: every network interface with an address is a device.

use std::io::Write;

use urxe::PortSpeed;

use crate::error::{CliError, Context};
use crate::table::{Align, Table};

pub(crate) fn run() -> Result<(), CliError> {
    let devices = urxe::devices().context("cannot list the interfaces")?;
    let speed = PortSpeed::of_environment().context("cannot tell the speed")?;
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("interface", Align::Left),
        ("state", Align::Left),
        ("interface MTU", Align::Right),
        ("path MTU", Align::Right),
        ("speed", Align::Left),
        ("GIDs", Align::Left),
    ]);
    for device in devices {
        let state = if device.is_up() { "up" } else { "down" };
        let gids = device.addresses().iter().map(|&address| gid_text(address));
        let mut gids = gids.collect::<Vec<String>>().into_iter();
        table.row(vec![
            device.name().to_owned(),
            device.interface().to_owned(),
            state.to_owned(),
            device.mtu().to_string(),
            device.active_mtu().bytes().to_string(),
            speed.to_string(),
            gids.next().unwrap_or_default(),
        ]);
        for gid in gids {
            let mut row = vec![String::new(); 6];
            row.push(gid);
            table.row(row);
        }
    }
    write!(std::io::stdout().lock(), "{table}")?;
    Ok(())
}

/// A GID as verbs tools print it: an IPv4 address in its IPv6-mapped form.
fn gid_text(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().to_string(),
        std::net::IpAddr::V6(v6) => v6.to_string(),
    }
}
