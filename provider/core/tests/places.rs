//! The addresses that a driver prefetches.

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
