//! The engine drives the core: sockets, the clock, user memory, and threads.
//!
//! The core's shard is passive and sits behind one lock. A thread with a reason drives it
//! (docs/CONCURRENCY.md): a thread that posts, polls or waits, or else the progress
//! thread. No call waits for another thread's turn except those that change objects.

mod ahead;
mod calls;
mod carrier;
mod drive;
mod objects;
mod upkeep;

use core::cell::RefCell;
use core::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use urxe_core::cm::Agent;
use urxe_core::mr::MrTable;
use urxe_core::{Driver, Recovery, Shard, ShardConfig};
use urxe_udp::{UdpConfig, UdpSocket};

pub(crate) use calls::inlet::Refused;
pub(crate) use calls::post::QpShared;
pub(crate) use calls::srq::SrqShared;
pub(crate) use drive::doorbell::Poisoned;
pub(crate) use drive::progress::ProgressThread;
pub(crate) use objects::handshakes::Agreement;
pub(crate) use upkeep::counters::MEANINGS as COUNTER_MEANINGS;
pub(crate) use upkeep::open_engines::{CAPTURING, FAULTY};
pub use upkeep::open_engines::{flush_open_captures, report_open_faults};

use crate::async_event::AsyncEvent;
use crate::error::{Error, ErrorKind};
use crate::faults::FaultSpec;
use crate::host::random::random;
use crate::mem::fork::{self, Generation};
use crate::network::Network;
use crate::queues::{Channel, CqCore, Taker};
use crate::security::Sealing;
use crate::share::Membership;
use crate::strict::{Strict, StrictMode, Watching};
use crate::wire::Wire;
use calls::watcher::Watcher;
use carrier::Opened;
use carrier::port_watch::PortWatch;
use carrier::sockets::{Sockets, Which};
pub(crate) use drive::clock::{Clock, until};
use drive::doorbell::{Attempt, Combiner, Guard};
use drive::give_way::Crowd;
use drive::patience::{LOOK, RECEIVE};
use drive::progress_shared::ProgressShared;
use drive::shard_state::ShardState;

/// How to open an engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineConfig {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) shard: ShardConfig,
    /// Bytes that a QP may have under way, if not what suits the socket's buffer.
    pub(crate) window_bytes: Option<u32>,
    pub(crate) udp: UdpConfig,
    /// Other contexts and processes of this user may have the same addresses.
    pub(crate) share: bool,
    pub(crate) tap: Option<PathBuf>,
    pub(crate) wire: Wire,
    pub(crate) sealing: Option<Sealing>,
    /// A region's lkey and rkey are one number.
    pub(crate) has_equal_keys: bool,
    pub(crate) strict: StrictMode,
    /// What strict mode's decisions follow from, if not the environment.
    pub(crate) strict_seed: Option<u64>,
    pub(crate) faults: Option<FaultSpec>,
    /// Where it is opened, if not on sockets.
    pub(crate) network: Option<Arc<dyn Network>>,
}

impl EngineConfig {
    fn shard(&self, opened: &Opened) -> Result<Shard, Error> {
        let (chunk, is_shared) = (
            opened.chunk,
            opened.membership.is_some() || self.network.is_some(),
        );
        let buffer = opened.recv_buffer;
        let window_bytes = self.window_bytes.unwrap_or_else(|| window_bytes(buffer));
        let destination_bytes = match self.network {
            // It has queues of its own.
            Some(_) => u32::MAX,
            None => destination_bytes(buffer, window_bytes, opened.recv_ring),
        };
        let mut shard = Shard::new(ShardConfig {
            secret: self.random()?,
            window_bytes,
            destination_bytes,
            destination_bytes_beside: DESTINATION_BYTES_BESIDE,
            window_packets: window_packets(buffer),
            shares_qpns: is_shared,
            // Strict mode tells of requests that are under way: one that was answered is not.
            all_ask: self.strict != StrictMode::Off,
            ..self.shard
        });
        shard.set_own_addresses(self.addresses.clone());
        let secret = self.random()?;
        let agent = objects::cm::agent_config(&self.addresses, chunk, is_shared, secret);
        shard.start_cm(agent);
        if is_shared {
            shard.cm(|agent| agent.keep_farewells());
        }
        if self.sealing.is_some() {
            shard.cm(Agent::take_handshakes);
        }
        if let Some(chunk) = chunk {
            shard.grant_qpns(chunk);
        }
        Ok(shard)
    }

    fn random(&self) -> Result<u64, Error> {
        random_of(self.network.as_ref())
    }
}

/// One context's engine.
pub(crate) struct Engine {
    pub(crate) combiner: Combiner<ShardState>,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) events: Arc<Channel<AsyncEvent>>,
    pub(crate) port: Arc<PortWatch>,
    /// Identifiers of connections that are bound to the context.
    bound: objects::cm::Bound,
    progress: Arc<ProgressShared>,
    crowd: Crowd,
    pub(crate) clock: Clock,
    /// The process that it was opened in.
    generation: Generation,
    watcher: Option<Watcher>,
    /// Its connections tell peers that can hear it which packets are lost.
    pub(crate) is_selective: bool,
    /// Its connections have keys of their own.
    pub(crate) has_pairs: bool,
    /// Dropped after the sockets, which only then is the end of it.
    pub(crate) membership: Option<Arc<Membership>>,
}

impl Engine {
    /// Opens the sockets. Nothing moves until a [`ProgressThread`] or a caller drives. Beside the first engine of a context it is
    /// another shard, with this number.
    pub(crate) fn open(
        config: &EngineConfig,
        beside: Option<(&Engine, u32)>,
    ) -> Result<Engine, Error> {
        let generation = Generation::current();
        let mut opened = carrier::open(config)?;
        let random = || config.random();
        let progress = Arc::new(ProgressShared::new()?);
        let (mrs, events, number) = match beside {
            None => {
                let events = Channel::new().map_err(Error::io("creating an eventfd"))?;
                // Strict mode finds the program that sends one key for the other.
                let are_equal = config.has_equal_keys && config.strict == StrictMode::Off;
                let mrs = MrTable::new(random()?).with_equal_keys(are_equal);
                (mrs, Arc::new(events), 0)
            }
            Some((first, number)) => {
                // Times of completions are compared; and the first one watches the port for all.
                opened.clock = first.clock.clone();
                opened.port = Arc::new(PortWatch::always_up());
                (first.enter()?.mrs.twin(), first.events.clone(), number)
            }
        };
        let shard = config.shard(&opened)?;
        let strict = match config.strict {
            StrictMode::Off => None,
            mode => Some(Strict::new(mode, config.strict_seed, random()?)),
        };
        let network = config.network.clone();
        let watcher = Watcher::new(strict.is_some(), network.clone());
        let is_watched = watcher.is_some();
        let strict = strict.map(RefCell::new);
        let watching = is_watched.then_some(Watching { strict, network });
        let (sockets, membership) = (opened.sockets.clone(), opened.membership.clone());
        fork::close_in_child(sockets.each().map(UdpSocket::as_fd));
        fork::close_in_child(membership.iter().flat_map(|m| m.descriptors()));
        Ok(Engine {
            is_selective: config.shard.recovery == Recovery::Selective,
            has_pairs: config.sealing.as_ref().is_some_and(|it| it.has_pairs),
            clock: opened.clock.clone(),
            port: opened.port.clone(),
            combiner: Combiner::new(ShardState::new(
                shard,
                mrs,
                opened,
                progress.clone(),
                events.clone(),
                number,
                watching.map(Box::new),
            )),
            sockets,
            events,
            bound: objects::cm::Bound::default(),
            progress,
            crowd: Crowd::default(),
            generation,
            watcher,
            membership,
        })
    }

    /// A number that cannot be guessed.
    pub(crate) fn random(&self) -> Result<u64, Error> {
        random_of(self.network())
    }

    /// Everything that was opened before a fork is dead in the child.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.generation.is_past() {
            Err(ErrorKind::Forked.into())
        } else {
            Ok(())
        }
    }

    /// Takes completions; when there are none, drives the engine and looks again.
    #[inline]
    fn poll_usual<T>(&self, cq: &CqCore, out: &mut T) -> Result<usize, Poisoned>
    where
        T: Taker + ?Sized,
    {
        let found = out.take(cq);
        if found > 0 {
            if cq.is_turn_to_drive() {
                self.drive(cq, true)?;
            }
            return Ok(found);
        }
        self.drive(cq, false)?;
        Ok(out.take(cq))
    }

    /// One turn on behalf of a thread that polls `cq`, and found something there or not.
    #[inline]
    pub(crate) fn drive(&self, cq: &CqCore, yields: bool) -> Result<(), Poisoned> {
        // If another thread drives, its completions will be found by the next poll.
        let Attempt::Held(mut state) = self.combiner.try_lock()? else {
            self.progress.ask_for_engine();
            if self.crowd.found_taken() && self.network().is_none() {
                self.crowd.give_way();
            }
            return Ok(());
        };
        if state.is_idle() {
            state.nothing_new = true;
            self.share_processor(state, LOOK);
            return Ok(());
        }
        state.start_turn();
        self.progress.note_driven(state.now);
        let before = state.counters.bells_served + state.counters.tx_calls;
        state.serve_bells();
        // The reply that an ACK was to travel with did not come: before looking for more,
        // as the peer may be waiting for it.
        state.transmit(Driver::Poller { yields });
        let any = state.receive(1, Which::Polled);
        if !yields {
            state.on_polled_empty(cq.id);
        }
        if !state.handle_timers() && !any {
            // Nothing new: most polls end here.
            let after = state.counters.bells_served + state.counters.tx_calls;
            state.nothing_new = after == before;
            if state.nothing_new {
                self.share_processor(state, RECEIVE);
            }
            return Ok(());
        }
        state.patience.found();
        state.transmit(Driver::Poller {
            yields: !cq.is_empty(),
        });
        Ok(())
    }

    /// All counters, the core's first.
    pub(crate) fn counters_of<'a>(
        &self,
        state: &'a ShardState,
    ) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
        let more = [
            ("rx_buffer_drops", self.sockets.receive_drops()),
            ("send_err", state.counters.tx_errors),
            ("link_downed", self.port.downs()),
        ];
        state
            .shard
            .stats()
            .iter()
            .chain(state.counters.iter())
            .chain(more)
            .chain(carrier::faulty::counters(state.faults()))
    }

    /// A thread that polled and found nothing gives its processor away now and then: its peer may wait for it. (On a network of the
    /// program's own the call pauses anyway.)
    #[inline]
    fn share_processor(&self, mut state: Guard<'_, ShardState>, cost: u32) {
        let is_over = state.patience.found_nothing(cost, self.crowd.is_there());
        drop(state);
        if is_over && self.network().is_none() {
            self.crowd.give_way();
        }
    }

    /// All counters, with a name each.
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let state = self.combiner.lock()?;
        Ok(self.counters_of(&state).collect())
    }
}

/// Bytes that a QP may have under way, when the receiver's socket takes `buffer` (as the
/// kernel counts: with its own bookkeeping, and twice what was asked for). A quarter lets
/// some senders meet at one receiver; beyond half a megabyte nothing is gained, as the
/// packets would wait in memory that has left the caches.
fn window_bytes(buffer: u32) -> u32 {
    (buffer / 4).clamp(64 << 10, 512 << 10)
}

/// Bytes that all QPs to one address may have under way: what the receiver's socket takes, with the same care, and what a ring does.
fn destination_bytes(buffer: u32, window_bytes: u32, ring: Option<u32>) -> u32 {
    let bytes = ring.map_or(buffer / 4, |ring| (buffer / 4).min(ring / 4));
    bytes.max(window_bytes)
}

/// As much goes to an address while small messages go beside streams: a train of packets. The receiver works on one while the next is made.
const DESTINATION_BYTES_BESIDE: u32 = 64 << 10;

/// Packets that a QP may have under way. Alone, a small packet takes some 768 bytes of
/// the receiver's buffer.
fn window_packets(buffer: u32) -> u32 {
    (buffer / 1024).clamp(64, 4096)
}

impl From<Poisoned> for Error {
    fn from(_: Poisoned) -> Error {
        ErrorKind::EngineFailed.into()
    }
}

/// A number that cannot be guessed.
fn random_of(network: Option<&Arc<dyn Network>>) -> Result<u64, Error> {
    match network {
        Some(network) => Ok(network.random()),
        None => random(),
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(network) = self.network()
            && let Ok(counters) = self.counters()
        {
            network.detached(&counters);
        }
        fork::forget(self.sockets.each().map(UdpSocket::as_fd));
        fork::forget(self.membership.iter().flat_map(|m| m.descriptors()));
        if let Some(membership) = &self.membership
            && !self.generation.is_past()
        {
            // If that fails, those who come next find what is left.
            let _ = membership.leave(self.sockets.each());
        }
        if !self.generation.is_past() {
            self.report_faults_in_the_end();
        } else {
            // What the parent gathered is the parent's to write.
            self.combiner
                .get_mut(|state| std::mem::forget(state.tap.take()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_the_engine_is_an_event_and_then_an_error() {
        let addr = crate::testing::address().into();
        let context = crate::Context::open(addr).expect("the address is free");
        let engine = context.engine();
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = engine.combiner.lock().expect("sound so far");
                panic!("on purpose");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        let event = engine.wait_for_event(&engine.events, None);
        assert_eq!(event, Ok(Some(AsyncEvent::DeviceFatal)));
        let error = engine.counters().expect_err("poisoned");
        assert_eq!(error.kind(), &ErrorKind::EngineFailed);
        let error = engine.wait_for_event(&engine.events, None);
        assert_eq!(error, Err(ErrorKind::EngineFailed.into()));
    }
}
