//! Identifiers of connections (`rdma_cm_id`), the counterpart of sockets.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use urxe::{QpType, Qpn};

use super::addrinfo::Found;
use super::channel::{Channel, rdma_create_event_channel, rdma_destroy_event_channel};
use super::event::rdma_ack_cm_event;
use super::exit::end_connections_at_exit;
use super::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP, address, devices};
use crate::errno::{Errno, minus_one, store};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_pd, ibv_qp_init_attr, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel,
};
use crate::live::{self, bury};
use crate::lock::lock;
use crate::object::{Context, Kind, Object, Qp, Shared};
use crate::verbs::gid::from_gid;
use crate::verbs::qp_create::{RC, UC, UD, XRC_RECV, XRC_SEND};
use crate::verbs::rates::rate_of;

/// Selector of a path's properties: the value itself, and not a bound of it.
const EXACTLY: u8 = 2;

#[repr(C)]
pub(crate) struct Id {
    pub(super) ibv: UnsafeCell<rdma_cm_id>,
    pub(super) urxe: urxe::cm::Id,
    /// The number by which events name it.
    pub(super) key: usize,
    /// Made without a channel: its functions wait for their events themselves, on one of its own.
    pub(super) is_sync: AtomicBool,
    pub(super) events: Acks,
    state: Mutex<State>,
}

/// What the library remembers between calls.
#[derive(Default)]
pub(super) struct State {
    /// Of a listening endpoint: what the queue pairs of its requests are made with.
    pub(super) for_requests: Option<(Shared<ibv_pd>, ibv_qp_init_attr)>,
    /// Private data for `rdma_connect` from `rdma_addrinfo`.
    pub(super) connect_data: Vec<u8>,
    pub(super) groups: Vec<super::multicast::Group>,
    pub(super) path: Option<Box<ibv_sa_path_rec>>,
    /// What `rdma_resolve_addrinfo` found and the program did not take so far.
    pub(super) info: Option<Found>,
}

// SAFETY: the program's pointers in it are only handed on.
unsafe impl Send for State {}

// SAFETY: repr(C), and `ibv` is first.
unsafe impl Object for Id {}

impl Kind for Id {
    type C = rdma_cm_id;
}

/// Ids by key, in a tree: it has no memory left when thousands are gone. An event may come for one that is just being destroyed.
fn known() -> MutexGuard<'static, BTreeMap<usize, Shared<rdma_cm_id>>> {
    static KNOWN: OnceLock<Mutex<BTreeMap<usize, Shared<rdma_cm_id>>>> = OnceLock::new();
    lock(KNOWN.get_or_init(Mutex::default))
}

/// Ends every connection that there is; the ids stay.
pub(super) fn disconnect_all() {
    for id in known().values() {
        // Most have none, or one that has ended.
        // SAFETY: it is known, and not destroyed while the lock is held.
        let _ = unsafe { Id::of(id.0) }.urxe.disconnect();
    }
}

impl Id {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The id that an event is of, with the event counted: it stays until that is acknowledged. None if it is being
    /// destroyed.
    pub(super) fn deliver(key: usize) -> Option<*mut rdma_cm_id> {
        let id = known().get(&key)?.0;
        // SAFETY: it is known, and not destroyed while the lock is held.
        unsafe { Id::of(id) }.events.deliver();
        Some(id)
    }

    pub(super) fn give(urxe: urxe::cm::Id, ibv: rdma_cm_id, is_sync: bool) -> *mut rdma_cm_id {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        urxe.set_token(key);
        let id = live::give(Id {
            ibv: UnsafeCell::new(ibv),
            urxe,
            key,
            is_sync: AtomicBool::new(is_sync),
            events: Acks::default(),
            state: Mutex::default(),
        });
        known().insert(key, Shared(id));
        end_connections_at_exit();
        id
    }

    /// Writes what became known of addresses and device where the program reads it.
    pub(super) fn refresh(&self) -> Result<(), Errno> {
        let ibv = self.ibv.get();
        let (local, peer) = (self.urxe.local_addr(), self.urxe.peer_addr());
        // SAFETY: the program's part, which it does not write to during the calls that come here.
        unsafe {
            if let Some(local) = local {
                (*ibv).route.addr.src_storage = address::write(local).0;
            }
            if let Some(peer) = peer {
                (*ibv).route.addr.dst_storage = address::write(peer).0;
            }
            if (*ibv).verbs.is_null()
                && let Some(local) = local.filter(|local| !local.ip().is_unspecified())
            {
                let (context, pd) = devices::of_address(local.ip())?;
                (*ibv).verbs = context;
                (*ibv).pd = pd;
                (*ibv).port_num = 1;
            }
            if let (Some(local), Some(peer)) = (local, peer) {
                let (sgid, dgid) = (from_gid(local.ip().into()), from_gid(peer.ip().into()));
                (*ibv).route.addr.addr.sgid = sgid;
                (*ibv).route.addr.addr.dgid = dgid;
                (*ibv).route.addr.addr.pkey = 0xffff_u16.to_be();
            }
        }
        Ok(())
    }

    /// The peer and the way to it are known: one path, as programs expect one.
    pub(super) fn resolved(&self) -> Result<(), Errno> {
        self.refresh()?;
        let ibv = self.ibv.get();
        // SAFETY: the program's part, as in `refresh`, which found a device.
        let context = unsafe { Context::of((*ibv).verbs) };
        let port = context.urxe.query_port(1)?;
        let mtu = self.urxe.path_mtu().unwrap_or(port.active_mtu);
        // SAFETY: as above.
        unsafe {
            let gids = &(*ibv).route.addr.addr;
            let mut path = Box::new(ibv_sa_path_rec::zeroed());
            (path.sgid, path.dgid, path.pkey) = (gids.sgid, gids.dgid, gids.pkey);
            path.hop_limit = 64;
            path.reversible = 1;
            path.mtu = mtu as u8;
            path.rate = rate_of(port.speed.mbps()) as u8;
            path.packet_life_time = 16;
            path.mtu_selector = EXACTLY;
            path.rate_selector = EXACTLY;
            path.packet_life_time_selector = EXACTLY;
            let mut state = self.state();
            let path = state.path.insert(path);
            (*ibv).route.path_rec = ptr::from_mut(&mut **path);
            (*ibv).route.num_paths = 1;
        }
        Ok(())
    }

    pub(super) fn qp(&self) -> Option<&Qp> {
        // SAFETY: the program's part; its QP lives until `rdma_destroy_qp`, which no thread calls meanwhile.
        unsafe {
            let qp = (*self.ibv.get()).qp;
            (!qp.is_null()).then(|| Qp::of(qp))
        }
    }

    /// The program's QP for the handshake.
    pub(super) fn name_qp(&self, qp: &Qp) {
        // SAFETY: the program's part; neither changes.
        let (qpn, srq) = unsafe {
            let ibv = &(*qp.ibv.get()).qp_base;
            (ibv.qp_num, ibv.srq)
        };
        self.urxe.set_qp(Qpn::new(qpn), !srq.is_null());
        self.urxe.end_after(&qp.urxe);
    }

    /// Notes that its QP is gone.
    pub(super) fn disown_qp(&self) {
        self.urxe.set_qp(Qpn::new(0), false);
    }
}

/// `enum rdma_port_space`
pub(super) fn port_space(number: c_int) -> Result<urxe::cm::PortSpace, Errno> {
    match number {
        PS_TCP => Ok(urxe::cm::PortSpace::Tcp),
        PS_UDP => Ok(urxe::cm::PortSpace::Udp),
        PS_IB => Ok(urxe::cm::PortSpace::Ib),
        PS_IPOIB => Ok(urxe::cm::PortSpace::Ipoib),
        _ => Err(Errno::INVAL),
    }
}

/// `enum ibv_qp_type`, as far as there are connections for it.
fn service(qp_type: c_int) -> Result<QpType, Errno> {
    match qp_type {
        RC => Ok(QpType::Rc),
        UC => Ok(QpType::Uc),
        UD => Ok(QpType::Ud),
        XRC_SEND => Ok(QpType::XrcSend),
        XRC_RECV => Ok(QpType::XrcRecv),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    let qp_type = match ps {
        PS_UDP | PS_IPOIB => UD,
        _ => RC,
    };
    // SAFETY: a channel or null, and a place for a pointer, by the rules of the function.
    minus_one(unsafe { store(id, create(channel, context, ps, qp_type)) })
}

/// # Safety
/// A channel, or null.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: c_int,
    qp_type: c_int,
) -> Result<*mut rdma_cm_id, Errno> {
    let (space, service) = (port_space(ps)?, service(qp_type)?);
    let is_sync = channel.is_null();
    let channel = if is_sync { own_channel()? } else { channel };
    // SAFETY: a channel, by the caller's promise, or the one that was just made.
    let on = unsafe { Channel::of(channel) }.urxe()?;
    let made = urxe::cm::Id::with_qp_type(&on, space, service);
    let urxe = match made {
        Ok(urxe) => urxe,
        Err(error) => {
            if is_sync {
                // SAFETY: made above, and not shared.
                unsafe { rdma_destroy_event_channel(channel) };
            }
            return Err(error.into());
        }
    };
    let mut ibv = rdma_cm_id::zeroed();
    ibv.channel = channel;
    ibv.context = context;
    ibv.ps = ps;
    ibv.qp_type = qp_type;
    Ok(Id::give(urxe, ibv, is_sync))
}

fn own_channel() -> Result<*mut rdma_event_channel, Errno> {
    // SAFETY: it takes nothing.
    let channel = unsafe { rdma_create_event_channel() };
    if channel.is_null() {
        return Err(Errno::last());
    }
    Ok(channel)
}

pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id that the program does not use again, by the rules of the function.
    minus_one(unsafe { destroy(id) })
}

/// Waits until the events that the program got are acknowledged; those that it did not get are gone.
///
/// # Safety
/// An id that is not used again.
unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { live::take::<Id>(id) }?;
    known().remove(&object.key);
    object.forget_event();
    object.events.wait();
    let is_sync = object.is_sync.load(Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let channel = is_sync.then(|| unsafe { (*id).channel });
    // SAFETY: it is no longer used.
    unsafe { bury::<Id>(id) };
    if let Some(channel) = channel {
        // SAFETY: the id's own.
        unsafe { rdma_destroy_event_channel(channel) };
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: an id and a channel or null, by the rules of the function.
    minus_one(unsafe { Id::of(id).migrate(channel) })
}

impl Id {
    /// # Safety
    /// A channel, or null.
    pub(super) unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<(), Errno> {
        let to_own = channel.is_null();
        let was_own = self.is_sync.load(Ordering::Relaxed);
        if to_own && was_own {
            return Err(Errno::INVAL);
        }
        let channel = if to_own { own_channel()? } else { channel };
        // SAFETY: a channel.
        let to = unsafe { Channel::of(channel) }.urxe()?;
        if let Err(error) = self.urxe.migrate(&to) {
            if to_own {
                // SAFETY: made above, and not shared.
                unsafe { rdma_destroy_event_channel(channel) };
            }
            return Err(error.into());
        }
        let ibv = self.ibv.get();
        if was_own {
            self.forget_event();
            // SAFETY: the id's own: its events are, and the last one was with the id.
            unsafe { rdma_destroy_event_channel((*ibv).channel) };
        }
        // SAFETY: the program's part; no event changes this field.
        unsafe { (*ibv).channel = channel };
        self.is_sync.store(to_own, Ordering::Relaxed);
        // Events of the old channel are not handled after this.
        self.events.wait();
        Ok(())
    }

    /// Acknowledges the event that a function which waited has left.
    pub(super) fn forget_event(&self) {
        let ibv = self.ibv.get();
        // SAFETY: null, or not acknowledged yet. By field: a thread that takes an event may be writing to others.
        unsafe {
            if !(*ibv).event.is_null() {
                rdma_ack_cm_event((*ibv).event);
                (*ibv).event = ptr::null_mut();
            }
        }
    }
}
