//! Listeners: which services take requests.

use core::net::IpAddr;

use super::index::{Hasher, Index};
use crate::table::shrink;

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ListenerId(pub u32);

/// Which addresses it listens at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All.
    Any,
    /// All of IPv4.
    AnyV4,
    /// All of IPv6.
    AnyV6,
    /// One.
    One(IpAddr),
}

impl Scope {
    /// True if it includes the address.
    pub fn includes(self, addr: IpAddr) -> bool {
        match self {
            Scope::Any => true,
            Scope::AnyV4 => addr.is_ipv4(),
            Scope::AnyV6 => addr.is_ipv6(),
            Scope::One(one) => one == addr,
        }
    }

    fn meets(self, other: Scope) -> bool {
        match (self, other) {
            (Scope::One(addr), scope) | (scope, Scope::One(addr)) => scope.includes(addr),
            (Scope::AnyV4, Scope::AnyV6) | (Scope::AnyV6, Scope::AnyV4) => false,
            _ => true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    service_id: u64,
    scope: Scope,
    backlog: u32,
    /// Requests that the program has not taken yet.
    waiting: u32,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Listeners {
    places: Vec<Option<Listener>>,
    free: Vec<u32>,
    by_service: Index,
    hasher: Hasher,
}

impl Listeners {
    pub(super) fn new(hasher: Hasher) -> Listeners {
        Listeners {
            places: Vec::new(),
            free: Vec::new(),
            by_service: Index::default(),
            hasher,
        }
    }

    /// Adds a listener; `None` if the service has one.
    pub(super) fn add(
        &mut self,
        service_id: u64,
        scope: Scope,
        backlog: u32,
    ) -> Option<ListenerId> {
        let hash = self.hasher.hash(&[service_id]);
        let meets = |other: &Listener| other.service_id == service_id && other.scope.meets(scope);
        let taken = |place: usize| self.places[place].as_ref().is_some_and(meets);
        if self.by_service.find(hash, taken).is_some() {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[place as usize] = Some(Listener {
            service_id,
            scope,
            backlog,
            waiting: 0,
        });
        self.by_service.insert(hash, place as usize);
        Some(ListenerId(place))
    }

    pub(super) fn remove(&mut self, id: ListenerId) -> bool {
        let slot = self.places.get_mut(id.0 as usize);
        let Some(listener) = slot.and_then(Option::take) else {
            return false;
        };
        let hash = self.hasher.hash(&[listener.service_id]);
        self.by_service.remove(hash, id.0 as usize);
        self.free.push(id.0);
        true
    }

    /// The listener for a service at an address.
    pub(super) fn find(&self, service_id: u64, addr: IpAddr) -> Option<ListenerId> {
        let hash = self.hasher.hash(&[service_id]);
        let fits = |listener: &Listener| {
            listener.service_id == service_id && listener.scope.includes(addr)
        };
        let place = |place: usize| self.places[place].as_ref().is_some_and(fits);
        let place = self.by_service.find(hash, place)?;
        Some(ListenerId(place as u32))
    }

    /// One request more waits; false if the backlog is full.
    pub(super) fn admit(&mut self, id: ListenerId) -> bool {
        match self.places.get_mut(id.0 as usize) {
            Some(Some(listener)) if listener.waiting < listener.backlog => {
                listener.waiting += 1;
                true
            }
            _ => false,
        }
    }

    /// One waits no longer.
    pub(super) fn release(&mut self, id: ListenerId) {
        if let Some(Some(listener)) = self.places.get_mut(id.0 as usize) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Gives up unused places, if hardly any are in use; returns how many there are.
    pub(super) fn shrink(&mut self) -> usize {
        if shrink(&mut self.places, &mut self.free, Option::is_some) {
            self.by_service.shrink(self.places.len());
        }
        self.places.len()
    }
}
