//! Streams of bytes between simulated hosts, as programs have them of TCP: by them they tell each other their queue pairs.
//!
//! They are beside the simulated network, and simple: what is sent arrives in order after [`LATENCY_NS`], whatever the network
//! does; nothing is lost, and a sender never waits.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use fabric_sim::HostId;
use nix::libc;

/// From a host to another, or to itself.
pub(super) const LATENCY_NS: u64 = 10_000;
/// Ports of programs that name none begin here.
const PORT_FREE: u16 = 49_152;

type Errno = i32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StreamId(pub(super) u64);

/// What a look came to.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Look<T> {
    There(T),
    /// It is not there; and if nothing else is done, not before that time.
    NotBefore(Option<u64>),
}

/// All streams of a simulation.
#[derive(Debug)]
pub(super) struct Streams {
    hosts: BTreeMap<Ipv4Addr, HostId>,
    sockets: BTreeMap<StreamId, Socket>,
    next: u64,
}

#[derive(Debug)]
struct Socket {
    host: HostId,
    port: u16,
    state: State,
    /// How often something changed that its program may wait for.
    changes: u64,
}

#[derive(Debug)]
enum State {
    New,
    /// Connections that wait, with the times from which they are there.
    Listens(VecDeque<(u64, StreamId)>),
    Connected(Connection),
}

#[derive(Debug)]
struct Connection {
    peer: StreamId,
    /// The peer's address: it may be gone.
    peer_at: (HostId, u16),
    /// What was sent to here, with the times of arrival.
    incoming: VecDeque<(u64, Vec<u8>)>,
    /// When the end of that arrives.
    end: Option<u64>,
    /// Nothing more is sent from here.
    is_shut: bool,
}

impl Streams {
    /// Between hosts with these addresses.
    pub(super) fn new(hosts: BTreeMap<Ipv4Addr, HostId>) -> Streams {
        Streams {
            hosts,
            sockets: BTreeMap::new(),
            next: 0,
        }
    }

    fn add(&mut self, host: HostId, port: u16, state: State) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        let socket = Socket {
            host,
            port,
            state,
            changes: 0,
        };
        self.sockets.insert(id, socket);
        id
    }

    pub(super) fn make(&mut self, host: HostId) -> StreamId {
        self.add(host, 0, State::New)
    }

    fn socket(&mut self, id: StreamId) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(&id).ok_or(libc::EBADF)
    }

    fn connection(&mut self, id: StreamId) -> Result<&mut Connection, Errno> {
        match &mut self.socket(id)?.state {
            State::Connected(connection) => Ok(connection),
            _ => Err(libc::ENOTCONN),
        }
    }

    /// A number that is another one when something happened to these.
    pub(super) fn changes_of(&self, ids: &[StreamId]) -> u64 {
        let sockets = ids.iter().filter_map(|id| self.sockets.get(id));
        sockets.map(|socket| socket.changes).sum()
    }

    fn changed(&mut self, id: StreamId) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.changes += 1;
        }
    }

    fn is_taken(&self, host: HostId, port: u16) -> bool {
        let mut others = self.sockets.values();
        others.any(|other| {
            let is_connected = matches!(other.state, State::Connected(_));
            (other.host, other.port) == (host, port) && !is_connected
        })
    }

    /// The port that it has now.
    pub(super) fn bind(&mut self, id: StreamId, port: u16) -> Result<u16, Errno> {
        let socket = self.socket(id)?;
        let host = socket.host;
        if socket.port != 0 || !matches!(socket.state, State::New) {
            return Err(libc::EINVAL);
        }
        let port = match port {
            0 => self.free_port(host)?,
            port if self.is_taken(host, port) => return Err(libc::EADDRINUSE),
            port => port,
        };
        self.socket(id)?.port = port;
        Ok(port)
    }

    fn free_port(&self, host: HostId) -> Result<u16, Errno> {
        let used = self.sockets.values().filter(|other| other.host == host);
        let used: Vec<u16> = used.map(|other| other.port).collect();
        let mut ports = PORT_FREE..=u16::MAX;
        ports
            .find(|port| !used.contains(port))
            .ok_or(libc::EADDRINUSE)
    }

    pub(super) fn listen(&mut self, id: StreamId) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        match socket.state {
            State::Listens(_) => return Ok(()),
            State::Connected(_) => return Err(libc::EINVAL),
            State::New => socket.state = State::Listens(VecDeque::new()),
        }
        if socket.port == 0 {
            let host = socket.host;
            self.socket(id)?.port = self.free_port(host)?;
        }
        Ok(())
    }

    pub(super) fn connect(
        &mut self,
        id: StreamId,
        ip: Ipv4Addr,
        port: u16,
        now: u64,
    ) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        let host = socket.host;
        match socket.state {
            State::New => {}
            State::Listens(_) => return Err(libc::EOPNOTSUPP),
            State::Connected(_) => return Err(libc::EISCONN),
        }
        if socket.port == 0 {
            let port = self.free_port(host)?;
            self.socket(id)?.port = port;
        }
        let own_port = self.socket(id)?.port;
        let to = match self.hosts.get(&ip) {
            Some(to) => *to,
            None if ip.is_loopback() || ip.is_unspecified() => host,
            None => return Err(libc::EHOSTUNREACH),
        };
        let listens = |(_, other): &(&StreamId, &Socket)| {
            (other.host, other.port) == (to, port) && matches!(other.state, State::Listens(_))
        };
        let listener = self.sockets.iter().find(listens).map(|(id, _)| *id);
        let listener = listener.ok_or(libc::ECONNREFUSED)?;
        let connection = |peer, peer_at| Connection {
            peer,
            peer_at,
            incoming: VecDeque::new(),
            end: None,
            is_shut: false,
        };
        let theirs = State::Connected(connection(id, (host, own_port)));
        let theirs = self.add(to, port, theirs);
        self.socket(id)?.state = State::Connected(connection(theirs, (to, port)));
        let socket = self.socket(listener)?;
        if let State::Listens(waiting) = &mut socket.state {
            waiting.push_back((now + LATENCY_NS, theirs));
        }
        socket.changes += 1;
        Ok(())
    }

    pub(super) fn accept(&mut self, id: StreamId, now: u64) -> Result<Look<StreamId>, Errno> {
        let State::Listens(waiting) = &mut self.socket(id)?.state else {
            return Err(libc::EINVAL);
        };
        Ok(match waiting.front() {
            Some((at, first)) if *at <= now => {
                let first = *first;
                waiting.pop_front();
                Look::There(first)
            }
            first => Look::NotBefore(first.map(|(at, _)| *at)),
        })
    }

    pub(super) fn send(&mut self, id: StreamId, bytes: &[u8], now: u64) -> Result<(), Errno> {
        let connection = self.connection(id)?;
        let peer = connection.peer;
        if connection.is_shut {
            return Err(libc::EPIPE);
        }
        // What is sent to a peer that is gone is answered by a reset, later: the next call learns of it.
        let Ok(theirs) = self.connection(peer) else {
            self.connection(id)?.is_shut = true;
            return Ok(());
        };
        theirs
            .incoming
            .push_back((now + LATENCY_NS, bytes.to_vec()));
        self.changed(peer);
        Ok(())
    }

    /// Bytes that have arrived; none at the end.
    pub(super) fn receive(
        &mut self,
        id: StreamId,
        len: usize,
        stays: bool,
        now: u64,
    ) -> Result<Look<Vec<u8>>, Errno> {
        let connection = self.connection(id)?;
        let arrived = connection.incoming.iter().take_while(|(at, _)| *at <= now);
        let arrived = arrived.flat_map(|(_, bytes)| bytes).copied();
        let bytes: Vec<u8> = arrived.take(len).collect();
        if bytes.is_empty() && len > 0 {
            let first = connection.incoming.front().map(|(at, _)| *at);
            let is_end = first.is_none() && connection.end.is_some_and(|at| at <= now);
            return Ok(if is_end {
                Look::There(bytes)
            } else {
                Look::NotBefore(first.or(connection.end))
            });
        }
        let mut left = if stays { 0 } else { bytes.len() };
        while left > 0
            && let Some((_, first)) = connection.incoming.front_mut()
        {
            let taken = left.min(first.len());
            first.drain(..taken);
            left -= taken;
            if first.is_empty() {
                connection.incoming.pop_front();
            }
        }
        Ok(Look::There(bytes))
    }

    /// `how` as for the function of that name: 0 is to receive nothing more, 1 to send nothing more, 2 is both.
    pub(super) fn shutdown(&mut self, id: StreamId, how: u64, now: u64) -> Result<(), Errno> {
        let connection = self.connection(id)?;
        let peer = connection.peer;
        match how {
            0..=2 => {}
            _ => return Err(libc::EINVAL),
        }
        if how != 1 {
            connection.incoming.clear();
            connection.end = Some(now);
        }
        if how != 0 && !connection.is_shut {
            connection.is_shut = true;
            self.end(peer, now);
        }
        self.changed(id);
        Ok(())
    }

    /// What its peer sends ends here.
    fn end(&mut self, id: StreamId, now: u64) {
        if let Ok(connection) = self.connection(id)
            && connection.end.is_none()
        {
            connection.end = Some(now + LATENCY_NS);
            self.changed(id);
        }
    }

    pub(super) fn close(&mut self, id: StreamId, now: u64) {
        match self.sockets.remove(&id).map(|socket| socket.state) {
            Some(State::Connected(connection)) => self.end(connection.peer, now),
            Some(State::Listens(waiting)) => {
                for (_, id) in waiting {
                    self.close(id, now);
                }
            }
            Some(State::New) | None => {}
        }
    }

    /// Address and port, of it or of its peer, in one number.
    pub(super) fn name(&mut self, id: StreamId, is_peers: bool) -> Result<u64, Errno> {
        let (host, port) = if is_peers {
            self.connection(id)?.peer_at
        } else {
            let socket = self.socket(id)?;
            (socket.host, socket.port)
        };
        let is_it = |(_, known): &(&Ipv4Addr, &HostId)| **known == host;
        let ip = self
            .hosts
            .iter()
            .find(is_it)
            .map_or(0, |(ip, _)| u32::from(*ip));
        Ok(u64::from(ip) << 16 | u64::from(port))
    }

    /// Which of these events there are, as `poll` has them; and when there may be more.
    pub(super) fn events(&self, id: StreamId, wanted: i16, now: u64) -> (i16, Option<u64>) {
        let Some(socket) = self.sockets.get(&id) else {
            return (libc::POLLNVAL, None);
        };
        let (mut events, next) = match &socket.state {
            State::New => (libc::POLLOUT | libc::POLLHUP, None),
            State::Listens(waiting) => {
                let first = waiting.front().map(|(at, _)| *at);
                (0, first)
            }
            State::Connected(connection) => {
                let first = connection.incoming.front().map(|(at, _)| *at);
                let mut events = libc::POLLOUT;
                if connection.end.is_some_and(|at| at <= now) {
                    events |= libc::POLLRDHUP;
                    if connection.is_shut {
                        events |= libc::POLLHUP;
                    }
                }
                (events, first.or(connection.end))
            }
        };
        if next.is_some_and(|at| at <= now) {
            events |= libc::POLLIN | libc::POLLRDNORM;
        }
        let always = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
        (events & (wanted | always), next.filter(|at| *at > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn pair() -> (Streams, StreamId, StreamId) {
        let hosts = [(SERVER, HostId(0)), (Ipv4Addr::new(10, 0, 0, 2), HostId(1))];
        let mut streams = Streams::new(hosts.into());
        let (listener, client) = (streams.make(HostId(0)), streams.make(HostId(1)));
        assert_eq!(streams.bind(listener, 7), Ok(7));
        streams.listen(listener).expect("listens");
        assert_eq!(streams.accept(listener, 0), Ok(Look::NotBefore(None)));
        streams.connect(client, SERVER, 7, 0).expect("connects");
        assert_eq!(
            streams.accept(listener, 1),
            Ok(Look::NotBefore(Some(LATENCY_NS)))
        );
        let Ok(Look::There(server)) = streams.accept(listener, LATENCY_NS) else {
            panic!("it has arrived")
        };
        (streams, server, client)
    }

    #[test]
    fn bytes_arrive_in_order_and_then_the_end() {
        let (mut streams, server, client) = pair();
        let before = streams.changes_of(&[server]);
        streams.send(client, b"one", 100).expect("sends");
        streams.send(client, b"two", 200).expect("sends");
        streams.close(client, 300);
        assert_ne!(streams.changes_of(&[server]), before);
        let at = |ns| ns + LATENCY_NS;
        let mut receive = |len, stays, now| streams.receive(server, len, stays, now);
        assert_eq!(
            receive(9, false, at(99)),
            Ok(Look::NotBefore(Some(at(100))))
        );
        assert_eq!(receive(9, true, at(100)), Ok(Look::There(b"one".to_vec())));
        assert_eq!(receive(2, false, at(100)), Ok(Look::There(b"on".to_vec())));
        assert_eq!(
            receive(9, false, at(250)),
            Ok(Look::There(b"etwo".to_vec()))
        );
        assert_eq!(
            receive(9, false, at(250)),
            Ok(Look::NotBefore(Some(at(300))))
        );
        assert_eq!(receive(9, false, at(300)), Ok(Look::There(Vec::new())));
        assert_eq!(streams.send(server, b"late", at(300)), Ok(()));
        assert_eq!(streams.send(server, b"later", at(400)), Err(libc::EPIPE));
        let (events, _) = streams.events(server, libc::POLLIN, at(300));
        assert_eq!(events & libc::POLLIN, libc::POLLIN);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let (mut streams, server, client) = pair();
        assert_eq!(streams.connect(client, SERVER, 7, 0), Err(libc::EISCONN));
        let other = streams.make(HostId(0));
        assert_eq!(streams.bind(other, 7), Err(libc::EADDRINUSE));
        assert_eq!(
            streams.connect(other, SERVER, 8, 0),
            Err(libc::ECONNREFUSED)
        );
        let far = Ipv4Addr::new(10, 9, 9, 9);
        assert_eq!(streams.connect(other, far, 7, 0), Err(libc::EHOSTUNREACH));
        assert_eq!(streams.receive(other, 1, false, 0), Err(libc::ENOTCONN));
        assert_eq!(streams.accept(server, 0), Err(libc::EINVAL));
        assert_eq!(streams.shutdown(server, 3, 0), Err(libc::EINVAL));
        assert_eq!(streams.name(server, false), Ok(0x0a00_0001 << 16 | 7));
        assert_eq!(streams.name(client, true), Ok(0x0a00_0001 << 16 | 7));
        streams.close(other, 0);
        assert_eq!(streams.bind(other, 9), Err(libc::EBADF));
        assert_eq!(streams.events(other, 0, 0), (libc::POLLNVAL, None));
    }

    #[test]
    fn a_listener_that_goes_takes_those_that_wait_with_it() {
        let (mut streams, _, _) = pair();
        let listener = streams.make(HostId(1));
        let port = streams.bind(listener, 0).expect("a port");
        assert!(port >= PORT_FREE);
        streams.listen(listener).expect("listens");
        let client = streams.make(HostId(1));
        streams
            .connect(client, Ipv4Addr::LOCALHOST, port, 0)
            .expect("its own host");
        streams.close(listener, 5);
        let end = 5 + LATENCY_NS;
        assert_eq!(
            streams.receive(client, 1, false, end),
            Ok(Look::There(Vec::new()))
        );
    }
}
