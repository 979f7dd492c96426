//! The engine of a context on a network that is no sockets ([`crate::network`]). The usual paths
//! know of this by branches that they have anyway: of those who send with faults, and of
//! those whose calls are observed.

use std::sync::Arc;
use std::time::Duration;

use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::{AckMode, Env, Handled, RxPath};

use super::Engine;
use super::channel::Channel;
use super::doorbell::Poisoned;
use super::progress::RECENT_NS;
use super::shard_state::{ShardState, with_parts};
use super::strict::handle_strictly;
use crate::error::{Error, ErrorKind};
use crate::mem::UserMemory;
use crate::network::{Network, Packet, Pause, Ready};

/// Bytes that the core hands over at a time: one packet of 4 KiB, or some smaller ones. More would
/// leave however the network changes meanwhile.
const BATCH_BYTES: usize = 4096 + 64;

/// An empty batch for a network.
pub(super) fn batch() -> TxBatch {
    TxBatch::new(BATCH_BYTES, RunLimits::SINGLE)
}

impl<T: Send + core::fmt::Debug> Ready for Channel<T> {
    fn is_ready(&self) -> bool {
        !self.is_empty()
    }
}

impl Engine {
    /// The program is about to do something that takes a while.
    #[cold]
    pub(crate) fn pause(&self, why: &Pause) -> Result<(), Poisoned> {
        match &self.network {
            // To the program a host that is no more is an engine that failed.
            Some(network) => network.pause(why).map_err(|_| Poisoned),
            None => Ok(()),
        }
    }

    /// Takes a packet in; false if it is for another context.
    pub(crate) fn receive_from_network(&self, packet: &Packet<'_>) -> bool {
        let Ok(mut guard) = self.combiner.lock() else {
            return true;
        };
        guard.start_turn();
        let state = &mut *guard;
        let path = RxPath::new(packet.source, packet.source_port, packet.dest, packet.tos);
        let ShardState {
            shard,
            mrs,
            cqs,
            strict,
            counters,
            ..
        } = state;
        let mut env = Env {
            now: state.now,
            mrs,
            memory: &UserMemory,
            cqs,
        };
        let handled = match strict {
            Some(strict) => handle_strictly(strict, shard, &mut env, &path, 0, packet.bytes),
            None => shard.handle_packet(&path, 0, packet.bytes, &mut env),
        };
        if handled == Handled::OfAnother {
            return false;
        }
        counters.rx_calls += 1;
        let acks = self.acks_on_network(state);
        state.handle_timers();
        state.transmit(acks);
        true
    }

    /// Does what is due, as the progress thread would.
    pub(crate) fn drive_on_network(&self) {
        if let Ok(mut state) = self.combiner.lock() {
            state.start_turn();
            let acks = self.acks_on_network(&state);
            state.handle_timers();
            state.transmit(acks);
        }
    }

    /// The network takes packets again.
    pub(crate) fn transmit_on_network(&self) {
        if let Ok(mut state) = self.combiner.lock() {
            state.start_turn();
            state.transmit(AckMode::Patient);
        }
    }

    pub(crate) fn due_on_network(&self) -> Option<u64> {
        let state = self.combiner.lock().ok()?;
        state.due().map(|due| due.0)
    }

    /// Packets that nobody polled for are acknowledged at once, as the progress thread and waiting
    /// threads do; a program that polls will probably answer.
    fn acks_on_network(&self, state: &ShardState) -> AckMode {
        if self.progress.is_watched() || !self.progress.was_driven(state.now, RECENT_NS) {
            AckMode::Now
        } else {
            AckMode::Patient
        }
    }

    /// [`Engine::wait_for_event`] in the time of the network.
    pub(super) fn wait_on_network<T: Send + core::fmt::Debug + 'static>(
        &self,
        network: &dyn Network,
        channel: &Arc<Channel<T>>,
        timeout: Option<Duration>,
    ) -> Result<Option<T>, Error> {
        let now = self.clock.now();
        let deadline = timeout.map(|t| now + u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        let watch = self.progress.try_watch();
        let event = loop {
            if let Some(event) = self.look_for(channel)? {
                break Some(event);
            }
            if deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
                break None;
            }
            let pause = Pause::Event {
                event: channel.clone(),
                deadline_ns: deadline.map(|deadline| deadline.0),
            };
            let stopped = network.pause(&pause);
            stopped.map_err(|_| Error::from(ErrorKind::EngineFailed))?;
        };
        if let Some(watch) = watch {
            watch.end(self.clock.now());
        }
        Ok(event)
    }
}

impl ShardState {
    /// Whether the core may make packets now.
    pub(super) fn has_room(&self) -> bool {
        let network = self.network.as_ref();
        network.is_none_or(|network| network.has_room())
    }

    /// Hands the packets of the batch to the network.
    pub(super) fn launch(&mut self, network: &Arc<dyn Network>) {
        self.counters.tx_calls += 1;
        let batch = &mut self.tx.batch;
        for run in batch.runs() {
            for bytes in batch.bytes()[run.range.clone()].chunks(run.segment_size) {
                network.send(&Packet {
                    source: run.dest.local,
                    source_port: run.dest.source_port,
                    dest: run.dest.remote,
                    tos: run.dest.tos,
                    bytes,
                });
            }
        }
        batch.clear();
    }

    /// [`ShardState::transmit`] to a network without faults of ours.
    pub(super) fn transmit_to(&mut self, network: &Arc<dyn Network>, acks: AckMode) -> bool {
        while self.shard.has_work() && network.has_room() {
            let batch = &mut self.tx.batch;
            let more = with_parts!(self, |shard, env| shard.poll_transmit(env, batch, acks));
            if !self.tx.batch.is_empty() {
                self.launch(network);
            }
            if !more {
                break;
            }
        }
        true
    }
}
