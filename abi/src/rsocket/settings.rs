//! Settings of a new socket.

use core::ffi::c_int;
use core::time::Duration;
use std::collections::BTreeMap;

/// As many requests as a queue has at least, and at most.
const QUEUE_MIN: u32 = 16;
const QUEUE_MAX: u32 = 0xfffe;
/// Less free room than this in the send ring does not count as room.
pub(super) const SEND_LOW: u32 = 2048;

/// Sizes, and switches that programs ask back.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Bytes of the rings.
    pub(super) send_bytes: u32,
    pub(super) recv_bytes: u32,
    /// Requests in the queues.
    pub(super) send_depth: u32,
    pub(super) recv_depth: u32,
    pub(super) inline: u32,
    /// Entries of the map that peers write to.
    pub(super) iomap_size: u16,
    /// Options that are kept as they are set, by level and name.
    pub(super) kept: BTreeMap<(c_int, c_int), c_int>,
}

impl Default for Settings {
    /// The sizes of the distributions' library.
    fn default() -> Settings {
        Settings {
            send_bytes: 1 << 17,
            recv_bytes: 1 << 17,
            send_depth: 384,
            recv_depth: 384,
            inline: 64,
            iomap_size: 0,
            kept: BTreeMap::from([
                ((libc::SOL_SOCKET, libc::SO_REUSEADDR), 0),
                ((libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0),
                ((libc::SOL_SOCKET, libc::SO_OOBINLINE), 0),
                ((libc::SOL_SOCKET, libc::SO_LINGER), 1),
                ((libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 7200),
                ((libc::IPPROTO_TCP, libc::TCP_NODELAY), 0),
                ((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 0),
            ]),
        }
    }
}

impl Settings {
    /// How long a connection is silent before the peer is asked for a sign of life; `None`: for ever.
    pub(super) fn keepalive(&self) -> Option<Duration> {
        let value = |level, name| self.kept.get(&(level, name)).copied().unwrap_or(0);
        let is_on = value(libc::SOL_SOCKET, libc::SO_KEEPALIVE) != 0;
        let idle = value(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE);
        is_on.then(|| Duration::from_secs(idle.unsigned_abs().max(1).into()))
    }

    /// Sizes that work: queues within limits, rings of whole cache lines and more than nothing.
    pub(super) fn bounded(&self) -> Settings {
        let ring = |bytes: u32| bytes.clamp(2 * SEND_LOW, 1 << 30) & !127;
        Settings {
            send_bytes: ring(self.send_bytes),
            recv_bytes: ring(self.recv_bytes),
            send_depth: self.send_depth.clamp(QUEUE_MIN, QUEUE_MAX),
            recv_depth: self.recv_depth.clamp(QUEUE_MIN, QUEUE_MAX),
            ..self.clone()
        }
    }
}
