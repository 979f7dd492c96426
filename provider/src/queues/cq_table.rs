//! All completion queues of a context, by number: where the core puts completions.

use std::sync::Arc;

use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};
use urxe_core::table::shrink;

use super::cq::{CqCore, CqInit};
use super::moderation::ModerationClock;
use crate::limits::LIMITS;

#[derive(Debug, Default)]
pub(crate) struct CqTable {
    cqs: Vec<Option<Arc<CqCore>>>,
    /// Free places in it.
    free: Vec<u32>,
    pub(crate) clock: ModerationClock,
}

/// All numbers are in use.
#[derive(Debug)]
pub(crate) struct CqTableFull;

impl CqTable {
    /// Makes a queue under a free number.
    pub(crate) fn create(&mut self, init: CqInit) -> Result<Arc<CqCore>, CqTableFull> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.cqs.len() < LIMITS.max_cq as usize => {
                self.cqs.push(None);
                self.cqs.len() as u32 - 1
            }
            None => return Err(CqTableFull),
        };
        let cq = Arc::new(CqCore::new(CqId(place), init));
        self.cqs[place as usize] = Some(cq.clone());
        Ok(cq)
    }

    /// Takes a queue of another table, which gives the numbers out for both.
    pub(crate) fn adopt(&mut self, cq: &Arc<CqCore>) {
        let place = cq.id.0 as usize;
        while self.cqs.len() <= place {
            self.free.push(self.cqs.len() as u32);
            self.cqs.push(None);
        }
        // Queues come and go in the same order in both, so it is found near the end.
        if let Some(at) = self.free.iter().rposition(|&free| free == cq.id.0) {
            self.free.remove(at);
        }
        self.cqs[place] = Some(cq.clone());
    }

    pub(crate) fn remove(&mut self, id: CqId) {
        if self.cqs[id.0 as usize].take().is_some() {
            self.free.push(id.0);
        }
    }

    /// Gives up places that no queue has, if hardly any of very many are left.
    pub(crate) fn shrink(&mut self) {
        shrink(&mut self.cqs, &mut self.free, Option::is_some);
    }

    /// Completions that a queue can hold; none if there is no such queue.
    pub(crate) fn capacity(&self, id: CqId) -> usize {
        self.at(id).map_or(0, |cq| cq.capacity())
    }

    /// Completions that a queue can take now.
    pub(crate) fn room(&self, id: CqId) -> usize {
        self.at(id).map_or(0, |cq| cq.room())
    }

    pub(crate) fn at(&self, id: CqId) -> Option<&Arc<CqCore>> {
        self.cqs.get(id.0 as usize)?.as_ref()
    }
}

impl CqSink for CqTable {
    #[inline]
    fn push(&mut self, id: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        match self.cqs.get(id.0 as usize) {
            Some(Some(cq)) => cq.push(cqe, &mut self.clock),
            // A QP keeps its queues alive, so this is not reached.
            _ => Err(CqOverrun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> CqInit {
        CqInit {
            capacity: 1,
            channel: None,
            timestamps: false,
        }
    }

    #[test]
    fn numbers_are_used_again_and_their_limit_is_an_error() {
        let mut table = CqTable::default();
        let max = LIMITS.max_cq;
        for n in 0..max {
            assert_eq!(table.create(small()).expect("free").id, CqId(n));
        }
        assert!(table.create(small()).is_err());
        table.remove(CqId(5));
        table.remove(CqId(5));
        assert_eq!(table.create(small()).expect("free").id, CqId(5));
        assert!(table.create(small()).is_err());
    }

    #[test]
    fn a_table_takes_queues_of_another_under_their_numbers() {
        let (mut first, mut other) = (CqTable::default(), CqTable::default());
        let queues: Vec<_> = (0..5)
            .map(|_| first.create(small()).expect("free"))
            .collect();
        for cq in [&queues[3], &queues[0], &queues[4]] {
            other.adopt(cq);
        }
        assert!(Arc::ptr_eq(other.at(CqId(3)).expect("taken"), &queues[3]));
        assert!(other.at(CqId(1)).is_none());
        other.remove(CqId(3));
        other.adopt(&queues[3]);
        assert_eq!(other.free, [1, 2]);
        assert_eq!((other.capacity(CqId(3)), other.capacity(CqId(2))), (1, 0));
    }

    #[test]
    fn an_almost_empty_table_is_small_again() {
        let mut table = CqTable::default();
        let all: Vec<_> = (0..5000)
            .map(|_| table.create(small()).expect("free").id)
            .collect();
        for &id in all.iter().filter(|id| id.0 != 1000) {
            table.remove(id);
        }
        table.shrink();
        assert_eq!(table.cqs.len(), 1001);
        assert!(table.at(CqId(1000)).is_some());
        let again: Vec<_> = (0..4999)
            .map(|_| table.create(small()).expect("free").id)
            .collect();
        assert!(!again.contains(&CqId(1000)) && again.contains(&CqId(4999)));
    }
}
