//! The engine of a context on a custom `Network` (for example the simulator) instead of UDP sockets ([`crate::network`]). The usual
//! calls know of this by the one branch that they have for observed calls.

use core::net::IpAddr;
use std::sync::Arc;

use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::{Driver, Foreign, Handled, RxPath};

use super::seam::{Carrier, NO_GROUPS, Sending, Sent};
use crate::engine::Engine;
use crate::engine::drive::progress::RECENT_NS;
use crate::engine::drive::shard_state::ShardState;
use crate::error::{Error, ErrorKind};
use crate::network::{Driven, Network, Packet, Ready};
use crate::queues::Channel;

/// Bytes that the core hands over at a time: one packet of 4 KiB, or some smaller ones. More would
/// leave however the network changes meanwhile.
const BATCH_BYTES: usize = 4096 + 64;

/// A network as what carries packets. It hands in those that arrive by itself.
#[derive(Debug)]
pub(in crate::engine) struct NetworkCarrier {
    network: Arc<dyn Network>,
    /// The multicast groups that it hears.
    groups: Vec<IpAddr>,
}

impl NetworkCarrier {
    pub(in crate::engine) fn new(network: Arc<dyn Network>) -> NetworkCarrier {
        NetworkCarrier {
            network,
            groups: Vec::new(),
        }
    }
}

impl Carrier for NetworkCarrier {
    fn batch(&self) -> TxBatch {
        TxBatch::new(BATCH_BYTES, RunLimits::SINGLE)
    }

    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent {
        cx.counters.tx_calls += 1;
        for run in batch.runs() {
            for bytes in run.packets(&batch.bytes()[run.range.clone()]) {
                self.network.send(&Packet {
                    source: run.dest.local,
                    source_port: run.dest.source_port,
                    dest: run.dest.remote,
                    tos: run.dest.tos,
                    bytes,
                });
            }
        }
        batch.clear();
        Sent::All
    }

    fn has_room(&self) -> bool {
        self.network.has_room()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        let groups = self.network.groups().ok_or(NO_GROUPS)?;
        if !groups.join(group) {
            return Err(ErrorKind::NoAddressForGroup(group).into());
        }
        self.groups.push(group);
        Ok(())
    }

    fn leave(&mut self, has_members: &dyn Fn(IpAddr) -> bool) {
        let Some(groups) = self.network.groups() else {
            return;
        };
        self.groups.retain(|&group| {
            let stays = has_members(group);
            if !stays {
                groups.leave(group);
            }
            stays
        });
    }
}

impl Drop for NetworkCarrier {
    fn drop(&mut self) {
        self.leave(&|_| false);
    }
}

impl<T: Send + core::fmt::Debug> Ready for Channel<T> {
    fn is_ready(&self) -> bool {
        !self.is_empty()
    }
}

impl Driven for Engine {
    /// Takes a packet in; false if it is for another context.
    fn receive(&self, packet: &Packet<'_>) -> bool {
        let Ok(mut state) = self.combiner.lock() else {
            return true;
        };
        state.start_turn();
        let path = RxPath::new(packet.source, packet.source_port, packet.dest, packet.tos);
        if state.handle_packet(&path, 0, packet.bytes) != Handled::Here {
            return false;
        }
        state.counters.rx_calls += 1;
        self.turn_on_network(&mut state);
        true
    }

    fn receive_unowned(&self, packet: &Packet<'_>) {
        let Ok(mut state) = self.combiner.lock() else {
            return;
        };
        state.start_turn();
        let path = RxPath::new(packet.source, packet.source_port, packet.dest, packet.tos);
        let handled = state.handle_packet(&path, 0, packet.bytes);
        if let Handled::OfAnother(Foreign::Message(_)) = handled {
            let now = state.now;
            state.shard.handle_unowned_mad(&path, packet.bytes, now);
            self.turn_on_network(&mut state);
        }
    }

    /// Does what is due, as the progress thread would, or what there was no room for.
    fn drive(&self) {
        if let Ok(mut state) = self.combiner.lock() {
            state.start_turn();
            self.turn_on_network(&mut state);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let state = self.combiner.lock().ok()?;
        state.due().map(|due| due.0)
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        self.counters().unwrap_or_default()
    }
}

impl Engine {
    /// In the place of the program: if no thread polls, that is asleep.
    fn turn_on_network(&self, state: &mut ShardState) {
        let sleeps = self.progress.is_watched() || !self.progress.was_driven(state.now, RECENT_NS);
        state.handle_timers();
        state.transmit(if sleeps {
            Driver::Sleeper { yields: false }
        } else {
            Driver::Poller { yields: false }
        });
    }
}
