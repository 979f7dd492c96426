//! A QP as requester: answers give their data once each, in the order of their PSNs.

use std::collections::VecDeque;

use urxe_wire::{Operation, Psn};

use super::deed::{Ahead, Deed};
use super::effects::{Effects, Fault, check_of, out_of_turn};
use crate::check::kind::Check;

/// Data that must come for a READ or an atomic.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// PSN of the next packet of it.
    next: Psn,
    /// Packets and bytes that have not come.
    packets: u32,
    missing: u64,
    /// Where the next byte goes, if all go to one place.
    addr: Option<u64>,
}

/// Answers to the requests of a QP.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// PSN of the next post.
    next_post: Psn,
    expected: VecDeque<Answer>,
    /// The last that gave data.
    last: Option<Psn>,
    wraps: u64,
    ahead: Ahead,
    /// Bytes of READs.
    came: u64,
}

impl Answers {
    pub(super) fn new(first: Psn) -> Answers {
        Answers {
            next_post: first,
            ..Answers::default()
        }
    }

    pub(super) fn wraps(&self) -> u64 {
        self.wraps
    }

    /// Bytes of READs that have come.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// A request was posted that takes so many PSNs; `missing` bytes are to come, to `addr` if to one place. An answer
    /// without data leaves no trace.
    pub(super) fn expect(&mut self, psns: u32, missing: u64, addr: Option<u64>) {
        if missing > 0 {
            self.expected.push_back(Answer {
                next: self.next_post,
                packets: psns,
                missing,
                addr,
            });
        }
        self.next_post = self.next_post.add(psns);
    }

    /// The last post was refused.
    pub(super) fn take_back(&mut self, psns: u32, is_answered: bool) {
        if is_answered {
            self.expected.pop_back();
        }
        self.next_post = Psn::new(self.next_post.get().wrapping_sub(psns));
    }

    /// A packet came before its turn.
    pub(super) fn note_ahead(&mut self, deed: Deed) {
        if let Some(answer) = self.expected.front().filter(|_| deed.len > 0) {
            self.ahead.put(answer.next, deed);
        }
    }

    /// A packet gave data, or those that waited for it.
    pub(super) fn on_packet(
        &mut self,
        deed: Deed,
        mut effects: Effects<'_>,
        is_broken: bool,
    ) -> Result<(), Fault> {
        // An acknowledgement does nothing itself. What waited for it may be done now.
        let mut next = (deed.operation != Operation::Acknowledge).then_some(deed);
        while !effects.is_empty() {
            let turn = next.take().or_else(|| {
                let next = self.expected.front()?.next;
                self.ahead.take(next)
            });
            let turn = turn.ok_or_else(|| effects.unexplained(deed.psn))?;
            self.execute(&turn, &mut effects, is_broken)?;
        }
        effects.verdict()
    }

    fn execute(
        &mut self,
        deed: &Deed,
        effects: &mut Effects<'_>,
        is_broken: bool,
    ) -> Result<(), Fault> {
        let last = self.last.replace(deed.psn);
        self.wraps += u64::from(last.is_some_and(|last| deed.psn.get() < last.get()));
        let Some(answer) = self.expected.front_mut() else {
            let fault = format!("{deed} came, and nothing asked for it");
            return Err((check_of(deed), fault));
        };
        if deed.psn != answer.next {
            return Err(out_of_turn(deed, answer.next));
        }
        let addr = answer.addr;
        answer.next = answer.next.next();
        answer.packets -= 1;
        answer.missing = answer.missing.saturating_sub(deed.len);
        answer.addr = addr.map(|addr| addr + deed.len);
        let (packets, missing) = (answer.packets, answer.missing);
        if packets == 0 {
            self.expected.pop_front();
        }
        if deed.operation == Operation::ReadResponse {
            self.came += deed.len;
        }
        let writes = effects.take_all(deed, is_broken);
        if let Some(addr) = addr {
            effects.check_place(deed, writes, addr);
        }
        if (packets == 0) != (missing == 0) {
            let fault = format!("{missing} bytes are to come after {deed}, in {packets} packets");
            effects.note(Check::Delivery, fault);
        }
        Ok(())
    }
}
