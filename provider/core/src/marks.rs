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
    ($($group:ident { $($name:ident: $meaning:literal,)* })*) => {
        /// A rare place that was marked.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Mark { $($(#[doc = $meaning] $name,)*)* }

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
        PsnWrapInMessage: "A message's PSNs run over the end of the 24 bits.",
        FenceWaited: "A fenced request waited for READs or atomics.",
        RdAtomicWaited: "A READ or atomic waited for another to end (`max_rd_atomic`).",
        CreditWaited: "A message waited for a receive at the responder.",
        CreditProbe: "A message was sent beyond the known receives, to bring news.",
        WindowFull: "A packet waited for the window.",
        PathChosen: "A path was found to be long, or to lose packets: it has a model from then on.",
        ProbeDue: "Nothing came for longer than a round trip takes: the oldest packet left once more.",
        ProbeFoundGap: "Of what was under way only the packet arrived that left once more.",
        WindowShrunk: "Loss halved the window.",
        PacedByCongestionControl: "A rate kept a packet waiting.",
        CnpSlowedDown: "A notification slowed a sender down.",
        CnpSent: "A marked packet was answered with a notification.",
        WindowAtFloor: "Loss found the window as narrow as it gets.",
        ReadRestartedMidway: "A READ was asked for again from within.",
        MessageResumedMidway: "A SEND or WRITE was sent again from within.",
        MiddleSent: "Packets in the middle of a message left as a row.",
        OnlySent: "Short messages left as a row.",
        Silent: "A message did not ask for its acknowledgement.",
        LocalFaultAtStart: "A request failed its local check before any packet left.",
        LocalFaultMidMessage: "Memory vanished after some packets of the message had left.",
        LocalFaultSentAgain: "Memory vanished before a lost packet was sent again alone.",
        FaultedRequestArrived: "A request failed because its memory vanished, and turned out later to have arrived.",
    }
    completer {
        AckWithinMessage: "An ACK in the middle of a message.",
        OldAckRenewedCredits: "The ACK of the newest PSN came again, with credits.",
        OldResponse: "A response to something answered long ago.",
        ResponseToNothing: "A response to something that was never sent.",
        ImpliedNak: "A response or NAK showed that an earlier response was lost.",
        RepeatedNakIgnored: "A NAK (also an implied one) for a gap that is being mended.",
        WentBack: "Went back because of a NAK or an implied one.",
        SequenceRetriesExhausted: "Sequence errors used the retry counter up.",
        Tried: "A peer of which nothing is known missed a packet: that was sent again alone.",
        PeerKeeps: "Its ACK jumped over what was sent once: it keeps what is ahead of a gap.",
        PeerProven: "It had many requests behind a gap, again: it keeps them beyond doubt.",
        PeerDrops: "It missed the next packet: went back.",
        WentBackWithAnswers: "It did while READs were under way: their answers stayed.",
        AskedToTheEnd: "Answers of such a peer were lost again: asked for all to the end.",
        TriedWithReads: "Such a peer was tried while READs or atomics were under way.",
        PeerLearnt: "Such a peer said which packets are here.",
        Knocked: "The missing packet was sent several times, so that a peer that keeps may know who asks.",
        TrialSeen: "The peer's requester was seen to send again only what is missing.",
        SelectiveBegun: "Something was lost that the peer helps to find.",
        SpuriousSeen: "The peer counts duplicates: something was sent again that was not lost.",
        SentAgain: "A lost packet was sent again, and nothing else.",
        AnswersCovered: "Answers that were still to come were asked for again with one that is missing.",
        AnswerKept: "A READ response or atomic result ahead of a missing one was kept.",
        KeptAnswerTaken: "A kept answer found its turn.",
        SelectiveProbe: "Nothing was heard for long: the oldest packet and the newest were sent again.",
        RnrNakWhileWaiting: "An RNR NAK while waiting for another.",
        RefusedBehindAnswers: "An RNR NAK while answers to requests before it are missing.",
        AnswersMissedByRefusals: "An RNR NAK again, and the answers before it are missing still: asked for.",
        RnrWaitOver: "An RNR wait came to its end.",
        RnrExhausted: "RNR NAKs used their counter up.",
        AckTimeout: "No answer in time.",
        TimeoutsExhausted: "Timeouts used the retry counter up.",
        MiddleAnswered: "READ responses in the middle of an answer were taken as a row.",
        AckOvertookCursor: "An acknowledgement overtook what was being sent again.",
        NakInvalidRequest: "NAK: the request is invalid.",
        NakRemoteAccess: "NAK: no access.",
        NakRemoteOperational: "NAK: the remote side cannot.",
    }
    responder {
        ExpectedPsnWrapped: "The expected PSN runs over the end of the 24 bits.",
        SequenceNakSent: "A packet ahead of the expected one: NAK.",
        AheadDropped: "More packets ahead of it: silence.",
        AheadKept: "A packet ahead of a gap was kept.",
        AheadKeptBefore: "A packet ahead of a gap came again, and was here already.",
        SackSent: "An ACK said which packets are here.",
        ReadCopied: "A READ request left twice, for one of the two to arrive.",
        UnknownPartRepeated: "A part of a READ was answered again that is not remembered.",
        PartRepeated: "A part of a READ was answered again, and nothing behind it.",
        KeptExecuted: "A gap was filled, and what was kept behind it was executed.",
        RnrNakSent: "No receive: RNR NAK.",
        DuplicateMessage: "A SEND or WRITE came again.",
        ReadReplayed: "A READ came again and was read again.",
        AtomicReplayed: "An atomic came again and only its answer was repeated.",
        RepeatOfPendingAnswer: "A READ or atomic came again before its first answer had left.",
        RepeatOvertaken: "A new request took the place of one that was being answered again.",
        RepeatUnreadable: "Memory of a READ that was being answered again had gone away.",
        StaleDuplicate: "A READ or atomic came again too late.",
        CreditsAnnounced: "A peer that was told \"no receives\" is told of new ones.",
        RecvTooShort: "A message longer than its receive.",
        ZeroLengthUnchecked: "A WRITE or READ of no bytes: its key is not looked at.",
        WriteTargetGone: "A region went away between two packets of a WRITE.",
        MiddleWritten: "Packets in the middle of a WRITE were taken as a row.",
        MiddleReceived: "Packets in the middle of a SEND were taken as a row.",
        MiddleEnded: "A packet was not the next one of its row, or damaged: it went the usual way.",
        MiddleRead: "READ responses in the middle of an answer left as a row.",
        ReadSourceGone: "A region went away before a READ was answered.",
        RemoteKeyRefused: "The rkey of a request opens nothing.",
    }
    shared {
        SrqLimitReached: "The limit of a shared receive queue was reached.",
        LateReceive: "A message found its receive among those posted during the call.",
        SrqEmpty: "A message found its shared receive queue empty.",
        PlacedReplayed: "An ATOMIC WRITE or FLUSH came again and only its answer was repeated.",
    }
    windows {
        StaleWindowKey: "A key of a memory window that was bound again or taken back.",
    }
    unreliable {
        UcMessageCutOff: "A message was cut off by the beginning of the next one.",
        UcRestDropped: "A packet of a message that lost its beginning.",
        UcNoReceive: "A message without a receive.",
        UcReceiveTooShort: "A message longer than its receive.",
        UcRefused: "A WRITE that a key or the QP's flags refused.",
        SqeEntered: "A local fault stopped the send queue alone.",
    }
    qp {
        CqOverrun: "A completion did not fit into its queue.",
        FlushedWhileFilling: "Receives were flushed, one of them half filled.",
        SqDrained: "The send queue drained in SQD.",
        SqdWhileBusy: "SQD was entered while requests were under way.",
        ResetWhileBusy: "A QP with requests under way was reset.",
        AckHeldBack: "An ACK was held back at the end of a turn.",
        UnaskedAcknowledged: "Messages that did not ask were acknowledged all the same, after a while.",
        BatchFull: "A turn ended because the batch was full.",
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
