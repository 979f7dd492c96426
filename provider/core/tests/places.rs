//! The addresses that a driver prefetches.

use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_wire::Opcode;

use crate::support::{Node, Pair, Settings};

/// The first bytes of a packet to this QP.
fn head(node: &Node, opcode: Opcode) -> [u8; 8] {
    let [_, a, b, c] = node.qpn.get().to_be_bytes();
    [opcode.0, 0, 0xff, 0xff, 0, a, b, c]
}

#[test]
fn a_request_and_an_answer_need_parts_of_a_qp_that_overlap() {
    let pair = Pair::new(&Settings::default(), 1);
    let node = &pair.nodes[0];
    let place = |opcode| node.shard.place_for(&head(node, opcode)).expect("a QP");
    let (request, answer) = (place(Opcode::RC_SEND_ONLY), place(Opcode::RC_ACKNOWLEDGE));
    assert_eq!(Some(&answer), node.shard.place_of(node.qp).as_ref());
    assert!(request.start < answer.start && request.end > answer.start);
    assert!(request.end < answer.end);
    // Of sixteen cache lines.
    assert!(request.len() <= 512 && answer.len() <= 640);
    assert_eq!(request, place(Opcode::RC_READ_REQUEST));
    assert_eq!(answer, place(Opcode::RC_READ_RESPONSE_ONLY));
    // What is no opcode is no answer.
    assert_eq!(request, place(Opcode(0x1f)));
}

#[test]
fn what_is_for_no_qp_has_no_place() {
    let pair = Pair::new(&Settings::default(), 1);
    let node = &pair.nodes[0];
    let bytes = head(node, Opcode::RC_SEND_ONLY);
    assert_eq!(node.shard.place_for(&bytes[..7]), None);
    let mut stray = bytes;
    stray[7] ^= 1;
    assert_eq!(node.shard.place_for(&stray), None);
}

/// A WRITE of nothing, which needs no memory.
fn write() -> SendWr<'static> {
    SendWr {
        flags: SendFlags::SIGNALED,
        ..SendWr::new(1, WrOpcode::RdmaWrite, WrData::Inline(b""))
    }
}

#[test]
fn the_place_of_the_next_send_goes_round_with_posts() {
    let mut pair = Pair::new(&Settings::default(), 1);
    let next = |pair: &Pair| {
        let node = &pair.nodes[0];
        node.shard.places_of_next(node.qp).expect("a QP")
    };
    let [first, inline] = next(&pair);
    pair.post_send(0, &write());
    let [second, second_inline] = next(&pair);
    assert_eq!(second, first.end..first.end + first.len());
    assert_eq!(second_inline.start, inline.end);
    let mut posts = 1;
    while next(&pair)[0] != first {
        pair.run();
        pair.post_send(0, &write());
        posts += 1;
        assert!(posts <= 4096, "it never comes round");
    }
    assert!(posts > 1);
}
