//! Waiting for the peers' acknowledgements before the process ends.

use core::time::Duration;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::context::Context;
use crate::network::{self, Network, Pause, Ready};

/// How often it is looked whether peers have answered. They do within some ten microseconds, if they live.
const LOOK: Duration = Duration::from_micros(200);
/// How long after the first look a peer is told once more; doubled each time.
const AGAIN: Duration = Duration::from_millis(5);

/// Waits until the peers know of all connections that these contexts have ended, and tells them again every few
/// milliseconds: for a process that is about to end, because nothing does that afterwards. (A kernel goes on asking
/// after the process is gone, and a [`crate::network`] may.) Returns how many peers have not answered within `limit`.
pub fn finish_disconnects(contexts: &[Context], limit: Duration) -> usize {
    if let Some(network) = network::current() {
        return wait_on(&*network, contexts, limit);
    }
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

/// On a network contexts tell their peers again by themselves, also after the program has ended.
fn wait_on(network: &dyn Network, contexts: &[Context], limit: Duration) -> usize {
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let end = network.now_ns().saturating_add(limit);
    let told = Arc::new(Told(contexts.to_vec()));
    while !told.is_ready() && network.now_ns() < end {
        let pause = Pause::Event {
            event: told.clone(),
            deadline_ns: Some(end),
        };
        if network.pause(&pause).is_err() {
            break;
        }
    }
    contexts.iter().map(|context| left(context, false)).sum()
}

/// The peers know.
#[derive(Debug)]
struct Told(Vec<Context>);

impl Ready for Told {
    fn is_ready(&self) -> bool {
        self.0.iter().all(|context| left(context, false) == 0)
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
