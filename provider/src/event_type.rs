//! Kinds of asynchronous events: all that verbs know, and which of them arise here.

use core::fmt;

macro_rules! event_types {
    ($($name:ident = $number:literal, $verbs:literal, $text:literal
        $(, never: $never:literal)?;)*) => {
        /// Kind of an [`crate::AsyncEvent`], with the numbers of `enum ibv_event_type`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        #[doc(alias = "ibv_event_type")]
        pub enum EventType { $(#[doc = $text] $name = $number,)* }

        impl EventType {
            /// Every kind, in order of its number.
            pub const ALL: &'static [EventType] = &[$(EventType::$name),*];

            /// Its name in `enum ibv_event_type`.
            pub fn verbs_name(self) -> &'static str {
                match self { $(EventType::$name => $verbs,)* }
            }

            /// What it tells, and what to do.
            pub fn meaning(self) -> &'static str {
                match self { $(EventType::$name => $text,)* }
            }

            /// Why it is never raised here, if so.
            pub fn why_never(self) -> Option<&'static str> {
                match self { $(EventType::$name => event_types!(@never $($never)?),)* }
            }
        }
    };
    (@never) => { None };
    (@never $never:literal) => { Some($never) };
}

event_types! {
    CqErr = 0, "IBV_EVENT_CQ_ERR",
        "a completion did not fit into its queue and is lost; all QPs of the queue are in the error state. Create the \
         queue for all requests that may be outstanding at once";
    QpFatal = 1, "IBV_EVENT_QP_FATAL",
        "the QP failed in a way that no completion reports; Qp::last_error says why";
    QpReqErr = 2, "IBV_EVENT_QP_REQ_ERR",
        "the peer sent a request that is invalid (not allowed by qp_access_flags, out of sequence, misaligned, of another \
         path MTU), and the QP failed; Qp::last_error says which";
    QpAccessErr = 3, "IBV_EVENT_QP_ACCESS_ERR",
        "the peer's rkey failed its check here (unknown, outside the MR, other PD, right missing), and the QP failed; \
         Qp::last_error says which";
    CommEst = 4, "IBV_EVENT_COMM_EST",
        "the first packet arrived while the QP is in RTR: the peer is there, go to RTS";
    SqDrained = 5, "IBV_EVENT_SQ_DRAINED",
        "everything that was started before the QP went to SQD is complete: attributes can be changed now";
    PathMig = 6, "IBV_EVENT_PATH_MIG", "the connection moved to its alternate path",
        never: "RoCE has no alternate paths";
    PathMigErr = 7, "IBV_EVENT_PATH_MIG_ERR", "the connection could not move to its alternate path",
        never: "RoCE has no alternate paths";
    DeviceFatal = 8, "IBV_EVENT_DEVICE_FATAL",
        "a thread panicked inside the engine, which is a bug in urxe: every call fails from now on. Open the device again";
    PortActive = 9, "IBV_EVENT_PORT_ACTIVE", "the network interface is up and has a carrier";
    PortErr = 10, "IBV_EVENT_PORT_ERR",
        "the network interface went down or lost its carrier; connections survive if it returns before their retries end";
    LidChange = 11, "IBV_EVENT_LID_CHANGE", "the port's LID changed",
        never: "RoCE ports have no LID";
    PkeyChange = 12, "IBV_EVENT_PKEY_CHANGE", "the P_Key table changed",
        never: "the P_Key table holds 0xffff and never changes";
    SmChange = 13, "IBV_EVENT_SM_CHANGE", "another subnet manager is in charge",
        never: "RoCE has no subnet manager";
    SrqErr = 14, "IBV_EVENT_SRQ_ERR", "a shared receive queue failed",
        never: "a shared receive queue has no failure of its own: the QP whose message met a faulty receive fails";
    SrqLimitReached = 15, "IBV_EVENT_SRQ_LIMIT_REACHED",
        "fewer receives than its limit are left in a shared receive queue: post more, and arm the limit again";
    QpLastWqeReached = 16, "IBV_EVENT_QP_LAST_WQE_REACHED",
        "a failed QP takes no more receives from its shared receive queue: it can be destroyed";
    ClientReregister = 17, "IBV_EVENT_CLIENT_REREGISTER", "the subnet manager asks for registrations again",
        never: "RoCE has no subnet manager";
    GidChange = 18, "IBV_EVENT_GID_CHANGE",
        "the network interface lost an address of the context, or got it back; QPs that use it are cut off meanwhile";
    WqFatal = 19, "IBV_EVENT_WQ_FATAL", "a raw work queue failed",
        never: "raw work queues (ibv_create_wq) are not offered";
    DeviceSpeedChange = 20, "IBV_EVENT_DEVICE_SPEED_CHANGE", "the speed of the device's ports changed",
        never: "the speed of an interface is not watched";
}

impl fmt::Display for EventType {
    #[doc(alias = "ibv_event_type_str")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}
