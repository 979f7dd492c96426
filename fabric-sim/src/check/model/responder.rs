//! A QP as responder: requests are executed once each, in the order of their PSNs.

use urxe_wire::{Operation, Psn};

use super::deed::{Ahead, Deed};
use super::effects::{Effects, Fault, out_of_turn};
use super::message::Message;
use crate::check::kind::Check;

/// Requests of the peer.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The PSN that is next.
    next: Psn,
    /// The last that was executed.
    last: Option<Psn>,
    wraps: u64,
    ahead: Ahead,
    /// Bytes of the message that comes in, and where a WRITE's first went.
    bytes: u64,
    addr: Option<u64>,
}

impl Requests {
    pub(super) fn new(first: Psn) -> Requests {
        Requests {
            next: first,
            ..Requests::default()
        }
    }

    pub(super) fn wraps(&self) -> u64 {
        self.wraps
    }

    /// A packet came before its turn.
    pub(super) fn note_ahead(&mut self, deed: Deed) {
        self.ahead.put(self.next, deed);
    }

    /// A packet was executed, and those that waited for it. Tells of each message that came to its end.
    pub(super) fn on_packet(
        &mut self,
        deed: Deed,
        mut effects: Effects<'_>,
        is_broken: bool,
        mut has_ended: impl FnMut(Message),
    ) -> Result<(), Fault> {
        let mut next = Some(deed);
        while !effects.is_empty() {
            let turn = next.take().or_else(|| self.ahead.take(self.next));
            let turn = turn.ok_or_else(|| effects.unexplained(deed.psn))?;
            if let Some(message) = self.execute(&turn, &mut effects, is_broken)? {
                has_ended(message);
            }
        }
        effects.verdict()
    }

    /// The next packet is executed. Returns a message that it ends and that the peer has a post for.
    fn execute(
        &mut self,
        deed: &Deed,
        effects: &mut Effects<'_>,
        is_broken: bool,
    ) -> Result<Option<Message>, Fault> {
        let last = self.last.replace(deed.psn);
        self.wraps += u64::from(last.is_some_and(|last| deed.psn.get() < last.get()));
        let next = core::mem::replace(&mut self.next, deed.psn.add(deed.psns));
        if deed.psn != next {
            return Err(out_of_turn(deed, next));
        }
        if deed.begins_message() {
            (self.bytes, self.addr) = (0, None);
        }
        let writes = effects.take_all(deed, is_broken);
        let offset = self.bytes;
        self.bytes += deed.len;
        if let Some(first) = writes.first()
            && deed.operation == Operation::Write
        {
            let start = *self.addr.get_or_insert(first.at);
            effects.check_place(deed, writes, start + offset);
        }
        if !deed.ends_message() {
            return Ok(None);
        }
        if effects.messages == 0 {
            // One that is refused at its end breaks the QP.
            if !is_broken {
                effects.note(Check::Delivery, format!("{deed} ended no message"));
            }
            return Ok(None);
        }
        effects.messages -= 1;
        let is_posted = !matches!(deed.operation, Operation::ReadRequest | Operation::Flush);
        Ok(is_posted.then(|| Message {
            operation: deed.operation,
            len: core::mem::take(&mut self.bytes),
            addr: self.addr.take(),
            values: writes.first().and_then(|write| write.values),
        }))
    }
}
