//! The numbers of devices.

use core::net::IpAddr;

/// The number of a device with these addresses.
pub(crate) fn guid_of(addresses: &[IpAddr]) -> u64 {
    let low = match addresses.first() {
        Some(IpAddr::V4(v4)) => v4.to_bits(),
        // Any mixture will do: FNV-1a.
        Some(IpAddr::V6(v6)) => v6.octets().iter().fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        }),
        None => 0,
    };
    u64::from_be_bytes([0x02, b'u', b'r', b'x', 0, 0, 0, 0]) | u64::from(low)
}
