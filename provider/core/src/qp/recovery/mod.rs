//! Recovery from losses: when packets are sent again, and what becomes of those that arrive
//! ahead of a gap.
//!
//! The requester goes back to the oldest packet that is not acknowledged (`back.rs`), at the times and
//! as often as `retry.rs` says. The responder says once that packets are missing, and keeps what is
//! ahead of them (`gap.rs`, `ahead.rs`). Two sides that know it of each other send again what is lost and nothing else
//! (`selective.rs`); what they do tells those that were not told (`trial.rs`).

mod again;
mod ahead;
mod back;
mod board;
mod gap;
mod learn;
mod reads;
mod retry;
mod sack;
mod selective;
mod trial;

use urxe_wire::Psn;

use crate::time::Time;
pub(crate) use ahead::{Ahead, Room, span};
use board::Board;
pub(crate) use retry::Retry;
pub(crate) use trial::{Seen, Trial};

/// What is known of a peer's recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peer {
    /// It does what the standard says, as far as is known.
    #[default]
    Standard,
    /// It was seen to try: it keeps packets ahead of a gap, and understands which ones this side has. It may know nothing of this side, so READs
    /// and atomics leave as toward any adapter.
    Tries,
    /// It says which packets it has, and understands that of this side.
    Selective,
}

impl Peer {
    /// It keeps packets ahead of a gap, and can be told which ones are here.
    #[inline]
    pub(crate) fn is_known(self) -> bool {
        self != Peer::Standard
    }
}

/// A requester that knows of each packet under way whether it is missing (`selective.rs`).
#[derive(Debug)]
pub(crate) struct Selective {
    board: Board,
    /// PSN of the board's first packet.
    base: Psn,
    /// The peer has executed everything before.
    peer_end: Psn,
    /// Answers ahead of one that is missing.
    kept: Ahead,
    /// READs and atomics before it hold no place at the peer: it answered them.
    freed: Psn,
    /// An answer came to something right before it.
    answered: Psn,
    /// The last READ or atomic that was sent ends here, or all is done before `base`.
    reads_end: Psn,
    /// The peer dropped all before, so it was sent again.
    gone_back_to: Psn,
    /// A READ request that is to leave a second time.
    copy: Option<Psn>,
    /// Packets that are known to have arrived since this was looked at last.
    news: u32,
    /// Times in a row that nothing was heard.
    probes: u32,
    /// When the ends are sent again to hear how things stand.
    probe_at: Option<Time>,
}

/// What packets ahead of the expected one were answered with. They are answered
/// once; for the rest there is silence until the expected packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    SequenceNakSent,
    RnrNakSent,
}
