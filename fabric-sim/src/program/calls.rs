//! The last calls of a host's programs, to be told when their run fails.

use core::fmt;
use std::collections::VecDeque;

use urxe::network::{Act, Pause};
use urxe::{WcOpcode, WcStatus, WrOpcode};

use crate::engine::Span;

/// Calls of a host that are kept.
const KEPT: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    PollInVain,
    Arm,
    Wait,
    Send {
        qpn: u32,
        opcode: WrOpcode,
    },
    Recv {
        qpn: Option<u32>,
    },
    Polled {
        qpn: u32,
        opcode: WcOpcode,
        status: WcStatus,
    },
}

/// Calls of one kind that followed each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    verb: Verb,
    count: u64,
    /// The id of the last, if it has one.
    wr_id: Option<u64>,
    /// When the last was.
    at_ns: u64,
}

/// A host's last calls, oldest first.
#[derive(Debug)]
pub(crate) struct Calls(VecDeque<Run>);

impl Default for Calls {
    fn default() -> Calls {
        Calls(VecDeque::with_capacity(KEPT))
    }
}

impl Calls {
    pub(crate) fn note_pause(&mut self, at_ns: u64, why: &Pause) {
        match why {
            Pause::Poll | Pause::Look => self.note(at_ns, Verb::PollInVain, None),
            Pause::Arm => self.note(at_ns, Verb::Arm, None),
            Pause::Event { .. } => self.note(at_ns, Verb::Wait, None),
            _ => {}
        }
    }

    pub(crate) fn note_act(&mut self, at_ns: u64, act: &Act<'_>) {
        let (verb, wr_id) = match *act {
            Act::Send { qpn, wr, .. } => {
                let opcode = wr.opcode;
                (Verb::Send { qpn, opcode }, wr.wr_id)
            }
            Act::Recv { qpn, wr_id } => (Verb::Recv { qpn }, wr_id),
            Act::Polled(wc) => {
                let (qpn, opcode, status) = (wc.qp_num.get(), wc.opcode, wc.status);
                (
                    Verb::Polled {
                        qpn,
                        opcode,
                        status,
                    },
                    wc.wr_id,
                )
            }
            _ => return,
        };
        self.note(at_ns, verb, Some(wr_id));
    }

    fn note(&mut self, at_ns: u64, verb: Verb, wr_id: Option<u64>) {
        if let Some(last) = self.0.back_mut()
            && last.verb == verb
        {
            (last.count, last.wr_id, last.at_ns) = (last.count + 1, wr_id, at_ns);
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Run {
            verb,
            count: 1,
            wr_id,
            at_ns,
        });
    }

    /// In words, in order.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.0.iter().map(Run::to_string).collect()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verb {
            Verb::PollInVain => f.write_str("poll in vain"),
            Verb::Arm => f.write_str("req_notify"),
            Verb::Wait => f.write_str("wait for an event"),
            Verb::Send { qpn, opcode } => write!(f, "post {opcode:?} on QP {qpn:#x}"),
            Verb::Recv { qpn: Some(qpn) } => write!(f, "post a receive on QP {qpn:#x}"),
            Verb::Recv { qpn: None } => f.write_str("post a shared receive"),
            Verb::Polled { qpn, status, .. } if status != WcStatus::Success => {
                write!(f, "poll {status:?} of QP {qpn:#x}")
            }
            Verb::Polled { qpn, opcode, .. } => {
                write!(f, "poll the end of {opcode:?} of QP {qpn:#x}")
            }
        }?;
        if let Some(wr_id) = self.wr_id {
            write!(f, " (wr_id {wr_id})")?;
        }
        if self.count > 1 {
            write!(f, ", {} times, the last", self.count)?;
        }
        write!(f, " at {}", Span::from_ns(self.at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_calls_that_follow_each_other_are_one_and_old_ones_go() {
        let mut calls = Calls::default();
        for at_ns in 0..20 {
            let qpn = Some(0x12);
            calls.note_act(at_ns, &Act::Recv { qpn, wr_id: at_ns });
        }
        calls.note_pause(30, &Pause::Memory);
        calls.note_pause(40, &Pause::Arm);
        let expected = [
            "post a receive on QP 0x12 (wr_id 19), 20 times, the last at 19 ns",
            "req_notify at 40 ns",
        ];
        assert_eq!(calls.describe(), expected);
        for at_ns in 50..70 {
            calls.note_pause(at_ns, [&Pause::Poll, &Pause::Arm][at_ns as usize % 2]);
        }
        let told = calls.describe();
        assert_eq!((told.len(), &told[7][..]), (KEPT, "req_notify at 69 ns"));
    }
}
