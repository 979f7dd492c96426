//! Asynchronous events: what happens without a work request to report it by.

use core::fmt;

use urxe_core::cq::CqId;
use urxe_core::srq::SrqId;
use urxe_wire::Qpn;

use crate::event_type::EventType;

/// An event, as [`crate::Context::poll_async_event`] returns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_async_event")]
#[doc(alias = "ibv_event_type")]
pub enum AsyncEvent {
    /// A completion did not fit into its queue and is lost. All QPs that use it failed.
    CqErr(CqId),
    /// The QP failed in a way that no completion reports.
    QpFatal(Qpn),
    /// A peer's request was invalid, and the QP failed.
    QpReqErr(Qpn),
    /// A peer's request failed the check of its rkey, and the QP failed.
    QpAccessErr(Qpn),
    /// The first packet arrived while the QP is in RTR.
    CommEst(Qpn),
    /// The send queue is drained (RTS to SQD).
    SqDrained(Qpn),
    /// Fewer receives than its limit are left in a shared receive queue. The limit is
    /// disarmed; [`crate::Srq::arm_limit`] arms it again.
    SrqLimitReached(SrqId),
    /// A failed QP takes no more receives from its shared receive queue.
    QpLastWqeReached(Qpn),
    /// The port came up: its interface is up and has a carrier.
    PortActive(u8),
    /// The port went down.
    PortErr(u8),
    /// The interface lost an address of the context, or got it back. The GID table shows
    /// which. Addresses that are new to the interface are for contexts opened later.
    GidChange(u8),
    /// A thread panicked inside the engine: every call fails from now on. Open the device
    /// again.
    DeviceFatal,
}

impl AsyncEvent {
    /// What kind it is, with the number and name that verbs have for it.
    pub fn event_type(&self) -> EventType {
        match self {
            AsyncEvent::CqErr(_) => EventType::CqErr,
            AsyncEvent::QpFatal(_) => EventType::QpFatal,
            AsyncEvent::QpReqErr(_) => EventType::QpReqErr,
            AsyncEvent::QpAccessErr(_) => EventType::QpAccessErr,
            AsyncEvent::CommEst(_) => EventType::CommEst,
            AsyncEvent::SqDrained(_) => EventType::SqDrained,
            AsyncEvent::SrqLimitReached(_) => EventType::SrqLimitReached,
            AsyncEvent::QpLastWqeReached(_) => EventType::QpLastWqeReached,
            AsyncEvent::PortActive(_) => EventType::PortActive,
            AsyncEvent::PortErr(_) => EventType::PortErr,
            AsyncEvent::GidChange(_) => EventType::GidChange,
            AsyncEvent::DeviceFatal => EventType::DeviceFatal,
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, what) = match self {
            AsyncEvent::QpFatal(qpn) => (qpn, " failed"),
            AsyncEvent::QpReqErr(qpn) => (qpn, " failed: its peer sent an invalid request"),
            AsyncEvent::QpAccessErr(qpn) => (qpn, " failed: its peer's access was refused"),
            AsyncEvent::CommEst(qpn) => (qpn, " heard from its peer"),
            AsyncEvent::SqDrained(qpn) => (qpn, ": send queue drained"),
            AsyncEvent::QpLastWqeReached(qpn) => {
                (qpn, " takes no more receives from its shared queue")
            }
            AsyncEvent::CqErr(cq) => return write!(f, "completion queue {} overran", cq.0),
            AsyncEvent::PortActive(port) => return write!(f, "port {port} is active"),
            AsyncEvent::PortErr(port) => return write!(f, "port {port} is down"),
            AsyncEvent::GidChange(port) => {
                return write!(f, "the GID table of port {port} changed");
            }
            AsyncEvent::DeviceFatal => return f.write_str("the engine failed"),
            AsyncEvent::SrqLimitReached(srq) => {
                return write!(f, "shared receive queue {} fell below its limit", srq.0);
            }
        };
        write!(f, "QP {:#x}{what}", qpn.get())
    }
}
