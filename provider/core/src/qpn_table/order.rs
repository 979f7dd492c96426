//! The order in which the numbers of a chunk are given out: a shuffle that follows from a secret.
//!
//! It is computed when numbers are wanted: the first few alone, for a table that needs no more, and then all others. To shuffle
//! twice takes less than to keep thousands of numbers that nothing asks for.

use urxe_wire::Qpn;

use super::chunk::{CHUNK_BITS, CHUNK_LEN, QpnChunk};
use crate::mix::SplitMix64;

/// Numbers that are taken at first.
const FEW: usize = 8;

/// Numbers of a chunk that were not taken yet.
#[derive(Debug)]
pub(super) struct Order {
    chunk: QpnChunk,
    /// What the shuffle draws from.
    random: SplitMix64,
    /// How many of the first were taken.
    taken: usize,
}

impl Order {
    /// All numbers of a chunk, in an order that is drawn.
    pub(super) fn draw(chunk: QpnChunk, random: &mut SplitMix64) -> Order {
        let order = Order {
            chunk,
            random: random.clone(),
            taken: 0,
        };
        // The next draw is behind those of the shuffle: one for each place but the first.
        random.skip(order.numbers().count() as u64 - 1);
        order
    }

    /// The numbers of the chunk that may be given out, lowest first.
    fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let first = u32::from(self.chunk.0) << CHUNK_BITS;
        // 0 and 1 are the management QPs and 0xffffff is multicast: never given out.
        (first..first + CHUNK_LEN as u32).filter(|number| !matches!(number, 0 | 1 | 0xff_ffff))
    }

    /// Takes the next ones: a few, and after those all.
    pub(super) fn take(&mut self) -> Vec<Qpn> {
        let mut numbers: Vec<u32> = self.numbers().collect();
        let mut random = self.random.clone();
        for last in (1..numbers.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            numbers.swap(last, other);
        }
        let until = if self.taken == 0 { FEW } else { numbers.len() };
        let taken = core::mem::replace(&mut self.taken, until);
        numbers[taken..until]
            .iter()
            .copied()
            .map(Qpn::new)
            .collect()
    }

    /// True if a chunk has no more.
    pub(super) fn is_empty(&self) -> bool {
        self.taken > FEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_and_then_the_others_are_all_in_the_order_of_the_shuffle() {
        for chunk in [0, 5, 0xfff] {
            let mut random = SplitMix64::new(77);
            let mut order = Order::draw(QpnChunk(chunk), &mut random);
            let mut at_once: Vec<u32> = order.numbers().collect();
            let mut drawn = SplitMix64::new(77);
            for last in (1..at_once.len()).rev() {
                at_once.swap(last, drawn.below(last as u64 + 1) as usize);
            }
            let few = order.take();
            assert!(few.len() == FEW && !order.is_empty());
            let others = order.take();
            assert!(order.is_empty());
            let all = few.into_iter().chain(others).map(Qpn::get);
            assert!(all.eq(at_once));
            assert_eq!(random.bits(), drawn.bits(), "the next draw is behind");
        }
    }
}
