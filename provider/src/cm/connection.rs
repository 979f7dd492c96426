//! Connections in three lines.

use core::net::SocketAddr;
use std::time::Duration;

use super::error::CmError;
use super::id::Id;
use crate::cq::Cq;
use crate::error::Error;
use crate::qp::Qp;
use urxe_core::qp::attr::QpCap;

/// A connection that is ready: a QP in RTS, and a completion queue for both its directions.
/// When it is dropped the peer is told.
#[derive(Debug)]
pub struct Connection {
    id: Id,
    qp: Qp,
    cq: Cq,
    private_data: Vec<u8>,
}

impl Connection {
    /// Its identifier.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Its QP.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// Where its completions go.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// What the peer sent with its request or answer.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Ends it and waits until the peer knows.
    ///
    /// # Errors
    /// If the peer does not answer.
    pub fn disconnect(self) -> Result<(), Error> {
        self.id.disconnect()
    }
}

/// Waits for connections.
#[derive(Debug)]
pub struct Listener {
    id: Id,
}

impl Listener {
    /// Its address; the port that was chosen if none was named.
    pub fn local_addr(&self) -> SocketAddr {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        self.id.local_addr().unwrap_or(any)
    }

    /// Waits for a peer and accepts it.
    ///
    /// # Errors
    /// If the system cannot wait, or a QP cannot be created.
    pub fn accept(&self) -> Result<Connection, Error> {
        Err(CmError::NotYet.into())
    }
}

/// How to connect, beyond the usual.
#[derive(Clone, Debug)]
pub struct ConnectBuilder {
    to: SocketAddr,
    from: Option<SocketAddr>,
    cap: Option<QpCap>,
    private_data: Vec<u8>,
    timeout: Option<Duration>,
}

impl ConnectBuilder {
    /// To this address.
    pub fn new(to: SocketAddr) -> ConnectBuilder {
        ConnectBuilder {
            to,
            from: None,
            cap: None,
            private_data: Vec::new(),
            timeout: None,
        }
    }

    /// From this one; its port may be 0.
    #[must_use]
    pub fn from(mut self, addr: SocketAddr) -> Self {
        self.from = Some(addr);
        self
    }

    /// Sizes of the QP's queues.
    #[must_use]
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Up to 56 bytes for the program at the other end.
    #[must_use]
    pub fn private_data(mut self, bytes: &[u8]) -> Self {
        self.private_data = bytes.to_vec();
        self
    }

    /// The longest time to wait.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`CmError::Rejected`], [`CmError::Unreachable`], [`CmError::TimedOut`], and what
    /// [`Id::resolve_addr`] says.
    pub fn connect(self) -> Result<Connection, Error> {
        let _ = (self.to, self.from, self.cap, self.timeout);
        Err(CmError::NotYet.into())
    }
}

/// Connects to a listener.
///
/// # Errors
/// See [`ConnectBuilder::connect`].
pub fn connect(to: SocketAddr) -> Result<Connection, Error> {
    ConnectBuilder::new(to).connect()
}

/// Listens at an address; of port 0 a free one is chosen, and all zeros stand for all
/// addresses of this host.
///
/// # Errors
/// See [`Id::bind_addr`].
pub fn listen(at: SocketAddr) -> Result<Listener, Error> {
    let _ = at;
    Err(CmError::NotYet.into())
}
