//! Another program on the peer's host, which therefore has the peer's address, and knows the
//! QPNs and nothing else: it sends packets with ICRCs that fit Identifications of its choice,
//! between all that is genuine. No message is lost, and no connection fails.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::common::*;
use urxe::{ConnectOptions, Context, Qkey, QpState, QpType, Qpn, SendWr};
use urxe_wire::{
    Aeth, Bth, Deth, IcrcSeed, Msn, Opcode, PacketWriter, PathHeader, Psn, Reth, Rkey, Syndrome,
    packet_len,
};

/// Messages of a test, and forged packets to each side before each of them.
const MESSAGES: u64 = 2000;
const FORGED: u64 = 25;
/// The first message that they are sent before.
const FIRST: u64 = 10;
const QKEY: Qkey = Qkey(0x1111_1111);
const GRH: usize = 40;

/// A socket of another program on the host that `as_from` is on, and what it sends to `to`.
struct Stranger {
    socket: UdpSocket,
    to: SocketAddr,
    seed: IcrcSeed,
    qpn: Qpn,
    /// The first PSN that the target sends with, so that it can be avoided.
    psn: Psn,
    count: u64,
}

impl Stranger {
    fn new(as_from: &End, to: &End) -> Stranger {
        let (from, addr) = (as_from.context.address(), to.context.address());
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).expect("a socket");
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (from, addr) else {
            panic!("tests are on 127.0.0.0/8")
        };
        let seed = IcrcSeed::new(&PathHeader::V4 {
            src: src.octets(),
            dst: dst.octets(),
            sport: socket.local_addr().expect("bound").port(),
            dport: 4791,
        });
        Stranger {
            socket,
            to: SocketAddr::new(addr, 4791),
            seed,
            qpn: to.qp.qp_num(),
            psn: to.qp.endpoint().psn,
            count: 0,
        }
    }

    /// Identifications that confirm each other, now here, now there.
    fn send(&mut self, opcode: Opcode, fill: impl FnOnce(&mut PacketWriter<'_>)) {
        let ident = [30_000, 50_000, 10_000, 62_000][(self.count / 2 % 4) as usize];
        // Far from all that are used, before and after them.
        let psn = self
            .psn
            .add(0x40_0000 + (self.count * 0x9_7f4a % 0x80_0000) as u32);
        self.count += 1;
        let bth = Bth::new(opcode, self.qpn, psn);
        let info = opcode.info().expect("an opcode of the table");
        let mut bytes = vec![0; packet_len(info, 0)];
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        fill(&mut writer);
        writer.finish(&self.seed, ident);
        let sent = self.socket.send_to(&bytes, self.to);
        assert_eq!(sent.expect("loopback takes it"), bytes.len());
    }

    fn forge(&mut self, qp_type: QpType) {
        match qp_type {
            QpType::Uc => self.send(Opcode::UC_WRITE_ONLY, |writer| writer.reth(&nothing())),
            QpType::Ud => self.send(Opcode::UD_SEND_ONLY, |writer| {
                let qkey = Qkey(QKEY.0 + 1);
                let src_qp = Qpn::new(7);
                writer.deth(&Deth {
                    qkey,
                    reserved: 0,
                    src_qp,
                });
            }),
            _ => self.send(Opcode::RC_ACKNOWLEDGE, |writer| {
                let syndrome = Syndrome(31);
                writer.aeth(&Aeth {
                    syndrome,
                    msn: Msn::ZERO,
                });
            }),
        }
    }
}

/// A WRITE of nothing: it needs no key, and is executed.
fn nothing() -> Reth {
    Reth {
        va: 0,
        rkey: Rkey(0),
        dma_len: 0,
    }
}

fn end(qp_type: QpType) -> End {
    let context = Context::open(address()).expect("the address is free");
    End::with(context, |qp| qp.qp_type(qp_type))
}

/// The messages one by one, each after forged packets that have arrived.
fn all_arrive(qp_type: QpType) {
    let (a, b) = (end(qp_type), end(qp_type));
    let ah = a.pd.create_ah_to(b.context.address()).expect("a path");
    if qp_type == QpType::Ud {
        a.qp.start_datagrams(QKEY).expect("starts");
        b.qp.start_datagrams(QKEY).expect("starts");
    } else {
        connect(&a.qp, &b.qp, &ConnectOptions::default());
    }
    let to = b.memory(4096);
    let skip = if qp_type == QpType::Ud { GRH } else { 0 };
    let mut strangers = [(Stranger::new(&a, &b), &b), (Stranger::new(&b, &a), &a)];
    for number in 0..MESSAGES {
        if number >= FIRST {
            for (stranger, target) in &mut strangers {
                let before = target.counter("rcvd_pkts");
                (0..FORGED).for_each(|_| stranger.forge(qp_type));
                wait_until("forged packets arrive", || {
                    target.counter("rcvd_pkts") >= before + FORGED
                });
            }
        }
        b.recv(number, &to);
        let text = pattern(number, 64);
        let mut wr = SendWr::send_inline(number, &text).signaled();
        if qp_type == QpType::Ud {
            wr = wr.ud_addr(&ah, b.qp.qp_num(), QKEY);
        }
        a.qp.post_send(&wr).expect("room");
        assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (number, number));
        assert_eq!(bytes(&to, skip + 64)[skip..], text);
    }
    for end in [&a, &b] {
        assert_eq!(end.qp.state().expect("there"), QpState::Rts);
        if qp_type == QpType::Rc {
            // Those alone: what is refused of the peer is sent again, and no message tells of it.
            let forged = (MESSAGES - FIRST) * FORGED;
            assert_eq!(
                end.counter("drop_icrc"),
                forged,
                "the stranger's packets are refused"
            );
        }
    }
    assert!(
        b.counter("drop_icrc") + b.counter("drop_qkey") > 0,
        "they were refused"
    );
}

#[test]
fn a_reliable_connection() {
    all_arrive(QpType::Rc);
}

#[test]
fn an_unreliable_connection() {
    all_arrive(QpType::Uc);
}

#[test]
fn datagrams() {
    all_arrive(QpType::Ud);
}

/// What is sent while forged packets come as fast as they can, not one after the other.
#[test]
fn a_reliable_connection_under_a_million_forged_packets() {
    const COUNT: u64 = 500_000;
    let (a, b) = pair();
    let mut strangers = [Stranger::new(&a, &b), Stranger::new(&b, &a)];
    let to = b.memory(64);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for _ in 0..COUNT {
                strangers.iter_mut().for_each(|s| s.forge(QpType::Rc));
            }
        });
        let mut number = 0;
        while number < 10 || !flood.is_finished() {
            b.recv(number, &to);
            let text = pattern(number, 64);
            let wr = SendWr::send_inline(number, &text).signaled();
            a.qp.post_send(&wr).expect("room");
            assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (number, number));
            assert_eq!(bytes(&to, 64), text);
            number += 1;
        }
        println!("{number} messages beside {} forged packets", 2 * COUNT);
    });
}

/// The kernel joins trains over IPv6 too, where packets have no Identification that could be
/// unlikely.
#[test]
fn an_unreliable_connection_over_ipv6_loses_nothing() {
    const LEN: usize = 60_000;
    let (addr, _turn) = v6_in_turn();
    let context = match Context::open(addr) {
        Ok(context) => context,
        Err(e) => return println!("skipped: no IPv6 on loopback ({e})"),
    };
    let uc = |context: &Context| End::with(context.clone(), |qp| qp.qp_type(QpType::Uc));
    let (a, b) = (uc(&context), uc(&context));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(LEN), b.memory(LEN));
    for round in 0..200u64 {
        // A lone packet, then a train.
        for len in [8, LEN] {
            let text = pattern(round, len);
            from.write(0, &text);
            b.recv(round, &to);
            let sges = [from.sge(..len)];
            a.qp.post_send(&SendWr::send(round, &sges).signaled())
                .expect("room");
            assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (round, round));
            assert_eq!(bytes(&to, len), text);
        }
    }
    assert_eq!(b.counter("drop_icrc"), 0);
}
