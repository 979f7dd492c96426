//! Delays completions: late, in odd batches, and in an order of their own.
//!
//! The completions of one work queue have an order; those of different queues have none,
//! even in one completion queue. A completion that is held back has not happened yet: so
//! a program that armed the queue and polled it empty gets its event when it comes.

use std::collections::VecDeque;

use urxe_core::Time;
use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};

use super::entry::Queue;
use crate::queues::CqTable;
use urxe_core::mix::SplitMix64;

/// How long a completion is held back, at most.
const HOLD_NS: u64 = 40_000;

/// The completions of one work queue, in order.
#[derive(Debug)]
struct Lane {
    cq: CqId,
    queue: Queue,
    held: VecDeque<(Time, Cqe)>,
}

/// Completions that were made and are not in their queue yet.
#[derive(Debug, Default)]
pub(super) struct HeldCompletions {
    /// Those of queues that hold none are kept for the next time.
    lanes: Vec<Lane>,
}

impl HeldCompletions {
    /// Takes a completion. It is refused at once if there is no room for it.
    pub(super) fn push(
        &mut self,
        cq: CqId,
        cqe: Cqe,
        now: Time,
        cqs: &mut CqTable,
        random: &mut SplitMix64,
    ) -> Result<(), CqOverrun> {
        let held: usize = self.of(cq).map(|lane| lane.held.len()).sum();
        if held >= cqs.room(cq) {
            self.release(cqs, random, |lane, _| lane == cq);
            return cqs.push(cq, cqe);
        }
        let queue = Queue::ordered_with(cqe.qpn, cqe.opcode);
        // A QP with messages that name their shared queue completes to several.
        let is_its = |lane: &Lane| lane.queue == queue && lane.cq == cq;
        let found = self.lanes.iter().position(is_its);
        let place = found.unwrap_or_else(|| {
            self.lanes.push(Lane {
                cq,
                queue,
                held: VecDeque::new(),
            });
            self.lanes.len() - 1
        });
        let lane = &mut self.lanes[place];
        let after = lane.held.back().map_or(now, |&(due, _)| due);
        let due = now + random.below(HOLD_NS);
        lane.held.push_back((due.max(after), cqe));
        Ok(())
    }

    /// When the next one is to come.
    pub(super) fn due(&self) -> Option<Time> {
        let first = self.lanes.iter().filter_map(|lane| lane.held.front());
        first.map(|&(due, _)| due).min()
    }

    /// Releases those that are due. Returns true if there were any.
    pub(super) fn release_due(
        &mut self,
        now: Time,
        cqs: &mut CqTable,
        random: &mut SplitMix64,
    ) -> bool {
        self.release(cqs, random, |_, due| due <= now)
    }

    /// Lets all come that are of a QP, which goes.
    pub(super) fn release_all(&mut self, cqs: &mut CqTable, random: &mut SplitMix64) {
        self.release(cqs, random, |_, _| true);
        self.lanes.clear();
    }

    fn release(
        &mut self,
        cqs: &mut CqTable,
        random: &mut SplitMix64,
        is_meant: impl Fn(CqId, Time) -> bool,
    ) -> bool {
        let mut any = false;
        loop {
            let is_ready = |lane: &Lane| {
                let first = lane.held.front();
                first.is_some_and(|&(due, _)| is_meant(lane.cq, due))
            };
            let ready = self.lanes.iter().filter(|lane| is_ready(lane)).count();
            if ready == 0 {
                return any;
            }
            any = true;
            let chosen = random.below(ready as u64) as usize;
            let lane = self
                .lanes
                .iter_mut()
                .filter(|lane| is_ready(lane))
                .nth(chosen);
            let lane = lane.expect("counted just now");
            if let Some((_, cqe)) = lane.held.pop_front() {
                // There was room when it was made, and nothing else fills the queue.
                let pushed = cqs.push(lane.cq, cqe);
                debug_assert!(pushed.is_ok(), "room was kept for it");
            }
        }
    }

    fn of(&self, cq: CqId) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(move |lane| lane.cq == cq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::CqInit;
    use crate::wc::Wc;
    use urxe_core::cq::{TmInfo, WcOpcode};
    use urxe_core::error::{Fault, WcStatus};
    use urxe_wire::Qpn;

    fn cqe(wr_id: u64) -> Cqe {
        Cqe {
            wr_id,
            status: WcStatus::Success,
            fault: Fault::None,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn: Qpn::new(2),
            src_qp: Qpn::new(3),
            solicited: false,
            tm: TmInfo::default(),
            grh: false,
            ipv4: false,
        }
    }

    #[test]
    fn one_qp_may_complete_to_several_queues_and_none_is_overfilled() {
        let mut table = CqTable::default();
        let mut cq = || {
            let init = CqInit {
                capacity: 3,
                channel: None,
                timestamps: false,
            };
            table.create(init).expect("a free number")
        };
        let (one, two) = (cq(), cq());
        let (mut held, mut random) = (HeldCompletions::default(), SplitMix64::new(1));
        for n in 0..3 {
            for (cq, wr_id) in [(&one, n), (&two, 10 + n)] {
                let pushed = held.push(cq.id, cqe(wr_id), Time(0), &mut table, &mut random);
                pushed.expect("room");
            }
        }
        let due = held.due().expect("some are held");
        assert!(due < Time(HOLD_NS));
        assert!(held.release_due(Time(HOLD_NS), &mut table, &mut random));
        assert!(!held.release_due(Time(HOLD_NS), &mut table, &mut random));
        let lost = held.push(one.id, cqe(3), Time(0), &mut table, &mut random);
        assert_eq!(lost, Err(CqOverrun));
        for (cq, first) in [(one, 0), (two, 10)] {
            let mut wcs = [Wc::default(); 4];
            assert_eq!(cq.take(&mut wcs), 3);
            let ids = wcs[..3].iter().map(|wc| wc.wr_id);
            assert!(ids.eq(first..first + 3), "{wcs:?}");
        }
    }
}
