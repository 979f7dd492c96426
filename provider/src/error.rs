//! What can go wrong, which side is to blame, and the `errno` that verbs would return.

use core::fmt;
use core::net::IpAddr;
use std::io;

use urxe_core::CreateQpError;
use urxe_core::congestion::CongestionError;
use urxe_core::error::{Fault, WcStatus};
use urxe_core::mr::RegisterError;
use urxe_core::multicast::McastError;
use urxe_core::qp::state::ModifyError;
use urxe_core::srq::SrqError;
use urxe_core::work::PostError;
use urxe_wire::Qpn;

use crate::advice::AdviseFault;
use crate::blame::Blame;
use crate::cm::CmError;

/// An operation that failed, and why.
///
/// ```
/// use urxe::{Blame, Context};
///
/// let error = Context::open("192.0.2.1".parse().unwrap()).unwrap_err();
/// assert_eq!(error.blame(), Blame::Caller);
/// assert!(error.to_string().contains("192.0.2.1"));
/// assert_eq!(error.errno(), 99); // EADDRNOTAVAIL
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
}

/// The reason of an [`Error`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A work request was refused.
    #[error("the work request was refused: {0}")]
    Post(#[from] PostError),
    /// A QP could not be created.
    #[error("the QP was not created: {0}")]
    CreateQp(#[from] CreateQpError),
    /// A QP could not be modified.
    #[error("the QP was not modified: {0}")]
    Modify(#[from] ModifyError),
    /// Congestion control could not be set.
    #[error("congestion control was left as it is: {0}")]
    Congestion(#[from] CongestionError),
    /// Memory could not be registered.
    #[error("the memory was not registered: {0}")]
    Register(#[from] RegisterError),
    /// A shared receive queue could not be created, changed or destroyed.
    #[error("the shared receive queue was left as it is: {0}")]
    Srq(#[from] SrqError),
    /// FLUSH_PERSISTENT was asked for memory that does not survive a loss of power.
    #[error(
        "FLUSH_PERSISTENT needs a shared mapping of a named file on a disk (Pd::reg_mapped); \
         this memory is gone when the power is"
    )]
    NotPersistent,
    /// An XRC domain was to be new, or not.
    #[error("the file has {} XRC domain", if *is_there { "already an" } else { "no" })]
    Xrcd {
        /// The file has one.
        is_there: bool,
    },
    /// The XRC domain has no such QP.
    #[error("the XRC domain has no target QP {:#x}", .0.get())]
    NoTarget(Qpn),
    /// Memory could not be brought in.
    #[error("entry {entry} of the advice: {fault}")]
    Advise {
        /// Place of the entry in the list.
        entry: usize,
        /// What is wrong with it.
        #[source]
        fault: AdviseFault,
    },
    /// A memory window of type 2 was to be bound like one of type 1.
    #[error("a window of type 2 is bound by posting the request that Mw::bind makes")]
    WindowType,
    /// An object is of another protection domain.
    #[error("the {0} belongs to another protection domain than the QP")]
    ForeignPd(&'static str),
    /// A QP could not be attached to a multicast group, or detached.
    #[error("the multicast groups were left as they are: {0}")]
    Mcast(#[from] McastError),
    /// The context has no address of a multicast group's IP version.
    #[error("the context has no address of the IP version of the group {0}")]
    NoAddressForGroup(IpAddr),
    /// The connection manager refused, or a connection failed.
    #[error("{0}")]
    Cm(#[from] CmError),
    /// Something that only privileged programs may do.
    #[error("{0}")]
    Privilege(&'static str),
    /// A completion queue of an impossible size.
    #[error("a completion queue of {cqe} entries is not possible: 1 to {max} are")]
    CqSize {
        /// Entries asked for.
        cqe: usize,
        /// The limit.
        max: usize,
    },
    /// A completion queue was to be made smaller than what is in it.
    #[error(
        "a completion queue that holds {held} completions cannot be resized to {cqe}: poll it first"
    )]
    CqResize {
        /// Entries asked for.
        cqe: usize,
        /// Completions in the queue.
        held: usize,
    },
    /// A completion queue has no channel, or has one where it must not.
    #[error("{0}")]
    Channel(&'static str),
    /// The device has no more completion queues.
    #[error("all {0} completion queues are in use")]
    TooManyCqs(u32),
    /// The device has no more protection domains.
    #[error("all {0} protection domains are in use")]
    TooManyPds(u32),
    /// Something that this device does not offer.
    #[error("{0}")]
    Unsupported(&'static str),
    /// More completions arrived than the queue was created for.
    #[error(
        "the completion queue overran: a completion was lost, and its QPs are in the error state; \
         destroy it and create a larger one"
    )]
    CqOverrun,
    /// Objects of different contexts were mixed.
    #[error("the {0} belongs to another context")]
    ForeignObject(&'static str),
    /// A QP was given a source address that its context does not have.
    #[error("the local address {0} is not one of the context's (its GID table)")]
    ForeignAddress(IpAddr),
    /// Another socket owns the port.
    #[error(
        "UDP port 4791 of {0} is taken by an owner that does not share it: a process of another \
         user, the kernel's rdma_rxe, or a context opened with share(false). End it, unload \
         rdma_rxe, or open another address of this host (on loopback any 127.x.y.z will do)"
    )]
    AddrInUse(IpAddr),
    /// The address is taken, and the file by which owners share it cannot be used.
    #[error("UDP port 4791 of {0} is taken, and it cannot be shared: {1}")]
    CannotShare(IpAddr, String),
    /// The host does not have the address.
    #[error("this host has no address {0}")]
    NoAddress(IpAddr),
    /// The interface has no address to use.
    #[error("the interface has no IP address")]
    NoAddressOnDevice,
    /// A number is not in range.
    #[error("{name} is {value}, but {allowed}")]
    Value {
        /// What it is.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// A variable of the environment does not say what it should.
    #[error("{variable}: {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A key file cannot be used: which, and what is wrong with it; never what is in it.
    #[error("the key file {0}")]
    KeyFile(String),
    /// Packets are to be sealed, and there is no key to do it with.
    #[error(
        "packets are to be sealed, and there is no key file: name one by URXE_KEY_FILE or ContextBuilder::key_file; `urxe key new FILE` makes one"
    )]
    NoKeyFile,
    /// A line of text is not an endpoint.
    #[error("\"{text}\" is not an endpoint (address/qpn/psn/mtu): {reason}")]
    Endpoint {
        /// The text, or its beginning.
        text: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A work request completed with an error.
    #[error("work request {wr_id} failed: {status} ({fault})")]
    Completion {
        /// The id it was posted with.
        wr_id: u64,
        /// The status of the completion.
        status: WcStatus,
        /// Why, and on which side.
        fault: Fault,
    },
    /// The process is the child of a fork.
    #[error("the object was made before a fork, by the parent process; open a context after it")]
    Forked,
    /// A thread panicked inside the engine.
    #[error("the engine failed: a thread panicked in it, which is a bug in urxe")]
    EngineFailed,
    /// A system call failed.
    #[error("{action}: {}", describe(*.kind, *.errno))]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The kind of the failure.
        kind: io::ErrorKind,
        /// The system's number for it, if it gave one.
        errno: Option<i32>,
    },
}

impl ErrorKind {
    /// Something is full.
    fn is_limit(&self) -> bool {
        matches!(
            self,
            ErrorKind::Post(PostError::QueueFull(_) | PostError::TagListFull(_))
                | ErrorKind::CreateQp(CreateQpError::Full(_))
                | ErrorKind::TooManyCqs(_)
                | ErrorKind::TooManyPds(_)
                | ErrorKind::Srq(SrqError::Full(_))
                | ErrorKind::Mcast(McastError::TooManyGroups(_))
                | ErrorKind::Register(RegisterError::Full(_))
        )
    }
}

impl Error {
    /// The reason.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Why the connection manager refused, or a connection failed, if that is it.
    pub fn cm(&self) -> Option<CmError> {
        match self.kind {
            ErrorKind::Cm(error) => Some(error),
            _ => None,
        }
    }

    /// The side that has to do something about it.
    pub fn blame(&self) -> Blame {
        match &self.kind {
            kind if kind.is_limit() => Blame::Limit,
            ErrorKind::Cm(error) => error.blame(),
            ErrorKind::Completion { fault, .. } => match fault.side() {
                urxe_core::error::Side::Remote | urxe_core::error::Side::Network => Blame::Peer,
                _ => Blame::Caller,
            },
            ErrorKind::AddrInUse(_)
            | ErrorKind::CannotShare(..)
            | ErrorKind::NoAddressOnDevice
            | ErrorKind::EngineFailed
            | ErrorKind::Io { .. } => Blame::System,
            _ => Blame::Caller,
        }
    }

    /// The number that the verbs function would return or leave in `errno`.
    pub fn errno(&self) -> i32 {
        match &self.kind {
            kind if kind.is_limit() => libc::ENOMEM,
            ErrorKind::Srq(SrqError::InUse(_)) | ErrorKind::Register(RegisterError::Bound(_)) => {
                libc::EBUSY
            }
            ErrorKind::Advise { fault, .. } => fault.errno(),
            ErrorKind::Xrcd { is_there: true } => libc::EEXIST,
            ErrorKind::Xrcd { is_there: false } | ErrorKind::NoTarget(_) => libc::ENOENT,
            ErrorKind::Cm(error) => error.errno(),
            ErrorKind::Privilege(_) => libc::EPERM,
            ErrorKind::Unsupported(_) => libc::EOPNOTSUPP,
            ErrorKind::AddrInUse(_) | ErrorKind::CannotShare(..) => libc::EADDRINUSE,
            ErrorKind::NoAddress(_) | ErrorKind::NoAddressOnDevice => libc::EADDRNOTAVAIL,
            ErrorKind::Completion { .. } | ErrorKind::CqOverrun => libc::EIO,
            ErrorKind::KeyFile(_) => libc::EACCES,
            ErrorKind::Forked | ErrorKind::EngineFailed => libc::ENODEV,
            ErrorKind::Io { errno, .. } => errno.unwrap_or(libc::EIO),
            _ => libc::EINVAL,
        }
    }

    /// A number that is not in range.
    pub(crate) fn value(name: &'static str, value: u64, allowed: &'static str) -> Error {
        ErrorKind::Value {
            name,
            value,
            allowed,
        }
        .into()
    }

    /// Wraps the failure of a system call.
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| {
            ErrorKind::Io {
                action,
                kind: error.kind(),
                errno: error.raw_os_error(),
            }
            .into()
        }
    }
}

fn describe(kind: io::ErrorKind, errno: Option<i32>) -> io::Error {
    errno.map_or_else(|| kind.into(), io::Error::from_raw_os_error)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blame() {
            // There is no side to look at but the reader's own.
            Blame::Caller => write!(f, "{}", self.kind),
            blame => write!(f, "{blame}: {}", self.kind),
        }
    }
}

impl fmt::Debug for Error {
    /// As `main` prints it when it returns one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{:?}]", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.kind)
    }
}

impl<E: Into<ErrorKind>> From<E> for Error {
    #[cold]
    fn from(reason: E) -> Error {
        Error {
            kind: reason.into(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        io::Error::new(kind, error)
    }
}

/// A list of work requests of which one was refused. Those before it were posted,
/// those after it were not looked at.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {index} of the list: {error}")]
#[doc(alias = "bad_wr")]
pub struct BadWr {
    /// Place of the refused request in the list.
    pub index: usize,
    /// Why it was refused.
    #[source]
    pub error: Error,
}

impl From<BadWr> for Error {
    fn from(bad: BadWr) -> Error {
        bad.error
    }
}
