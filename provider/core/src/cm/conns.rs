//! All connections of an agent. Nothing is scanned: they are found by their id, by the other
//! side's id or QP, and by their own QP.

use core::net::IpAddr;
use std::collections::VecDeque;

use urxe_wire::Qpn;

use super::conn::Conn;
use super::index::{Hasher, Index, halves};
use super::lines::Lines;
use super::terms::CommId;
use crate::qpn_table::{CHUNK_BITS, QpnChunk};
use crate::table::{Occupancy, shrink};

/// Bits of an id below its owner.
const ID_BITS: u32 = 32 - (24 - CHUNK_BITS);
const PLACE_BITS: u32 = 16;
const GENERATIONS: u32 = 1 << (ID_BITS - PLACE_BITS);

/// The owner of an id: the upper bits are those of one of the owner's chunks of QPNs.
pub(super) fn owner_of(id: CommId) -> QpnChunk {
    QpnChunk((id.0 >> ID_BITS) as u16)
}

#[derive(Debug)]
pub(super) struct Conns {
    slots: Vec<Option<Box<Conn>>>,
    /// By place: counts how often it was used, so that an id comes back late. It outlives the place ([`Conns::shrink`]).
    generations: Vec<u8>,
    /// The longest unused first.
    free: VecDeque<u32>,
    owner: QpnChunk,
    /// Hides places and generations.
    mask: u32,
    hasher: Hasher,
    by_remote: Index,
    by_remote_qpn: Index,
    by_local_qpn: Index,
    pub(super) lines: Lines,
}

impl Conns {
    /// Most connections at once.
    pub(super) const LEN_MAX: usize = 1 << PLACE_BITS;

    pub(super) fn new(owner: QpnChunk, secret: u64, hasher: Hasher) -> Conns {
        Conns {
            slots: Vec::new(),
            generations: Vec::new(),
            free: VecDeque::new(),
            owner,
            mask: (secret >> 40) as u32 & ((1 << ID_BITS) - 1),
            hasher,
            by_remote: Index::default(),
            by_remote_qpn: Index::default(),
            by_local_qpn: Index::default(),
            lines: Lines::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == Self::LEN_MAX
    }

    /// How many places there are, and how many of them are in use.
    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy::of(&self.slots, self.free.len())
    }

    /// Gives up unused places, if hardly any are in use. What counts how often they were used stays: an id
    /// comes back no earlier for it.
    pub(super) fn shrink(&mut self) {
        let mut free = core::mem::take(&mut self.free).into();
        let is_shrunk = shrink(&mut self.slots, &mut free, Option::is_some);
        self.free = free.into();
        if !is_shrunk {
            return;
        }
        let places = self.slots.len();
        for index in [
            &mut self.by_remote,
            &mut self.by_remote_qpn,
            &mut self.by_local_qpn,
        ] {
            index.shrink(places);
        }
        self.lines.shrink(places);
    }

    /// Puts one in and gives it its id.
    pub(super) fn insert(&mut self, mut conn: Conn) -> Option<usize> {
        let place = match self.free.pop_front() {
            Some(place) => place,
            None if self.slots.len() == Self::LEN_MAX => return None,
            None => {
                self.slots.push(None);
                let places = self.slots.len().max(self.generations.len());
                self.generations.resize(places, 0);
                self.slots.len() as u32 - 1
            }
        };
        let (owner, mask) = (self.owner, self.mask);
        let generation = &mut self.generations[place as usize];
        loop {
            *generation = (*generation + 1) % GENERATIONS as u8;
            let low = (u32::from(*generation) << PLACE_BITS | place) ^ mask;
            conn.id = CommId(u32::from(owner.0) << ID_BITS | low);
            // 0 means none in a REJ.
            if conn.id.0 != 0 {
                break;
            }
        }
        self.slots[place as usize] = Some(Box::new(conn));
        Some(place as usize)
    }

    pub(super) fn find(&self, id: CommId) -> Option<usize> {
        if owner_of(id) != self.owner {
            return None;
        }
        let low = (id.0 & ((1 << ID_BITS) - 1)) ^ self.mask;
        let place = (low & ((1 << PLACE_BITS) - 1)) as usize;
        let conn = self.at(place)?;
        (conn.id == id).then_some(place)
    }

    pub(super) fn at(&self, place: usize) -> Option<&Conn> {
        self.slots.get(place)?.as_deref()
    }

    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Conn> {
        self.slots.get_mut(place)?.as_deref_mut()
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Conn> {
        let conn = *self.slots.get_mut(place)?.take()?;
        self.free.push_back(place as u32);
        self.lines.stand(place, None);
        if conn.remote_id != 0 {
            self.by_remote.remove(self.remote_hash(&conn), place);
        }
        if conn.remote_qp_known {
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
        let remote = self.remote_hash(conn);
        self.by_remote.insert(remote, place);
    }

    /// The other side has answered, so its address is its own: its QP is in a connection. (Before that any host may have
    /// said so.)
    pub(super) fn prove(&mut self, place: usize) {
        let Some(conn) = self.at_mut(place) else {
            return;
        };
        conn.proven = true;
        if conn.remote_id == 0 || conn.remote_qp_known {
            return;
        }
        let (addr, guid, qpn) = (conn.path.remote, conn.remote_guid, conn.remote_qpn);
        // Once: a sender that names one QP in thousands of requests makes no long chain.
        if self.find_remote_qpn(addr, guid, qpn).is_some() {
            return;
        }
        let conn = self.at_mut(place).expect("it was there");
        conn.remote_qp_known = true;
        let conn = self.at(place).expect("it was there");
        self.by_remote_qpn.insert(self.remote_qpn_hash(conn), place);
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

    /// Finds a connection by the peer's id.
    pub(super) fn find_remote(&self, addr: IpAddr, guid: u64, id: u32) -> Option<usize> {
        let hash = self.key(addr, &[guid, id.into(), 0]);
        self.by_remote.find(hash, |place| {
            self.at(place).is_some_and(|conn| {
                conn.path.remote == addr && conn.remote_guid == guid && conn.remote_id == id
            })
        })
    }

    /// Finds a connection by the peer's QP.
    pub(super) fn find_remote_qpn(&self, addr: IpAddr, guid: u64, qpn: Qpn) -> Option<usize> {
        let hash = self.key(addr, &[guid, qpn.get().into(), 1]);
        self.by_remote_qpn.find(hash, |place| {
            self.at(place).is_some_and(|conn| {
                conn.path.remote == addr && conn.remote_guid == guid && conn.remote_qpn == qpn
            })
        })
    }

    /// Finds a connection by its own QP: the first that fits.
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
        all.filter(|(_, slot)| slot.as_ref().is_some_and(|conn| fits(conn)))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::conn::State;
    use super::super::terms::MadPath;
    use super::*;

    const MANY: usize = 5000;

    fn conns() -> Conns {
        Conns::new(QpnChunk(9), 0x1234_5678_9abc_def0, Hasher::new(3))
    }

    /// One that knows its own QP and its peer: by the number.
    fn add(conns: &mut Conns, number: u32) -> usize {
        let path = MadPath {
            local: IpAddr::from([10, 0, 0, 1]),
            remote: IpAddr::from([10, 0, 0, 2]),
            tos: 0,
        };
        let place = conns.insert(Conn::new(path, State::Established));
        let place = place.expect("room");
        conns.know_qp(place, Qpn::new(number));
        conns.know_remote(place, number, 7, Qpn::new(number));
        conns.prove(place);
        place
    }

    fn finds(conns: &Conns, number: u32, place: Option<usize>) {
        let addr = IpAddr::from([10, 0, 0, 2]);
        let qpn = Qpn::new(number);
        assert_eq!(conns.find_remote(addr, 7, number), place, "{number}");
        assert_eq!(conns.find_remote_qpn(addr, 7, qpn), place, "{number}");
        assert_eq!(conns.find_qp(qpn, |_| true), place, "{number}");
    }

    #[test]
    fn an_empty_table_is_small_again_and_a_small_one_stays() {
        let mut conns = conns();
        for few in [100, Occupancy::LARGE - 1] {
            let places: Vec<_> = (0..few).map(|n| add(&mut conns, n as u32 + 1)).collect();
            for place in places {
                conns.remove(place);
            }
            conns.shrink();
            assert_eq!(conns.occupancy().places, few, "hundreds are no reason");
        }
        let places: Vec<_> = (0..MANY).map(|n| add(&mut conns, n as u32 + 1)).collect();
        conns.shrink();
        assert_eq!(conns.occupancy().places, MANY, "all are in use");
        for place in places {
            conns.remove(place);
        }
        conns.shrink();
        let occupancy = Occupancy {
            used: 0,
            places: Occupancy::KEPT,
        };
        assert_eq!(conns.occupancy(), occupancy);
        assert!(conns.slots.capacity() + conns.free.capacity() < 4 * Occupancy::KEPT);
        for index in [&conns.by_remote, &conns.by_remote_qpn, &conns.by_local_qpn] {
            assert!(index.capacity() < 4 * Occupancy::KEPT);
        }
    }

    #[test]
    fn those_that_stay_are_found_by_everything() {
        let mut conns = conns();
        let places: Vec<_> = (0..MANY).map(|n| add(&mut conns, n as u32 + 1)).collect();
        let stay = |number: usize| number.is_multiple_of(37) && number < 3000;
        for (number, &place) in places.iter().enumerate() {
            if !stay(number) {
                conns.remove(place);
            }
        }
        let ids: Vec<_> = (0..MANY)
            .map(|n| conns.at(places[n]).map(|c| c.id))
            .collect();
        conns.shrink();
        assert_eq!(conns.occupancy().places, 2998, "up to the last in use");
        for (number, &place) in places.iter().enumerate() {
            finds(&conns, number as u32 + 1, stay(number).then_some(place));
            if let Some(id) = ids[number] {
                assert_eq!(conns.find(id), Some(place));
            }
        }
        // It grows again, over the same places and beyond.
        for number in MANY..2 * MANY {
            let place = add(&mut conns, number as u32 + 1);
            finds(&conns, number as u32 + 1, Some(place));
        }
    }

    #[test]
    fn an_id_comes_back_late_also_when_the_table_shrank_in_between() {
        let mut conns = conns();
        let mut given = BTreeMap::new();
        // Each round uses every place once, and shrinks the table.
        for round in 0..GENERATIONS {
            let places: Vec<_> = (0..MANY).map(|n| add(&mut conns, n as u32 + 1)).collect();
            for place in places {
                let id = conns.at(place).expect("just put in").id;
                if let Some(before) = given.insert(id.0, round) {
                    panic!("{id:?} in round {before} and again in {round}");
                }
                conns.remove(place);
            }
            conns.shrink();
            assert_eq!(conns.occupancy().places, Occupancy::KEPT);
        }
        assert_eq!(given.len(), MANY * GENERATIONS as usize);
    }
}
