//! Ends of connections that wait for the program to poll.
//!
//! An adapter tells of a message as soon as it has come, and a kernel of the end of the connection some tens of microseconds later. So
//! programs take it that what came before the end was polled before: at the end they destroy the QP and what belongs to it, while
//! another of their threads, or they themselves, look at its last completion after that (libfabric's verbs provider and samples of
//! the-geek-in-the-corner do so). Here both come in one turn of the engine. So the event waits as long as a completion of the
//! QP does, but not for ever: a program may not care for it.

use std::sync::Weak;

use urxe_core::Time;
use urxe_core::cq::CqId;
use urxe_wire::Qpn;

use super::cq::CqCore;

/// After so long it is looked whether the completions were polled, if no call that polls their queue says so; then after twice as long, and so
/// on: the event comes at most twice as late as the poll did.
const LOOK_NS: u64 = 50_000;

/// How long the event waits at most: a thread that polls is scheduled within this time on a machine that is very busy.
const WAIT_NS: u64 = 50_000_000;

/// A QP and where its sends and receives complete.
#[derive(Clone, Debug)]
pub(crate) struct CompletingQp {
    pub(crate) qpn: Qpn,
    pub(crate) queues: [Weak<CqCore>; 2],
}

impl CompletingQp {
    fn is_polled(&self) -> bool {
        let mut queues = self.queues.iter().filter_map(Weak::upgrade);
        queues.all(|cq| !cq.has_results_of(self.qpn))
    }

    fn completes_in(&self, id: CqId) -> bool {
        let mut queues = self.queues.iter().filter_map(Weak::upgrade);
        queues.any(|cq| cq.id == id)
    }
}

/// The end of a connection that waits.
#[derive(Debug)]
struct End<T> {
    event: T,
    qp: CompletingQp,
    began: Time,
    look: Time,
}

/// Those that wait.
#[derive(Debug)]
pub(crate) struct Ends<T> {
    waiting: Vec<End<T>>,
    /// When one of them is looked at next.
    due: Option<Time>,
}

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Ends {
            waiting: Vec::new(),
            due: None,
        }
    }
}

impl<T> Ends<T> {
    #[inline]
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// The end of a connection. Returned if it is to be told at once, as the program has polled what its QP completed.
    pub(crate) fn begin(&mut self, event: T, qp: CompletingQp, now: Time) -> Option<T> {
        if qp.is_polled() {
            return Some(event);
        }
        self.waiting.push(End {
            event,
            qp,
            began: now,
            look: now + LOOK_NS,
        });
        self.settle();
        None
    }

    /// Something else is about to be told of a connection: its end comes before.
    pub(crate) fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Vec<T> {
        self.release(|end| is_it(&end.event))
    }

    /// The program has looked at a queue, and found it empty. Returns what is told now.
    #[cold]
    pub(crate) fn on_polled_empty(&mut self, id: CqId) -> Vec<T> {
        self.release(|end| end.qp.completes_in(id) && end.qp.is_polled())
    }

    /// It is time to look. Returns what is told now.
    #[cold]
    pub(crate) fn look(&mut self, now: Time) -> Vec<T> {
        let is_over = |end: &End<T>| end.began + WAIT_NS <= now || end.qp.is_polled();
        let over = self.release(|end| end.look <= now && is_over(end));
        for end in self.waiting.iter_mut().filter(|end| end.look <= now) {
            end.look = (now + now.since_ns(end.began)).min(end.began + WAIT_NS);
        }
        self.settle();
        over
    }

    fn release(&mut self, is_over: impl Fn(&End<T>) -> bool) -> Vec<T> {
        let over = self.waiting.extract_if(.., |end| is_over(end));
        let over = over.map(|end| end.event).collect();
        self.settle();
        over
    }

    fn settle(&mut self) {
        self.due = self.waiting.iter().map(|end| end.look).min();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use urxe_core::cq::{Cqe, TmInfo, WcOpcode};
    use urxe_core::error::{Fault, WcStatus};

    use super::*;
    use crate::queues::{CqInit, CqTable};
    use crate::wc::Wc;

    const QPN: Qpn = Qpn::new(7);

    /// A QP that sends into one queue and receives from another.
    struct Side {
        cqs: [Arc<CqCore>; 2],
        table: CqTable,
    }

    impl Side {
        fn new() -> Side {
            let mut table = CqTable::default();
            let cqs = [(); 2].map(|()| {
                let init = CqInit {
                    capacity: 8,
                    channel: None,
                    timestamps: false,
                };
                table.create(init).expect("a free number")
            });
            Side { cqs, table }
        }

        fn complete(&mut self, queue: usize, qpn: Qpn, status: WcStatus) {
            let cqe = Cqe {
                wr_id: 1,
                status,
                fault: Fault::None,
                opcode: WcOpcode::Send,
                byte_len: 0,
                imm: None,
                invalidated: None,
                qpn,
                src_qp: Qpn::new(3),
                solicited: false,
                tm: TmInfo::default(),
                grh: false,
                ipv4: false,
            };
            let clock = &mut self.table.clock;
            self.cqs[queue].push(cqe, clock).expect("room");
        }

        fn poll(&self, queue: usize) {
            assert_eq!(self.cqs[queue].take(&mut [Wc::default()]), 1);
        }

        fn end(&self, name: char, ends: &mut Ends<char>) -> Option<char> {
            let qp = CompletingQp {
                qpn: QPN,
                queues: [&self.cqs[0], &self.cqs[1]].map(Arc::downgrade),
            };
            ends.begin(name, qp, Time(0))
        }
    }

    #[test]
    fn where_all_was_polled_the_end_is_told_at_once() {
        let (mut side, mut ends) = (Side::new(), Ends::default());
        // That a request was flushed is no result, and that of another QP not of this one.
        side.complete(0, QPN, WcStatus::WrFlushErr);
        side.complete(1, Qpn::new(8), WcStatus::Success);
        assert_eq!(side.end('a', &mut ends), Some('a'));
        assert_eq!(ends.due(), None);
    }

    #[test]
    fn an_end_waits_until_both_queues_were_polled() {
        let (mut side, mut ends) = (Side::new(), Ends::default());
        let [sends, recvs] = side.cqs.clone().map(|cq| cq.id);
        side.complete(0, QPN, WcStatus::Success);
        side.complete(1, QPN, WcStatus::Success);
        assert_eq!(side.end('a', &mut ends), None);
        side.poll(0);
        assert_eq!(ends.on_polled_empty(sends), [], "there is the other queue");
        side.poll(1);
        // The thread that took it may not have looked at it yet.
        assert_eq!(ends.on_polled_empty(CqId(9)), [], "a queue of others");
        assert_eq!(ends.on_polled_empty(recvs), ['a']);
        assert_eq!(ends.due(), None);
    }

    #[test]
    fn a_program_that_polls_and_then_waits_is_told_at_the_next_look() {
        let (mut side, mut ends) = (Side::new(), Ends::default());
        side.complete(0, QPN, WcStatus::Success);
        assert_eq!(side.end('a', &mut ends), None);
        assert_eq!(ends.due(), Some(Time(LOOK_NS)));
        assert_eq!(ends.look(Time(LOOK_NS)), []);
        assert_eq!(ends.due(), Some(Time(2 * LOOK_NS)));
        assert_eq!(ends.look(Time(2 * LOOK_NS)), []);
        assert_eq!(ends.due(), Some(Time(4 * LOOK_NS)));
        side.poll(0);
        assert_eq!(ends.look(Time(3 * LOOK_NS)), [], "too early");
        assert_eq!(ends.look(Time(4 * LOOK_NS)), ['a']);
        assert_eq!(ends.due(), None);
    }

    #[test]
    fn a_program_that_never_polls_is_told_after_a_while() {
        let (mut side, mut ends) = (Side::new(), Ends::default());
        side.complete(0, QPN, WcStatus::Success);
        assert_eq!(side.end('a', &mut ends), None);
        assert_eq!(ends.look(Time(WAIT_NS - 1)), []);
        assert_eq!(ends.due(), Some(Time(WAIT_NS)));
        assert_eq!(ends.look(Time(WAIT_NS)), ['a']);
        assert_eq!(ends.due(), None);
    }

    #[test]
    fn one_end_does_not_wait_for_another_nor_for_a_queue_that_is_gone() {
        let mut ends = Ends::default();
        let [mut one, mut other] = [Side::new(), Side::new()];
        for (side, name) in [(&mut one, 'a'), (&mut other, 'b')] {
            side.complete(0, QPN, WcStatus::Success);
            assert_eq!(side.end(name, &mut ends), None);
        }
        assert_eq!(ends.take(|&name| name == 'a'), ['a']);
        other.table.remove(other.cqs[0].id);
        other.cqs[0] = other.cqs[1].clone();
        assert_eq!(ends.look(Time(LOOK_NS)), ['b']);
        assert_eq!(ends.due(), None);
    }
}
