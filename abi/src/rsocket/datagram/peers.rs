//! The peers of a datagram socket. Any host can introduce itself, so they are limited; one that was not
//! sent to for the longest time makes room. It is known again with the next message.

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};

use urxe::AddressHandle;

const PEERS_MAX: usize = 4096;

/// An address that was sent to, or that sent.
pub(super) struct Peer {
    pub(super) end: usize,
    /// The way to its queue pair, and its number, once it told.
    pub(super) way: Option<(AddressHandle, u32)>,
    /// The program sent to it since it was last looked at.
    is_used: bool,
}

#[derive(Default)]
pub(super) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    /// The peer to look at first when there are too many.
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(super) fn contains(&self, addr: SocketAddr) -> bool {
        self.known.contains_key(&addr)
    }

    pub(super) fn get(&self, addr: SocketAddr) -> Option<&Peer> {
        self.known.get(&addr)
    }

    pub(super) fn get_mut(&mut self, addr: SocketAddr) -> Option<&mut Peer> {
        self.known.get_mut(&addr)
    }

    /// The program sends to it.
    pub(super) fn use_one(&mut self, addr: SocketAddr) -> Option<&Peer> {
        let peer = self.known.get_mut(&addr)?;
        peer.is_used = true;
        Some(peer)
    }

    /// Adds an unknown peer.
    pub(super) fn add(&mut self, addr: SocketAddr, end: usize) {
        while self.known.len() >= PEERS_MAX {
            self.forget_one();
        }
        let peer = Peer {
            end,
            way: None,
            is_used: false,
        };
        self.known.insert(addr, peer);
        self.order.push_back(addr);
    }

    /// A peer that was used gets another round.
    fn forget_one(&mut self) {
        while let Some(addr) = self.order.pop_front() {
            match self.known.get_mut(&addr) {
                Some(peer) if peer.is_used => {
                    peer.is_used = false;
                    self.order.push_back(addr);
                }
                _ => {
                    self.known.remove(&addr);
                    return;
                }
            }
        }
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_sent_to_stays_whoever_comes() {
        let addr = |n: u32| SocketAddr::from((n.to_be_bytes(), 1));
        let mut peers = Peers::default();
        peers.add(addr(1), 0);
        for stranger in 2..5 * PEERS_MAX as u32 {
            // Now and then.
            if stranger % 1000 == 0 {
                assert!(peers.use_one(addr(1)).is_some());
            }
            peers.add(addr(stranger), 0);
            assert!(peers.contains(addr(1)) && peers.contains(addr(stranger)));
            assert!(peers.known.len() <= PEERS_MAX);
            assert_eq!(peers.known.len(), peers.order.len());
        }
        assert!(!peers.contains(addr(2)), "the first stranger made room");
    }
}
