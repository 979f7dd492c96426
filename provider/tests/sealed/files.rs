//! What is written while packets are sealed: captures show what was inside, and the key is nowhere.

use std::fs;

use urxe::{ConnectOptions, Security, SendWr};
use urxe_wire::{IcrcSeed, IcrcVerdict, PathHeader};

use super::ends::{Key, builder, open};
use crate::capture::Capture;
use crate::common::{End, address, connect, stat_entry};

#[test]
fn captures_are_opened_and_the_key_is_nowhere() {
    let key = Key::new(0x3fa2, 0xa7);
    let capture = Capture::new("sealed");
    let a = builder(address(), Security::Seal, &key).pcap(&capture.0);
    let a = End::on(a.open().expect("the address is free"));
    let b = End::on(open(address(), Security::Seal, &key));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let memory = b.memory(64);
    for end in [&a, &b] {
        b.recv(1, &memory);
        let _ = end;
        a.qp.post_send(&SendWr::send_inline(1, b"what was inside").signaled())
            .expect("room");
        b.succeed();
        a.succeed();
    }
    let stat = format!("{:?} {:?}", stat_entry(&a.context), a.context.counters());
    let debug = format!("{:?} {:?}", a.context, a.qp);
    drop(a);
    let bytes = fs::read(&capture.0).expect("the capture");
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(has(b"what was inside"));
    assert!(has(b"were sealed (mode seal, key 3fa2)"));
    let packets = capture.packets();
    assert!(packets.len() >= 4);
    for (_, packet) in &packets {
        let addr = |at: usize| *packet[at..].first_chunk().expect("an IPv4 header");
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let path = PathHeader::V4 {
            src: addr(12),
            dst: addr(16),
            sport: port(20),
            dport: port(22),
        };
        let verdict = IcrcSeed::new(&path).verify(port(4), &packet[28..]);
        assert_eq!(verdict, IcrcVerdict::Ok { ident: port(4) });
    }
    // As bytes and as text, a part of the secret.
    let text = "a7".repeat(8);
    assert!(!has(&[0xa7; 8]) && !has(text.as_bytes()));
    for text_of in [&stat, &debug] {
        assert!(
            !text_of.contains(&text) && !text_of.contains("167, 167"),
            "{text_of}"
        );
    }
}
