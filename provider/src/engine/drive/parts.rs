//! The core, with what a call into it needs.

use core::cell::RefCell;

use urxe_core::mr::MrTable;
use urxe_core::{Env, Handled, LateReceives, MiddlePackets, RxPath, Shard, Time};

use crate::network::Act;
use crate::queues::CqTable;
use crate::strict::{Strict, WatchedCqs, WatchedMemory, Watching};

/// The core's surroundings during a call. With strict mode on, that is between the core and its memory and queues.
pub(in crate::engine) type CoreEnv<'a, 'c> = Env<'a, WatchedMemory<'c>, WatchedCqs<'c>>;

/// The part of [`super::shard_state::ShardState`] that a call into the core needs.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shard: Shard,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: CqTable,
    pub(crate) watching: Option<Box<Watching>>,
    /// When the present holder of the lock began.
    pub(crate) now: Time,
}

impl Parts {
    /// Strict mode, if it is on.
    #[inline]
    pub(in crate::engine) fn strict(&self) -> Option<&RefCell<Strict>> {
        self.watching.as_ref()?.strict.as_ref()
    }

    #[inline]
    pub(in crate::engine) fn strict_mut(&mut self) -> Option<&mut Strict> {
        Some(self.watching.as_mut()?.strict.as_mut()?.get_mut())
    }

    /// Tells the network, if the context is on one that watches.
    #[inline]
    pub(in crate::engine) fn note(&self, act: &Act<'_>) {
        if let Some(watching) = &self.watching {
            watching.note(act);
        }
    }

    /// Calls into the core, to do anything but take a packet.
    #[inline(always)]
    pub(in crate::engine) fn with<R>(
        &mut self,
        call: impl FnOnce(&mut Shard, &mut CoreEnv<'_, '_>) -> R,
    ) -> R {
        self.with_late(None, call)
    }

    /// Calls into the core to take packets, which looks at late receives when it finds no other.
    #[inline(always)]
    pub(in crate::engine) fn with_late<R>(
        &mut self,
        late: Option<&dyn LateReceives>,
        call: impl FnOnce(&mut Shard, &mut CoreEnv<'_, '_>) -> R,
    ) -> R {
        let watching = self.watching.as_deref();
        let mut cqs = WatchedCqs {
            watching,
            cqs: &mut self.cqs,
        };
        let mut env = Env {
            now: self.now,
            mrs: &mut self.mrs,
            memory: &WatchedMemory(watching),
            cqs: &mut cqs,
            late,
        };
        call(&mut self.shard, &mut env)
    }

    /// Hands a packet to the core, which looks at late receives when it finds no other. After the last of several
    /// [`Shard::settle_rest`] must be called.
    #[inline]
    pub(in crate::engine) fn handle_one_of(
        &mut self,
        late: &dyn LateReceives,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        if let Some(watching) = &self.watching {
            watching.note(&Act::Arrived(packet));
            if let Some(strict) = self.strict_mut() {
                strict.before_packet(packet);
                return self.handle_strictly(late, path, place, packet);
            }
        }
        self.with_late(Some(late), |shard, env| {
            shard.handle_one_of(path, place, packet, env)
        })
    }

    /// Hands packets to the core from the first on, as far as they are in the middle of a message. Returns how many it took. In strict mode, and where a network watches, each goes the usual way.
    pub(in crate::engine) fn handle_middle(
        &mut self,
        path: &RxPath,
        packets: MiddlePackets<'_>,
    ) -> usize {
        if self.watching.is_some() {
            return 0;
        }
        self.with(|shard, env| shard.handle_middle(path, packets, env))
    }

    #[cold]
    fn handle_strictly(
        &mut self,
        late: &dyn LateReceives,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        let before = *self.shard.stats();
        let handled = self.with_late(Some(late), |shard, env| {
            shard.handle_packet(path, place, packet, env)
        });
        if let Some(strict) = self.watching.as_mut().and_then(|it| it.strict.as_mut()) {
            let strict = strict.get_mut();
            strict.after_packet(packet, &before, &self.shard, &self.mrs);
        }
        handled
    }
}
