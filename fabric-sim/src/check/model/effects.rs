//! What a transport did when a packet came, explained packet by packet.

use urxe_wire::{Operation, Psn};

use super::deed::Deed;
use crate::check::kind::Check;
use crate::host::Write;

/// A check that did not hold, and how.
pub(super) type Fault = (Check, String);

/// What the packets that were executed have not explained yet.
pub(super) struct Effects<'a> {
    /// In order.
    pub(super) writes: &'a [Write],
    pub(super) messages: u64,
    found: Option<Fault>,
}

impl<'a> Effects<'a> {
    pub(super) fn new(writes: &'a [Write], messages: u64) -> Effects<'a> {
        Effects {
            writes,
            messages,
            found: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.messages == 0
    }

    /// The writes of a packet of so many bytes: it may have gone to several places.
    fn take(&mut self, len: u64) -> &'a [Write] {
        let (mut count, mut left) = (0, len);
        while let Some(write) = self.writes.get(count)
            && write.len <= left
        {
            left -= write.len;
            count += 1;
        }
        let (taken, rest) = self.writes.split_at(count);
        self.writes = rest;
        taken
    }

    /// The writes of a packet: all that it has, and what was sent. A QP that breaks in the middle of one may leave a part.
    pub(super) fn take_all(&mut self, deed: &Deed, is_broken: bool) -> &'a [Write] {
        let writes = self.take(deed.len);
        let written: u64 = writes.iter().map(|write| write.len).sum();
        let (psn, len) = (deed.psn, deed.len);
        if writes.iter().any(|write| write.is_wrong) {
            self.note(Check::Delivery, format!("{deed} wrote what was not sent"));
        }
        let adds = matches!(deed.operation, Operation::CompareSwap | Operation::FetchAdd);
        if writes.iter().any(|write| write.values.is_some() != adds) {
            let operation = deed.operation;
            let fault =
                format!("at PSN {psn} an atomic and {operation:?} are in each other's place");
            self.note(check_of(deed), fault);
        }
        if written != len && !is_broken {
            let fault = format!("{deed} wrote {written} of its {len} bytes");
            self.note(check_of(deed), fault);
        }
        writes
    }

    /// A packet wrote without a hole, from there on.
    pub(super) fn check_place(&mut self, deed: &Deed, writes: &[Write], mut expected: u64) {
        for write in writes {
            if write.at != expected {
                let at = write.at;
                let fault = format!("{deed} went on at {at:#x}, not at {expected:#x}");
                return self.note(Check::Delivery, fault);
            }
            expected += write.len;
        }
    }

    /// Something is wrong with a packet; what comes after it is looked at all the same.
    pub(super) fn note(&mut self, check: Check, fault: String) {
        self.found.get_or_insert((check, fault));
    }

    /// What was found first.
    pub(super) fn verdict(self) -> Result<(), Fault> {
        self.found.map_or(Ok(()), Err)
    }

    /// Nothing that came explains what is left.
    pub(super) fn unexplained(&self, last: Psn) -> Fault {
        let (writes, messages) = (self.writes.len(), self.messages);
        let fault = format!(
            "after the packet with PSN {last} came, {writes} writes and {messages} ends of messages were of none"
        );
        (Check::Delivery, fault)
    }
}

pub(super) fn check_of(deed: &Deed) -> Check {
    if deed.is_atomic() {
        Check::Atomics
    } else {
        Check::Delivery
    }
}

/// A packet was executed, and another was next.
pub(super) fn out_of_turn(deed: &Deed, next: Psn) -> Fault {
    let fault = if deed.psn.is_before(next) {
        format!("{deed} was executed twice, or out of order: {next} was next")
    } else {
        format!("{deed} was executed, and {next} was not")
    };
    (check_of(deed), fault)
}
