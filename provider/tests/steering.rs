//! How often an owner of a shared address looks whether packets are steered right. In a process of its own: contexts that
//! come and go change the registry, which is a reason to look.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use common::{End, address, connect};
use urxe::{ConnectOptions, Context};

/// As a network adapter makes them, or a stranger: packets for two owners in one train.
#[test]
fn trains_for_two_owners_are_no_reason_to_steer_anew() {
    use urxe_udp::{Dest, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};
    use urxe_wire::{Bth, Opcode, PacketWriter, Psn, packet_len};

    const TRAINS: u64 = 10_000;
    let shared = address();
    let end_at = |addr| End::on(Context::open(addr).expect("shared"));
    let (first, second) = (end_at(shared), end_at(shared));
    let far = End::open();
    connect(&second.qp, &far.qp, &ConnectOptions::default());
    let socket = UdpSocket::bind((address(), 0).into(), &UdpConfig::default()).expect("free");
    let info = Opcode::RC_SEND_ONLY.info().expect("an opcode of the table");
    let len = packet_len(info, 8);
    let mut train = vec![0; 2 * len];
    for (packet, end) in train.chunks_mut(len).zip([&first, &second]) {
        // It need not be taken for genuine.
        let bth = Bth::new(Opcode::RC_SEND_ONLY, end.qp.qp_num(), Psn::new(0));
        let _ = PacketWriter::new(packet, &bth);
    }
    let transmit = Transmit::run(0..2 * len, len, Dest::new((shared, 4791).into()));
    let start = std::time::Instant::now();
    let before = second.counter("steering_repairs");
    for sent in 1..=TRAINS {
        let outcome = socket.send(SendBatch {
            bytes: &train,
            transmits: std::slice::from_ref(&transmit),
        });
        assert!(matches!(outcome, SendOutcome::All { .. }), "{outcome:?}");
        // The inbox holds ten, and more come when the owner has fetched them.
        if sent % 8 == 0 {
            common::wait_until("the second packets are handed over, and fetched", || {
                let handed = first.counter("handed_over");
                handed + first.counter("hand_over_lost") >= sent
                    && second.counter("taken_over") >= handed
            });
        }
    }
    let repairs = second.counter("steering_repairs") - before;
    let seconds = start.elapsed().as_secs();
    println!("{repairs} repairs for {TRAINS} trains in {seconds} s");
    assert!(second.counter("taken_over") > TRAINS / 2);
    // Twelve while the pause grows to a second, and after that one a second.
    assert!(repairs <= 12 + 2 * seconds, "{repairs} in {seconds} s");
    common::exchange(&second, &far, 1);
}
