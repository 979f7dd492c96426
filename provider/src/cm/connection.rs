//! Whole connections by one call: `connect`, `listen`, `accept`.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use urxe_core::Time;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::QpCap;
use urxe_wire::cm::RejReason;

use super::channel::EventChannel;
use super::error::CmError;
use super::event::Event;
use super::event_kind::EventKind;
use super::id::Id;
use super::manager::Manager;
use super::options::CmOption;
use super::param::{ConnParam, PortSpace};
use crate::context::Context;
use crate::cq::Cq;
#[cfg(feature = "tokio")]
use crate::engine::until;
use crate::error::Error;
use crate::host::probe::Probe;
use crate::lock::lock;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::wc::Wc;

/// RNR NAKs of these connections ask for 0.64 ms: RDMA-CM's own 655 ms are for programs that ask for it.
const MIN_RNR_TIMER: u8 = 12;

/// Guests that were answered and say nothing, at most: each has a QP, 37 to 63 KiB, and any host can ask.
const GUESTS_MAX: usize = 256;

/// A connection that is ready: a QP in RTS, and a completion queue for both its directions.
/// When it is dropped the peer is told.
#[derive(Debug)]
pub struct Connection {
    end: End,
    channel: EventChannel,
}

/// A connection's end, without a channel of its own: of a guest, one that is accepted and not there yet.
#[derive(Debug)]
struct End {
    id: Id,
    qp: Qp,
    cq: Cq,
    private_data: Vec<u8>,
}

impl Connection {
    /// Its identifier.
    pub fn id(&self) -> &Id {
        &self.end.id
    }

    /// Its QP.
    pub fn qp(&self) -> &Qp {
        &self.end.qp
    }

    /// Its protection domain, to register memory in.
    pub fn pd(&self) -> &Pd {
        self.end.qp.pd()
    }

    /// The completion queue of both its queues.
    pub fn cq(&self) -> &Cq {
        &self.end.cq
    }

    /// What the peer sent with its request or answer.
    pub fn private_data(&self) -> &[u8] {
        &self.end.private_data
    }

    /// The next completion, as long as `timeout` allows; `None` when that is over. The thread sleeps meanwhile
    /// ([`Cq::poll_timeout`]), and one thread at a time may wait.
    ///
    /// # Errors
    /// Of a completion that failed what [`Connection::check`] says; and see [`Cq::poll`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Wc>, Error> {
        let wc = self.end.cq.poll_timeout(timeout)?;
        wc.map(|wc| self.check(wc)).transpose()
    }

    /// The completion, if it succeeded ([`Wc::ok`]).
    ///
    /// # Errors
    /// [`CmError::Closed`] for a request that was flushed because the peer ended the connection, and as of [`Wc::ok`].
    pub fn check(&self, wc: Wc) -> Result<Wc, Error> {
        let is_flushed = wc.status == WcStatus::WrFlushErr;
        if is_flushed && self.end.id.handle.mailbox.is_ended_by_peer() {
            return Err(CmError::Closed.into());
        }
        wc.ok().copied()
    }

    /// What happens to it: [`EventKind::Disconnected`].
    pub fn events(&self) -> &EventChannel {
        &self.channel
    }

    /// Ends it and waits until the peer knows.
    ///
    /// # Errors
    /// [`CmError::TimedOut`] if the peer does not answer within ten seconds.
    pub fn disconnect(self) -> Result<(), Error> {
        self.end.id.disconnect()?;
        let end = self.channel.after(Duration::from_secs(10));
        while let Some(event) = self.channel.wait_until(Some(end))? {
            if event.kind == EventKind::Disconnected {
                return Ok(());
            }
        }
        Err(CmError::TimedOut.into())
    }
}

/// A QP for an identifier, and its completion queue.
fn create_qp(id: &Id, cap: Option<QpCap>) -> Result<(Qp, Cq), Error> {
    let context: Context = id.device().ok_or(CmError::State("it has no device"))?;
    let pd = context.alloc_pd()?;
    let entries = cap.map_or(512, |cap| cap.max_send_wr + cap.max_recv_wr);
    let cq = context.create_cq((entries as usize).max(16))?;
    let mut builder = pd.qp(&cq);
    if let Some(cap) = cap {
        builder = builder
            .max_send_wr(cap.max_send_wr)
            .max_recv_wr(cap.max_recv_wr)
            .max_sge(cap.max_send_sge.max(cap.max_recv_sge))
            .max_inline_data(cap.max_inline_data);
    }
    let qp = builder.create()?;
    id.set_option(CmOption::MinRnrTimer(MIN_RNR_TIMER))?;
    id.attach_qp(&qp)?;
    Ok((qp, cq))
}

/// Waits for connections.
#[derive(Debug)]
pub struct Listener {
    id: Id,
    channel: EventChannel,
    cap: Option<QpCap>,
    private_data: Vec<u8>,
    /// The guests, the oldest first.
    guests: Mutex<VecDeque<End>>,
}

impl Listener {
    /// Its address; the port that was chosen if none was named.
    pub fn local_addr(&self) -> SocketAddr {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        self.id.local_addr().unwrap_or(any)
    }

    /// Its identifier.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Sizes of the queues of the QPs that it makes.
    #[must_use]
    pub fn with_cap(mut self, cap: QpCap) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Up to 196 bytes for peers that connect.
    #[must_use]
    pub fn with_private_data(mut self, bytes: &[u8]) -> Self {
        self.private_data = bytes.to_vec();
        self
    }

    /// Waits for a peer and accepts it. If there are no resources for a peer, it is refused, and the next is waited for.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub fn accept(&self) -> Result<Connection, Error> {
        loop {
            let accepted = self.accept_timeout(Duration::from_secs(3600))?;
            if let Some(connection) = accepted {
                return Ok(connection);
            }
        }
    }

    /// [`Listener::accept`] with a limit of time; `None` when that is over. A peer that is gone before it was
    /// answered does not count.
    ///
    /// # Errors
    /// See [`Listener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Connection>, Error> {
        let end = self.channel.after(timeout);
        while let Some(event) = self.channel.wait_until(Some(end))? {
            if let Some(connection) = self.take(&event) {
                return Ok(Some(connection));
            }
        }
        Ok(None)
    }

    /// A connection, if the event completes one.
    pub(super) fn take(&self, event: &Event) -> Option<Connection> {
        match event.kind {
            EventKind::ConnectRequest => self.welcome(event),
            EventKind::Established => return self.finish(&event.id),
            // It is gone before it came.
            _ => drop(self.take_guest(&event.id)),
        }
        None
    }

    #[cfg(feature = "tokio")]
    pub(super) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Accepts a peer. Many can be on their way: none is waited for alone. What cannot be made for a peer is the peer's
    /// end, and not the listener's.
    fn welcome(&self, event: &Event) {
        if self.accept_guest(event).is_err() {
            drop(self.take_guest(&event.id));
            // A peer that has given up cannot be told.
            let _ = event.id.reject_with(RejReason::NO_RESOURCES, &[]);
        }
    }

    fn accept_guest(&self, event: &Event) -> Result<(), Error> {
        let id = &event.id;
        let (qp, cq) = create_qp(id, self.cap)?;
        let guest = End {
            id: id.clone(),
            qp,
            cq,
            private_data: trimmed(event.private_data()),
        };
        let mut guests = lock(&self.guests);
        // Another thread may find it established before the call returns.
        guests.push_back(guest);
        let oldest = (guests.len() > GUESTS_MAX).then(|| guests.pop_front());
        drop(guests);
        drop(oldest);
        id.accept(&ConnParam {
            private_data: self.private_data.clone(),
            ..ConnParam::default()
        })
    }

    fn take_guest(&self, id: &Id) -> Option<End> {
        let mut guests = lock(&self.guests);
        let place = guests
            .iter()
            .position(|guest| guest.id.number() == id.number());
        guests.remove(place?)
    }

    /// A peer is there.
    fn finish(&self, id: &Id) -> Option<Connection> {
        let end = self.take_guest(id)?;
        // Its further events are its own. Without a channel for them it is disconnected.
        let channel = EventChannel::with_manager(id.manager()).ok()?;
        id.migrate(&channel).ok()?;
        Some(Connection { end, channel })
    }
}

/// Builds a connection with settings.
#[derive(Clone, Debug)]
pub struct ConnectBuilder {
    to: SocketAddr,
    from: Option<SocketAddr>,
    cap: Option<QpCap>,
    private_data: Vec<u8>,
    timeout: Duration,
    manager: Manager,
}

/// A peer's system answers within milliseconds; a program that is busy may take longer.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// After this time without an answer it is asked whether the peer's host has the port, and again and again so long after that.
const PROBE_EVERY: Duration = Duration::from_millis(200);

impl ConnectBuilder {
    /// A connection to this address.
    pub fn new(to: SocketAddr) -> ConnectBuilder {
        ConnectBuilder {
            to,
            from: None,
            cap: None,
            private_data: Vec::new(),
            timeout: TIMEOUT_DEFAULT,
            manager: Manager::global(),
        }
    }

    /// Connects from this address; its port may be 0.
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

    /// The longest time to wait: ten seconds unless said otherwise. A connection manager gives up after 74 seconds at the latest.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses the contexts of this manager.
    #[must_use]
    pub fn manager(mut self, manager: &Manager) -> Self {
        self.manager = manager.clone();
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`CmError::Rejected`], [`CmError::NoPeer`] (at once), [`CmError::Unreachable`], [`CmError::TimedOut`], and what
    /// [`Id::resolve_addr`] says.
    pub fn connect(self) -> Result<Connection, Error> {
        let mut asked = self.ask()?;
        loop {
            let event = asked.channel.wait_until(Some(asked.until()))?;
            if let Some(private_data) = asked.answer(event)? {
                return Ok(asked.established(private_data));
            }
        }
    }

    /// Sends the request.
    pub(super) fn ask(self) -> Result<Asked, Error> {
        let channel = EventChannel::with_manager(&self.manager)?;
        let end = channel.after(self.timeout);
        let id = Id::new(&channel, PortSpace::Tcp)?;
        // Both are answered at once.
        id.resolve_addr(self.from, self.to, Duration::ZERO)?;
        id.resolve_route(Duration::ZERO)?;
        let (qp, cq) = create_qp(&id, self.cap)?;
        id.connect(&ConnParam {
            private_data: self.private_data,
            ..ConnParam::default()
        })?;
        Ok(Asked {
            channel,
            id,
            qp,
            cq,
            to: self.to,
            end,
            probe: None,
        })
    }
}

/// A connection that the peer was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) channel: EventChannel,
    id: Id,
    qp: Qp,
    cq: Cq,
    pub(super) to: SocketAddr,
    end: Time,
    probe: Option<Probe>,
}

impl Asked {
    /// How long to wait for an event before [`Asked::answer`] is to hear that there was none.
    pub(super) fn until(&self) -> Time {
        self.end.min(self.channel.after(PROBE_EVERY))
    }

    /// The same as a duration.
    #[cfg(feature = "tokio")]
    pub(super) fn patience(&self) -> Duration {
        until(self.channel.now(), self.until())
    }

    /// What an event, or none, says: the peer's private data once the connection is there.
    pub(super) fn answer(&mut self, event: Option<Event>) -> Result<Option<Vec<u8>>, Error> {
        let Some(event) = event else {
            return self.look().map(|()| None);
        };
        let failure = match event.kind {
            EventKind::Established => return Ok(Some(trimmed(event.private_data()))),
            EventKind::Rejected => CmError::Rejected(RejReason(event.status as u16)),
            EventKind::Unreachable => CmError::Unreachable,
            EventKind::ConnectError => CmError::NotReady(-event.status),
            EventKind::Disconnected => CmError::Closed,
            _ => return Ok(None),
        };
        Err(failure.into())
    }

    /// The peer is silent.
    fn look(&mut self) -> Result<(), Error> {
        if self.end <= self.channel.now() {
            return Err(CmError::TimedOut.into());
        }
        if self.channel.network().is_some() {
            // There is no port to ask.
            return Ok(());
        }
        if self.probe.is_none() {
            let from = self.id.local_addr().map(|addr| addr.ip());
            let port = self.id.context()?.engine().sockets.port;
            let to = (self.to.ip(), port);
            self.probe = from.and_then(|from| Probe::new(from, to).ok());
        }
        if self.probe.as_ref().is_some_and(Probe::is_refused) {
            return Err(CmError::NoPeer(self.to.ip()).into());
        }
        Ok(())
    }

    pub(super) fn established(self, private_data: Vec<u8>) -> Connection {
        Connection {
            end: End {
                id: self.id,
                qp: self.qp,
                cq: self.cq,
                private_data,
            },
            channel: self.channel,
        }
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
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// use urxe::{Access, RecvWr, SendWr, cm};
///
/// let listener = cm::listen("127.81.0.90:0".parse().unwrap())?;
/// let to = listener.local_addr();
/// let server = std::thread::spawn(move || -> Result<Vec<u8>, urxe::Error> {
///     let connection = listener.accept()?;
///     let memory = connection.pd().reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
///     connection.qp().post_recv(&RecvWr::new(1, &[memory.sge(..)]))?;
///     let wc = connection.cq().poll_one()?;
///     let mut text = vec![0; wc.ok()?.byte_len as usize];
///     memory.read(0, &mut text);
///     Ok(text)
/// });
/// let from = "127.81.0.91:0".parse().unwrap();
/// let connection = cm::ConnectBuilder::new(to).from(from).connect()?;
/// connection.qp().post_send(&SendWr::send_inline(1, b"hello").signaled())?;
/// connection.cq().poll_one()?.ok()?;
/// assert_eq!(server.join().unwrap()?, b"hello");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// See [`Id::bind_addr`].
pub fn listen(at: SocketAddr) -> Result<Listener, Error> {
    let channel = EventChannel::new()?;
    let id = Id::new(&channel, PortSpace::Tcp)?;
    id.bind_addr(at)?;
    id.listen(0)?;
    Ok(Listener {
        id,
        channel,
        cap: None,
        private_data: Vec::new(),
        guests: Mutex::default(),
    })
}

/// Private data comes with the field's length: zeros at its end are padding.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let len = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    bytes[..len].to_vec()
}
