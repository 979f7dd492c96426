//! The statuses of work completions: all that verbs know, and which of them arise here.

use core::fmt;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $verbs:literal, $text:literal
        $(, never: $never:literal)?;)*) => {
        /// Status of a work completion, with the numbers of `enum ibv_wc_status`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        #[doc(alias = "ibv_wc_status")]
        pub enum WcStatus { $($(#[doc = $doc])* $name = $number,)* }

        impl WcStatus {
            /// Every status, in order of its number.
            pub const ALL: &'static [WcStatus] = &[$(WcStatus::$name),*];

            /// Its name in `enum ibv_wc_status`.
            pub fn verbs_name(self) -> &'static str {
                match self { $(WcStatus::$name => $verbs,)* }
            }

            /// Why no completion here ever has it, if none does.
            pub fn why_never(self) -> Option<&'static str> {
                match self { $(WcStatus::$name => statuses!(@never $($never)?),)* }
            }
        }

        impl fmt::Display for WcStatus {
            #[doc(alias = "ibv_wc_status_str")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(WcStatus::$name => $text,)* })
            }
        }
    };
    (@never) => { None };
    (@never $never:literal) => { Some($never) };
}

statuses! {
    /// The operation completed.
    Success = 0, "IBV_WC_SUCCESS", "success";
    /// A local scatter/gather entry is too short or too long for the operation.
    LocLenErr = 1, "IBV_WC_LOC_LEN_ERR", "local length error";
    /// The QP could not carry out the request (internal consistency).
    LocQpOpErr = 2, "IBV_WC_LOC_QP_OP_ERR", "local QP operation error";
    /// Only with end-to-end contexts.
    LocEecOpErr = 3, "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error",
        never: "end-to-end contexts belong to reliable datagrams, which no adapter has";
    /// A local scatter/gather entry fails the lkey, bounds, PD or rights check.
    LocProtErr = 4, "IBV_WC_LOC_PROT_ERR", "local protection error";
    /// The request was not carried out because the QP is in the error state.
    WrFlushErr = 5, "IBV_WC_WR_FLUSH_ERR", "work request flushed";
    /// A memory window bind failed.
    MwBindErr = 6, "IBV_WC_MW_BIND_ERR", "memory window bind error";
    /// The responder sent something that does not answer the request.
    BadRespErr = 7, "IBV_WC_BAD_RESP_ERR", "bad response";
    /// Of receives: their memory failed a check while an RDMA WRITE was placed.
    LocAccessErr = 8, "IBV_WC_LOC_ACCESS_ERR", "local access error",
        never: "a receive whose memory fails its check ends as LOC_PROT_ERR, and a refused RDMA WRITE with immediate \
        consumes no receive: it is an event (QP_ACCESS_ERR)";
    /// The remote side found the request invalid (NAK 0x61).
    RemInvReqErr = 9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request";
    /// The remote side refused access to its memory (NAK 0x62).
    RemAccessErr = 10, "IBV_WC_REM_ACCESS_ERR", "remote access error";
    /// The remote side could not carry the request out (NAK 0x63).
    RemOpErr = 11, "IBV_WC_REM_OP_ERR", "remote operation error";
    /// The retry counter ran out: the peer does not answer.
    RetryExcErr = 12, "IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded";
    /// The RNR retry counter ran out: the remote side posts no receives.
    RnrRetryExcErr = 13, "IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded";
    /// Only with reliable datagrams.
    LocRddViolErr = 14, "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation error",
        never: "reliable datagram domains belong to reliable datagrams, which no adapter has";
    /// Only with reliable datagrams.
    RemInvRdReqErr = 15, "IBV_WC_REM_INV_RD_REQ_ERR", "remote invalid RD request",
        never: "reliable datagrams are in no adapter; a NAK with this code ends as REM_OP_ERR";
    /// Only with reliable datagrams.
    RemAbortErr = 16, "IBV_WC_REM_ABORT_ERR", "aborted by the remote side",
        never: "only reliable datagrams and extended connections of other fabrics abort an operation";
    /// Only with end-to-end contexts.
    InvEecnErr = 17, "IBV_WC_INV_EECN_ERR", "invalid EE context number",
        never: "end-to-end contexts belong to reliable datagrams, which no adapter has";
    /// Only with end-to-end contexts.
    InvEecStateErr = 18, "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state",
        never: "end-to-end contexts belong to reliable datagrams, which no adapter has";
    /// The adapter failed.
    FatalErr = 19, "IBV_WC_FATAL_ERR", "fatal error",
        never: "an engine that failed completes nothing any more: every call returns an error, and the event \
        DEVICE_FATAL is raised";
    /// Only of the management protocol.
    RespTimeoutErr = 20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout",
        never: "the kernel's management datagrams use it, not QPs";
    /// Something else.
    GeneralErr = 21, "IBV_WC_GENERAL_ERR", "general error",
        never: "every failure here has a status of its own";
    /// A tag that was to be removed is not in the list any more.
    TmErr = 22, "IBV_WC_TM_ERR", "tag matching error";
    /// A tag matched a rendezvous that does not fit its memory: the program goes on with it.
    TmRndvIncomplete = 23, "IBV_WC_TM_RNDV_INCOMPLETE", "tag matching rendezvous incomplete";
}

impl WcStatus {
    /// The status with this number.
    pub fn from_number(number: u32) -> Option<WcStatus> {
        WcStatus::ALL.iter().copied().find(|&s| s as u32 == number)
    }
}
