//! All connections of an agent. Nothing is scanned: they are found by their id, by the other
//! side's id or QP, and by their own QP.

use core::net::IpAddr;
use std::collections::VecDeque;

use urxe_wire::Qpn;

use super::conn::Conn;
use super::index::{Hasher, Index, halves};
use super::terms::CommId;
use crate::qpn_table::{CHUNK_BITS, QpnChunk};

/// Bits of an id below its owner.
const ID_BITS: u32 = 32 - (24 - CHUNK_BITS);
const PLACE_BITS: u32 = 16;
const GENERATIONS: u32 = 1 << (ID_BITS - PLACE_BITS);

/// Whose an id is: its upper bits are those of a chunk of QPNs that he has.
pub(super) fn owner_of(id: CommId) -> QpnChunk {
    QpnChunk((id.0 >> ID_BITS) as u16)
}

#[derive(Debug)]
struct Slot {
    conn: Option<Box<Conn>>,
    /// Counts how often the place was used, so that an id comes back late.
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Conns {
    slots: Vec<Slot>,
    /// The longest unused first.
    free: VecDeque<u32>,
    owner: QpnChunk,
    /// Hides places and generations.
    mask: u32,
    hasher: Hasher,
    by_remote: Index,
    by_remote_qpn: Index,
    by_local_qpn: Index,
}

impl Conns {
    /// Most connections at once.
    pub(super) const LEN_MAX: usize = 1 << PLACE_BITS;

    pub(super) fn new(owner: QpnChunk, secret: u64, hasher: Hasher) -> Conns {
        Conns {
            slots: Vec::new(),
            free: VecDeque::new(),
            owner,
            mask: (secret >> 40) as u32 & ((1 << ID_BITS) - 1),
            hasher,
            by_remote: Index::default(),
            by_remote_qpn: Index::default(),
            by_local_qpn: Index::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts one in and gives it its id.
    pub(super) fn insert(&mut self, mut conn: Conn) -> Option<usize> {
        let place = match self.free.pop_front() {
            Some(place) => place,
            None if self.slots.len() == Self::LEN_MAX => return None,
            None => {
                self.slots.push(Slot {
                    conn: None,
                    generation: 0,
                });
                self.slots.len() as u32 - 1
            }
        };
        let (owner, mask) = (self.owner, self.mask);
        let slot = &mut self.slots[place as usize];
        loop {
            slot.generation = (slot.generation + 1) % GENERATIONS;
            let low = (slot.generation << PLACE_BITS | place) ^ mask;
            conn.id = CommId(u32::from(owner.0) << ID_BITS | low);
            // 0 means none in a REJ.
            if conn.id.0 != 0 {
                break;
            }
        }
        slot.conn = Some(Box::new(conn));
        Some(place as usize)
    }

    pub(super) fn find(&self, id: CommId) -> Option<usize> {
        if owner_of(id) != self.owner {
            return None;
        }
        let low = (id.0 & ((1 << ID_BITS) - 1)) ^ self.mask;
        let place = (low & ((1 << PLACE_BITS) - 1)) as usize;
        let conn = self.slots.get(place)?.conn.as_ref()?;
        (conn.id == id).then_some(place)
    }

    pub(super) fn at(&self, place: usize) -> Option<&Conn> {
        self.slots.get(place)?.conn.as_deref()
    }

    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Conn> {
        self.slots.get_mut(place)?.conn.as_deref_mut()
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Conn> {
        let slot = self.slots.get_mut(place)?;
        let conn = *slot.conn.take()?;
        self.free.push_back(place as u32);
        if conn.remote_id != 0 {
            self.by_remote.remove(self.remote_hash(&conn), place);
            self.by_remote_qpn
                .remove(self.remote_qpn_hash(&conn), place);
        }
        if conn.local_qpn.get() != 0 {
            let hash = self.hasher.hash(&[conn.local_qpn.get().into()]);
            self.by_local_qpn.remove(hash, place);
        }
        Some(conn)
    }

    /// The other side became known: its id is not 0.
    pub(super) fn know_remote(&mut self, place: usize, id: u32, guid: u64, qpn: Qpn) {
        let Some(conn) = self.at_mut(place) else {
            return;
        };
        (conn.remote_id, conn.remote_guid, conn.remote_qpn) = (id, guid, qpn);
        let conn = self.at(place).expect("it was there");
        let (remote, qpn) = (self.remote_hash(conn), self.remote_qpn_hash(conn));
        self.by_remote.insert(remote, place);
        self.by_remote_qpn.insert(qpn, place);
    }

    /// Its own QP became known.
    pub(super) fn know_qp(&mut self, place: usize, qpn: Qpn) {
        if qpn.get() == 0 {
            return;
        }
        if let Some(conn) = self.at_mut(place) {
            conn.local_qpn = qpn;
            let hash = self.hasher.hash(&[qpn.get().into()]);
            self.by_local_qpn.insert(hash, place);
        }
    }

    /// By what the other side calls it.
    pub(super) fn find_remote(&self, addr: IpAddr, guid: u64, id: u32) -> Option<usize> {
        let hash = self.key(addr, &[guid, id.into(), 0]);
        self.by_remote.find(hash, |place| {
            self.at(place).is_some_and(|conn| {
                conn.path.remote == addr && conn.remote_guid == guid && conn.remote_id == id
            })
        })
    }

    /// By the other side's QP.
    pub(super) fn find_remote_qpn(&self, addr: IpAddr, guid: u64, qpn: Qpn) -> Option<usize> {
        let hash = self.key(addr, &[guid, qpn.get().into(), 1]);
        self.by_remote_qpn.find(hash, |place| {
            self.at(place).is_some_and(|conn| {
                conn.path.remote == addr && conn.remote_guid == guid && conn.remote_qpn == qpn
            })
        })
    }

    /// By its own QP: the first of those that fit.
    pub(super) fn find_qp(&self, qpn: Qpn, fits: impl Fn(&Conn) -> bool) -> Option<usize> {
        let hash = self.hasher.hash(&[qpn.get().into()]);
        self.by_local_qpn.find(hash, |place| {
            self.at(place)
                .is_some_and(|conn| conn.local_qpn == qpn && fits(conn))
        })
    }

    /// The places of those that fit. Looks at all.
    pub(super) fn places(&self, fits: impl Fn(&Conn) -> bool) -> Vec<usize> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, slot)| slot.conn.as_ref().is_some_and(|conn| fits(conn)))
            .map(|(place, _)| place)
            .collect()
    }

    fn remote_hash(&self, conn: &Conn) -> u64 {
        let numbers = [conn.remote_guid, conn.remote_id.into(), 0];
        self.key(conn.path.remote, &numbers)
    }

    fn remote_qpn_hash(&self, conn: &Conn) -> u64 {
        let numbers = [conn.remote_guid, conn.remote_qpn.get().into(), 1];
        self.key(conn.path.remote, &numbers)
    }

    fn key(&self, addr: IpAddr, numbers: &[u64; 3]) -> u64 {
        let [high, low] = halves(addr);
        self.hasher
            .hash(&[high, low, numbers[0], numbers[1], numbers[2]])
    }
}
