//! Identifiers of connections.

use core::net::{IpAddr, SocketAddr};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use urxe_core::qp::attr::{AttrMask, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_wire::cm::RejReason;
use urxe_wire::{Qkey, Qpn};

use super::channel::EventChannel;
use super::error::CmError;
use super::event::{Event, EventKind, EventParam};
use super::manager::Manager;
use super::options::{CmOption, Options};
use super::param::{ConnParam, PortSpace, UDP_QKEY};
use super::queue::{Queue, Queued, What};
use crate::context::Context;
use crate::error::Error;
use crate::qp::{Ece, Qp};

/// One end of a connection that is, is to be, or is waited for; or of a datagram service.
///
/// It is a handle: clones are the same identifier, which is destroyed with the last of them.
/// Then it gets no more events, its port is free, its peer is told, and who wanted to connect
/// to it and was not answered is refused.
///
/// The calls are those of librdmacm, and most answer by an event.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    handle: Arc<Handle>,
}

/// What the program holds.
#[derive(Debug)]
pub(crate) struct Handle {
    number: u64,
    manager: Manager,
    space: PortSpace,
    qp_type: QpType,
    token: AtomicUsize,
    device: OnceLock<Context>,
    state: Mutex<State>,
}

/// What changes. Its lock is taken last of all and held for moments.
#[derive(Debug)]
struct State {
    queue: Arc<Queue>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    qkey: Qkey,
    options: Options,
    ece: Ece,
}

impl Id {
    /// A new identifier, with the kind of QP that its port space has.
    ///
    /// # Errors
    /// None at present.
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel, space: PortSpace) -> Result<Id, Error> {
        Id::with_qp_type(channel, space, space.qp_type())
    }

    /// The same for another kind of QP: RC, UC, XRC or UD.
    ///
    /// # Errors
    /// None at present.
    pub fn with_qp_type(
        channel: &EventChannel,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<Id, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let state = State {
            queue: channel.queue().clone(),
            local: None,
            peer: None,
            qkey: UDP_QKEY,
            options: Options::default(),
            ece: Ece::default(),
        };
        let handle = Handle {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            manager: channel.manager().clone(),
            space,
            qp_type,
            token: AtomicUsize::new(0),
            device: OnceLock::new(),
            state: Mutex::new(state),
        };
        Ok(Id {
            handle: Arc::new(handle),
        })
    }

    pub(crate) fn of(handle: Arc<Handle>) -> Id {
        Id { handle }
    }

    /// By which it finds its context.
    pub fn manager(&self) -> &Manager {
        &self.handle.manager
    }

    /// Its port space.
    pub fn port_space(&self) -> PortSpace {
        self.handle.space
    }

    /// The kind of QP that it has.
    pub fn qp_type(&self) -> QpType {
        self.handle.qp_type
    }

    /// A number that the program keeps with it, 0 at first.
    pub fn token(&self) -> usize {
        self.handle.token.load(Ordering::Acquire)
    }

    /// Changes that number.
    pub fn set_token(&self, token: usize) {
        self.handle.token.store(token, Ordering::Release);
    }

    /// The context that it is bound to: known once it has an address of this host.
    pub fn device(&self) -> Option<Context> {
        self.handle.device.get().cloned()
    }

    /// The port of the device: 1 once it is bound to one, else 0.
    pub fn port_num(&self) -> u8 {
        u8::from(self.handle.device.get().is_some())
    }

    /// Its own address, as far as it is known.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.state().local
    }

    /// The peer's address.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.state().peer
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// If the value is out of range.
    #[doc(alias = "rdma_set_option")]
    pub fn set_option(&self, option: CmOption) -> Result<(), Error> {
        let set = self.state().options.set(option);
        set.ok_or_else(|| CmError::State("the setting's value is out of range").into())
    }

    /// Gives it an address. Of port 0 a free one is chosen; an address of all zeros stands for
    /// all of this host.
    ///
    /// # Errors
    /// [`CmError::PortInUse`], [`CmError::NoDevice`]; [`CmError::State`] if it has one.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, addr: SocketAddr) -> Result<(), Error> {
        let _ = addr;
        Err(CmError::NotYet.into())
    }

    /// Waits for peers: each is an [`EventKind::ConnectRequest`]. At most `backlog` wait to be
    /// taken from the channel (0: 1024, which is also the most); beyond it peers are refused.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PortInUse`].
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        let _ = backlog;
        Err(CmError::NotYet.into())
    }

    /// Finds the device by which a peer is reached, and binds to it:
    /// [`EventKind::AddrResolved`] or [`EventKind::AddrError`].
    ///
    /// # Errors
    /// If there is no way to the peer, or no device has the address that leads there.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let _ = (src, dst, timeout);
        Err(CmError::NotYet.into())
    }

    /// Finds the path: [`EventKind::RouteResolved`].
    ///
    /// # Errors
    /// [`CmError::State`] before [`EventKind::AddrResolved`].
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), Error> {
        let _ = timeout;
        if self.device().is_none() {
            return Err(CmError::State("its address is not resolved").into());
        }
        self.tell(EventKind::RouteResolved, 0, EventParam::None);
        Ok(())
    }

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
        let _ = param;
        Err(CmError::NotYet.into())
    }

    /// Accepts who asked by an [`EventKind::ConnectRequest`]; [`EventKind::Established`]
    /// follows, but for datagrams.
    ///
    /// # Errors
    /// [`CmError::State`] if nobody asks (any more), [`CmError::PrivateData`],
    /// [`CmError::NoQp`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnParam) -> Result<(), Error> {
        let _ = param;
        Err(CmError::NotYet.into())
    }

    /// Refuses who asked; he gets an [`EventKind::Rejected`] of the reason
    /// [`RejReason::CONSUMER_DEFINED`].
    ///
    /// # Errors
    /// [`CmError::State`] if nobody asks, [`CmError::PrivateData`]: 148 bytes are the most.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        self.reject_with(RejReason::CONSUMER_DEFINED, private_data)
    }

    /// The same for another reason (datagrams know no reasons).
    ///
    /// # Errors
    /// As of [`Id::reject`].
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_with(&self, reason: RejReason, private_data: &[u8]) -> Result<(), Error> {
        let _ = (reason, private_data);
        Err(CmError::NotYet.into())
    }

    /// Ends the connection. An attached QP goes to ERR; [`EventKind::Disconnected`] follows
    /// when the peer knows, and [`EventKind::TimewaitExit`].
    ///
    /// # Errors
    /// [`CmError::State`] if there is no connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        Err(CmError::NotYet.into())
    }

    /// Tells that a packet of the connection has arrived
    /// ([`AsyncEvent::CommEst`](crate::AsyncEvent::CommEst)), so it is established. The
    /// engine does so by itself.
    ///
    /// # Errors
    /// [`CmError::State`] if there is no connection.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        Err(CmError::NotYet.into())
    }

    /// Answers an [`EventKind::ConnectResponse`]: the QP is in RTS.
    ///
    /// # Errors
    /// [`CmError::State`] if there was none.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        Err(CmError::NotYet.into())
    }

    /// Joins a multicast group; [`EventKind::MulticastJoin`] says what to send with, and has
    /// `token`. An attached QP is attached to the group.
    ///
    /// # Errors
    /// [`CmError::State`] without a device, [`CmError::Member`]; or if it is no group.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: IpAddr, token: u64) -> Result<(), Error> {
        let _ = (group, token);
        Err(CmError::NotYet.into())
    }

    /// Leaves it again.
    ///
    /// # Errors
    /// [`CmError::Member`].
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> Result<(), Error> {
        let _ = group;
        Err(CmError::NotYet.into())
    }

    /// Its events come to another channel from now on, also those that were not taken yet.
    ///
    /// # Errors
    /// None at present.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<(), Error> {
        let mut state = self.state();
        let old = std::mem::replace(&mut state.queue, channel.queue().clone());
        drop(state);
        let mine = old.take_all(|queued| queued.to.as_ptr() == Arc::as_ptr(&self.handle));
        for queued in mine {
            channel.queue().push(queued);
        }
        Ok(())
    }

    /// Attaches a QP, which then follows the connection: to INIT now, to RTS when it is
    /// made, to ERR when it ends. (UD: to RTS now.) The identifier does not keep it alive.
    ///
    /// # Errors
    /// [`CmError::State`] if it is of another context; or if it cannot be modified.
    #[doc(alias = "rdma_create_qp")]
    pub fn attach_qp(&self, qp: &Qp) -> Result<(), Error> {
        let _ = qp;
        Err(CmError::NotYet.into())
    }

    /// Names the QP of a program that brings it from state to state itself.
    pub fn set_qp(&self, qpn: Qpn, has_srq: bool) {
        let _ = (qpn, has_srq);
    }

    /// What to modify a QP with to bring it to INIT, RTR or RTS (INIT: also before there is a
    /// connection).
    ///
    /// # Errors
    /// [`CmError::State`] if the connection is not that far.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, state: QpState) -> Result<(QpAttr, AttrMask), Error> {
        let _ = state;
        Err(CmError::NotYet.into())
    }

    /// Options of enhanced connection establishment to send with the next request or answer.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_ece(&self, ece: Ece) {
        self.state().ece = ece;
    }

    /// Those that the peer sent; none if it did not.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Ece {
        Ece::default()
    }

    /// The Q_Key of datagrams that are sent to it: [`UDP_QKEY`] at first.
    pub fn qkey(&self) -> Qkey {
        self.state().qkey
    }

    /// An event that the identifier makes for itself.
    fn tell(&self, kind: EventKind, status: i32, param: EventParam) {
        let queue = self.state().queue.clone();
        queue.push(Queued {
            to: Arc::downgrade(&self.handle),
            what: What::Plain(kind, status, param),
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = &self.handle.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Id {
    /// True if both are the same identifier.
    fn eq(&self, other: &Id) -> bool {
        self.handle.number == other.handle.number
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.handle.number.hash(state);
    }
}

impl Queued {
    /// The event, if its identifier still is.
    pub(crate) fn open(self) -> Option<Event> {
        let id = Id::of(self.to.upgrade()?);
        let What::Plain(kind, status, param) = self.what;
        Some(Event {
            kind,
            status,
            id,
            listen_id: None,
            param,
        })
    }
}
