//! QPs of identifiers: the attributes to modify them with, and QPs that follow the connection by themselves.

use core::net::SocketAddr;

use urxe_core::cm::{Incoming, Terms, VendorOptions as Ece};
use urxe_core::mr::Access;
use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr};
use urxe_core::qp::ready::bring_to_rts;
use urxe_core::qp::state::{QpState, QpType, transition};
use urxe_wire::{Psn, Qpn};

use super::error::CmError;
use super::id::{Id, State};
use super::options::Options;
use super::param::ConnParam;
use crate::ece;
use crate::error::Error;
use crate::limits::LIMITS;
use crate::qp::Qp;

/// How far packets travel.
pub(super) const HOP_LIMIT: u8 = 64;

/// What both sides agreed on, as this side's QP sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// The peer's QP, and the PSN that this side begins with, which the peer chose; once the peer is heard.
    pub(super) peer: Option<(Qpn, Psn)>,
    pub(super) path_mtu: Mtu,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) ack_timeout: u8,
    pub(super) tos: u8,
}

impl Agreed {
    /// The terms that a request proposes.
    pub(super) fn of_request(incoming: &Incoming) -> Agreed {
        Agreed {
            tos: incoming.path.tos,
            ack_timeout: incoming.ack_timeout,
            retry_count: incoming.terms.retry_count,
            ..Agreed::of_terms(&incoming.terms, incoming.path_mtu)
        }
    }

    /// The terms that this side asks for.
    pub(super) fn proposed(terms: &Terms, options: &Options, path_mtu: Mtu) -> Agreed {
        Agreed {
            peer: None,
            retry_count: terms.retry_count,
            ack_timeout: options.ack_timeout,
            tos: options.tos,
            ..Agreed::of_terms(terms, path_mtu)
        }
    }

    /// The terms that the peer accepted.
    pub(super) fn of_terms(terms: &Terms, path_mtu: Mtu) -> Agreed {
        Agreed {
            peer: Some((terms.qpn, terms.starting_psn)),
            path_mtu,
            responder_resources: terms.responder_resources,
            initiator_depth: terms.initiator_depth,
            retry_count: 7,
            rnr_retry_count: terms.rnr_retry_count,
            ack_timeout: 17,
            tos: 0,
        }
    }
}

/// As many READs and atomics as the device can, where that is asked for.
pub(super) fn depth(wanted: u8, most: u32) -> u8 {
    match wanted {
        ConnParam::MAX_DEPTH => most.min(128) as u8,
        wanted => wanted,
    }
}

/// A QP that follows the connection of an identifier. A library above this one may have more to note when a QP changes
/// than the QP itself has, so every change goes through its [`Follower::modify`].
pub trait Follower {
    /// Its service.
    fn qp_type(&self) -> QpType;

    /// Changes the attributes that the mask names.
    ///
    /// # Errors
    /// See [`Qp::modify`].
    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error>;

    /// The peer has these options (ECE), and was told those of this side.
    ///
    /// # Errors
    /// See [`Qp::set_ece`].
    fn set_ece(&self, ece: &Ece) -> Result<(), Error>;

    /// Brings it to ERR, so that what was posted completes.
    ///
    /// # Errors
    /// See [`Qp::modify`].
    fn fail(&self) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        self.modify(&attr, AttrMask::STATE)
    }
}

impl Follower for Qp {
    fn qp_type(&self) -> QpType {
        Qp::qp_type(self)
    }

    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        Qp::modify(self, attr, mask)
    }

    fn set_ece(&self, ece: &Ece) -> Result<(), Error> {
        Qp::set_ece(self, ece)
    }
}

impl Id {
    /// Attaches a QP, which then follows the connection: to INIT now, to RTS when it is
    /// made, to ERR when it ends. (UD: to RTS now.) The identifier does not keep it alive.
    ///
    /// An identifier that is dropped gets no more events, [`EventKind::Disconnected`](crate::cm::EventKind::Disconnected) neither: keep it
    /// for as long as that is waited for.
    ///
    /// # Errors
    /// [`CmError::State`] if it is of another context; or if it cannot be modified.
    #[doc(alias = "rdma_create_qp")]
    pub fn attach_qp(&self, qp: &Qp) -> Result<(), Error> {
        if self.context()? != qp.pd().context() {
            return Err(CmError::State("the QP is of another context").into());
        }
        if self.qp_type() == QpType::Ud {
            qp.start_datagrams(self.qkey())?;
        } else {
            qp.init(rights(ConnParam::MAX_DEPTH))?;
            self.handle.mailbox.follow(Some(qp.following()));
            self.end_after(qp);
        }
        let mut state = self.state();
        state.attached = qp.downgrade();
        state.qpn = qp.qp_num();
        state.has_srq = qp.srq().is_some();
        Ok(())
    }

    /// Names the QP of a program that brings it from state to state itself.
    pub fn set_qp(&self, qpn: Qpn, has_srq: bool) {
        self.handle.mailbox.follow(None);
        self.handle.mailbox.end_after(None);
        let mut state = self.state();
        (state.qpn, state.has_srq) = (qpn, has_srq);
    }

    /// The end of the connection by the peer is told when the program has polled what has completed of this QP, or 50 ms later: an adapter's
    /// driver tells of completions sooner than a kernel of the end. A QP that [`Id::attach_qp`] gets is one of those; this is for one
    /// that [`Id::set_qp`] names.
    pub fn end_after(&self, qp: &Qp) {
        self.handle.mailbox.end_after(Some(qp.completing()));
    }

    /// The attached QP, if it still is.
    pub(super) fn attached(&self) -> Option<Qp> {
        let weak = self.state().attached.clone();
        Qp::upgrade(&weak)
    }

    /// What to modify a QP with to bring it to INIT, RTR or RTS (INIT: also before there is a
    /// connection).
    ///
    /// # Errors
    /// [`CmError::State`] if the connection is not that far.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, state: QpState) -> Result<(QpAttr, AttrMask), Error> {
        self.context()?;
        let own = self.state();
        let from = match state {
            QpState::Init => QpState::Reset,
            QpState::Rtr => QpState::Init,
            QpState::Rts => QpState::Rtr,
            _ => return Err(CmError::State("it leads to INIT, RTR and RTS").into()),
        };
        let mut attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        if self.qp_type() == QpType::Ud {
            attr.qkey = own.qkey;
        } else if state == QpState::Init {
            let depth = own.agreed.map(|agreed| agreed.responder_resources);
            attr.qp_access_flags = depth.map_or(Access::NONE, rights);
        } else {
            attr = connected(attr, &own)?;
        }
        // Each service needs attributes of its own.
        let needed = transition(self.qp_type(), from, state)
            .map_or(AttrMask::NONE, |transition| transition.required);
        Ok((attr, needed | AttrMask::STATE))
    }

    /// Brings a QP from INIT to RTS.
    pub(super) fn make_ready(&self, qp: &dyn Follower) -> Result<(), Error> {
        let (attr, _) = self.init_qp_attr(QpState::Rts)?;
        bring_to_rts(qp.qp_type(), QpState::Init, &attr, |attr, mask| {
            qp.modify(attr, mask)
        })?;
        if self.remote_ece() == ece::OFFER && self.options_to_offer(true)? == ece::OFFER {
            qp.set_ece(&ece::OFFER)?;
        }
        Ok(())
    }

    /// Vendors' options (ECE) that the peer is told: those that the program set, or those of a QP that follows; in an
    /// answer, if the peer has them too.
    pub(super) fn options_to_offer(&self, is_answer: bool) -> Result<Ece, Error> {
        let is_reliable = matches!(
            self.qp_type(),
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv
        );
        let offers = is_reliable && self.context()?.engine().is_selective;
        let state = self.state();
        let is_ours = state.qpn.get() != 0 && state.ece == Ece::default();
        if is_ours && offers && (!is_answer || state.remote_ece == ece::OFFER) {
            return Ok(ece::OFFER);
        }
        Ok(state.ece)
    }

    pub(super) fn fail_attached(&self) -> Result<(), Error> {
        match self.attached() {
            Some(qp) if self.qp_type() != QpType::Ud => qp.fail(),
            _ => Ok(()),
        }
    }
}

/// What peers may do: as Linux has it, and what the program itself needs.
fn rights(responder_resources: u8) -> Access {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    match responder_resources {
        0 => rights,
        _ => rights | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
    }
}

fn connected(attr: QpAttr, own: &State) -> Result<QpAttr, CmError> {
    let unknown = CmError::State("the peer is not known");
    let agreed = own.agreed.ok_or(unknown)?;
    let (dest_qp_num, sq_psn) = agreed.peer.ok_or(unknown)?;
    let address = |addr: Option<SocketAddr>| Ok::<_, CmError>(addr.ok_or(unknown)?.ip());
    Ok(QpAttr {
        qp_access_flags: rights(agreed.responder_resources),
        path_mtu: agreed.path_mtu,
        ah_attr: Some(AddressVector {
            local: address(own.local)?,
            remote: address(own.peer)?,
            traffic_class: agreed.tos,
            hop_limit: HOP_LIMIT,
        }),
        dest_qp_num,
        rq_psn: own.own_psn,
        sq_psn,
        max_dest_rd_atomic: agreed.responder_resources.min(LIMITS.max_qp_rd_atom as u8),
        max_rd_atomic: agreed.initiator_depth.min(LIMITS.max_qp_init_rd_atom as u8),
        min_rnr_timer: own.options.min_rnr_timer,
        timeout: agreed.ack_timeout,
        retry_cnt: agreed.retry_count,
        rnr_retry: agreed.rnr_retry_count,
        ..attr
    })
}
