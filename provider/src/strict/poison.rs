//! The pattern in a buffer while it belongs to the adapter.

/// Repeated over the buffer, from its first byte on. It says what it is to a program that prints
/// the buffer, and makes no sensible number.
const POISON: &[u8; 8] = b"<posted>";

/// Fills `bytes`, which begin `offset` bytes into the buffer.
pub(super) fn fill(bytes: &mut [u8], offset: usize) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = POISON[(offset + at) % POISON.len()];
    }
}

/// The first byte that is not as [`fill`] left it.
pub(super) fn first_change(bytes: &[u8]) -> Option<usize> {
    let expected = POISON.iter().cycle();
    bytes.iter().zip(expected).position(|(a, b)| a != b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found_wherever_it_is() {
        for len in 0..40 {
            let mut bytes = vec![0; len];
            let half = len / 2;
            fill(&mut bytes[..half], 0);
            fill(&mut bytes[half..], half);
            assert_eq!(first_change(&bytes), None);
            for at in 0..len {
                let was = bytes[at];
                bytes[at] ^= 0x20;
                assert_eq!(first_change(&bytes), Some(at));
                bytes[at] = was;
            }
        }
    }
}
