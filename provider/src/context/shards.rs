//! The engines of a context: one, or several that work in parallel ([`super::ContextBuilder::shards`]).
//!
//! Each is an owner of the context's addresses, as other contexts and processes of the user are: it has sockets, rings, QPNs and a lock
//! of its own, and packets find it by the QPN. What belongs to the whole context is in all of them: completion queues are the same
//! objects under the same numbers, memory regions are copies under the same keys. A QP is in one, and a shared receive queue with
//! all its QPs. The connection manager, XRC targets and the events of the port are in the first.

use core::net::IpAddr;
use core::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use urxe_core::cm::CommId;
use urxe_core::mr::{MrChange, MrInit, MrKeys, PdId};
use urxe_core::qp::attr::AddressVector;
use urxe_wire::{Lkey, Qpn};

use crate::cm::CmError;
use crate::engine::{Agreement, Engine, EngineConfig, Poisoned};
use crate::error::{Error, ErrorKind};
use crate::host::environment;
use crate::queues::{CqCore, CqInit, Taker};
use crate::strict::StrictReport;

/// One for each processor of a large machine; each takes a block of QPNs, and a thread.
pub(crate) const SHARDS_MAX: u32 = 64;

/// What windows and invalidation by peers would need.
const ONE_TABLE: &str =
    "memory windows, and keys that peers invalidate, need a context of one shard (URXE_SHARDS)";

#[derive(Debug)]
pub(crate) struct Shards {
    first: Arc<Engine>,
    others: Box<[Arc<Engine>]>,
    /// The shard of the next QP that nothing ties to one.
    next: AtomicUsize,
}

impl Shards {
    /// Opens so many engines; one, where addresses cannot be shared.
    pub(super) fn open(config: &EngineConfig, count: NonZeroU32) -> Result<Shards, Error> {
        let first = Arc::new(Engine::open(config, None)?);
        // Those that share no addresses have them alone.
        let count = first.membership.as_ref().map_or(1, |_| count.get());
        let others = (1..count).map(|shard| {
            let beside = Some((&*first, shard));
            Ok(Arc::new(Engine::open(config, beside)?))
        });
        let others = others.collect::<Result<_, Error>>()?;
        Ok(Shards {
            first,
            others,
            next: AtomicUsize::new(0),
        })
    }

    #[inline]
    pub(crate) fn first(&self) -> &Engine {
        &self.first
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Arc<Engine>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The engine of a shard; there must be one.
    pub(crate) fn at(&self, shard: usize) -> &Arc<Engine> {
        shard
            .checked_sub(1)
            .map_or(&self.first, |other| &self.others[other])
    }

    /// The shard of an object that nothing ties to one: all in turn.
    pub(crate) fn next(&self) -> usize {
        match self.count() {
            1 => 0,
            count => self.next.fetch_add(1, Ordering::Relaxed) % count,
        }
    }

    /// The shard of a new QP: that of the QPs that have the same completion queue, as one thread polls it; else the next in turn.
    pub(crate) fn choose(&self, cqs: [&CqCore; 2]) -> usize {
        let home = cqs.into_iter().find_map(CqCore::home);
        home.unwrap_or_else(|| self.next())
    }

    /// Takes completions; when there are none, drives the shards that have QPs which complete here, and looks again.
    #[inline]
    pub(crate) fn poll<T>(&self, cq: &CqCore, out: &mut T) -> Result<usize, Poisoned>
    where
        T: Taker + ?Sized,
    {
        if self.others.is_empty() {
            return self.first.poll(cq, out);
        }
        self.poll_some(cq, out)
    }

    fn poll_some<T>(&self, cq: &CqCore, out: &mut T) -> Result<usize, Poisoned>
    where
        T: Taker + ?Sized,
    {
        let found = out.take(cq);
        if found > 0 && !cq.is_turn_to_drive() {
            return Ok(found);
        }
        for (shard, engine) in self.each().enumerate() {
            if cq.serves(shard) {
                engine.drive(cq, found > 0)?;
            }
        }
        Ok(if found > 0 { found } else { out.take(cq) })
    }

    pub(crate) fn create_cq(&self, init: CqInit) -> Result<Arc<CqCore>, Error> {
        let cq = self.first.create_cq(init)?;
        for engine in &self.others {
            engine.adopt_cq(&cq)?;
        }
        Ok(cq)
    }

    /// The first is the last: only then can its number be given out again.
    pub(crate) fn destroy_cq(&self, cq: &CqCore) {
        for engine in &self.others {
            engine.destroy_cq(cq);
        }
        self.first.destroy_cq(cq);
    }

    pub(crate) fn register(&self, init: MrInit) -> Result<MrKeys, Error> {
        let keys = self.first.register(init)?;
        self.copy(keys.lkey)?;
        Ok(keys)
    }

    pub(crate) fn register_null(&self, pd: PdId, scratch: u64) -> Result<Lkey, Error> {
        let lkey = self.first.register_null(pd, scratch)?;
        self.copy(lkey)?;
        Ok(lkey)
    }

    pub(crate) fn reregister(&self, lkey: Lkey, change: &MrChange) -> Result<(), Error> {
        self.first.reregister(lkey, change)?;
        self.copy(lkey)
    }

    /// Returns once no packet can touch the region any more.
    pub(crate) fn deregister(&self, lkey: Lkey) {
        self.each().for_each(|engine| engine.deregister(lkey));
    }

    fn copy(&self, lkey: Lkey) -> Result<(), Error> {
        if self.others.is_empty() {
            return Ok(());
        }
        let copy = self.first.copy_of(lkey)?;
        let mut others = self.others.iter();
        others.try_for_each(|engine| engine.put(copy))
    }

    /// Refuses what changes one shard's keys by packets and work requests, which the others would not learn.
    pub(crate) fn check_alone(&self) -> Result<(), Error> {
        match self.others.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::Unsupported(ONE_TABLE).into()),
        }
    }

    pub(crate) fn prepare_path(&self, path: &AddressVector) -> Result<(), Error> {
        self.each().try_for_each(|engine| engine.prepare_path(path))
    }

    /// What was posted and received in other shards than the first leaves, ahead of what the connection manager says next.
    pub(crate) fn settle_others(&self) {
        // A failed engine has nothing to send.
        let others = self.others.iter();
        others.for_each(|engine| engine.settle().unwrap_or_default());
    }

    /// Gives the QPs of a connection the keys that its handshake left, if it had one: `own`, or the QP that the request named, and the peer's.
    ///
    /// # Errors
    /// [`CmError::State`] if it should have had one.
    pub(crate) fn bind_pair(
        &self,
        id: CommId,
        ends: (IpAddr, IpAddr),
        own: Option<Qpn>,
        peer: Qpn,
    ) -> Result<(), Error> {
        const NONE: CmError =
            CmError::State("the two ends have agreed on no keys of their own (URXE_SECURITY)");
        if !self.first.has_pairs {
            return Ok(());
        }
        let (pair, asked) = match self.first.take_pair(id)? {
            Agreement::Missing => return Err(NONE.into()),
            Agreement::Made(pair, asked) => (pair, asked),
        };
        let own = own.or(asked).ok_or(NONE)?;
        if own.get() < 2 || peer.get() < 2 {
            // Messages go there, which have other keys.
            return Err(NONE.into());
        }
        let engine = self.home(own)?;
        match engine.bind_pair(&pair, ends, (own, peer))? {
            true => Ok(()),
            false => Err(NONE.into()),
        }
    }

    /// The engine that has a QP.
    fn home(&self, qpn: Qpn) -> Result<&Engine, Error> {
        for engine in &self.others {
            if engine.has_qpns_of(qpn)? {
                return Ok(engine);
            }
        }
        Ok(&self.first)
    }

    /// All counters; of several shards, their sums.
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let mut sums = self.first.counters()?;
        for engine in &self.others {
            for (sum, (name, count)) in sums.iter_mut().zip(engine.counters()?) {
                debug_assert_eq!(sum.0, name, "all engines have the same counters");
                sum.1 += count;
            }
        }
        Ok(sums)
    }

    /// Strict mode is for contexts of one shard.
    pub(crate) fn take_strict_reports(&self) -> Result<Vec<StrictReport>, Error> {
        Ok(self.first.take_strict_reports()?)
    }
}

/// What `URXE_SHARDS` says.
pub(super) fn of_environment() -> Result<Option<NonZeroU32>, Error> {
    environment::parsed(environment::SHARDS, |text| {
        let count = text.parse().ok().and_then(NonZeroU32::new);
        count
            .filter(|count| count.get() <= SHARDS_MAX)
            .ok_or_else(|| format!("\"{text}\" is not a number from 1 to {SHARDS_MAX}"))
    })
}
