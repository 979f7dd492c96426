//! Three disjoint outcomes, never mixed: a [`DropReason`] is silent and counted,
//! a NAK goes on the wire, and a [`WcStatus`] goes to the application. A
//! [`Fault`] says why a completion failed, on which side.

use core::fmt;

pub use crate::wc_status::WcStatus;

/// Which side of the connection found the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// Neither side: there is no fault.
    None,
    /// The side that reports it: its own memory, keys or queues.
    Local,
    /// The other side, which answered with a NAK.
    Remote,
    /// The path between them: no answer arrived.
    Network,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::None => "no fault",
            Side::Local => "local side",
            Side::Remote => "remote side",
            Side::Network => "network",
        })
    }
}

macro_rules! faults {
    ($($name:ident = $code:literal, $side:ident, $status:ident, $text:literal;)*) => {
        /// Why a completion failed: the check that refused, and on which side. Its
        /// number is the completion's `vendor_err`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Fault { $(#[doc = $text] $name = $code,)* }

        impl Fault {
            /// Every fault, in order of its number.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),*];

            /// The fault with this `vendor_err`.
            pub fn from_vendor_err(code: u32) -> Option<Fault> {
                match code { $($code => Some(Fault::$name),)* _ => None }
            }

            /// The side that found it.
            pub fn side(self) -> Side {
                match self { $(Fault::$name => Side::$side,)* }
            }

            /// The completion status that it is reported with.
            pub fn status(self) -> WcStatus {
                match self { $(Fault::$name => WcStatus::$status,)* }
            }

            /// The check that failed, and its usual cause.
            pub fn reason(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    None = 0, None, Success, "no fault";
    Flushed = 1, Local, WrFlushErr, "the QP is in the error state (an earlier completion or event says why)";
    LocalKey = 0x101, Local, LocProtErr, "a local SGE names an lkey that no registered MR has";
    LocalPd = 0x102, Local, LocProtErr, "a local SGE's MR belongs to another protection domain than the QP";
    LocalBounds = 0x103, Local, LocProtErr, "a local SGE reaches outside its MR";
    LocalAccess = 0x104, Local, LocProtErr, "a local SGE that is written to (receive, READ or atomic result) has an MR without LOCAL_WRITE";
    LocalMemory = 0x105, Local, LocProtErr, "the memory behind a local SGE cannot be reached (was it unmapped?)";
    RecvTooShort = 0x111, Local, LocLenErr, "the incoming message is longer than the posted receive buffer";
    ReadResponseLength = 0x112, Local, LocLenErr, "a READ response has another length than was asked for";
    MessageTooLong = 0x113, Local, LocLenErr, "the message is longer than 2^31 bytes, or an atomic's local buffer is not 8 bytes";
    UnexpectedResponse = 0x121, Local, BadRespErr, "a response does not answer the request at its PSN";
    ResponderInvalidRequest = 0x131, Local, RemInvReqErr, "the peer's request was invalid, so this receive could not be completed";
    ResponderAccess = 0x132, Local, RemAccessErr, "the peer's request failed this side's rkey check";
    WindowBind = 0x151, Local, MwBindErr, "the memory window could not be bound: window, MR and QP must be of one PD, the MR needs MW_BIND (and LOCAL_WRITE for remote writes and atomics) and must not be zero-based, the range must lie inside it, and a type 2 window must be free and take a new key";
    LocalInvalidate = 0x152, Local, LocQpOpErr, "LOCAL_INV names an rkey that is not valid or may not be invalidated: type 1 windows and ordinary MRs may not, nor MRs with bound windows, nor windows of another QP";
    CqOverrun = 0x141, Local, LocQpOpErr, "the completion queue is full and a completion could not be stored";
    TagGone = 0x161, Local, TmErr, "the tag is not in the list any more: a message took it, or it was removed before";
    RendezvousTooLong = 0x162, Local, TmRndvIncomplete, "the message of a rendezvous is longer than the tag's memory, which has the headers instead: the program fetches the message";
    NakInvalidRequest = 0x201, Remote, RemInvReqErr, "the remote QP refused the request: the operation is not enabled in its access flags (REMOTE_READ/WRITE/ATOMIC), the message is longer than its receive buffer, an atomic is misaligned, more READs are outstanding than its max_dest_rd_atomic, or the two QPs have different path MTUs";
    NakRemoteAccess = 0x202, Remote, RemAccessErr, "the remote MR refused the access: wrong or stale rkey (an lkey never works), outside its bounds, another protection domain, or the MR lacks the REMOTE right";
    NakRemoteOperational = 0x203, Remote, RemOpErr, "the remote side could not carry the request out: its receive WQE or memory is faulty";
    NakUnknown = 0x204, Remote, RemOpErr, "the remote side sent a NAK with an unassigned code";
    RnrExhausted = 0x211, Remote, RnrRetryExcErr, "the remote side had no receive posted, rnr_retry times";
    AckTimeout = 0x301, Network, RetryExcErr, "no answer within the local ACK timeout, retry_cnt times: wrong address or QPN, remote QP not in RTR, different PSN or MTU, or the path is down";
    SequenceExhausted = 0x302, Network, RetryExcErr, "packets were lost again and again, retry_cnt times without progress";
    PeerRefuses = 0x303, Network, RetryExcErr, "the peer does not take this side's packets: its security is another, or its key file";
    PeerGone = 0x304, Network, RetryExcErr, "the process that had the remote QP has ended, without closing the connection";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.side(), self.reason())
    }
}

macro_rules! drops {
    ($($name:ident = $counter:literal, $meaning:literal;)*) => {
        /// Why an arriving packet was dropped without an answer. Counted, never acted upon.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(usize)]
        #[non_exhaustive]
        pub enum DropReason { $(#[doc = $meaning] $name,)* }

        impl DropReason {
            /// Every reason, in order of its index.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),*];

            /// What it says about a packet.
            pub fn meaning(self) -> &'static str {
                match self { $(DropReason::$name => $meaning,)* }
            }

            /// The name under which it is counted.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$name => $counter,)* }
            }
        }
    };
}

drops! {
    Malformed = "drop_malformed", "packets that are no RoCEv2: too short, an unknown opcode, a bad version or padding";
    Icrc = "drop_icrc", "packets whose ICRC is wrong: damaged on the way, or changed by address translation";
    NoQp = "drop_no_qp", "packets for a QP number that no QP has: the peer was told another, or the QP is gone";
    Service = "drop_service", "packets whose opcode belongs to another service than the QP's";
    State = "drop_state", "packets for a QP whose state takes none: not in RTR yet, or failed";
    Address = "drop_address", "packets from, or to, another address than the QP is connected to";
    Pkey = "drop_pkey", "packets with another P_Key than 0xffff";
    StaleResponse = "drop_stale_response", "responses to what was never asked or is long answered: duplicates, usually";
    AheadOfSequence = "drop_ahead_of_sequence", "requests after a lost one, which are sent again: as many as were under way";
    StaleDuplicate = "drop_stale_duplicate", "repeated READs and atomics whose answers are not kept any more";
    Qkey = "drop_qkey", "datagrams with another Q_Key than the QP has";
    NoReceive = "drop_no_receive", "unreliable messages that found no receive posted";
    ReceiveTooShort = "drop_receive_too_short", "unreliable messages that do not fit the receive that was their turn (datagrams need 40 bytes more)";
    Incomplete = "drop_incomplete", "parts of unreliable messages of which another part was lost";
    Refused = "drop_refused", "unreliable requests that a check refused: a right, a key, a length";
}
