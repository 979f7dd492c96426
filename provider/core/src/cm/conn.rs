//! A connection, from its request to its end.

use urxe_wire::{MAD_LEN, Qpn};

use super::listeners::ListenerId;
use super::terms::{CommId, MadPath};
use crate::time::Time;

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// A REQ was sent.
    ReqSent,
    /// A REQ arrived, and the application is to answer.
    ReqReceived,
    /// A REP was sent.
    RepSent,
    /// A REP arrived, and the application brings its QP to RTS.
    RepReceived,
    /// There.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// Ended; packets may be under way.
    Timewait,
    /// A SIDR_REQ was sent.
    SidrSent,
    /// A SIDR_REQ arrived, and the application is to answer.
    SidrReceived,
    /// The service has answered.
    SidrDone,
    /// Nothing more happens. The application may hold it.
    Dead,
}

impl State {
    /// As long as both sides may use their QPs.
    pub(super) const CONNECTED: [State; 3] =
        [State::RepSent, State::RepReceived, State::Established];
}

/// The holder of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// The application.
    Application,
    /// The listener's program has not taken it yet.
    Listener(ListenerId),
    /// No program: it goes when the protocol is finished.
    Nobody,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: CommId,
    pub(super) state: State,
    pub(super) holder: Holder,
    pub(super) path: MadPath,
    /// The other side's id and device; 0 while they are not known.
    pub(super) remote_id: u32,
    pub(super) remote_guid: u64,
    pub(super) remote_qpn: Qpn,
    /// True if it is found by the peer's QP.
    pub(super) remote_qp_known: bool,
    pub(super) local_qpn: Qpn,
    /// Its QP was destroyed: the number is given back when this is gone.
    pub(super) qp_gone: bool,
    /// The address is the peer's own: it answered, or the program chose it.
    pub(super) proven: bool,
    /// Its peer was asked whether it still knows the connection.
    pub(super) probed: bool,
    /// What is to be said if its process is killed was told.
    pub(super) has_farewell: bool,
    pub(super) transaction_id: u64,
    pub(super) service_id: u64,
    /// The message that is sent again: by the clock, or when the other side repeats its own.
    pub(super) sent: Option<Box<[u8; MAD_LEN]>>,
    /// The request, while a handshake goes before it.
    pub(super) later: Option<Box<[u8; MAD_LEN]>>,
    /// Time to act, if any.
    pub(super) deadline: Option<Time>,
    pub(super) retries_left: u8,
    pub(super) max_retries: u8,
    /// How often it was refused for want of a listener, and how often that is tried again.
    pub(super) refusals: u8,
    pub(super) max_refusals: u8,
    /// How long an answer is waited for.
    pub(super) timeout_ns: u64,
    /// How long packets may be under way.
    pub(super) timewait_ns: u64,
}

impl Conn {
    pub(super) fn new(path: MadPath, state: State) -> Conn {
        Conn {
            id: CommId(0),
            state,
            holder: Holder::Application,
            path,
            remote_id: 0,
            remote_guid: 0,
            remote_qpn: Qpn::new(0),
            remote_qp_known: false,
            local_qpn: Qpn::new(0),
            qp_gone: false,
            proven: false,
            probed: false,
            has_farewell: false,
            transaction_id: 0,
            service_id: 0,
            sent: None,
            later: None,
            deadline: None,
            retries_left: 0,
            max_retries: 0,
            refusals: 0,
            max_refusals: 0,
            timeout_ns: 0,
            timewait_ns: 0,
        }
    }

    /// True if the application hears what becomes of it.
    pub(super) fn is_held(&self) -> bool {
        self.holder != Holder::Nobody
    }

    /// True if its request is not sent so far.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.state == State::ReqSent && self.later.is_some()
    }

    /// True if it is about datagrams.
    pub(super) fn is_datagram(&self) -> bool {
        matches!(
            self.state,
            State::SidrSent | State::SidrReceived | State::SidrDone
        )
    }
}

/// Nanoseconds of a time's exponent, rounded as Linux does: to milliseconds.
pub(super) fn exponent_ns(exponent: u8) -> u64 {
    (1 << exponent.clamp(8, 31).saturating_sub(8)) * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_milliseconds_as_linux_takes_them() {
        assert_eq!(exponent_ns(20), 4_096_000_000);
        assert_eq!(exponent_ns(17), 512_000_000);
        assert_eq!(exponent_ns(0), 1_000_000);
        assert_eq!(exponent_ns(31), exponent_ns(200));
    }
}
