//! Settings of a new socket.

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
    pub(super) reuse_addr: bool,
    pub(super) keep_alive: bool,
    pub(super) keep_alive_seconds: u32,
    pub(super) oob_inline: bool,
    pub(super) linger_off: bool,
    pub(super) no_delay: bool,
    pub(super) v6_only: bool,
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
            reuse_addr: false,
            keep_alive: false,
            keep_alive_seconds: 7200,
            oob_inline: false,
            linger_off: false,
            no_delay: false,
            v6_only: false,
        }
    }
}

impl Settings {
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
