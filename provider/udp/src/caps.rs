//! The capabilities of a socket, as found out.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Abilities of one socket, probed when it was bound and lowered when the kernel
/// refuses in use what it had promised. They never rise again.
#[derive(Debug)]
pub struct Caps {
    gso: AtomicBool,
    gso_segments_max: AtomicUsize,
    gro: bool,
    exact_ident: bool,
    recv_buffer: usize,
    send_buffer: usize,
}

impl Caps {
    /// Longest payload of a datagram or of a whole run: 65,535 bytes of IPv4 packet
    /// less the IP and UDP headers.
    pub const PAYLOAD_MAX: usize = 65_507;
    /// Packets in a run that every kernel with segmentation takes.
    pub const GSO_SEGMENTS_MIN: usize = 64;

    pub(crate) fn new(
        gso_segments_max: Option<usize>,
        gro: bool,
        exact_ident: bool,
        recv_buffer: usize,
        send_buffer: usize,
    ) -> Caps {
        Caps {
            gso: AtomicBool::new(gso_segments_max.is_some()),
            gso_segments_max: AtomicUsize::new(gso_segments_max.unwrap_or(1)),
            gro,
            exact_ident,
            recv_buffer,
            send_buffer,
        }
    }

    /// True if runs of equal-sized packets may be sent as one descriptor.
    #[inline]
    pub fn gso(&self) -> bool {
        self.gso.load(Relaxed)
    }

    /// Packets that one descriptor may hold: 1 without segmentation, else 64 or 128.
    #[inline]
    pub fn gso_segments_max(&self) -> usize {
        self.gso_segments_max.load(Relaxed)
    }

    /// True if received datagrams may hold several packets.
    #[inline]
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// True if the IPv4 Identification of what is sent is known: 0 for a packet alone,
    /// `k` for packet `k` of a run.
    pub fn exact_ident(&self) -> bool {
        self.exact_ident
    }

    /// Receive buffer granted, in the kernel's accounting (on Linux twice what was
    /// asked for, as it counts its own overhead too).
    pub fn recv_buffer(&self) -> usize {
        self.recv_buffer
    }

    /// Send buffer granted, in the kernel's accounting.
    pub fn send_buffer(&self) -> usize {
        self.send_buffer
    }

    /// The kernel will take no runs at all.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "no runs elsewhere")
    )]
    pub(crate) fn lose_gso(&self) {
        self.gso_segments_max.store(1, Relaxed);
        self.gso.store(false, Relaxed);
    }

    /// The kernel takes shorter runs than was believed.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "no runs elsewhere")
    )]
    pub(crate) fn lower_gso_segments(&self) {
        self.gso_segments_max
            .fetch_min(Self::GSO_SEGMENTS_MIN, Relaxed);
    }
}
