//! A message as it was posted, and as it was executed.

use urxe_core::work::WrOpcode;
use urxe_wire::Operation;

use super::effects::Fault;
use crate::check::kind::Check;

/// A message that the peer will execute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    pub(super) opcode: WrOpcode,
    pub(super) len: u64,
    pub(super) addr: u64,
    pub(super) compare_add: u64,
    pub(super) swap: u64,
}

/// A message that was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(super) operation: Operation,
    pub(super) len: u64,
    /// Where the first byte of a WRITE went.
    pub(super) addr: Option<u64>,
    /// Old and new value, of an atomic.
    pub(super) values: Option<(u64, u64)>,
}

impl Action {
    /// What was executed that was not posted so.
    pub(super) fn differs(&self, finished: &Message) -> Option<Fault> {
        let is_same = match self.opcode {
            WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => {
                finished.operation == Operation::Send
            }
            WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => {
                finished.operation == Operation::Write
            }
            WrOpcode::AtomicCmpAndSwp => finished.operation == Operation::CompareSwap,
            WrOpcode::AtomicFetchAndAdd => finished.operation == Operation::FetchAdd,
            _ => true,
        };
        if !is_same {
            let (posted, executed) = (self.opcode, finished.operation);
            let fault = format!("{posted:?} was posted, {executed:?} executed");
            return Some((Check::Delivery, fault));
        }
        if let Some((old, new)) = finished.values {
            let expected = match self.opcode {
                WrOpcode::AtomicFetchAndAdd => old.wrapping_add(self.compare_add),
                _ if old == self.compare_add => self.swap,
                _ => old,
            };
            let fault = format!(
                "{:?} made {new:#x} of {old:#x}, not {expected:#x}",
                self.opcode
            );
            return (new != expected).then_some((Check::Atomics, fault));
        }
        if matches!(finished.operation, Operation::Send | Operation::Write)
            && finished.len != self.len
        {
            let fault = format!("{} bytes were posted, {} written", self.len, finished.len);
            return Some((Check::Delivery, fault));
        }
        let addr = finished
            .addr
            .filter(|_| finished.operation == Operation::Write)?;
        let fault = format!("posted for {:#x}, written at {addr:#x}", self.addr);
        (addr != self.addr).then_some((Check::Delivery, fault))
    }
}
