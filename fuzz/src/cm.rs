//! Connection manager messages: what parses is written again byte for byte.

use urxe_wire::cm::{CmMessage, IpCmHeader};

/// Input: a management datagram.
pub fn target(data: &[u8]) {
    let Ok((header, message)) = CmMessage::parse(data) else {
        return;
    };
    assert_eq!(&message.emit(&header)[..], data);
    assert_eq!(message.attribute_id(), header.attribute_id);
    assert!(message.to_string().starts_with(message.name()));
    let private_data: &[u8] = match &message {
        CmMessage::Req(req) => &req.private_data,
        CmMessage::SidrReq(req) => &req.private_data,
        _ => return,
    };
    if let Ok(ip) = IpCmHeader::parse(private_data) {
        assert_eq!(ip.emit()[..], private_data[..IpCmHeader::LEN]);
    }
}
