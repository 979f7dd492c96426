//! The same regions, under the same keys, in the tables of several shards.
//!
//! One table gives the keys out. Its twins hide places in keys as it does, so that a region's slot can be copied to the same place there.

use urxe_wire::Lkey;

use super::{GENERATION_BITS, HINTS, MrTable, SLOT_BITS, Slot, hint_of};

/// A region as one table has it.
#[derive(Clone, Copy, Debug)]
pub struct MrCopy(Slot);

impl MrTable {
    /// An empty table that takes this one's regions. It must not give out keys of its own.
    pub fn twin(&self) -> MrTable {
        MrTable {
            slots: Vec::new(),
            generations: Vec::new(),
            qp_windows: 0,
            free: Vec::new(),
            permutation: self.permutation,
            variant_state: self.variant_state,
            has_equal_keys: self.has_equal_keys,
            hints: Box::new([0; HINTS]),
        }
    }

    /// The region (with bytes or without) that has this lkey.
    pub fn copy_of(&self, lkey: Lkey) -> Option<MrCopy> {
        self.region_slot(lkey).map(|slot| MrCopy(self.slots[slot]))
    }

    /// Puts a twin's region here, in place of what had its slot before.
    pub fn put(&mut self, copy: MrCopy) {
        let MrCopy(new) = copy;
        let index = self.permutation.backward(new.keys.lkey.0 >> 8);
        let slot = index & ((1 << SLOT_BITS) - 1);
        let place = slot as usize;
        while self.slots.len() <= place {
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot { live: false, ..new });
        }
        if self.generations.len() <= place {
            self.generations.resize(place + 1, 0);
        }
        self.generations[place] = (index >> SLOT_BITS) as u8 & ((1 << GENERATION_BITS) - 1);
        // Regions come and go in the same order in all tables, so it is found near the end.
        let free = self.free.iter().rposition(|&free| free == slot);
        if let Some(at) = free.filter(|_| !self.slots[place].live) {
            self.free.remove(at);
        }
        self.slots[place] = new;
        for key in [new.keys.lkey.0, new.keys.rkey.0] {
            self.hints[hint_of(key)] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::{Access, Accessor, MrChange, MrInit, MrKeys, PdId};
    use urxe_wire::Qpn;

    fn init(n: u64) -> MrInit {
        MrInit {
            pd: PdId(1),
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            host_addr: n << 16,
            iova: n << 16,
            len: 4096,
            remote_invalidate: false,
        }
    }

    /// Both keys open the region at this address, or none does.
    fn opens(table: &MrTable, keys: MrKeys, n: u64) -> bool {
        let by = Accessor {
            pd: PdId(1),
            qpn: Qpn::new(2),
        };
        let addr = (n << 16) + 8;
        let local = table.check_local(keys.lkey, PdId(1), addr, 8, Access::LOCAL_WRITE);
        let remote = table.check_remote(keys.rkey, by, addr, 8, Access::REMOTE_WRITE);
        assert_eq!(local.is_ok(), remote.is_ok());
        local.is_ok_and(|span| span.host_addr == addr)
    }

    #[test]
    fn a_twin_has_what_it_was_given_under_the_same_keys() {
        for are_equal in [false, true] {
            check_twin(MrTable::new(7).with_equal_keys(are_equal));
        }
    }

    fn check_twin(mut first: MrTable) {
        let mut twin = first.twin();
        let mut live = Vec::new();
        // Places are used again, in an order of their own.
        for n in 1..2000_u64 {
            let keys = first.register(init(n)).expect("room");
            assert!(!opens(&twin, keys, n), "it was not given yet");
            twin.put(first.copy_of(keys.lkey).expect("it is live"));
            live.push((keys, n));
            if n % 3 == 0 {
                let (keys, n) = live.swap_remove(n as usize * 31 % live.len());
                for table in [&mut first, &mut twin] {
                    assert!(table.deregister(keys.lkey) && !opens(table, keys, n));
                    assert!(!table.deregister(keys.lkey));
                }
            }
        }
        for table in [&first, &twin] {
            assert!(live.iter().all(|&(keys, n)| opens(table, keys, n)));
            assert_eq!(table.len(), live.len());
        }
        let (keys, n) = live[0];
        let change = MrChange {
            translation: Some(((n + 5000) << 16, (n + 5000) << 16, 4096)),
            pd: None,
            access: None,
        };
        first.reregister(keys.lkey, &change).expect("it is live");
        twin.put(first.copy_of(keys.lkey).expect("it is live"));
        assert!(opens(&twin, keys, n + 5000) && !opens(&twin, keys, n));
        assert_eq!(twin.len(), live.len());
        assert!(first.copy_of(Lkey(1)).is_none());
    }

    #[test]
    fn a_place_is_taken_over_before_its_end_was_told() {
        let mut first = MrTable::new(8);
        let mut twin = first.twin();
        let old = first.register(init(1)).expect("room");
        twin.put(first.copy_of(old.lkey).expect("it is live"));
        first.deregister(old.lkey);
        let new = first.register(init(2)).expect("room");
        twin.put(first.copy_of(new.lkey).expect("it is live"));
        assert!(!twin.deregister(old.lkey) && !opens(&twin, old, 1));
        assert!(opens(&twin, new, 2));
        assert_eq!(twin.len(), 1);
    }
}
