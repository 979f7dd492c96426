//! A UDP socket that speaks to a connection manager.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses some of it"
)]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};
use urxe_wire::cm::{CmMessage, CmPath, IpCmHeader, PortSpace, Req, service_id};
use urxe_wire::{
    Bth, Deth, IcrcSeed, MAD_LEN, Opcode, Packet, PacketWriter, PathHeader, Pkey, Psn, Qkey, Qpn,
    packet_len,
};

pub struct Stranger {
    socket: UdpSocket,
    rx: RecvBatch,
    addr: IpAddr,
    to: SocketAddr,
    seed: IcrcSeed,
    heard: Vec<CmMessage>,
}

impl Stranger {
    /// One at `addr`, for a listener.
    pub fn new(addr: IpAddr, to: SocketAddr) -> Stranger {
        let socket = UdpSocket::bind(SocketAddr::new(addr, 4791), &UdpConfig::default());
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (addr, to.ip()) else {
            panic!("tests are on 127.0.0.0/8")
        };
        Stranger {
            socket: socket.expect("the address is free"),
            rx: RecvBatch::new(64),
            addr,
            to,
            seed: IcrcSeed::new(&PathHeader::V4 {
                src: src.octets(),
                dst: dst.octets(),
                sport: 4791,
                dport: 4791,
            }),
            heard: Vec::new(),
        }
    }

    /// A request for the listener as long-winded as can be said, with so much private data.
    pub fn req(&self, number: u32, private_data: &[u8]) -> Req {
        let header = IpCmHeader::new(self.addr, 40_000, self.to.ip()).expect("of one family");
        let mut req = Req {
            local_comm_id: number + 1,
            service_id: service_id(PortSpace::TCP, self.to.port()),
            local_ca_guid: 77,
            local_qpn: Qpn::new(number % 0xff_0000 + 2),
            responder_resources: 1,
            initiator_depth: 1,
            pkey: Pkey::DEFAULT,
            path_mtu: 3,
            retry_count: 7,
            rnr_retry_count: 7,
            local_cm_response_timeout: 31,
            max_cm_retries: 15,
            primary_path: CmPath {
                local_ack_timeout: 31,
                ..CmPath::default()
            },
            ..Req::default()
        };
        let (head, rest) = req.private_data.split_at_mut(IpCmHeader::LEN);
        head.copy_from_slice(&header.emit());
        rest[..private_data.len()].copy_from_slice(private_data);
        req
    }

    pub fn say(&self, message: &CmMessage) {
        let opcode = Opcode::UD_SEND_ONLY;
        let info = opcode.info().expect("an opcode of the table");
        let gsi = Qpn::new(1);
        let mut bytes = vec![0; packet_len(info, MAD_LEN)];
        let bth = Bth::new(opcode, gsi, Psn::new(0));
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        writer.deth(&Deth {
            qkey: Qkey::GSI,
            reserved: 0,
            src_qp: gsi,
        });
        let mad = message.emit_mad(9);
        writer.payload_mut(MAD_LEN).copy_from_slice(&mad);
        writer.finish(&self.seed, 0);
        let dest = Dest::new(SocketAddr::new(self.to.ip(), 4791));
        let outcome = self.socket.send(SendBatch {
            bytes: &bytes,
            transmits: &[Transmit::single(0..bytes.len(), dest)],
        });
        assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
    }

    /// What has arrived for it.
    pub fn hears(&mut self) -> Vec<CmMessage> {
        while self.socket.recv(&mut self.rx).expect("receives") > 0 {
            for datagram in self.rx.iter() {
                for (_, bytes) in datagram.segments() {
                    let packet = Packet::parse(bytes).expect("a packet");
                    let message = CmMessage::parse(packet.payload());
                    self.heard.push(message.expect("a message").1);
                }
            }
        }
        std::mem::take(&mut self.heard)
    }

    /// The first answer of a kind; others are passed over.
    pub fn hears_one<T>(
        &mut self,
        patience: Duration,
        is_it: impl Fn(CmMessage) -> Option<T>,
    ) -> Option<T> {
        let start = Instant::now();
        while start.elapsed() < patience {
            let mut heard = self.hears().into_iter();
            if let Some(found) = heard.find_map(&is_it) {
                self.heard.extend(heard);
                return Some(found);
            }
            std::thread::yield_now();
        }
        None
    }
}
