//! The two headers of datagrams: in front of data between queue pairs, and of what goes over the UDP socket until
//! both sides know each other's.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `ds_header`: version, its own length, the sender's port and address.
const V4_LEN: usize = 8;
const V6_LEN: usize = 24;
/// `ds_udp_header`
const UDP_V4_LEN: usize = 16;
const UDP_V6_LEN: usize = 28;
const TAG: u32 = 0x5555_5555;
/// What a message over UDP is for.
const DATA: u8 = 0;
const CONTROL: u8 = 7;

/// The header of a sender.
pub(super) fn header(from: SocketAddr) -> Vec<u8> {
    let port = from.port().to_be_bytes();
    match from {
        SocketAddr::V4(v4) => {
            let mut bytes = vec![4, V4_LEN as u8, port[0], port[1]];
            bytes.extend(v4.ip().octets());
            bytes
        }
        SocketAddr::V6(v6) => {
            let mut bytes = vec![6, V6_LEN as u8, port[0], port[1]];
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes
        }
    }
}

/// The sender of a message, and its data. None if it is no rsocket's.
pub(super) fn parse(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (version, len) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let (ip, rest) = match (version, len) {
        (4, V4_LEN) => (address(bytes.get(4..V4_LEN)?)?, bytes.get(V4_LEN..)?),
        (6, V6_LEN) => (address(bytes.get(8..V6_LEN)?)?, bytes.get(V6_LEN..)?),
        _ => return None,
    };
    Some((SocketAddr::new(ip, port), rest))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
}

/// A message over the UDP socket: the sender's queue pair, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    /// Data follows, and the sender wants to know our queue pair.
    pub(super) is_data: bool,
    pub(super) qpn: u32,
    pub(super) ip: IpAddr,
}

impl Introduction {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (version, len) = match self.ip {
            IpAddr::V4(_) => (4, UDP_V4_LEN),
            IpAddr::V6(_) => (6, UDP_V6_LEN),
        };
        let op = if self.is_data { DATA } else { CONTROL };
        let mut bytes = TAG.to_be_bytes().to_vec();
        bytes.extend([version, op, len as u8, 0]);
        bytes.extend((self.qpn & 0xff_ffff).to_be_bytes());
        match self.ip {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
        bytes
    }

    /// It, and what follows. None if it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Introduction, &[u8])> {
        let fixed: &[u8; 12] = bytes.first_chunk()?;
        let number = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let is_data = match (number(0), fixed[5]) {
            (TAG, DATA) => true,
            (TAG, CONTROL) => false,
            _ => return None,
        };
        let len = match (fixed[4], usize::from(fixed[6])) {
            (4, UDP_V4_LEN) => UDP_V4_LEN,
            (6, UDP_V6_LEN) => UDP_V6_LEN,
            _ => return None,
        };
        let introduction = Introduction {
            is_data,
            qpn: number(8) & 0xff_ffff,
            ip: address(bytes.get(12..len)?)?,
        };
        Some((introduction, bytes.get(len..)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive() {
        for (text, len) in [("10.1.2.3:7471", V4_LEN), ("[fd00::1]:1", V6_LEN)] {
            let from: SocketAddr = text.parse().expect("an address");
            let mut bytes = header(from);
            assert_eq!(bytes.len(), len);
            bytes.extend(b"data");
            assert_eq!(parse(&bytes), Some((from, &b"data"[..])));
            assert_eq!(parse(&bytes[..len - 1]), None);
        }
        assert_eq!(
            header("1.2.3.4:258".parse().expect("one"))[..4],
            [4, 8, 1, 2]
        );
    }

    #[test]
    fn introductions_survive_and_nonsense_is_none() {
        for ip in ["10.0.0.9", "fd00::9"] {
            for is_data in [true, false] {
                let introduction = Introduction {
                    is_data,
                    qpn: 0x12_3456,
                    ip: ip.parse().expect("an address"),
                };
                let mut bytes = introduction.to_bytes();
                bytes.push(9);
                let (back, rest) = Introduction::parse(&bytes).expect("one");
                assert_eq!((back, rest), (introduction, &[9][..]));
                bytes[0] = 0;
                assert_eq!(Introduction::parse(&bytes), None);
            }
        }
        assert_eq!(Introduction::parse(&[0x55; 11]), None);
    }
}
