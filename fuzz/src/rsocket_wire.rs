//! What rsockets say to each other, by itself: what parses means the same when it is written again, and nothing
//! that is read lies outside of the bytes.

// The drop-in library's own, from where they live.
#[path = "../../abi/src/rsocket/datagram/wire.rs"]
mod datagram;
#[allow(dead_code, reason = "some of it concerns connections alone")]
#[path = "../../abi/src/rsocket/wire.rs"]
mod stream;

use datagram::Introduction;
use stream::{ConnData, Message, Span};

/// Input: private data, an immediate, an introduction, or a datagram; each is tried.
pub fn target(data: &[u8]) {
    if let Some(conn) = ConnData::parse(data) {
        assert!(conn.target_list.length > 0);
        let written = conn.to_bytes();
        assert_eq!(ConnData::parse(&written), Some(conn));
        // The fields that count are where they were read.
        assert_eq!(written[2..4], data[2..4]);
        assert_eq!(written[8..], data[8..written.len()]);
        check_entry(conn.buffer, conn.is_big_endian);
    }
    if let Some(imm) = data.first_chunk() {
        let imm = u32::from_be_bytes(*imm);
        if let Some(message) = Message::from_imm(imm) {
            assert_eq!(Message::from_imm(message.to_imm()), Some(message));
            assert_eq!(message.to_imm() >> 29, imm >> 29);
        }
    }
    if let Some((introduction, rest)) = Introduction::parse(data) {
        let mut written = introduction.to_bytes();
        assert_eq!(written.len() + rest.len(), data.len());
        written.extend(rest);
        assert_eq!(Introduction::parse(&written), Some((introduction, rest)));
        check_datagram(rest);
    }
    check_datagram(data);
}

fn check_datagram(data: &[u8]) {
    if let Some((from, rest)) = datagram::parse(data) {
        let mut written = datagram::header(from);
        assert_eq!(written.len() + rest.len(), data.len());
        written.extend(rest);
        assert_eq!(datagram::parse(&written), Some((from, rest)));
    }
}

/// An entry of a list, as the machine of that byte order reads it.
fn check_entry(span: Span, is_big_endian: bool) {
    if is_big_endian == cfg!(target_endian = "big") {
        let entry = span.to_entry(is_big_endian);
        let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("eight"));
        assert_eq!(Span::from_words(word(0), word(8)), span);
        assert_eq!(span.second_word(), word(8));
    }
    assert_eq!(
        stream::iomap_entry(7, span, is_big_endian)[8..],
        span.to_entry(is_big_endian)
    );
}
