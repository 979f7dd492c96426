//! The states of a QP, which transitions exist, and which attributes each needs
//! and allows: a table, for all services (`man ibv_modify_qp`).

use urxe_wire::Service;

use crate::qp::attr::{AttrMask, mask};

/// State of a QP, with the numbers of `enum ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[doc(alias = "ibv_qp_state")]
pub enum QpState {
    /// New: takes nothing.
    Reset = 0,
    /// Takes receives, ignores packets.
    Init = 1,
    /// Ready to receive: answers requests.
    Rtr = 2,
    /// Ready to send: everything works.
    Rts = 3,
    /// Send queue draining: starts no new sends.
    Sqd = 4,
    /// Send queue error (UC and UD): receives go on.
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states, by number.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    /// The name in the verbs documentation.
    pub fn name(self) -> &'static str {
        ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"][self as usize]
    }

    /// Receives may be posted in every state but RESET.
    #[inline]
    pub fn takes_post_recv(self) -> bool {
        self != QpState::Reset
    }

    /// Sends may be posted once the QP was in RTS (in ERR and SQE they are flushed).
    #[inline]
    pub fn takes_post_send(self) -> bool {
        matches!(
            self,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        )
    }

    /// Requests of the peer are answered.
    #[inline]
    pub fn takes_requests(self) -> bool {
        matches!(
            self,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// Responses of the peer are looked at.
    #[inline]
    pub fn takes_responses(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd)
    }
}

impl core::fmt::Display for QpState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// Transport service of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[doc(alias = "ibv_qp_type")]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection, initiator: it sends.
    XrcSend,
    /// Extended reliable connection, target: it receives, for the shared receive queues
    /// of an XRC domain.
    XrcRecv,
}

impl QpType {
    /// The service that its packets belong to.
    pub fn service(self) -> Service {
        match self {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
        }
    }
}

/// What a transition needs and allows besides the STATE bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Attributes that may be given.
    pub optional: AttrMask,
}

/// The entry of the table for `from -> to`; `None` if there is no such transition.
pub const fn transition(service: QpType, from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    let none = AttrMask::NONE;
    let (required, optional) = match (from, to) {
        (Reset, Err) => return None,
        (_, Reset | Err) => (none, none),
        (Reset, Init) => (init_attrs(service), none),
        (Init, Init) => (none, init_attrs(service)),
        (Init, Rtr) => rtr_attrs(service),
        (Rtr, Rts) => (rts_attrs(service), rts_options(service)),
        (Rts | Sqd, Rts) => (none, rts_options(service)),
        (Sqe, Rts) => match service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => return None,
            QpType::Uc => (none, mask!(CUR_STATE | ACCESS_FLAGS)),
            QpType::Ud => (none, mask!(CUR_STATE | QKEY)),
        },
        (Rts, Sqd) => (none, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (none, sqd_options(service)),
        _ => return None,
    };
    Some(Transition { required, optional })
}

const fn init_attrs(service: QpType) -> AttrMask {
    match service {
        QpType::Ud => mask!(PKEY_INDEX | PORT | QKEY),
        _ => mask!(PKEY_INDEX | PORT | ACCESS_FLAGS),
    }
}

const fn rtr_attrs(service: QpType) -> (AttrMask, AttrMask) {
    let connected = mask!(AV | PATH_MTU | DEST_QPN | RQ_PSN);
    let options = mask!(ALT_PATH | ACCESS_FLAGS | PKEY_INDEX);
    match service {
        QpType::Ud => (AttrMask::NONE, mask!(PKEY_INDEX | QKEY)),
        QpType::Uc | QpType::XrcSend => (connected, options),
        QpType::Rc | QpType::XrcRecv => (connected.union(RESPONDER), options),
    }
}

const fn rts_attrs(service: QpType) -> AttrMask {
    match service {
        QpType::Ud | QpType::Uc => AttrMask::SQ_PSN,
        QpType::XrcRecv => mask!(SQ_PSN | TIMEOUT),
        QpType::Rc | QpType::XrcSend => AttrMask::SQ_PSN.union(REQUESTER),
    }
}

const fn rts_options(service: QpType) -> AttrMask {
    let connected = mask!(CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE);
    match service {
        QpType::Ud => mask!(CUR_STATE | QKEY),
        QpType::Uc | QpType::XrcSend => connected,
        QpType::Rc | QpType::XrcRecv => connected.union(AttrMask::MIN_RNR_TIMER),
    }
}

const fn sqd_options(service: QpType) -> AttrMask {
    let connected = mask!(AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE);
    let acknowledged = connected.union(mask!(PORT | TIMEOUT));
    match service {
        QpType::Ud => mask!(PKEY_INDEX | QKEY),
        QpType::Uc => connected,
        QpType::XrcSend => acknowledged.union(REQUESTER),
        QpType::XrcRecv => acknowledged.union(RESPONDER),
        QpType::Rc => acknowledged.union(REQUESTER).union(RESPONDER),
    }
}

/// What a side needs that sends requests which are acknowledged, and one that answers them.
const REQUESTER: AttrMask = mask!(TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC);
const RESPONDER: AttrMask = mask!(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER);

/// Why a modify was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such transition.
    #[error("a QP cannot go from {from} to {to}")]
    Transition {
        /// State that the QP is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
    },
    /// Attributes are missing.
    #[error("{from} to {to} needs {missing} in the attribute mask")]
    Missing {
        /// State that the QP is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
        /// The missing attributes.
        missing: AttrMask,
    },
    /// Attributes that this transition does not take.
    #[error("{from} to {to} does not take {excess} in the attribute mask")]
    Excess {
        /// State that the QP is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
        /// The excess attributes.
        excess: AttrMask,
    },
    /// CUR_STATE names another state than the QP is in.
    #[error("cur_qp_state says {claimed}, but the QP is in {actual}")]
    CurState {
        /// The state that the caller assumed.
        claimed: QpState,
        /// The actual state.
        actual: QpState,
    },
    /// An attribute's value is out of its range.
    #[error("{attribute} is {value}, but {allowed} is allowed")]
    Value {
        /// Name of the attribute.
        attribute: &'static str,
        /// Its value.
        value: u32,
        /// The range.
        allowed: &'static str,
    },
    /// The path is not usable.
    #[error("ah_attr: {0}")]
    Path(&'static str),
    /// The send queue still drains.
    #[error("the send queue is still draining: wait for SQ_DRAINED, or go to ERR")]
    Draining,
    /// No such QP.
    #[error("the QP does not exist")]
    NoQp,
}

/// Checks a modify's mask against the table. The current state is what the QP is
/// in; with no STATE bit the QP stays where it is.
///
/// # Errors
/// [`ModifyError`], with the attribute that is to blame.
pub fn check_mask(
    service: QpType,
    from: QpState,
    to: QpState,
    mask: AttrMask,
) -> Result<(), ModifyError> {
    let entry = transition(service, from, to).ok_or(ModifyError::Transition { from, to })?;
    let missing = entry.required.without(mask);
    if !missing.is_empty() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let excess = mask
        .without(entry.required)
        .without(entry.optional)
        .without(AttrMask::STATE);
    if !excess.is_empty() {
        return Err(ModifyError::Excess { from, to, excess });
    }
    Ok(())
}
