//! Errors of the connection manager.

use core::net::{IpAddr, SocketAddr};

use urxe_wire::cm::RejReason;

use crate::blame::Blame;

/// Why a call of the connection manager failed ([`crate::ErrorKind::Cm`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The identifier is not in a state in which that can be done.
    #[error("the identifier is in no state for this: {0}")]
    State(&'static str),
    /// The port is taken.
    #[error("port {0} is in use on this host")]
    PortInUse(SocketAddr),
    /// All ports that are given out are in use.
    #[error("no free port is left")]
    NoPort,
    /// No device has the address.
    #[error("no device of this host has the address {0}")]
    NoDevice(IpAddr),
    /// The addresses are of different IP versions.
    #[error("the addresses are of different IP versions")]
    Family,
    /// More private data than the message has room for.
    #[error("{len} bytes of private data, but at most {max} fit")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// No QP was named, neither by the identifier nor by the parameters.
    #[error("no QP: attach one, or name its number")]
    NoQp,
    /// As many connections as there can be.
    #[error("all {0} connection identifiers of the device are in use")]
    Full(usize),
    /// The group was joined already, or was not.
    #[error("the identifier is {} member of the group {group}", if *.is_member { "already a" } else { "no" })]
    Member {
        /// True if it is a member already.
        is_member: bool,
        /// The group.
        group: IpAddr,
    },
    /// The peer refused the connection.
    #[error("the peer refused the connection: {}", refusal(*.0))]
    Rejected(RejReason),
    /// No program at the address has the UDP port: 4791, or that of sealed packets.
    #[error(
        "no program at {0} has the UDP port that packets go to: is the server running, at this address, and with the same URXE_SECURITY?"
    )]
    NoPeer(IpAddr),
    /// The peer does not answer.
    #[error(
        "the peer does not answer: its address may be another, or UDP port 4791 closed on the way"
    )]
    Unreachable,
    /// The time that was given is over.
    #[error("no answer within the time that was given")]
    TimedOut,
    /// The peer accepted, but this side's QP could not be made ready, or the peer has gone
    /// meanwhile; with the error's number.
    #[error("the QP could not be connected (error {0})")]
    NotReady(i32),
    /// The peer ended the connection.
    #[error("the peer closed the connection")]
    Closed,
}

/// The reason, and what it usually means.
fn refusal(reason: RejReason) -> String {
    let hint = match reason {
        RejReason::INVALID_SERVICE_ID => " (no program listens at that port)",
        RejReason::CONSUMER_DEFINED => " (the program did not accept it)",
        RejReason::VENDOR_OPTION_NOT_SUPPORTED => {
            " (if packets are sealed: one side has `pairs` in URXE_SECURITY, and the other has not)"
        }
        _ => "",
    };
    format!("{reason}{hint}")
}

impl CmError {
    /// The side that has to do something about it.
    pub fn blame(self) -> Blame {
        match self {
            CmError::Rejected(_)
            | CmError::NoPeer(_)
            | CmError::Unreachable
            | CmError::TimedOut
            | CmError::Closed => Blame::Peer,
            CmError::NoPort | CmError::Full(_) => Blame::Limit,
            _ => Blame::Caller,
        }
    }

    /// The number that librdmacm would leave in `errno`.
    pub fn errno(self) -> i32 {
        match self {
            CmError::PortInUse(_) => libc::EADDRINUSE,
            CmError::NoPort => libc::EADDRNOTAVAIL,
            CmError::NoDevice(_) => libc::ENODEV,
            CmError::Full(_) => libc::ENOMEM,
            CmError::Rejected(_) | CmError::NoPeer(_) => libc::ECONNREFUSED,
            CmError::Unreachable | CmError::TimedOut => libc::ETIMEDOUT,
            CmError::Closed => libc::ECONNRESET,
            CmError::NotReady(errno) => errno,
            CmError::Member {
                is_member: true, ..
            } => libc::EADDRINUSE,
            CmError::State(_)
            | CmError::Family
            | CmError::PrivateData { .. }
            | CmError::NoQp
            | CmError::Member {
                is_member: false, ..
            } => libc::EINVAL,
        }
    }
}
