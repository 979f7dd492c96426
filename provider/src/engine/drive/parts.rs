//! The core, with what a call into it needs.

use core::cell::RefCell;

use urxe_core::mr::MrTable;
use urxe_core::{Env, Handled, RxPath, Shard, Time};

use crate::queues::CqTable;
use crate::strict::{Strict, WatchedCqs, WatchedMemory};

/// The core's surroundings during a call. With strict mode on, that is between the core and its memory and queues.
pub(in crate::engine) type CoreEnv<'a, 'c> = Env<'a, WatchedMemory<'c>, WatchedCqs<'c>>;

/// Parts of [`super::shard_state::ShardState`] that a call into the core needs, without the others.
pub(in crate::engine) struct Parts<'a> {
    pub(in crate::engine) now: Time,
    pub(in crate::engine) shard: &'a mut Shard,
    pub(in crate::engine) mrs: &'a mut MrTable,
    pub(in crate::engine) cqs: &'a mut CqTable,
    pub(in crate::engine) strict: Option<&'a RefCell<Strict>>,
}

impl Parts<'_> {
    /// Calls into the core.
    #[inline(always)]
    pub(in crate::engine) fn with<R>(
        &mut self,
        call: impl FnOnce(&mut Shard, &mut CoreEnv<'_, '_>) -> R,
    ) -> R {
        let strict = self.strict;
        let mut cqs = WatchedCqs {
            strict,
            cqs: &mut *self.cqs,
        };
        let mut env = Env {
            now: self.now,
            mrs: &mut *self.mrs,
            memory: &WatchedMemory(strict),
            cqs: &mut cqs,
        };
        call(self.shard, &mut env)
    }

    /// Hands a packet to the core.
    #[inline]
    pub(in crate::engine) fn handle_packet(
        &mut self,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        if let Some(strict) = self.strict {
            return self.handle_strictly(strict, path, place, packet);
        }
        self.with(|shard, env| shard.handle_packet(path, place, packet, env))
    }

    /// Hands a packet to the core, with strict mode around it.
    #[cold]
    fn handle_strictly(
        &mut self,
        strict: &RefCell<Strict>,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        strict.borrow_mut().before_packet(packet);
        let before = *self.shard.stats();
        let handled = self.with(|shard, env| shard.handle_packet(path, place, packet, env));
        strict
            .borrow_mut()
            .after_packet(packet, &before, self.shard, self.mrs);
        handled
    }
}
