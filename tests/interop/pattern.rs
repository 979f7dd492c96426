//! Payload bytes, the same as in agent.py.

/// A prime, so that no packet's length is a multiple of it: a packet that lands in another's place shows.
const PERIOD: usize = 65521;

/// `length` bytes that differ from message to message and from place to place.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut x = 1u32;
    let block: Vec<u8> = (0..PERIOD)
        .map(|_| {
            x = x.wrapping_mul(1103515245).wrapping_add(12345);
            (x >> 16) as u8
        })
        .collect();
    let start = (seed * 4099 % PERIOD as u64) as usize;
    block.into_iter().cycle().skip(start).take(length).collect()
}
