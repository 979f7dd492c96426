//! Waiting for the peers' acknowledgements before the process ends.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use crate::context::Context;

/// How often it is looked whether peers have answered. They do within some ten microseconds, if they live.
const LOOK: Duration = Duration::from_micros(200);
/// How long after the first look a peer is told once more; doubled each time.
const AGAIN: Duration = Duration::from_millis(5);

/// Waits until the peers know of all connections that these contexts have ended, and tells them again every few
/// milliseconds: for a process that is about to end, because nothing does that afterwards. (A kernel goes on asking
/// after the process is gone.) Returns how many peers have not answered within `limit`.
pub fn finish_disconnects(contexts: &[Context], limit: Duration) -> usize {
    let start = Instant::now();
    let mut again = AGAIN;
    loop {
        let is_time = start.elapsed() >= again;
        let left = contexts.iter().map(|context| left(context, is_time)).sum();
        if left == 0 || start.elapsed() >= limit {
            return left;
        }
        if is_time {
            again *= 2;
        }
        thread::sleep(LOOK);
    }
}

/// Peers that have not answered, told once more or not.
fn left(context: &Context, again: bool) -> usize {
    let counted = context.engine().cm(|agent, _| {
        if again {
            agent.repeat_disconnects()
        } else {
            agent.disconnecting()
        }
    });
    // After a fork or a panic there is nothing to wait for.
    counted.unwrap_or(0)
}
