//! Connecting, accepting, rejecting and disconnecting.

use core::net::IpAddr;

use urxe_core::Time;
use urxe_core::cm::{
    Agent, Answer, CmError as CoreError, CommId, ConnectRequest, DatagramAnswer, DatagramRequest,
    MadPath, Terms, Transport,
};
use urxe_core::qp::attr::Mtu;
use urxe_core::qp::state::QpType;
use urxe_wire::Qpn;
use urxe_wire::cm::RejReason;

use super::error::CmError;
#[allow(unused_imports, reason = "named in the documents")]
use super::event_kind::EventKind;
use super::id::{Id, State, Step};
use super::param::ConnParam;
use super::qp::{Agreed, Follower, depth};
use crate::context::Context;
use crate::device::find_by_address;
use crate::error::Error;
use crate::limits::LIMITS;

impl Id {
    /// Asks the peer for a connection (or where its datagram QP is).
    /// With a QP attached the answer is [`EventKind::Established`]; without one,
    /// [`EventKind::ConnectResponse`]. Otherwise [`EventKind::Rejected`],
    /// [`EventKind::Unreachable`] or [`EventKind::ConnectError`].
    ///
    /// # Errors
    /// [`CmError::State`] before [`EventKind::RouteResolved`], [`CmError::PrivateData`],
    /// [`CmError::NoQp`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnParam) -> Result<(), Error> {
        let context = self.context()?;
        let mut terms = None;
        let vendor = self.options_to_offer(false)?;
        let (path, path_mtu, (local_port, remote_port), options) = {
            let mut state = self.state();
            if state.step != Step::RouteResolved {
                return Err(CmError::State("its route is not resolved").into());
            }
            let ends = state.local.zip(state.peer);
            let (local, peer) = ends.ok_or(CmError::State("its address is not resolved"))?;
            let path_mtu = path_mtu(context, peer.ip());
            if self.qp_type() != QpType::Ud {
                let proposed = propose(&state, param)?;
                state.agreed = Some(Agreed::proposed(&proposed, &state.options, path_mtu));
                terms = Some(Terms { vendor, ..proposed });
            }
            let path = MadPath {
                local: local.ip(),
                remote: peer.ip(),
                tos: state.options.tos,
            };
            state.step = Step::Asked;
            let ports = (local.port(), peer.port());
            (path, path_mtu, ports, state.options)
        };
        let space = urxe_wire::cm::PortSpace(self.port_space() as u16);
        let patience = options.patience();
        let private_data = &param.private_data[..];
        let begun = match terms {
            Some(terms) => self.ask(&ConnectRequest {
                path,
                space,
                local_port,
                remote_port,
                terms,
                transport: self.transport(),
                path_mtu,
                ack_timeout: options.ack_timeout,
                patience,
                private_data,
                hello: None,
            }),
            None => self.ask_where(&DatagramRequest {
                path,
                space,
                local_port,
                remote_port,
                patience,
                private_data,
            }),
        };
        let mut state = self.state();
        match begun {
            Ok(conn) => state.conn = Some(conn),
            Err(_) => state.step = Step::RouteResolved,
        }
        begun.map(drop)
    }

    /// Asks for a connection. Events of it can come before the call returns; they are not looked at before the program takes them.
    fn ask(&self, request: &ConnectRequest<'_>) -> Result<CommId, Error> {
        let engine = self.context()?.engine();
        let ends = (request.path.local, request.path.remote);
        let handshake = engine.begin_pair(ends, (request.space, request.remote_port))?;
        let (initiator, hello) = handshake.unzip();
        let request = ConnectRequest {
            hello: hello.as_ref(),
            ..*request
        };
        let connect = |agent: &mut Agent, now: Time| agent.connect(now, &request);
        let begun = engine.cm_begin(&self.handle.mailbox, initiator, connect)?;
        Ok(begun?)
    }

    fn ask_where(&self, request: &DatagramRequest<'_>) -> Result<CommId, Error> {
        let engine = self.context()?.engine();
        let resolve = |agent: &mut Agent, now: Time| agent.resolve(now, request);
        let begun = engine.cm_begin(&self.handle.mailbox, None, resolve)?;
        Ok(begun?)
    }

    /// The path MTU of a connection to the peer: what both ends can carry, as far as that is known. `None` before both
    /// addresses are.
    pub fn path_mtu(&self) -> Option<Mtu> {
        let peer = self.peer_addr()?;
        Some(path_mtu(self.context().ok()?, peer.ip()))
    }

    fn transport(&self) -> Transport {
        match self.qp_type() {
            QpType::Uc => Transport::Uc,
            QpType::XrcSend | QpType::XrcRecv => Transport::Xrc,
            _ => Transport::Rc,
        }
    }

    /// Accepts the peer of an [`EventKind::ConnectRequest`]; [`EventKind::Established`]
    /// follows, but for datagrams.
    ///
    /// # Errors
    /// [`CmError::State`] if there is no request (any more), [`CmError::PrivateData`],
    /// [`CmError::NoQp`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnParam) -> Result<(), Error> {
        let qp = self.attached();
        self.accept_with(param, qp.as_ref().map(|qp| qp as &dyn Follower))
    }

    /// Accepts with a QP that is not attached but follows all the same: it is made ready.
    ///
    /// # Errors
    /// As of [`Id::accept`], and of [`Follower::modify`].
    pub fn accept_with(&self, param: &ConnParam, qp: Option<&dyn Follower>) -> Result<(), Error> {
        let (context, conn) = self.conn()?;
        if self.qp_type() == QpType::Ud {
            return self.accept_datagram(param);
        }
        let engine = context.engine();
        let vendor = match qp {
            Some(_) => self.options_to_offer(true)?,
            None => self.state().ece,
        };
        if !engine.cm(|agent, _| agent.is_request(conn))? {
            return Err(CmError::State("there is no request").into());
        }
        let terms = {
            let mut state = self.state();
            let Some(mut agreed) = state.agreed else {
                return Err(CmError::State("there is no request").into());
            };
            let wanted = |own: u8, asked: u8, most: u32| match own {
                ConnParam::MAX_DEPTH => asked.min(depth(own, most)),
                own => own,
            };
            agreed.responder_resources = wanted(
                param.responder_resources,
                agreed.responder_resources,
                LIMITS.max_qp_rd_atom,
            );
            agreed.initiator_depth = wanted(
                param.initiator_depth,
                agreed.initiator_depth,
                LIMITS.max_qp_init_rd_atom,
            );
            state.agreed = Some(agreed);
            Terms {
                responder_resources: agreed.responder_resources,
                initiator_depth: agreed.initiator_depth,
                vendor,
                ..propose(&state, param)?
            }
        };
        self.bind_pair(Some(terms.qpn))?;
        if let Some(qp) = qp {
            // Before the peer is told: what it sends at once finds the QP ready.
            self.make_ready(qp)?;
        }
        let answer = Answer {
            terms,
            private_data: &param.private_data,
        };
        let accepted = engine.cm(|agent, now| agent.accept(now, conn, &answer));
        if let Err(error) = accepted.and_then(|accepted| accepted.map_err(Error::from)) {
            // The first failure says more.
            let _ = qp.map(Follower::fail);
            return Err(error);
        }
        Ok(())
    }

    /// The QPs of both ends are known: from now on their packets are under keys of their own, where connections have such.
    pub(super) fn bind_pair(&self, own: Option<Qpn>) -> Result<(), Error> {
        let (context, conn) = self.conn()?;
        let unknown = CmError::State("the peer is not known");
        let (ends, peer) = {
            let state = self.state();
            let ends = state.local.zip(state.peer).ok_or(unknown)?;
            let peer = state.agreed.and_then(|agreed| agreed.peer);
            ((ends.0.ip(), ends.1.ip()), peer.ok_or(unknown)?)
        };
        context.shards().bind_pair(conn, ends, own, peer.0)
    }

    fn accept_datagram(&self, param: &ConnParam) -> Result<(), Error> {
        let (qpn, qkey, vendor) = {
            let state = self.state();
            (named_qp(&state, param)?, state.qkey, state.ece)
        };
        let answer = DatagramAnswer {
            qpn,
            qkey,
            vendor,
            private_data: &param.private_data,
        };
        self.on_conn(|agent, _, conn| agent.accept_datagram(conn, &answer))
    }

    /// Refuses the request; the peer gets an [`EventKind::Rejected`] with the reason
    /// [`RejReason::CONSUMER_DEFINED`].
    ///
    /// # Errors
    /// [`CmError::State`] if there is no request, [`CmError::PrivateData`]: 148 bytes are the most.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        self.reject_with(RejReason::CONSUMER_DEFINED, private_data)
    }

    /// Refuses the request for another reason (datagrams know no reasons).
    ///
    /// # Errors
    /// As of [`Id::reject`].
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_with(&self, reason: RejReason, private_data: &[u8]) -> Result<(), Error> {
        self.on_conn(|agent, now, conn| agent.reject(now, conn, reason, private_data))
    }

    /// Ends the connection. An attached QP goes to ERR; [`EventKind::Disconnected`] follows
    /// when the peer knows, and [`EventKind::TimewaitExit`].
    ///
    /// # Errors
    /// [`CmError::State`] if there is no connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        let (context, conn) = self.conn()?;
        if self.qp_type() == QpType::Ud {
            return Err(CmError::State("datagrams have no connection").into());
        }
        self.handle.mailbox.end(false);
        self.fail_attached()?;
        let engine = context.engine();
        engine.cm(|agent, now| agent.disconnect(now, conn))??;
        Ok(())
    }

    /// Tells that a packet of the connection has arrived
    /// ([`AsyncEvent::CommEst`](crate::AsyncEvent::CommEst)), so it is established. The
    /// engine does so by itself.
    ///
    /// # Errors
    /// [`CmError::State`] if there is no connection.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        self.on_conn(|agent, _, conn| agent.on_data(conn))
    }

    /// Answers an [`EventKind::ConnectResponse`] with a QP that is not attached but follows all the same: it is made
    /// ready, and the peer told. If that cannot be, the peer is refused, and the QP fails.
    ///
    /// # Errors
    /// As of [`Id::establish`], and of [`Follower::modify`].
    pub fn answer(&self, qp: &dyn Follower) -> Result<(), Error> {
        let answered = self.make_ready(qp).and_then(|()| self.establish());
        if answered.is_err() {
            // The peer hears of it as far as it can be told.
            let _ = self.reject(&[]);
            let _ = qp.fail();
        }
        answered
    }

    /// Answers an [`EventKind::ConnectResponse`]: the QP is in RTS.
    ///
    /// # Errors
    /// [`CmError::State`] if there was none.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        self.on_conn(|agent, _, conn| agent.establish(conn))
    }

    fn on_conn(
        &self,
        act: impl FnOnce(&mut Agent, Time, CommId) -> Result<(), CoreError>,
    ) -> Result<(), Error> {
        let (context, conn) = self.conn()?;
        context.shards().settle_others();
        Ok(context.engine().cm(|agent, now| act(agent, now, conn))??)
    }
}

/// The QP that a call names, or else the identifier's.
fn named_qp(state: &State, param: &ConnParam) -> Result<Qpn, CmError> {
    let qpn = match state.qpn.get() {
        0 => param.qp_num,
        _ => state.qpn,
    };
    if qpn.get() < 2 {
        return Err(CmError::NoQp);
    }
    Ok(qpn)
}

fn propose(state: &State, param: &ConnParam) -> Result<Terms, CmError> {
    Ok(Terms {
        qpn: named_qp(state, param)?,
        starting_psn: state.own_psn,
        responder_resources: depth(param.responder_resources, LIMITS.max_qp_rd_atom),
        initiator_depth: depth(param.initiator_depth, LIMITS.max_qp_init_rd_atom),
        flow_control: param.flow_control,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        srq: match state.qpn.get() {
            0 => param.srq,
            _ => state.has_srq,
        },
        vendor: state.ece,
    })
}

impl From<CoreError> for CmError {
    fn from(error: CoreError) -> CmError {
        match error {
            CoreError::Full(most) => CmError::Full(most),
            CoreError::PrivateData { len, max } => CmError::PrivateData { len, max },
            _ => CmError::State("the connection is not at that point"),
        }
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Error {
        CmError::from(error).into()
    }
}

/// What both ends can carry, as far as that is known: of this host's ports. Packets that the peer's port cannot carry
/// would fail at its QP, if the program behind it takes the connection at all.
fn path_mtu(context: &Context, peer: IpAddr) -> Mtu {
    let own = context.active_mtu();
    // Every port carries so much; and no other interface has an address of loopback.
    if own <= Mtu::Mtu1024 || peer.is_loopback() || context.engine().network().is_some() {
        return own;
    }
    let port = find_by_address(peer);
    port.map_or(own, |port| own.min(port.active_mtu()))
}
