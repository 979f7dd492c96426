//! A million datagrams from strangers to a live connection: truncated, oversized, with
//! wrong ICRCs, wrong QPNs, other sources, and at random. Nothing but counters moves.

use std::net::{SocketAddr, UdpSocket};

use crate::common::{address, bytes, pair, wait_until};
use urxe::{QpState, SendWr};

const COUNT: u64 = 1_000_000;
/// Datagrams that may wait in the socket: little enough that none is lost there.
const AHEAD: u64 = 256;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[test]
fn a_million_datagrams_of_strangers_move_nothing_but_counters() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let (a, b) = pair();
    let target = SocketAddr::new(b.context.address(), 4791);
    let stranger = UdpSocket::bind(SocketAddr::new(address(), 0)).expect("a socket");
    // Another program on the peer's host: it has the peer's address.
    let beside = UdpSocket::bind(SocketAddr::new(a.context.address(), 0)).expect("a socket");
    let (lent, to) = (b.memory(4096), b.memory(64));
    let untouched = bytes(&lent, 4096);

    let qpn = b.qp.qp_num().get().to_be_bytes();
    let attr = b.qp.query().expect("there");
    // A WRITE ONLY of 8 bytes that is right but for its ICRC, which cannot be known
    // without having the addresses' and the packet's every bit right.
    let mut right = vec![0x0a, 0x40, 0xff, 0xff, 0, qpn[1], qpn[2], qpn[3], 0x80];
    right.extend(&attr.rq_psn.get().to_be_bytes()[1..]);
    right.extend(lent.addr().to_be_bytes());
    right.extend(lent.rkey().0.to_be_bytes());
    right.extend(8u32.to_be_bytes());
    right.extend([0xee; 8]);
    right.extend([0; 4]);

    let start = b.counter("rcvd_pkts");
    let mut real = 0;
    for n in 0..COUNT {
        let mut packet = right.clone();
        let icrc = packet.len() - 4;
        packet[icrc..].copy_from_slice(&(random.next() as u32).to_le_bytes());
        let from = match n % 6 {
            0 => &stranger,
            1 => {
                packet.truncate(random.below(icrc));
                &beside
            }
            2 => {
                packet.resize(icrc + 4 * random.below(2000), 0xdd);
                &beside
            }
            3 => {
                packet[5..8].copy_from_slice(&(random.next() as u32).to_be_bytes()[1..]);
                &beside
            }
            4 => {
                let len = random.below(300);
                packet = (0..len).map(|_| random.next() as u8).collect();
                &beside
            }
            _ => &beside,
        };
        from.send_to(&packet, target).expect("loopback takes it");
        if n % AHEAD == AHEAD - 1 {
            let sent = start + n + 1;
            wait_until("what was sent is received", || {
                b.counter("rcvd_pkts") >= sent + real
            });
        }
        if n % 100_000 == 0 {
            // Between them the connection works.
            b.recv(n, &to);
            a.qp.post_send(&SendWr::send_inline(n, b"real").signaled())
                .expect("room");
            assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (n, n));
            real += 1;
        }
    }
    wait_until("all are received", || {
        b.counter("rcvd_pkts") >= start + COUNT + real
    });
    let dropped = |name: &str| b.counter(&format!("drop_{name}"));
    let reasons = ["malformed", "icrc", "no_qp", "address", "service"];
    for reason in reasons {
        println!("{reason}: {}", dropped(reason));
    }
    let sum: u64 = reasons.into_iter().map(dropped).sum();
    // A third of a million random ICRCs, each of which fits a likely Identification with a chance of 2^-25.2: one run in a
    // hundred has such a packet. Its PSN is that of a message which was there before, so it is a duplicate.
    let by_chance = b.counter("duplicate_request");
    assert!(by_chance <= 3, "{:?}", b.context.counters());
    assert_eq!(sum + by_chance, COUNT, "{:?}", b.context.counters());
    assert!(
        dropped("icrc") > COUNT / 4,
        "most are only refused by their ICRC"
    );
    assert_eq!(b.qp.state().expect("there"), QpState::Rts);
    assert!(bytes(&lent, 4096) == untouched, "memory was written");
    assert_eq!(b.counter("out_of_seq_request"), 0);
}
