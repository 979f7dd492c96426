//! Identifiers of connections.

use core::net::{IpAddr, SocketAddr};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use urxe_core::cm::{CommId, ListenerId, VendorOptions as Ece};
use urxe_core::qp::state::QpType;
use urxe_wire::{Psn, Qkey, Qpn};

use super::channel::EventChannel;
use super::error::CmError;
use super::event_kind::{EventKind, EventParam};
use super::manager::Manager;
use super::options::{CmOption, Options};
use super::param::{PortSpace, UDP_QKEY};
use super::ports::Lease;
use super::qp::Agreed;
use super::queue::{Mailbox, Queue, What};
use crate::context::Context;
use crate::error::Error;
use crate::lock::lock;
use crate::network;
use crate::qp::{Qp, QpInner};
use crate::queues::Object;
use crate::share::PortName;

/// One end of a connection that is, is to be, or is waited for; or of a datagram service.
///
/// It is a handle: clones are the same identifier, which is destroyed with the last of them.
/// Then it gets no more events, its port is free, its peer is told, and a peer that wanted to connect
/// to it and was not answered is refused.
///
/// The calls are those of librdmacm, and most answer by an event.
#[derive(Clone)]
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    pub(super) handle: Arc<Handle>,
}

/// The program's handle.
pub(crate) struct Handle {
    number: u64,
    pub(super) manager: Manager,
    pub(super) space: PortSpace,
    pub(super) qp_type: QpType,
    token: AtomicUsize,
    pub(super) device: OnceLock<Context>,
    pub(super) mailbox: Arc<Mailbox>,
    state: Mutex<State>,
}

/// How far an identifier came by itself. Where its connection stands is what the core's agent says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Step {
    #[default]
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    Listening,
    /// It asks a peer, or a peer asks: it has, or had, a connection.
    Asked,
}

/// A context that listens for an identifier.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) context: Context,
    /// None until the context's agent has it.
    pub(super) id: Option<ListenerId>,
    /// The names under which other processes know it.
    pub(super) names: Vec<PortName>,
}

/// What changes. Its lock is taken last of all and held for moments.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) step: Step,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) lease: Option<Lease>,
    pub(super) qkey: Qkey,
    pub(super) options: Options,
    pub(super) ece: Ece,
    pub(super) remote_ece: Ece,
    pub(super) conn: Option<CommId>,
    pub(super) listening: Vec<Listening>,
    pub(super) backlog: u32,
    /// The QP, named or attached.
    pub(super) qpn: Qpn,
    pub(super) has_srq: bool,
    pub(super) attached: Weak<QpInner>,
    /// PSN that the peer is to begin with.
    pub(super) own_psn: Psn,
    pub(super) agreed: Option<Agreed>,
    pub(super) groups: Vec<IpAddr>,
}

impl Id {
    /// A new identifier, with the kind of QP that its port space has.
    ///
    /// # Errors
    /// If there are no random numbers.
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel, space: PortSpace) -> Result<Id, Error> {
        Id::with_qp_type(channel, space, space.qp_type())
    }

    /// A new identifier for another kind of QP: RC, UC, XRC or UD.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn with_qp_type(
        channel: &EventChannel,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<Id, Error> {
        Id::make(channel.manager(), channel.queue(), space, qp_type)
    }

    pub(super) fn make(
        manager: &Manager,
        queue: &Arc<Queue>,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<Id, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let psn = match network::current() {
            Some(network) => network.random(),
            None => crate::host::random::random()?,
        } as u32;
        let handle = Arc::new(Handle {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            manager: manager.clone(),
            space,
            qp_type,
            token: AtomicUsize::new(0),
            device: OnceLock::new(),
            mailbox: Mailbox::new(queue.clone()),
            state: Mutex::new(State::new(Psn::new(psn))),
        });
        let to: Object = Arc::<Handle>::downgrade(&handle);
        handle.mailbox.address(to);
        Ok(Id { handle })
    }

    /// A number that no other identifier of this process has or had: a key for tables.
    pub fn number(&self) -> u64 {
        self.handle.number
    }

    /// The manager by which it finds its context.
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

    /// Its events come to another channel from now on, also those that were not taken yet.
    ///
    /// # Errors
    /// None at present.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<(), Error> {
        self.handle.mailbox.move_to(channel.queue());
        Ok(())
    }

    /// Options of enhanced connection establishment to send with the next request or answer.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_ece(&self, ece: Ece) {
        self.state().ece = ece;
    }

    /// The options that the peer sent; none if it did not.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Ece {
        self.state().remote_ece
    }

    /// The Q_Key of datagrams that are sent to it: [`UDP_QKEY`] at first.
    pub fn qkey(&self) -> Qkey {
        self.state().qkey
    }

    /// Puts an event into the channel that the program, and no peer, has made: it wakes a thread that waits there for
    /// events of connections.
    ///
    /// # Errors
    /// [`CmError::State`] for kinds that connections have.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_event(&self, kind: EventKind, status: i32, arg: u64) -> Result<(), Error> {
        if (kind as u32) < EventKind::AddrInfoResolved as u32 {
            return Err(CmError::State("such an event is not the program's to make").into());
        }
        self.tell(kind, status, EventParam::User(arg));
        Ok(())
    }

    /// An event that the identifier makes for itself.
    pub(super) fn tell(&self, kind: EventKind, status: i32, param: EventParam) {
        let what = What::Plain(kind, status, param);
        self.handle.mailbox.push(what);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.handle.state()
    }

    /// The context, where there must be one.
    pub(super) fn context(&self) -> Result<&Context, Error> {
        let device = self.handle.device.get();
        device.ok_or_else(|| CmError::State("it is bound to no device").into())
    }

    /// Its connection and the context that it is on.
    pub(super) fn conn(&self) -> Result<(&Context, CommId), Error> {
        let conn = self.state().conn;
        let conn = conn.ok_or(CmError::State("it has no connection"))?;
        Ok((self.context()?, conn))
    }
}

impl State {
    fn new(own_psn: Psn) -> State {
        State {
            qkey: UDP_QKEY,
            own_psn,
            ..State::default()
        }
    }
}

impl Handle {
    /// Binds it to this context, unless it is bound to one; the one that it is bound to.
    pub(super) fn bind(&self, context: &Context) -> &Context {
        self.device.get_or_init(|| {
            context.engine().cm_bind(self.number, &self.mailbox);
            context.clone()
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(context) = self.device.get() {
            context.engine().cm_unbind(self.number);
        }
        self.mailbox.clear();
        let state = std::mem::take(&mut *self.state());
        if let Some(qp) = Qp::upgrade(&state.attached) {
            for group in state.groups {
                // It was attached when the identifier joined, and may be detached since.
                let _ = qp.detach_mcast(group.into());
            }
        }
        for listening in state.listening {
            listening.end();
        }
        if let (Some(context), Some(conn)) = (self.device.get(), state.conn) {
            context.shards().settle_others();
            context.engine().cm_destroy(conn);
        }
        drop(state.lease);
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
