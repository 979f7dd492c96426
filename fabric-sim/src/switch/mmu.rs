//! The memory management unit: which queue may put how much into the buffer, and when a neighbour must
//! stop.
//!
//! Each port and class has bytes of its own (reserved), may use the shared pool up to a
//! threshold, and, if it is lossless, has headroom: for what arrives after its neighbour was told to
//! stop. Headroom is counted apart, in its own bytes: were it "the threshold plus so much", a dynamic
//! threshold that falls would take it away while it is needed.

use crate::qos::PRIORITIES;
use crate::switch::config::{SwitchConfig, Threshold};

/// What one port and class use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressUse {
    /// Bytes of its reserved part.
    pub reserved: u64,
    /// Bytes of the shared pool.
    pub shared: u64,
    /// Bytes of the headroom.
    pub headroom: u64,
    /// Its neighbour was told to stop.
    pub is_off: bool,
}

impl IngressUse {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.reserved + self.shared + self.headroom
    }
}

/// A shared pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PoolUse {
    /// Its size.
    size: u64,
    /// What is taken.
    used: u64,
}

impl PoolUse {
    fn free(&self) -> u64 {
        self.size.saturating_sub(self.used)
    }
}

/// A threshold as it is computed with: parts of 2^16.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(u64),
    OfFree(u64),
}

impl Limit {
    fn of(threshold: Threshold) -> Limit {
        match threshold {
            Threshold::Static(bytes) => Limit::Bytes(bytes),
            Threshold::Dynamic(alpha) => Limit::OfFree((alpha * 65_536.0) as u64),
        }
    }

    #[inline]
    fn bytes(self, pool: &PoolUse) -> u64 {
        match self {
            Limit::Bytes(bytes) => bytes,
            Limit::OfFree(alpha) => ((u128::from(pool.free()) * u128::from(alpha)) >> 16) as u64,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The port that it came through, by its place in the switch.
    pub(crate) port: usize,
    pub(crate) priority: u8,
    pub(crate) len: u32,
    pub(crate) is_lossless: bool,
    /// Bytes in the queue that it will join.
    pub(crate) egress: u64,
}

/// The buffer's books.
#[derive(Clone, Debug)]
pub(crate) struct Mmu {
    ingress: Vec<[IngressUse; PRIORITIES]>,
    headroom: Vec<u64>,
    pools: [PoolUse; 2],
    has_lossy_pool: bool,
    headroom_pool: PoolUse,
    reserved: u64,
    threshold: Limit,
    lossy: Limit,
    xon_offset: u64,
    cell: u64,
}

/// Why a switch cannot be set up so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a buffer of {buffer} bytes is too small: {needed} are reserved or headroom")]
pub struct BufferError {
    buffer: u64,
    needed: u64,
}

impl Mmu {
    /// Books for ports with so much headroom a lossless class.
    pub(crate) fn new(
        config: &SwitchConfig,
        headroom: Vec<u32>,
        frame_max: u32,
        lossless: u8,
    ) -> Result<Mmu, BufferError> {
        let ports = headroom.len() as u64;
        let classes = u64::from(lossless.count_ones());
        let headroom: Vec<u64> = headroom.into_iter().map(u64::from).collect();
        let of_each: u64 = headroom.iter().map(|&bytes| bytes * classes).sum();
        let headroom_size = config.headroom_pool.unwrap_or(of_each);
        // The frame that crosses a threshold is let into the pool as a whole: so much may stick out.
        let crossing = ports * classes * u64::from(frame_max);
        let reserved = ports * PRIORITIES as u64 * u64::from(config.reserved);
        let lossy = config.lossy_pool.unwrap_or(0);
        let needed = headroom_size + crossing + reserved + lossy;
        let shared = config.buffer.checked_sub(needed).filter(|&bytes| bytes > 0);
        let Some(shared) = shared else {
            return Err(BufferError {
                buffer: config.buffer,
                needed,
            });
        };
        let pool = |size| PoolUse { size, used: 0 };
        Ok(Mmu {
            ingress: vec![[IngressUse::default(); PRIORITIES]; headroom.len()],
            headroom,
            pools: [pool(shared), pool(lossy)],
            has_lossy_pool: config.lossy_pool.is_some(),
            headroom_pool: pool(headroom_size),
            reserved: u64::from(config.reserved),
            threshold: Limit::of(config.threshold),
            lossy: Limit::of(config.lossy_threshold),
            xon_offset: u64::from(config.xon_offset),
            cell: u64::from(config.cell.max(1)),
        })
    }

    /// Takes a frame in; false if there is no room for it.
    #[inline]
    pub(crate) fn admit(&mut self, arrival: &Arrival) -> bool {
        let len = self.taken(arrival.len);
        let pool = self.pool_of(arrival.is_lossless);
        let limit = if arrival.is_lossless {
            self.threshold
        } else {
            self.lossy
        };
        let limit = limit.bytes(&self.pools[pool]);
        let entry = &mut self.ingress[arrival.port][usize::from(arrival.priority)];
        if entry.reserved + len <= self.reserved {
            entry.reserved += len;
        } else if arrival.is_lossless {
            // What crosses the threshold is the last that the pool takes.
            if entry.shared < limit && self.pools[pool].free() > 0 {
                entry.shared += len;
                self.pools[pool].used += len;
            } else if entry.headroom + len <= self.headroom[arrival.port]
                && self.headroom_pool.free() >= len
            {
                entry.headroom += len;
                self.headroom_pool.used += len;
            } else {
                return false;
            }
        } else if arrival.egress + len <= limit && self.pools[pool].free() >= len {
            entry.shared += len;
            self.pools[pool].used += len;
        } else {
            return false;
        }
        true
    }

    /// A frame has left. Headroom is given back first, so that it is there again when it is needed.
    #[inline]
    pub(crate) fn release(&mut self, port: usize, priority: u8, len: u32, is_lossless: bool) {
        let mut len = self.taken(len);
        let pool = self.pool_of(is_lossless);
        let entry = &mut self.ingress[port][usize::from(priority)];
        let headroom = len.min(entry.headroom);
        entry.headroom -= headroom;
        self.headroom_pool.used -= headroom;
        len -= headroom;
        let shared = len.min(entry.shared);
        entry.shared -= shared;
        self.pools[pool].used -= shared;
        entry.reserved -= len - shared;
    }

    /// True if the neighbour must stop, and was not told yet. It counts as told from now on.
    #[inline]
    pub(crate) fn turns_off(&mut self, port: usize, priority: u8) -> bool {
        let limit = self.threshold.bytes(&self.pools[0]);
        let entry = &mut self.ingress[port][usize::from(priority)];
        let is_due = !entry.is_off && (entry.headroom > 0 || entry.shared >= limit.max(1));
        entry.is_off |= is_due;
        is_due
    }

    /// True if the neighbour was told to stop and may go on. It counts as told from now on.
    #[inline]
    pub(crate) fn turns_on(&mut self, port: usize, priority: u8) -> bool {
        let limit = self.threshold.bytes(&self.pools[0]);
        let entry = &mut self.ingress[port][usize::from(priority)];
        let is_due = entry.is_off
            && entry.headroom == 0
            && entry.shared <= limit.saturating_sub(self.xon_offset);
        entry.is_off &= !is_due;
        is_due
    }

    /// What one port and class use.
    pub(crate) fn ingress(&self, port: usize, priority: u8) -> &IngressUse {
        &self.ingress[port][usize::from(priority)]
    }

    /// Reads of what a frame of a port and class touches.
    #[inline]
    pub(crate) fn fetch(&self, port: usize, priority: u8) -> u64 {
        let taken = self.ingress.get(port);
        taken.map_or(0, |classes| classes[usize::from(priority)].shared)
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        // Reserved bytes are left out: they are few, and not kept as a sum.
        self.pools[0].used + self.pools[1].used + self.headroom_pool.used
    }

    /// Bytes held for all ports and classes, summed one by one.
    pub(crate) fn sum(&self) -> u64 {
        self.ingress.iter().flatten().map(IngressUse::total).sum()
    }

    fn pool_of(&self, is_lossless: bool) -> usize {
        usize::from(!is_lossless && self.has_lossy_pool)
    }

    #[inline]
    fn taken(&self, len: u32) -> u64 {
        if self.cell == 1 {
            u64::from(len)
        } else {
            u64::from(len).div_ceil(self.cell) * self.cell
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rng;
    use proptest::prelude::*;

    fn arrival(port: usize, priority: u8, len: u32) -> Arrival {
        Arrival {
            port,
            priority,
            len,
            is_lossless: priority == 3,
            egress: 0,
        }
    }

    fn mmu(config: &SwitchConfig, ports: usize, headroom: u32) -> Mmu {
        Mmu::new(config, vec![headroom; ports], 1000, 1 << 3).expect("big enough")
    }

    #[test]
    fn the_frame_that_crosses_the_threshold_is_taken_and_pauses() {
        let config = SwitchConfig {
            buffer: 100_000,
            threshold: Threshold::Static(5_000),
            xon_offset: 2_000,
            ..SwitchConfig::default()
        };
        let mut mmu = mmu(&config, 2, 3_000);
        for n in 0..5 {
            assert!(mmu.admit(&arrival(0, 3, 1000)));
            assert_eq!(mmu.turns_off(0, 3), n == 4);
        }
        // Told once, and what follows is headroom.
        for n in 0..4 {
            assert_eq!(mmu.admit(&arrival(0, 3, 1000)), n < 3);
            assert!(!mmu.turns_off(0, 3));
        }
        let entry = *mmu.ingress(0, 3);
        assert_eq!((entry.shared, entry.headroom), (5_000, 3_000));
        for n in 0..8 {
            mmu.release(0, 3, 1000, true);
            // 3 of headroom, then 2 down to the threshold less its offset.
            assert_eq!(mmu.turns_on(0, 3), n == 4, "{n}");
        }
        assert_eq!((mmu.used(), mmu.sum()), (0, 0));
    }

    #[test]
    fn a_lossy_class_drops_by_the_length_of_its_queue() {
        let config = SwitchConfig {
            buffer: 10_000,
            lossy_threshold: Threshold::Dynamic(1.0),
            ..SwitchConfig::default()
        };
        let mut mmu = Mmu::new(&config, vec![0; 2], 1000, 0).expect("big enough");
        let mut egress = 0;
        while mmu.admit(&Arrival {
            egress,
            ..arrival(0, 0, 500)
        }) {
            egress += 500;
        }
        // With alpha 1 a queue takes half.
        assert_eq!(egress, 5_000);
        assert!(mmu.admit(&arrival(1, 0, 500)), "another queue is not full");
    }

    #[test]
    fn a_buffer_must_hold_its_headroom() {
        let config = SwitchConfig {
            buffer: 10_000,
            ..SwitchConfig::default()
        };
        let error = Mmu::new(&config, vec![5_000; 2], 1000, 1 << 3).expect_err("too small");
        assert!(
            error.to_string().contains("10000 bytes is too small"),
            "{error}"
        );
    }

    proptest! {
        /// Whatever comes and goes: no pool is overdrawn, nothing is lost in the books, and a
        /// lossless frame is refused only when its headroom is full.
        #[test]
        fn the_books_balance(seed in any::<u64>(), alpha in 1u32..64, cell in prop_oneof![Just(1u32), Just(208)], reserved in 0u32..3000) {
            let config = SwitchConfig {
                buffer: 400_000,
                threshold: Threshold::Dynamic(f64::from(alpha) / 8.0),
                lossy_threshold: Threshold::Dynamic(0.5),
                cell,
                reserved,
                ..SwitchConfig::default()
            };
            let headroom = 9_000;
            let mut mmu = Mmu::new(&config, vec![headroom; 4], 1500, 1 << 3).expect("big enough");
            let mut rng = Rng::new(seed);
            let mut held: Vec<(usize, u8, u32)> = Vec::new();
            let mut egress = [0; 8];
            for _ in 0..2000 {
                if rng.below(5) < 3 {
                    let priority = if rng.below(2) == 0 { 3 } else { 0 };
                    let mut a = arrival(rng.below(4) as usize, priority, 64 + rng.below(1437) as u32);
                    a.egress = egress[usize::from(priority)];
                    let before = *mmu.ingress(a.port, priority);
                    if mmu.admit(&a) {
                        held.push((a.port, priority, a.len));
                        egress[usize::from(priority)] += u64::from(a.len);
                        mmu.turns_off(a.port, priority);
                    } else if priority == 3 {
                        prop_assert!(before.headroom + u64::from(a.len.next_multiple_of(cell)) > u64::from(headroom));
                        prop_assert!(before.is_off);
                    }
                } else if !held.is_empty() {
                    let (port, priority, len) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    mmu.release(port, priority, len, priority == 3);
                    egress[usize::from(priority)] -= u64::from(len);
                    mmu.turns_on(port, priority);
                }
                let taken: u64 = held.iter().map(|h| u64::from(h.2.next_multiple_of(cell))).sum();
                prop_assert_eq!(mmu.sum(), taken);
                prop_assert!(taken <= config.buffer, "{} bytes in the buffer", taken);
            }
        }
    }
}
