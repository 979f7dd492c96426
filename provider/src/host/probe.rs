//! Whether a peer that does not answer is there at all.
//!
//! A host on which no program has UDP port 4791 says so, by ICMP, to the sender. The sockets of a device do not ask for
//! that: it would come as an error of whatever is sent or received next, and strangers could forge it. So a connection that gets no
//! answer asks by a socket of its own.

use std::io;
use std::net::{IpAddr, UdpSocket};

/// A socket that was told of the peer's port alone.
#[derive(Debug)]
pub(crate) struct Probe(UdpSocket);

impl Probe {
    /// From one address of this host to another host. In a network of the program's own there is none to ask.
    pub(crate) fn new(from: IpAddr, (to, port): (IpAddr, u16)) -> io::Result<Probe> {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect((to, port))?;
        socket.set_nonblocking(true)?;
        Ok(Probe(socket))
    }

    /// Asks once more, by a datagram without a byte, which all peers drop; true if an earlier one was refused.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = |result: io::Result<usize>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        refused(self.0.recv(&mut [0])) || refused(self.0.send(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = urxe_wire::ROCE_V2_PORT;

    #[test]
    fn a_closed_port_is_told_from_an_open_one() {
        let (here, there) = ([127, 81, 12, 1], [127, 81, 12, 2]);
        let closed = Probe::new(here.into(), (there.into(), PORT)).expect("loopback");
        while !closed.is_refused() {}
        let owner = UdpSocket::bind((IpAddr::from(there), PORT)).expect("it is free");
        let open = Probe::new(here.into(), (there.into(), PORT)).expect("loopback");
        // Each datagram that arrived was not refused.
        for _ in 0..3 {
            assert!(!open.is_refused());
            assert_eq!(owner.recv(&mut [0]).expect("it arrives"), 0);
        }
        assert!(Probe::new([192, 0, 2, 1].into(), (there.into(), PORT)).is_err());
    }
}
