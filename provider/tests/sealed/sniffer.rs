//! What passes an interface, as any program with the right to look sees it.

use std::io::Read;
use std::net::Ipv4Addr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// IPv4, in the order of the network.
const ETH_P_IP: i32 = 0x0008;

pub(crate) struct Sniffer(Socket);

/// A datagram that passed.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) source: Ipv4Addr,
    pub(crate) dest: Ipv4Addr,
    pub(crate) payload: Vec<u8>,
}

impl Sniffer {
    pub(crate) fn new() -> Sniffer {
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(ETH_P_IP)));
        let socket = socket.expect("root of the namespace may look");
        socket.set_recv_buffer_size(8 << 20).expect("a buffer");
        let timeout = Some(Duration::from_millis(200));
        socket.set_read_timeout(timeout).expect("a timeout");
        Sniffer(socket)
    }

    /// All datagrams to a port so far.
    pub(crate) fn take(&mut self, port: u16) -> Vec<Seen> {
        let mut all = Vec::new();
        let mut bytes = vec![0; 1 << 17];
        while let Ok(len) = self.0.read(&mut bytes) {
            let packet = &bytes[..len];
            let Some(&[first, ..]) = packet.first_chunk::<20>() else {
                continue;
            };
            let head = usize::from(first & 15) * 4;
            let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            if packet[9] != 17 || len < head + 8 || word(head + 2) != port {
                continue;
            }
            let addr = |at: usize| {
                Ipv4Addr::from_bits(u32::from_be_bytes(
                    *packet[at..].first_chunk().expect("a header"),
                ))
            };
            all.push(Seen {
                source: addr(12),
                dest: addr(16),
                payload: packet[head + 8..].to_vec(),
            });
        }
        all
    }
}
