//! Datagram sockets.
//!
//! A socket is a UDP socket, with the descriptor by which the program names it, and a queue pair for each address of this host
//! that it sends from. The first message to a peer goes over UDP and says which queue pair it comes from; the answer
//! says which one to send to from then on.

mod dropped;
mod end;
mod peers;
#[cfg(test)]
mod tests;
mod wire;

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use self::dropped::Dropped;
use self::end::{End, MESSAGE_MAX};
use self::peers::{Peer, Peers};
use self::wire::Introduction;
use super::settings::Settings;
use super::sys;
use crate::cm::manager::source_for;
use crate::errno::Errno;
use crate::lock::lock;

/// How long closing waits for what is on its way: it leaves without an answer.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Datagram {
    udp: UdpSocket,
    /// Readable when the UDP socket is, or a queue pair has an event.
    all: OwnedFd,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) flags: i32,
    ends: Vec<End>,
    peers: Peers,
    connected: Option<SocketAddr>,
    arrived: VecDeque<(SocketAddr, Vec<u8>)>,
    /// How many have arrived; how often there was no room to send. They only grow: to compare, and
    /// see that something happened.
    news: u32,
    stalls: u32,
    dropped: Dropped,
}

impl Datagram {
    pub(super) fn new(domain: i32) -> Result<Datagram, Errno> {
        let udp = sys::udp_socket(domain)?;
        let all = sys::epoll()?;
        sys::watch(&all, &udp)?;
        Ok(Datagram {
            udp,
            all,
            state: Mutex::new(State {
                settings: Settings::default(),
                flags: libc::O_RDWR,
                ends: Vec::new(),
                peers: Peers::default(),
                connected: None,
                arrived: VecDeque::new(),
                news: 0,
                stalls: 0,
                dropped: Dropped::default(),
            }),
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Result<(), Errno> {
        sys::bind(&self.udp, addr)
    }

    /// Sets the address that `send` sends to.
    pub(super) fn connect(&self, addr: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        self.peer(&mut state, addr)?;
        state.connected = Some(addr);
        Ok(())
    }

    pub(super) fn address(&self, of_peer: bool) -> Result<SocketAddr, Errno> {
        if of_peer {
            return self.lock().connected.ok_or(Errno(libc::ENOTCONN));
        }
        Ok(self.udp.local_addr()?)
    }

    /// The queue pair for an address, made with the first message to it.
    fn peer<'a>(&self, state: &'a mut State, addr: SocketAddr) -> Result<&'a mut Peer, Errno> {
        if !state.peers.contains(addr) {
            let local = self.local_for(addr)?;
            let known = state.ends.iter().position(|end| end.local == local);
            let end = match known {
                Some(end) => end,
                None => {
                    let sizes = state.settings.bounded();
                    let end = End::new(local, sizes.send_depth, sizes.recv_depth)?;
                    sys::watch(&self.all, &end.events)?;
                    state.ends.push(end);
                    state.ends.len() - 1
                }
            };
            state.peers.add(addr, end);
        }
        state.peers.get_mut(addr).ok_or(Errno::INVAL)
    }

    /// Our address for a peer, with the port of the UDP socket.
    fn local_for(&self, peer: SocketAddr) -> Result<SocketAddr, Errno> {
        let bound = sys::bound(&self.udp, peer.is_ipv4())?;
        let ip = bound.ip();
        if !ip.is_unspecified() && !ip.is_loopback() {
            return Ok(bound);
        }
        let wanted = (!ip.is_unspecified()).then_some(bound);
        let devices = crate::device::list()?;
        let is_ours = |ip: IpAddr| devices.iter().any(|d| d.source.addresses().contains(&ip));
        let source = match wanted.filter(|wanted| is_ours(wanted.ip())) {
            Some(wanted) => wanted,
            None => match source_for(None, peer)? {
                Some(source) => source,
                None => sys::route(peer)?,
            },
        };
        Ok(SocketAddr::new(source.ip(), bound.port()))
    }

    pub(super) fn send(
        &self,
        parts: &[&[u8]],
        to: Option<SocketAddr>,
        flags: i32,
    ) -> Result<usize, Errno> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        loop {
            let mut state = self.lock();
            let to = to.or(state.connected).ok_or(Errno(libc::EDESTADDRREQ))?;
            self.peer(&mut state, to)?;
            self.progress(&mut state)?;
            let State { ends, peers, .. } = &mut *state;
            let Some(Peer { end, way, .. }) = peers.use_one(to) else {
                continue;
            };
            let end = &mut ends[*end];
            let Some((way, qpn)) = way else {
                self.introduce(end, to, parts)?;
                return Ok(len);
            };
            if end.can_send() {
                end.send((way, *qpn), parts)?;
                return Ok(len);
            }
            state.stalls = state.stalls.wrapping_add(1);
            self.sleep(state, flags)?;
        }
    }

    /// Data over UDP, with our queue pair's number.
    fn introduce(&self, end: &End, to: SocketAddr, parts: &[&[u8]]) -> Result<(), Errno> {
        let mut bytes = end.introduction(true).to_bytes();
        parts.iter().for_each(|part| bytes.extend(*part));
        if bytes.len() > MESSAGE_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        sys::send_from(self.fd(), &bytes, to, end.local.ip())
    }

    pub(super) fn recv(
        &self,
        parts: &mut [&mut [u8]],
        flags: i32,
    ) -> Result<(usize, SocketAddr), Errno> {
        loop {
            let mut state = self.lock();
            self.progress(&mut state)?;
            let Some((from, bytes)) = state.arrived.front() else {
                self.sleep(state, flags)?;
                continue;
            };
            let (from, mut left) = (*from, &bytes[..]);
            let mut received = 0;
            for part in parts.iter_mut() {
                let len = part.len().min(left.len());
                part[..len].copy_from_slice(&left[..len]);
                left = &left[len..];
                received += len;
            }
            if flags & libc::MSG_PEEK == 0 {
                state.arrived.pop_front();
            }
            return Ok((received, from));
        }
    }

    /// Waits until something happens. `EAGAIN` of a call that does not wait.
    fn sleep(&self, mut state: MutexGuard<'_, State>, flags: i32) -> Result<(), Errno> {
        if flags & libc::MSG_DONTWAIT != 0 || state.flags & libc::O_NONBLOCK != 0 {
            return Err(Errno(libc::EAGAIN));
        }
        for end in &mut state.ends {
            end.arm()?;
        }
        // What came before raises no event.
        let (arrived, free) = (state.arrived.len(), state.free());
        self.progress(&mut state)?;
        if state.arrived.len() != arrived || state.free() != free {
            return Ok(());
        }
        drop(state);
        sys::poll(&mut [sys::reading(self.all.as_raw_fd())], -1)?;
        self.disarm();
        Ok(())
    }

    /// Takes what came, over both ways.
    fn progress(&self, state: &mut State) -> Result<(), Errno> {
        let room = state.settings.bounded().recv_depth as usize;
        let State {
            ends,
            arrived,
            news,
            dropped,
            ..
        } = state;
        for end in ends {
            // What there is no room for is lost, as datagrams are. So is what is said in another's name.
            end.progress(|source, bytes| match wire::parse(bytes) {
                None => dropped.count_strange(),
                Some((from, _)) if !is_same(from.ip(), source) => dropped.count_forged(),
                Some(_) if arrived.len() >= room => dropped.count_no_room(),
                Some((from, data)) => {
                    *news = news.wrapping_add(1);
                    arrived.push_back((from, data.to_vec()));
                }
            })?;
        }
        let mut buffer = [0; 2 * MESSAGE_MAX];
        while let Ok((len, from)) = self.udp.recv_from(&mut buffer) {
            match Introduction::parse(&buffer[..len]) {
                Some((introduction, data)) => self.meet(state, from, introduction, data),
                None => state.dropped.count_strange(),
            }
        }
        Ok(())
    }

    /// A peer says which queue pair it has. Any host can say that of any address: it is believed of the address that
    /// the packet is from.
    fn meet(&self, state: &mut State, from: SocketAddr, his: Introduction, data: &[u8]) {
        if !is_same(his.ip, from.ip()) {
            state.dropped.count_forged();
            return;
        }
        // The same address, perhaps written in another way.
        let qp_addr = SocketAddr::new(his.ip, from.port());
        for addr in [from, qp_addr] {
            let Ok(Peer { end, .. }) = self.peer(state, addr) else {
                continue;
            };
            let end = *end;
            let way = state.ends[end].way_to(his.ip).ok();
            if let Some(peer) = state.peers.get_mut(addr) {
                peer.way = way.map(|way| (way, his.qpn));
            }
        }
        if !his.is_data {
            return;
        }
        let end = state.peers.get(from).map(|peer| &state.ends[peer.end]);
        if let Some(end) = end {
            let ours = end.introduction(false);
            // If it is lost, the peer's next message comes over UDP again.
            let _ = sys::send_from(self.fd(), &ours.to_bytes(), from, ours.ip);
        }
        if state.arrived.len() < state.settings.bounded().recv_depth as usize {
            state.news = state.news.wrapping_add(1);
            state.arrived.push_back((qp_addr, data.to_vec()));
        } else {
            state.dropped.count_no_room();
        }
    }

    pub(super) fn ready(&self, events: i16) -> i16 {
        let mut state = self.lock();
        if self.progress(&mut state).is_err() {
            return libc::POLLERR;
        }
        let mut found = 0;
        if !state.arrived.is_empty() {
            found |= libc::POLLIN;
        }
        if state.ends.iter().all(End::can_send) {
            found |= libc::POLLOUT;
        }
        found & events
    }

    pub(super) fn turns(&self) -> [u32; 2] {
        let state = self.lock();
        [state.news, state.stalls]
    }

    pub(super) fn arm(&self) -> Result<RawFd, Errno> {
        for end in &mut self.lock().ends {
            end.arm()?;
        }
        Ok(self.all.as_raw_fd())
    }

    pub(super) fn disarm(&self) {
        self.lock().ends.iter_mut().for_each(End::disarm);
    }

    /// Lets what is posted leave.
    pub(super) fn close(&self) {
        let start = Instant::now();
        loop {
            let mut state = self.lock();
            let is_done = state.ends.iter().all(End::is_idle);
            if is_done || start.elapsed() > LINGER || self.progress(&mut state).is_err() {
                state.dropped.tell();
                return;
            }
        }
    }
}

impl State {
    fn free(&self) -> usize {
        self.ends.iter().filter(|end| end.can_send()).count()
    }

    /// Queues exist: sizes can no longer be changed.
    pub(super) fn is_made(&self) -> bool {
        !self.ends.is_empty()
    }
}

/// Two ways to write one address.
fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}
