//! A peer that is no urxe: it says on the wire whatever a test wants.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses some of it"
)]

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::common::{End, PATIENCE, address};
use urxe::{ConnectOptions, Endpoint, Mtu, Psn, Qpn};
use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};
use urxe_wire::{
    Aeth, Bth, IcrcSeed, Msn, NakCode, Opcode, Packet, PacketWriter, PathHeader, Syndrome,
    packet_len,
};

/// PSN of its first request.
pub const PSN: u32 = 1;

pub struct FakePeer {
    socket: UdpSocket,
    rx: RecvBatch,
    addr: IpAddr,
    to: IpAddr,
    qpn: Qpn,
    seed: IcrcSeed,
}

impl FakePeer {
    /// A peer that `end`'s QP is connected to.
    pub fn of(end: &End, options: &ConnectOptions) -> FakePeer {
        let (addr, to) = (address(), end.context.address());
        let socket = UdpSocket::bind(SocketAddr::new(addr, 4791), &UdpConfig::default());
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (addr, to) else {
            panic!("tests are on 127.0.0.0/8")
        };
        let remote = Endpoint {
            addr,
            qpn: Qpn::new(0x1234),
            psn: Psn::new(PSN),
            mtu: Mtu::Mtu1024,
        };
        end.qp.connect(&remote, options).expect("connects");
        FakePeer {
            socket: socket.expect("the address is free"),
            rx: RecvBatch::new(4),
            addr,
            to,
            qpn: end.qp.qp_num(),
            seed: IcrcSeed::new(&PathHeader::V4 {
                src: src.octets(),
                dst: dst.octets(),
                sport: 4791,
                dport: 4791,
            }),
        }
    }

    /// The BTH of the next packet that arrives.
    pub fn next(&mut self) -> Bth {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no packet came");
            if self.socket.recv(&mut self.rx).expect("receives") == 0 {
                std::thread::yield_now();
                continue;
            }
            let datagram = self.rx.iter().next().expect("there is one");
            let (_, bytes) = datagram.segments().next().expect("of one packet at least");
            return Packet::parse(bytes).expect("a packet").bth();
        }
    }

    /// Sends a packet with this opcode; `fill` adds headers and payload.
    pub fn send(
        &self,
        opcode: Opcode,
        psn: Psn,
        payload: usize,
        fill: impl FnOnce(&mut PacketWriter<'_>),
    ) {
        let mut bth = Bth::new(opcode, self.qpn, psn);
        bth.ack_req = true;
        let info = opcode.info().expect("an opcode of the table");
        let mut bytes = vec![0; packet_len(info, payload)];
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        fill(&mut writer);
        writer.payload_mut(payload).fill(0x5a);
        writer.finish(&self.seed, 0);
        let dest = Dest::new(SocketAddr::new(self.to, 4791));
        let outcome = self.socket.send(SendBatch {
            bytes: &bytes,
            transmits: &[Transmit::single(0..bytes.len(), dest)],
        });
        assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
    }

    /// Answers with an ACKNOWLEDGE packet.
    pub fn answer(&self, psn: Psn, syndrome: Syndrome) {
        let msn = Msn::ZERO;
        self.send(Opcode::RC_ACKNOWLEDGE, psn, 0, |writer| {
            writer.aeth(&Aeth { syndrome, msn });
        });
    }

    pub fn nak(&self, psn: Psn, code: NakCode) {
        self.answer(psn, Syndrome::nak(code));
    }
}
