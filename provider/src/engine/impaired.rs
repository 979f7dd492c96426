//! Sending with faults on the way (`URXE_FAULTS`): what the core makes goes through a queue
//! of packets first. The usual path knows of this by one branch a turn.

use std::sync::Arc;

use urxe_core::AckMode;

use super::Engine;
use super::shard_state::{ShardState, with_parts};
use crate::faults::{FaultCounts, Summary};
use crate::network::Network;

impl ShardState {
    /// Nothing of a QP that is about to go stays on the way.
    pub(super) fn settle_faults(&mut self) {
        if let Some(path) = &mut self.faults {
            path.settle(self.now);
            self.transmit(AckMode::Now);
        }
    }

    /// [`ShardState::transmit`] with faults, or to a network.
    #[cold]
    pub(super) fn transmit_detoured(&mut self, acks: AckMode) -> bool {
        match self.network.clone() {
            Some(network) if self.faults.is_none() => self.transmit_to(&network, acks),
            network => self.transmit_impaired(network, acks),
        }
    }

    fn transmit_impaired(&mut self, network: Option<Arc<dyn Network>>, acks: AckMode) -> bool {
        let sockets = self.sockets.clone();
        // A batch that could not be sent stays: nothing must be added to it.
        if self.tx.has_backlog() && !self.tx.send(&sockets, &mut self.counters, None) {
            return false;
        }
        loop {
            let has_room = self.has_room();
            let batch = &mut self.tx.batch;
            let more = has_room
                && self.shard.has_work()
                && with_parts!(self, |shard, env| shard.poll_transmit(env, batch, acks));
            if let Some(path) = &mut self.faults {
                path.take(&mut self.tx.batch, self.now);
            }
            while let Some(path) = &mut self.faults
                && path.release(&mut self.tx.batch, self.now)
            {
                let tap = self.tap.as_mut();
                match &network {
                    Some(network) => self.launch(network),
                    None if self.tx.send(&sockets, &mut self.counters, tap) => {}
                    None => return false,
                }
            }
            if !more {
                return true;
            }
        }
    }
}

impl Engine {
    /// Says to standard error which faults there were.
    pub(crate) fn report_faults(&self) {
        if let Ok(state) = self.combiner.lock() {
            report(&state);
        }
    }

    /// The same, when nobody else uses it any more.
    pub(super) fn report_faults_in_the_end(&mut self) {
        if std::env::var_os("URXE_VERBOSE").is_some() {
            self.combiner.get_mut(|state| report(state));
        }
    }
}

fn report(state: &ShardState) {
    if let Some(path) = &state.faults {
        let (spec, counts) = (path.spec(), path.counts());
        eprintln!("urxe: {}", Summary { spec, counts });
    }
}

/// The counters, under their names.
pub(super) fn counters(state: &ShardState) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let counts = state.faults.as_ref().map(|path| path.counts());
    let FaultCounts {
        packets: _,
        dropped,
        duplicated,
        reordered,
        corrupted,
        delayed,
        overflowed,
    } = counts.unwrap_or_default();
    [
        ("fault_dropped", dropped),
        ("fault_duplicated", duplicated),
        ("fault_reordered", reordered),
        ("fault_corrupted", corrupted),
        ("fault_delayed", delayed),
        ("fault_overflowed", overflowed),
    ]
    .into_iter()
}
