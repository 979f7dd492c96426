//! Addresses: binding, listening, and finding the device that leads to a peer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use urxe_core::cm::Scope;

use super::error::CmError;
use super::event_kind::{EventKind, EventParam};
use super::id::{Handle, Id, Listening, Step};
use super::ports::Lease;
use crate::context::Context;
use crate::error::Error;
use crate::network;
use crate::share::PortName;

/// Requests that may wait for a listener, at most: as in Linux.
const BACKLOG_MAX: u32 = 1024;

impl Id {
    /// Gives it an address. Of port 0 a free one is chosen; an address of all zeros stands for
    /// all of this host.
    ///
    /// # Errors
    /// [`CmError::PortInUse`], [`CmError::NoDevice`]; [`CmError::State`] if it has one.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, addr: SocketAddr) -> Result<(), Error> {
        if self.state().step != Step::Idle {
            return Err(CmError::State("it has an address").into());
        }
        let manager = self.manager();
        let home = if addr.ip().is_unspecified() {
            let mut contexts = manager.contexts()?.into_iter();
            contexts.next().ok_or(CmError::NoDevice(addr.ip()))?
        } else {
            let context = manager.context_of(addr.ip())?;
            self.handle.bind(&context).clone()
        };
        let lease = self.lease(addr, &home)?;
        let mut state = self.state();
        if state.step != Step::Idle {
            return Err(CmError::State("it has an address").into());
        }
        state.step = Step::Bound;
        state.local = Some(SocketAddr::new(addr.ip(), lease.name.port));
        state.lease = Some(lease);
        Ok(())
    }

    fn lease(&self, addr: SocketAddr, home: &Context) -> Result<Lease, Error> {
        let options = self.state().options;
        let how = (options.reuse_addr, options.af_only && addr.is_ipv6());
        Lease::take(self.manager().ports(), self.port_space(), addr, how, home)
    }

    /// Waits for peers: each is an [`EventKind::ConnectRequest`]. At most `backlog` wait to be
    /// taken from the channel (0: 1024, which is also the most); beyond it peers are refused.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PortInUse`].
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        if self.state().step == Step::Idle {
            self.bind_addr(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let addr = {
            let mut state = self.state();
            let (Step::Bound, Some(local), Some(lease)) = (state.step, state.local, &state.lease)
            else {
                return Err(CmError::State("it has a peer, or listens").into());
            };
            if !lease.listen() {
                return Err(CmError::PortInUse(local).into());
            }
            state.step = Step::Listening;
            state.backlog = match backlog {
                0 => BACKLOG_MAX,
                backlog => backlog.min(BACKLOG_MAX),
            };
            local
        };
        let contexts = match self.device() {
            Some(context) => vec![context],
            None => self.manager().contexts()?,
        };
        for context in &contexts {
            if let Err(error) = self.listen_on(context) {
                let listening = std::mem::take(&mut self.state().listening);
                for listening in listening {
                    listening.end();
                }
                self.state().step = Step::Bound;
                return Err(error);
            }
        }
        if addr.ip().is_unspecified() {
            self.manager().note_listener(&self.handle);
        }
        Ok(())
    }

    /// Listens on one context, if it does not yet.
    pub(super) fn listen_on(&self, context: &Context) -> Result<(), Error> {
        let (name, backlog, number) = {
            let mut state = self.state();
            let is_there = |listening: &Listening| listening.context == *context;
            if state.step != Step::Listening || state.listening.iter().any(is_there) {
                return Ok(());
            }
            let Some(lease) = &state.lease else {
                return Ok(());
            };
            let found = (lease.name, state.backlog, state.listening.len());
            // It is there before the first request can be: another thread may take that at once.
            state.listening.push(Listening {
                context: context.clone(),
                id: None,
                names: Vec::new(),
            });
            found
        };
        let scope = match name.addr {
            IpAddr::V4(addr) if addr.is_unspecified() => Scope::AnyV4,
            IpAddr::V6(addr) if addr.is_unspecified() && name.v6_only => Scope::AnyV6,
            IpAddr::V6(addr) if addr.is_unspecified() => Scope::Any,
            addr => Scope::One(addr),
        };
        let engine = context.engine();
        let space = urxe_wire::cm::PortSpace(name.space);
        let to = (&self.handle.mailbox, number);
        let id = engine
            .cm_listen(to, (space, name.port), scope, backlog)?
            .map_err(|_| CmError::PortInUse(SocketAddr::new(name.addr, name.port)))?;
        let mut names = Vec::new();
        let noted = note_names(context, scope, name, &mut names);
        let begun = Listening {
            context: context.clone(),
            id: Some(id),
            names,
        };
        let called_off = match self.state().listening.get_mut(number) {
            Some(place) => {
                *place = begun;
                None
            }
            None => Some(begun),
        };
        if let Some(begun) = called_off {
            begun.end();
        }
        noted
    }

    /// Finds the device by which a peer is reached, and binds to it:
    /// [`EventKind::AddrResolved`].
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
        // Nothing is waited for: the kernel finds the peer's link address when it sends.
        let _ = timeout;
        if self.state().step == Step::Idle
            && let Some(src) = src
        {
            self.bind_addr(src)?;
        }
        let (step, bound) = {
            let state = self.state();
            (state.step, state.local)
        };
        if !matches!(step, Step::Idle | Step::Bound) {
            return Err(CmError::State("it has a peer, or listens").into());
        }
        let dst = reachable(dst);
        let local = match bound
            .map(|addr| addr.ip())
            .filter(|ip| !ip.is_unspecified())
        {
            Some(ip) => ip,
            None => route_to(dst).map_err(Error::io("finding the way to the peer"))?,
        };
        if local.is_ipv4() != dst.is_ipv4() {
            return Err(CmError::Family.into());
        }
        let context = self.manager().context_of(local)?;
        let context = self.handle.bind(&context);
        let lease = match bound {
            Some(_) => None,
            None => Some(self.lease(SocketAddr::new(local, 0), context)?),
        };
        {
            let mut state = self.state();
            if state.step != step {
                return Err(CmError::State("another thread uses it").into());
            }
            state.lease = state.lease.take().or(lease);
            let port = state.lease.as_ref().map_or(0, |lease| lease.name.port);
            state.local = Some(SocketAddr::new(local, port));
            state.peer = Some(dst);
            state.step = Step::AddrResolved;
        }
        self.tell(EventKind::AddrResolved, 0, EventParam::None);
        Ok(())
    }

    /// Finds the path: [`EventKind::RouteResolved`].
    ///
    /// # Errors
    /// [`CmError::State`] before [`EventKind::AddrResolved`].
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), Error> {
        let _ = timeout;
        {
            let mut state = self.state();
            if state.step != Step::AddrResolved {
                return Err(CmError::State("its address is not resolved").into());
            }
            state.step = Step::RouteResolved;
        }
        self.tell(EventKind::RouteResolved, 0, EventParam::None);
        Ok(())
    }
}

/// Lets the other processes on the addresses know of the listener; `noted` is what they know.
fn note_names(
    context: &Context,
    scope: Scope,
    name: PortName,
    noted: &mut Vec<PortName>,
) -> Result<(), Error> {
    let Some(membership) = &context.engine().membership else {
        return Ok(());
    };
    for addr in context.addresses().filter(|addr| scope.includes(*addr)) {
        let name = PortName { addr, ..name };
        membership
            .note_listening(name)
            .map_err(Error::io("noting a listener in the registry of this host"))?;
        noted.push(name);
    }
    Ok(())
}

impl Listening {
    pub(super) fn end(self) {
        let engine = self.context.engine();
        if let Some(membership) = &engine.membership
            && engine.check_process().is_ok()
        {
            for name in &self.names {
                // What is left is gone with the process.
                let _ = membership.release_port(*name, true);
            }
        }
        if let Some(id) = self.id {
            engine.cm_unlisten(id);
        }
    }
}

/// All contexts of a program belong to identifiers that listen on all addresses, also those that
/// are opened later.
pub(super) fn listen_there_too(listeners: &[Arc<Handle>], context: &Context) {
    for handle in listeners {
        let id = Id {
            handle: handle.clone(),
        };
        // Another process has the port there: the others go on.
        let _ = id.listen_on(context);
    }
}

/// All zeros are this host.
fn reachable(dst: SocketAddr) -> SocketAddr {
    if let Some(network) = network::current() {
        let is_here = dst.ip().is_unspecified() || dst.ip().is_loopback();
        let own = network.route_to(Ipv4Addr::UNSPECIFIED.into());
        let ip = own.filter(|_| is_here).unwrap_or(dst.ip());
        return SocketAddr::new(ip, dst.port());
    }
    let ip = match dst.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, dst.port())
}

/// The address that packets to a peer leave from. The kernel says so without sending
/// anything. (By system calls of its own: programs put other functions in front of the
/// C library's.)
fn route_to(dst: SocketAddr) -> std::io::Result<IpAddr> {
    if let Some(network) = network::current() {
        let local = network.route_to(dst.ip());
        return local.ok_or_else(|| std::io::ErrorKind::NetworkUnreachable.into());
    }
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let family = match dst {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // Any port will do; 0 is none that one can be connected to.
    let to = SocketAddr::new(dst.ip(), dst.port().max(1));
    rustix::net::connect(&socket, &to)?;
    let local = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(local.ip())
}
