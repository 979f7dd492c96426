//! Coverage marks: rare places in the code that the seeded test programs must reach.
//!
//! A place says `mark!(Name)`, or `mark!(Name if condition)`. With the feature `marks`
//! (which only this crate's own tests switch on) it counts; without it nothing is left
//! of it, not even the condition. A suite that ran many programs asks [`missed`] which
//! places it never saw, and fails: a program generator that stops reaching a path is
//! found out the day it does.

#[cfg(feature = "marks")]
use core::sync::atomic::{AtomicU64, Ordering};

/// Counts a visit of this place.
macro_rules! mark {
    ($name:ident) => {
        mark!($name if true)
    };
    ($name:ident if $condition:expr) => {{
        #[cfg(feature = "marks")]
        if $condition {
            $crate::marks::Mark::$name.hit();
        }
    }};
}

macro_rules! marks {
    ($($group:ident { $($(#[doc = $doc:literal])* $name:ident,)* })*) => {
        /// A rare place that was marked.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Mark { $($($(#[doc = $doc])* $name,)*)* }

        impl Mark {
            /// All of them.
            pub const ALL: &'static [Mark] = &[$($(Mark::$name,)*)*];

            /// The part of the transport that it belongs to.
            pub fn group(self) -> &'static str {
                match self { $($(Mark::$name)|* => stringify!($group),)* }
            }
        }
    };
}

marks! {
    requester {
        /// A message's PSNs run over the end of the 24 bits.
        PsnWrapInMessage,
        /// A fenced request waited for READs or atomics.
        FenceWaited,
        /// A READ or atomic waited for another to end (`max_rd_atomic`).
        RdAtomicWaited,
        /// A message waited for a receive at the responder.
        CreditWaited,
        /// A message was sent beyond the known receives, to bring news.
        CreditProbe,
        /// A packet waited for the window.
        WindowFull,
        /// Loss halved the window.
        WindowShrunk,
        /// A rate kept a packet waiting.
        PacedByCongestionControl,
        /// A notification slowed a sender down.
        CnpSlowedDown,
        /// A marked packet was answered with a notification.
        CnpSent,
        /// Loss found the window as narrow as it gets.
        WindowAtFloor,
        /// A READ was asked for again from within.
        ReadRestartedMidway,
        /// A SEND or WRITE was sent again from within.
        MessageResumedMidway,
        /// A request failed its local check before any packet left.
        LocalFaultAtStart,
        /// Memory vanished after some packets of the message had left.
        LocalFaultMidMessage,
        /// A request failed because its memory vanished, and turned out later to have arrived.
        FaultedRequestArrived,
    }
    completer {
        /// An ACK in the middle of a message.
        AckWithinMessage,
        /// The ACK of the newest PSN came again, with credits.
        OldAckRenewedCredits,
        /// A response to something answered long ago.
        OldResponse,
        /// A response to something that was never sent.
        ResponseToNothing,
        /// A response or NAK showed that an earlier response was lost.
        ImpliedNak,
        /// A NAK (also an implied one) for a gap that is being mended.
        RepeatedNakIgnored,
        /// Went back because of a NAK or an implied one.
        WentBack,
        /// Sequence errors used the retry counter up.
        SequenceRetriesExhausted,
        /// An RNR NAK while waiting for another.
        RnrNakWhileWaiting,
        /// An RNR wait came to its end.
        RnrWaitOver,
        /// RNR NAKs used their counter up.
        RnrExhausted,
        /// No answer in time.
        AckTimeout,
        /// Timeouts used the retry counter up.
        TimeoutsExhausted,
        /// An acknowledgement overtook what was being sent again.
        AckOvertookCursor,
        /// NAK: the request is invalid.
        NakInvalidRequest,
        /// NAK: no access.
        NakRemoteAccess,
        /// NAK: the remote side cannot.
        NakRemoteOperational,
    }
    responder {
        /// The expected PSN runs over the end of the 24 bits.
        ExpectedPsnWrapped,
        /// A packet ahead of the expected one: NAK.
        SequenceNakSent,
        /// More packets ahead of it: silence.
        AheadDropped,
        /// No receive: RNR NAK.
        RnrNakSent,
        /// A SEND or WRITE came again.
        DuplicateMessage,
        /// A READ came again and was read again.
        ReadReplayed,
        /// An atomic came again and only its answer was repeated.
        AtomicReplayed,
        /// A READ or atomic came again before its first answer had left.
        RepeatOfPendingAnswer,
        /// A new request took the place of one that was being answered again.
        RepeatOvertaken,
        /// Memory of a READ that was being answered again had gone away.
        RepeatUnreadable,
        /// A READ or atomic came again too late.
        StaleDuplicate,
        /// A peer that was told "no receives" is told of new ones.
        CreditsAnnounced,
        /// A message longer than its receive.
        RecvTooShort,
        /// A WRITE or READ of no bytes: its key is not looked at.
        ZeroLengthUnchecked,
        /// A region went away between two packets of a WRITE.
        WriteTargetGone,
        /// A region went away before a READ was answered.
        ReadSourceGone,
        /// The rkey of a request opens nothing.
        RemoteKeyRefused,
    }
    shared {
        /// The limit of a shared receive queue was reached.
        SrqLimitReached,
        /// A message found its shared receive queue empty.
        SrqEmpty,
        /// An ATOMIC WRITE or FLUSH came again and only its answer was repeated.
        PlacedReplayed,
    }
    windows {
        /// A key of a memory window that was bound again or taken back.
        StaleWindowKey,
    }
    unreliable {
        /// A message was cut off by the beginning of the next one.
        UcMessageCutOff,
        /// A packet of a message that lost its beginning.
        UcRestDropped,
        /// A message without a receive.
        UcNoReceive,
        /// A message longer than its receive.
        UcReceiveTooShort,
        /// A WRITE that a key or the QP's flags refused.
        UcRefused,
        /// A local fault stopped the send queue alone.
        SqeEntered,
    }
    qp {
        /// A completion did not fit into its queue.
        CqOverrun,
        /// Receives were flushed, one of them half filled.
        FlushedWhileFilling,
        /// The send queue drained in SQD.
        SqDrained,
        /// SQD was entered while requests were under way.
        SqdWhileBusy,
        /// A QP with requests under way was reset.
        ResetWhileBusy,
        /// An ACK was held back at the end of a turn.
        AckHeldBack,
        /// A turn ended because the batch was full.
        BatchFull,
    }
}

#[cfg(feature = "marks")]
static HITS: [AtomicU64; Mark::ALL.len()] = [const { AtomicU64::new(0) }; Mark::ALL.len()];

impl Mark {
    /// Counts a visit.
    #[cfg(feature = "marks")]
    pub(crate) fn hit(self) {
        HITS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Visits so far, in this process. Always 0 without the feature `marks`.
    pub fn hits(self) -> u64 {
        #[cfg(feature = "marks")]
        return HITS[self as usize].load(Ordering::Relaxed);
        #[cfg(not(feature = "marks"))]
        0
    }
}

/// The marks that were never visited in this process.
pub fn missed() -> Vec<Mark> {
    let never = |mark: &Mark| mark.hits() == 0;
    Mark::ALL.iter().copied().filter(never).collect()
}
