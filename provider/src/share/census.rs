//! Which contexts share addresses at the moment.

use std::io;
use std::net::IpAddr;

use super::registry::Registry;

/// An open context that shares its addresses with others of this user, in this network
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// Its process, by the number that it has in its own PID namespace.
    pub pid: u32,
    /// Addresses at which it has a socket on UDP port 4791, or that of sealed packets.
    pub addresses: Vec<IpAddr>,
    /// Chunks of 4096 QPNs that are its own.
    pub qpn_chunks: u32,
}

/// All living contexts of this user that share addresses in this network namespace. What
/// ended processes left is taken back first, so no others hold a QPN or a port.
///
/// # Errors
/// If there is no registry here, for instance no writable `/dev/shm` or `/tmp`: then no
/// context shares.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = urxe::Context::open("127.81.0.77".parse()?)?;
/// let participants = urxe::participants()?;
/// let is_ours = |p: &&urxe::Participant| p.addresses.contains(&context.address());
/// let ours = participants.iter().find(is_ours).expect("it is open");
/// assert_eq!(ours.pid, std::process::id());
/// # Ok(())
/// # }
/// ```
pub fn participants() -> io::Result<Vec<Participant>> {
    let mut all = Vec::new();
    for registry in Registry::open_all()? {
        // This open file holds no row's lock.
        all.extend(registry.lock(None)?.participants());
    }
    Ok(all)
}
