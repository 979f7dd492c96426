//! Which context an address belongs to.

use core::net::IpAddr;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::error::CmError;
use super::id::Handle;
use super::ports::Ports;
use super::resolve::listen_there_too;
use crate::context::Context;
use crate::error::Error;
use crate::listed::ListedDevice;
use crate::lock::lock;
use crate::network::{self, Network};

/// Opens devices for the connection manager, and keeps them open. For programs that
/// have a list of opened devices of their own; others do without ([`Manager::global`]).
pub trait Opener: Send + Sync {
    /// The context that has this address of the host. The same one each time.
    ///
    /// # Errors
    /// [`CmError::NoDevice`] if there is none, or why it could not be opened.
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error>;

    /// All contexts, for an identifier that listens on all addresses.
    ///
    /// # Errors
    /// If none can be opened.
    fn contexts(&self) -> Result<Vec<Context>, Error>;
}

/// What all identifiers of a program have in common: its contexts. A handle: clones are the
/// same.
#[derive(Clone)]
pub struct Manager {
    inner: Arc<Inner>,
}

struct Inner {
    opener: Arc<dyn Opener>,
    ports: Arc<Ports>,
    /// Identifiers that listen on all addresses.
    listeners: Mutex<Vec<Weak<Handle>>>,
}

impl Manager {
    /// The one that opens devices by itself, each once in the process, and keeps them open
    /// until the process ends: those of [`ListedDevice::list`], and loopback addresses. On a network of the program's own
    /// ([`crate::network`]) there is one for each host, until that stops.
    pub fn global() -> Manager {
        if let Some(network) = network::current()
            && let Some(shelf) = network.shelf()
        {
            let own = || Manager::with_ports(Arc::new(OpensItself::default()), Arc::default());
            return (*shelf.get_or_put(own)).clone();
        }
        static GLOBAL: OnceLock<Manager> = OnceLock::new();
        GLOBAL
            .get_or_init(|| Manager::new(Arc::new(OpensItself::default())))
            .clone()
    }

    /// A manager that opens contexts by `opener`.
    pub fn new(opener: Arc<dyn Opener>) -> Manager {
        Manager::with_ports(opener, Ports::of_process())
    }

    fn with_ports(opener: Arc<dyn Opener>, ports: Arc<Ports>) -> Manager {
        Manager {
            inner: Arc::new(Inner {
                opener,
                ports,
                listeners: Mutex::default(),
            }),
        }
    }

    /// The context that has this address of the host.
    ///
    /// # Errors
    /// See [`Opener::context_of`].
    pub fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        let context = self.inner.opener.context_of(addr)?;
        let listeners: Vec<_> = {
            let mut listeners = lock(&self.inner.listeners);
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        listen_there_too(&listeners, &context);
        Ok(context)
    }

    /// All contexts.
    ///
    /// # Errors
    /// See [`Opener::contexts`].
    pub fn contexts(&self) -> Result<Vec<Context>, Error> {
        self.inner.opener.contexts()
    }

    /// Who has which port of the addresses.
    pub(super) fn ports(&self) -> &Arc<Ports> {
        &self.inner.ports
    }

    /// An identifier listens on all addresses.
    pub(super) fn note_listener(&self, handle: &Arc<Handle>) {
        lock(&self.inner.listeners).push(Arc::downgrade(handle));
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manager")
    }
}

#[derive(Default)]
struct OpensItself {
    open: Mutex<Vec<Context>>,
}

impl OpensItself {
    fn opened(open: &[Context], addr: IpAddr) -> Option<Context> {
        let has = |context: &&Context| context.addresses().any(|other| other == addr);
        open.iter().find(has).cloned()
    }
}

impl Opener for OpensItself {
    fn context_of(&self, addr: IpAddr) -> Result<Context, Error> {
        let mut open = lock(&self.open);
        // After a fork the parent's contexts are dead here.
        open.retain(|context| context.engine().check_process().is_ok());
        if let Some(context) = OpensItself::opened(&open, addr) {
            return Ok(context);
        }
        let context = match network::current() {
            Some(network) => open_on(&*network, addr)?,
            None => open_listed(addr)?,
        };
        open.push(context.clone());
        Ok(context)
    }

    fn contexts(&self) -> Result<Vec<Context>, Error> {
        let any = IpAddr::from([0, 0, 0, 0]);
        if let Some(network) = network::current() {
            let own = network.route_to(any).ok_or(CmError::NoDevice(any))?;
            return Ok(vec![self.context_of(own)?]);
        }
        let mut failure = CmError::NoDevice(any).into();
        for device in ListedDevice::list()? {
            if let Some(&addr) = device.addresses().first()
                && let Err(error) = self.context_of(addr)
            {
                failure = error;
            }
        }
        let open = lock(&self.open);
        if open.is_empty() {
            return Err(failure);
        }
        Ok(open.clone())
    }
}

fn open_listed(addr: IpAddr) -> Result<Context, Error> {
    let listed = ListedDevice::list()?;
    let device = listed
        .iter()
        .find(|device| device.addresses().contains(&addr));
    match device {
        Some(device) => device.open(),
        // All of 127/8 is the loopback interface's, though it lists only one of them.
        None if addr.is_loopback() => Context::open(addr),
        None => Err(CmError::NoDevice(addr).into()),
    }
}

fn open_on(network: &dyn Network, addr: IpAddr) -> Result<Context, Error> {
    if network.interface_mtu(addr).is_none() {
        return Err(CmError::NoDevice(addr).into());
    }
    Context::open(addr)
}
