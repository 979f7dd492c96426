//! The core, with what a call into it needs.

use core::cell::RefCell;

use urxe_core::mr::MrTable;
use urxe_core::{Env, Handled, RxPath, Shard, Time};

use crate::engine::calls::inlets::Inlets;
use crate::queues::CqTable;
use crate::strict::{Strict, WatchedCqs, WatchedMemory};

/// The core's surroundings during a call. With strict mode on, that is between the core and its memory and queues.
pub(in crate::engine) type CoreEnv<'a, 'c> = Env<'a, WatchedMemory<'c>, WatchedCqs<'c>>;

/// The part of [`super::shard_state::ShardState`] that a call into the core needs.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shard: Shard,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: CqTable,
    /// Where the program posts.
    pub(crate) inlets: Inlets,
    pub(crate) strict: Option<Box<RefCell<Strict>>>,
    /// When the present holder of the lock began.
    pub(crate) now: Time,
}

impl Parts {
    /// Calls into the core.
    #[inline(always)]
    pub(in crate::engine) fn with<R>(
        &mut self,
        call: impl FnOnce(&mut Shard, &mut CoreEnv<'_, '_>) -> R,
    ) -> R {
        let strict = self.strict.as_deref();
        let mut cqs = WatchedCqs {
            strict,
            cqs: &mut self.cqs,
        };
        let mut env = Env {
            now: self.now,
            mrs: &mut self.mrs,
            memory: &WatchedMemory(strict),
            cqs: &mut cqs,
            late: Some(&self.inlets),
        };
        call(&mut self.shard, &mut env)
    }

    /// Hands a packet to the core.
    #[inline]
    pub(in crate::engine) fn handle_packet(
        &mut self,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        if let Some(strict) = &mut self.strict {
            strict.get_mut().before_packet(packet);
            return self.handle_strictly(path, place, packet);
        }
        self.with(|shard, env| shard.handle_packet(path, place, packet, env))
    }

    #[cold]
    fn handle_strictly(&mut self, path: &RxPath, place: u16, packet: &[u8]) -> Handled {
        let before = *self.shard.stats();
        let handled = self.with(|shard, env| shard.handle_packet(path, place, packet, env));
        if let Some(strict) = &mut self.strict {
            let strict = strict.get_mut();
            strict.after_packet(packet, &before, &self.shard, &self.mrs);
        }
        handled
    }
}
