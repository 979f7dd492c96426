//! What passes an interface, as any program with the right to look sees it.

use std::io::Read;
use std::net::Ipv4Addr;
use std::time::Duration;

use pnet::packet::Packet;
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::ipv4::Ipv4Packet;
use pnet::packet::udp::UdpPacket;
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
            let Some(packet) = Ipv4Packet::new(&bytes[..len]) else {
                continue;
            };
            let is_udp = packet.get_next_level_protocol() == IpNextHeaderProtocols::Udp;
            let datagram = UdpPacket::new(packet.payload()).filter(|_| is_udp);
            let Some(datagram) = datagram.filter(|datagram| datagram.get_destination() == port)
            else {
                continue;
            };
            all.push(Seen {
                source: packet.get_source(),
                dest: packet.get_destination(),
                payload: datagram.payload().to_vec(),
            });
        }
        all
    }
}
