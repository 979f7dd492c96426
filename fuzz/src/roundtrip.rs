//! Packets: what parses is written again byte for byte, and what is written for another
//! path verifies there.

use urxe_wire::{IcrcSeed, IcrcVerdict, Packet, PathHeader, reident};

/// Input: the payload of a UDP datagram.
pub fn target(data: &[u8]) {
    let Ok(packet) = Packet::parse_any(data) else {
        return;
    };
    let mut again = vec![0xcc; data.len()];
    assert_eq!(packet.emit(&mut again), data.len());
    assert_eq!(again, data);
    if data.len() > 4200 {
        return;
    }

    let path = PathHeader::V4 {
        src: [10, 0, 0, 1],
        dst: [10, 0, 0, 2],
        sport: 0xc123,
        dport: 4791,
    };
    let seed = IcrcSeed::new(&path);
    let covered = data.len() - 4;
    let icrc = seed.compute(0, &again[..covered]);
    again[covered..].copy_from_slice(&icrc.to_le_bytes());
    assert_eq!(seed.verify(0, &again), IcrcVerdict::Ok { ident: 0 });
    let ident = u16::from_be_bytes([data[2], data[3]]);
    reident(&mut again, 0, ident);
    assert_eq!(seed.verify(0, &again), IcrcVerdict::Ok { ident });
    let reparsed = Packet::parse_any(&again).expect("only the ICRC changed");
    assert_eq!(reparsed.bth(), packet.bth());
    assert_eq!(reparsed.payload(), packet.payload());
}
