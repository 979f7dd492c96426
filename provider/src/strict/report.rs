//! What strict mode found, in words, and where it goes.

use core::fmt;
use core::panic::Location;
use std::collections::{BTreeSet, VecDeque};

use urxe_wire::Qpn;

use super::StrictMode;

/// What kind of misuse a [`StrictReport`] is about. docs/STRICT.md has a section on each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[non_exhaustive]
pub enum StrictRule {
    /// The bytes of a send changed before its completion was polled.
    SendBufferChanged,
    /// The program wrote into a buffer that is posted for a receive, or for the result of
    /// a READ or an atomic.
    ReceiveBufferWritten,
    /// The program looked into such a buffer before it polled the completion.
    ReceiveBufferRead,
    /// A send takes its bytes from a buffer that is posted for a receive.
    SendFromReceiveBuffer,
    /// An lkey was used where an rkey belongs.
    LkeyAsRkey,
    /// A message arrived and no receive was posted for it.
    MissingReceive,
    /// A receive was posted after the message that needed it was refused.
    ReceivePostedLate,
    /// A peer without receives is tried again and again, for ever.
    EndlessRnrRetry,
    /// Memory was deregistered while a work request used it.
    MrInUse,
    /// A QP was destroyed while sends were under way.
    QpInUse,
    /// A completion queue cannot take all completions that may come.
    CqTooSmall,
    /// A completion queue was destroyed and nobody had looked at its completions.
    CompletionsNotPolled,
    /// The send queue is full of requests that make no completion.
    NeverSignaled,
    /// More sends were posted than the send queue has places, as hardware counts.
    SendQueueNotPolled,
    /// A work request names memory of another protection domain.
    PdMismatch,
}

impl StrictRule {
    /// The rule's name, which is also its section in docs/STRICT.md.
    pub const fn name(self) -> &'static str {
        match self {
            StrictRule::SendBufferChanged => "send-buffer-changed",
            StrictRule::ReceiveBufferWritten => "receive-buffer-written",
            StrictRule::ReceiveBufferRead => "receive-buffer-read",
            StrictRule::SendFromReceiveBuffer => "send-from-receive-buffer",
            StrictRule::LkeyAsRkey => "lkey-as-rkey",
            StrictRule::MissingReceive => "missing-receive",
            StrictRule::ReceivePostedLate => "receive-posted-late",
            StrictRule::EndlessRnrRetry => "endless-rnr-retry",
            StrictRule::MrInUse => "mr-in-use",
            StrictRule::QpInUse => "qp-in-use",
            StrictRule::CqTooSmall => "cq-too-small",
            StrictRule::CompletionsNotPolled => "completions-not-polled",
            StrictRule::NeverSignaled => "never-signaled",
            StrictRule::SendQueueNotPolled => "send-queue-not-polled",
            StrictRule::PdMismatch => "pd-mismatch",
        }
    }

    /// Why it is wrong, and what would be right.
    const fn advice(self) -> &'static str {
        match self {
            StrictRule::SendBufferChanged => {
                "Until the completion is polled the adapter may read the buffer at any time, a \
                 second time too when a packet was lost, so the peer may get new bytes, or a \
                 mixture. Poll the completion of this request, or of a later one of the same \
                 send queue, before touching the buffer; or post small messages inline."
            }
            StrictRule::ReceiveBufferWritten => {
                "A posted buffer belongs to the adapter: whatever is written there may be \
                 overwritten, or damage the message. Poll the completion first, then write."
            }
            StrictRule::ReceiveBufferRead => {
                "Until the completion is polled the buffer holds old bytes, new ones, or a \
                 mixture (here: \"<posted>\"). Poll the completion first, then read."
            }
            StrictRule::SendFromReceiveBuffer => {
                "A message that arrives may overwrite the bytes while they are sent. Use one \
                 buffer for sending and another for receiving, or post one after the other \
                 is complete."
            }
            StrictRule::LkeyAsRkey => {
                "A region has two keys: the lkey for its owner's own work requests, the rkey for \
                 peers. Some adapters make them equal, others do not. Give peers Mr::rkey \
                 (mr->rkey)."
            }
            StrictRule::MissingReceive => {
                "A SEND, or a WRITE with immediate, needs a receive that was posted before it \
                 arrives. A reliable connection makes the sender wait and try again, which is \
                 slow and fails after rnr_retry times; unreliable services lose the message. Post \
                 receives before the peer may send: before connecting, and again before \
                 answering."
            }
            StrictRule::ReceivePostedLate => {
                "It worked because the sender tried again. Post the receive before the peer is \
                 allowed to send."
            }
            StrictRule::EndlessRnrRetry => {
                "rnr_retry 7 means for ever: if the peer never posts a receive, this request \
                 never completes, not even with an error. Have the peer post receives; or use an \
                 rnr_retry of 0 to 6 so that the failure is seen."
            }
            StrictRule::MrInUse => {
                "The adapter still needs the memory: the request will fail, or on hardware without \
                 such checks use memory that is somebody else's by then. Poll the completions of \
                 all requests that use a region before deregistering it."
            }
            StrictRule::QpInUse => {
                "Nobody will learn whether these requests were carried out, and they make no \
                 completions. Poll their completions first, or bring the QP into the error state \
                 and poll the flushed ones."
            }
            StrictRule::CqTooSmall => {
                "When more completions arrive than fit, the queue overruns: completions are lost and \
                 the QPs fail. Create it for as many completions as requests of all its queues \
                 can be outstanding, or poll earlier."
            }
            StrictRule::CompletionsNotPolled => {
                "They may be errors that nobody sees. Poll a completion queue until it is empty \
                 before destroying it."
            }
            StrictRule::NeverSignaled => {
                "Hardware gives a place in the send queue back when the program polls a completion \
                 of that request or of a later one; without one the queue is full for ever. Signal \
                 at least one request in every half queue, and poll it."
            }
            StrictRule::SendQueueNotPolled => {
                "Hardware gives a place in the send queue back when the program polls a completion \
                 of that request or of a later one: there this post fails with ENOMEM. That an \
                 answer of the peer arrived is no completion. Poll before posting more, or create \
                 the QP with a larger max_send_wr."
            }
            StrictRule::PdMismatch => {
                "A QP can use only memory that was registered in its own protection domain; the \
                 request will fail with a local protection error. Register the memory in the QP's \
                 protection domain."
            }
        }
    }
}

impl fmt::Display for StrictRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One finding of strict mode: a use of verbs that works by luck, or would not elsewhere.
///
/// As text it is what a newcomer needs: what happened, where the request was posted, why
/// it is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrictReport {
    /// Which rule was broken.
    pub rule: StrictRule,
    /// The work request, where the finding is about one.
    pub wr_id: Option<u64>,
    /// The QP, where the finding is about one.
    pub qpn: Option<Qpn>,
    /// The call that posted the work request, or that broke the rule.
    pub at: Option<&'static Location<'static>>,
    /// How often it was found at this place since reports were last taken.
    pub count: u64,
    /// What happened, in one or two sentences.
    pub text: String,
}

impl StrictReport {
    pub(crate) fn new(rule: StrictRule, text: String) -> StrictReport {
        StrictReport {
            rule,
            wr_id: None,
            qpn: None,
            at: None,
            count: 1,
            text,
        }
    }

    pub(crate) fn of(mut self, wr_id: u64, at: &'static Location<'static>) -> StrictReport {
        (self.wr_id, self.at) = (Some(wr_id), Some(at));
        self
    }

    pub(crate) fn on(mut self, qpn: Qpn) -> StrictReport {
        self.qpn = Some(qpn);
        self
    }

    /// The call that broke the rule, where that is not the post.
    pub(crate) fn by(mut self, at: &'static Location<'static>) -> StrictReport {
        self.at = Some(at);
        self
    }

    fn is_same_place(&self, other: &StrictReport) -> bool {
        (self.rule, self.qpn, self.at) == (other.rule, other.qpn, other.at)
    }
}

impl fmt::Display for StrictReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "urxe strict: {}", self.rule)?;
        writeln!(f, "  what: {}", self.text)?;
        if let Some(at) = self.at {
            writeln!(f, "  call: {}:{}", at.file(), at.line())?;
        }
        if self.count > 1 {
            writeln!(f, "  seen: {} times", self.count)?;
        }
        writeln!(f, "  why:  {}", self.rule.advice())?;
        write!(f, "  more: docs/STRICT.md#{}", self.rule)
    }
}

/// Reports that wait for the program; more are counted with the last.
const REPORTS_MAX: usize = 1024;

/// Collects reports.
#[derive(Debug)]
pub(super) struct Reports {
    mode: StrictMode,
    waiting: VecDeque<StrictReport>,
    /// What was printed: the same kind of thing at the same place is printed once.
    printed: BTreeSet<(StrictRule, Option<(&'static str, u32)>)>,
    /// The program takes the reports, so they need not be printed.
    are_taken: bool,
}

impl Reports {
    pub(super) fn new(mode: StrictMode) -> Reports {
        Reports {
            mode,
            waiting: VecDeque::new(),
            printed: BTreeSet::new(),
            are_taken: false,
        }
    }

    pub(super) fn add(&mut self, report: StrictReport) {
        if self.mode == StrictMode::Abort {
            eprintln!("{report}");
            eprintln!("urxe strict: aborting, as URXE_STRICT=abort asks for");
            std::process::abort();
        }
        if let Some(same) = self.waiting.iter_mut().find(|r| r.is_same_place(&report)) {
            same.count += 1;
            return;
        }
        let place = report.at.map(|at| (at.file(), at.line()));
        if !self.are_taken && self.printed.insert((report.rule, place)) {
            eprintln!("{report}");
        }
        if self.waiting.len() < REPORTS_MAX {
            self.waiting.push_back(report);
        }
    }

    pub(super) fn take(&mut self) -> Vec<StrictReport> {
        self.are_taken = true;
        self.waiting.drain(..).collect()
    }
}
