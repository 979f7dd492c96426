//! Captured frames: whatever the bytes, taking them apart returns; and a frame that
//! parses is written again byte for byte, Ethernet's padding aside.

use urxe_wire::{Frame, IcrcSeed, IcrcVerdict, Ipv4, LinkType, Network, PauseFrame, RoceFrame};

/// Input: a byte that picks the link type, then a frame.
pub fn target(data: &[u8]) {
    let Some((&link, bytes)) = data.split_first() else {
        return;
    };
    let link = match link % 4 {
        0 => LinkType::Ethernet,
        1 => LinkType::RawIp,
        2 => LinkType::LinuxCooked,
        _ => LinkType::LinuxCooked2,
    };
    match Frame::parse(link, bytes) {
        Ok(Frame::Roce(frame)) => check(link, &frame, bytes),
        Ok(Frame::Pause(frame)) => {
            assert_eq!(PauseFrame::parse(&frame.emit()), Ok(frame));
            assert!(!frame.to_string().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check(link: LinkType, frame: &RoceFrame<'_>, bytes: &[u8]) {
    assert!(frame.to_string().contains(" > "));
    let cooked = match link {
        LinkType::LinuxCooked => 16,
        LinkType::LinuxCooked2 => 20,
        _ => 0,
    };
    let bytes = &bytes[cooked..];
    let mut again = vec![0; bytes.len()];
    let len = frame.emit(&mut again);
    assert_eq!(again[..len], bytes[..len]);

    // A receiver that does not see the IP header comes to the same verdict.
    let Some(path) = frame.path() else { return };
    if matches!(frame.network, Network::V4(ip, _) if ip.flags_and_offset != Ipv4::DF) {
        return;
    }
    let ident = frame.ident().unwrap_or(0);
    if frame.is_icrc_ok() {
        let verdict = IcrcSeed::new(&path).verify(0, frame.packet.bytes());
        assert_eq!(verdict, IcrcVerdict::Ok { ident });
    }
}
