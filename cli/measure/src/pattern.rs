//! Message contents that depend on the message's number, so that a stale, shifted or mixed-up byte is found.

use std::ops::Range;

use urxe::Mr;

use crate::error::CliError;

/// Which way a message goes; the two directions of one round differ in every word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer = 1,
    ToClient = 2,
}

/// Writes the contents of message `number`.
pub fn fill(buffer: &mut [u8], number: u64, direction: Direction) {
    for (index, chunk) in buffer.chunks_mut(8).enumerate() {
        let word = word(number, direction, index).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Where the contents first differ from those of message `number`; `None` when every byte is right.
pub fn first_difference(buffer: &[u8], number: u64, direction: Direction) -> Option<usize> {
    for (index, chunk) in buffer.chunks(8).enumerate() {
        let word = word(number, direction, index).to_le_bytes();
        if chunk != &word[..chunk.len()] {
            let within = chunk
                .iter()
                .zip(word)
                .position(|(&byte, expected)| byte != expected);
            return Some(index * 8 + within.expect("the chunks differ"));
        }
    }
    None
}

/// Whether the first message to the server has arrived in this part of a region, whole.
pub fn verify(mr: &Mr, range: Range<usize>) -> Result<(), CliError> {
    let mut message = vec![0; range.len()];
    mr.read(range.start, &mut message);
    match first_difference(&message, 0, Direction::ToServer) {
        None => Ok(()),
        Some(byte) => Err(CliError::Fault(format!(
            "verification failed: byte {byte} is not what was sent"
        ))),
    }
}

/// Mixes message number, direction and position (the finaliser of SplitMix64): a short shift shows.
fn word(number: u64, direction: Direction, index: usize) -> u64 {
    let message = number.wrapping_mul(4).wrapping_add(direction as u64);
    let mut z = message
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(index as u64);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damaged_byte_is_found() {
        let mut buffer = [0; 21];
        fill(&mut buffer, 7, Direction::ToServer);
        assert_eq!(first_difference(&buffer, 7, Direction::ToServer), None);
        for index in 0..buffer.len() {
            buffer[index] ^= 0x10;
            assert_eq!(
                first_difference(&buffer, 7, Direction::ToServer),
                Some(index)
            );
            buffer[index] ^= 0x10;
        }
    }

    #[test]
    fn other_messages_differ() {
        let mut buffer = [0; 64];
        fill(&mut buffer, 7, Direction::ToServer);
        assert!(first_difference(&buffer, 8, Direction::ToServer).is_some());
        assert!(first_difference(&buffer, 7, Direction::ToClient).is_some());
        buffer.rotate_left(8);
        assert!(first_difference(&buffer, 7, Direction::ToServer).is_some());
    }
}
