//! Packets: whatever the bytes, parsing and every accessor return; and what they return
//! lies within the bytes, in order.

use urxe_wire::{Operation, Packet, ParseError};

/// Input: the payload of a UDP datagram.
pub fn target(data: &[u8]) {
    match Packet::parse(data) {
        Ok(packet) => check(&packet, data),
        Err(error) => {
            check_error(error, data);
            if let ParseError::UnknownOpcode(_) = error {
                // A decoder shows it all the same, if the rest of it is whole.
                match Packet::parse_any(data) {
                    Ok(packet) => check(&packet, data),
                    Err(ParseError::UnknownOpcode(code)) => panic!("{code:#04x} is refused"),
                    Err(error) => check_error(error, data),
                }
            }
        }
    }
}

fn check(packet: &Packet<'_>, data: &[u8]) {
    let info = packet.info();
    let headers = usize::from(info.header_len);
    assert_eq!(
        headers + packet.payload().len() + packet.pad().len() + 4,
        data.len()
    );
    assert_eq!(packet.pad().len(), usize::from(packet.bth().pad_count));
    assert_eq!((packet.payload().len() + packet.pad().len()) % 4, 0);
    assert_eq!(packet.opcode().0, data[0]);
    // Whatever the opcode asks for is there, and nothing else.
    let bytes = 12
        + packet.deth().map_or(0, |_| 8)
        + packet.xrceth().map_or(0, |_| 4)
        + packet.feth().map_or(0, |_| 4)
        + packet.reth().map_or(0, |_| 16)
        + packet.atomic_eth().map_or(0, |_| 28)
        + packet.aeth().map_or(0, |_| 4)
        + packet.atomic_ack_eth().map_or(0, |_| 8)
        + packet.imm().map_or(0, |_| 4)
        + packet.ieth().map_or(0, |_| 4);
    assert_eq!(bytes, headers);
    let text = packet.to_string();
    let names: &[&str] = match info.operation {
        Operation::Unassigned => &["RD ", "manufacturer's opcode ", info.name],
        _ => &[info.name],
    };
    assert!(names.iter().any(|name| text.starts_with(name)), "{text}");
}

fn check_error(error: ParseError, data: &[u8]) {
    if let ParseError::Truncated { needed, have, .. } = error {
        assert!(have < needed, "{error}");
        assert_eq!(have, data.len());
    }
    assert!(!error.to_string().is_empty());
}
