//! Control messages: the facts that travel beside a datagram.
//!
//! On 64-bit Linux a control message is a 16-byte header (its length in a `usize`,
//! level, type), then its data, padded to 8 bytes. That is little enough to encode and
//! decode in safe code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;

const HEADER_LEN: usize = 16;
const ALIGN: usize = 8;

/// Bytes that a control message with `data_len` bytes of data takes.
const fn space(data_len: usize) -> usize {
    HEADER_LEN + data_len.next_multiple_of(ALIGN)
}

/// `in_pktinfo`: interface index, address to use or used locally, destination address.
const PKTINFO_LEN: usize = 12;
/// `in6_pktinfo`: address, interface index.
const PKTINFO6_LEN: usize = 20;

/// Control messages of one descriptor to send: at most segment size, traffic class and
/// source address.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct SendControl {
    bytes: [u8; SendControl::CAPACITY],
    len: usize,
}

impl SendControl {
    const CAPACITY: usize = space(2) + space(4) + space(PKTINFO6_LEN);

    pub(crate) fn new() -> SendControl {
        SendControl {
            bytes: [0; SendControl::CAPACITY],
            len: 0,
        }
    }

    /// The encoded messages; empty if there are none.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Have the kernel cut the data into packets of `size` bytes.
    pub(crate) fn push_segment_size(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }

    /// Traffic class of the packets.
    pub(crate) fn push_tos(&mut self, tos: u8, ipv6: bool) {
        let value = c_int::from(tos).to_ne_bytes();
        if ipv6 {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
        } else {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value);
        }
    }

    /// Address to send from.
    pub(crate) fn push_src_ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                let mut info = [0; PKTINFO_LEN];
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(ip) => {
                let mut info = [0; PKTINFO6_LEN];
                info[..16].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let message = &mut self.bytes[self.len..self.len + space(data.len())];
        message[..8].copy_from_slice(&(HEADER_LEN + data.len()).to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
        self.len += space(data.len());
    }
}

/// Room for the control messages of one received datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct RecvControl {
    bytes: [u8; RecvControl::CAPACITY],
}

impl RecvControl {
    /// What we ask for takes 88 bytes; the rest is for what another setting of the
    /// socket, not ours, might add before it.
    pub(crate) const CAPACITY: usize = 128;

    pub(crate) fn new() -> RecvControl {
        RecvControl {
            bytes: [0; RecvControl::CAPACITY],
        }
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut [u8; RecvControl::CAPACITY] {
        &mut self.bytes
    }

    /// What the first `len` bytes, written by the kernel, say.
    pub(crate) fn decode(&self, len: usize) -> RecvFacts {
        let mut facts = RecvFacts::default();
        let mut rest = &self.bytes[..len.min(RecvControl::CAPACITY)];
        while let Some((level, kind, data, next)) = split_first(rest) {
            facts.note(level, kind, data);
            rest = next;
        }
        facts
    }
}

/// What control messages told about a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecvFacts {
    /// Size of the joined packets, if several may have been joined.
    pub(crate) segment_size: Option<u32>,
    pub(crate) tos: Option<u8>,
    pub(crate) dst_ip: Option<IpAddr>,
}

impl RecvFacts {
    fn note(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = word(data, 0).map(i32::from_ne_bytes);
                self.segment_size = size.and_then(|s| u32::try_from(s).ok()).filter(|&s| s > 0);
            }
            // IP_TOS comes as one byte, IPV6_TCLASS as an int.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tos = word(data, 0).map(|w| i32::from_ne_bytes(w) as u8);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.dst_ip = word(data, 8).map(|ip| IpAddr::V4(Ipv4Addr::from(ip)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip: Option<[u8; 16]> = data.get(..16).and_then(|b| b.try_into().ok());
                self.dst_ip = ip.map(|ip| IpAddr::V6(Ipv6Addr::from(ip)));
            }
            _ => {}
        }
    }
}

fn word(data: &[u8], at: usize) -> Option<[u8; 4]> {
    data.get(at..at + 4)?.try_into().ok()
}

/// Level, type and data of the first message, and what follows it.
fn split_first(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let level = c_int::from_ne_bytes(word(bytes, 8)?);
    let kind = c_int::from_ne_bytes(word(bytes, 12)?);
    let data = bytes.get(HEADER_LEN..len)?;
    let next = len.next_multiple_of(ALIGN).min(bytes.len());
    Some((level, kind, data, &bytes[next..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for ip in ["10.1.2.3", "fd00::1:2"].map(|ip| ip.parse::<IpAddr>().expect("literal")) {
            let mut send = SendControl::new();
            send.push_tos(0x6a, ip.is_ipv6());
            send.push_src_ip(ip);
            let mut recv = RecvControl::new();
            let len = send.as_bytes().len();
            recv.buffer_mut()[..len].copy_from_slice(send.as_bytes());
            let facts = recv.decode(len);
            assert_eq!(facts.tos, Some(0x6a));
            if ip.is_ipv6() {
                assert_eq!(facts.dst_ip, Some(ip));
            }
        }
    }

    #[test]
    fn all_three_messages_fit() {
        let mut send = SendControl::new();
        send.push_segment_size(1040);
        send.push_tos(2, true);
        send.push_src_ip("::1".parse().expect("literal"));
        assert_eq!(send.as_bytes().len(), SendControl::CAPACITY);
        let first = split_first(send.as_bytes()).expect("a message");
        assert_eq!((first.0, first.1), (libc::SOL_UDP, libc::UDP_SEGMENT));
        assert_eq!(first.2, 1040u16.to_ne_bytes());
    }

    proptest! {
        /// Whatever stands in the buffer, decoding ends and stays inside.
        #[test]
        fn decoding_survives_any_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), RecvControl::CAPACITY),
            lens in proptest::collection::vec(0u64..80, 4),
            len in 0usize..300,
        ) {
            for (at, value) in lens.into_iter().enumerate() {
                bytes[at * 24..at * 24 + 8].copy_from_slice(&value.to_ne_bytes());
            }
            let mut control = RecvControl::new();
            control.buffer_mut().copy_from_slice(&bytes);
            let facts = control.decode(len);
            prop_assert!(facts.segment_size != Some(0));
        }
    }
}
