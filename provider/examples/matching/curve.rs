//! What the length of a queue costs: the time of one message while so many receives, or messages, wait that it has to pass.

use std::time::{Duration, Instant};

use crate::layer::{Buffer, Done, Layer, MatchError};
use crate::queues::Pattern;

/// The tag of what waits.
const WAITS: u32 = 9;
/// The tag of the message that is timed.
const TIMED: u32 = 1;

/// Which queue is long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Long {
    /// That of posted receives, each from one sender.
    Posted,
    /// That of posted receives, each from any sender.
    PostedWild,
    /// That of messages without a receive.
    Unexpected,
}

/// The median time from posting a receive and sending its message, of 8 bytes, to [`Done::Received`]. Both layers are new, of
/// ranks 0 (which receives) and 1, and polled in turn.
pub fn latency(
    layers: &mut [Layer; 2],
    long: Long,
    len: usize,
    rounds: usize,
) -> Result<Duration, MatchError> {
    let memory = [layers[0].memory(8)?, layers[1].memory(8)?];
    let sender = (long != Long::PostedWild).then_some(1);
    for count in 0..len as u64 {
        if long == Long::Unexpected {
            layers[1].send(0, 0, WAITS, Buffer::new(&memory[1], 0..8))?;
            while layers[0].arrived() <= count {
                layers[1].poll()?;
                layers[0].poll()?;
            }
        } else {
            let pattern = Pattern::new(0, sender, Some(WAITS));
            layers[0].recv(pattern, Buffer::new(&memory[0], 0..8))?;
        }
    }
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        let buffer = Buffer::new(&memory[0], 0..8);
        layers[0].recv(Pattern::new(0, sender, Some(TIMED)), buffer)?;
        layers[1].send(0, 0, TIMED, Buffer::new(&memory[1], 0..8))?;
        loop {
            layers[1].poll()?;
            if let Some(Done::Received { .. }) = layers[0].poll()? {
                break;
            }
        }
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[rounds / 2])
}
