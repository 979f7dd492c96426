//! The states of a QP, which transitions exist, and which attributes each needs
//! and allows: a table, for all services (`man ibv_modify_qp`).

use urxe_wire::Service;

use crate::qp::attr::AttrMask;

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
    let (required, optional) = match (from, to) {
        (_, Reset) => (AttrMask::NONE, AttrMask::NONE),
        (Reset, Err) => return None,
        (_, Err) => (AttrMask::NONE, AttrMask::NONE),
        (Reset, Init) => (init_attrs(service), AttrMask::NONE),
        (Init, Init) => (AttrMask::NONE, init_attrs(service)),
        (Init, Rtr) => rtr_attrs(service),
        (Rtr, Rts) => rts_attrs(service),
        (Rts, Rts) | (Sqd, Rts) => (AttrMask::NONE, rts_options(service)),
        (Sqe, Rts) => match service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => return None,
            QpType::Uc => (
                AttrMask::NONE,
                AttrMask::CUR_STATE.union(AttrMask::ACCESS_FLAGS),
            ),
            QpType::Ud => (AttrMask::NONE, AttrMask::CUR_STATE.union(AttrMask::QKEY)),
        },
        (Rts, Sqd) => (AttrMask::NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (AttrMask::NONE, sqd_options(service)),
        _ => return None,
    };
    Some(Transition { required, optional })
}

const fn init_attrs(service: QpType) -> AttrMask {
    let common = AttrMask::PKEY_INDEX.union(AttrMask::PORT);
    match service {
        QpType::Ud => common.union(AttrMask::QKEY),
        QpType::Uc | QpType::Rc | QpType::XrcSend | QpType::XrcRecv => {
            common.union(AttrMask::ACCESS_FLAGS)
        }
    }
}

const fn rtr_attrs(service: QpType) -> (AttrMask, AttrMask) {
    let connected = AttrMask::AV
        .union(AttrMask::PATH_MTU)
        .union(AttrMask::DEST_QPN)
        .union(AttrMask::RQ_PSN);
    let options = AttrMask::ALT_PATH
        .union(AttrMask::ACCESS_FLAGS)
        .union(AttrMask::PKEY_INDEX);
    match service {
        QpType::Ud => (AttrMask::NONE, AttrMask::PKEY_INDEX.union(AttrMask::QKEY)),
        QpType::Uc | QpType::XrcSend => (connected, options),
        QpType::Rc | QpType::XrcRecv => (
            connected
                .union(AttrMask::MAX_DEST_RD_ATOMIC)
                .union(AttrMask::MIN_RNR_TIMER),
            options,
        ),
    }
}

const fn rts_attrs(service: QpType) -> (AttrMask, AttrMask) {
    let required = match service {
        QpType::Ud | QpType::Uc => AttrMask::SQ_PSN,
        QpType::XrcRecv => AttrMask::SQ_PSN.union(AttrMask::TIMEOUT),
        QpType::Rc | QpType::XrcSend => AttrMask::SQ_PSN
            .union(AttrMask::TIMEOUT)
            .union(AttrMask::RETRY_CNT)
            .union(AttrMask::RNR_RETRY)
            .union(AttrMask::MAX_QP_RD_ATOMIC),
    };
    (required, rts_options(service))
}

const fn rts_options(service: QpType) -> AttrMask {
    let connected = AttrMask::CUR_STATE
        .union(AttrMask::ALT_PATH)
        .union(AttrMask::ACCESS_FLAGS)
        .union(AttrMask::PATH_MIG_STATE);
    match service {
        QpType::Ud => AttrMask::CUR_STATE.union(AttrMask::QKEY),
        QpType::Uc | QpType::XrcSend => connected,
        QpType::Rc | QpType::XrcRecv => connected.union(AttrMask::MIN_RNR_TIMER),
    }
}

const fn sqd_options(service: QpType) -> AttrMask {
    let connected = AttrMask::AV
        .union(AttrMask::ALT_PATH)
        .union(AttrMask::ACCESS_FLAGS)
        .union(AttrMask::PKEY_INDEX)
        .union(AttrMask::PATH_MIG_STATE);
    match service {
        QpType::Ud => AttrMask::PKEY_INDEX.union(AttrMask::QKEY),
        QpType::Uc => connected,
        QpType::XrcSend => connected
            .union(AttrMask::PORT)
            .union(AttrMask::TIMEOUT)
            .union(AttrMask::RETRY_CNT)
            .union(AttrMask::RNR_RETRY)
            .union(AttrMask::MAX_QP_RD_ATOMIC),
        QpType::XrcRecv => connected
            .union(AttrMask::PORT)
            .union(AttrMask::TIMEOUT)
            .union(AttrMask::MAX_DEST_RD_ATOMIC)
            .union(AttrMask::MIN_RNR_TIMER),
        QpType::Rc => connected
            .union(AttrMask::PORT)
            .union(AttrMask::TIMEOUT)
            .union(AttrMask::RETRY_CNT)
            .union(AttrMask::RNR_RETRY)
            .union(AttrMask::MAX_QP_RD_ATOMIC)
            .union(AttrMask::MAX_DEST_RD_ATOMIC)
            .union(AttrMask::MIN_RNR_TIMER),
    }
}

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
