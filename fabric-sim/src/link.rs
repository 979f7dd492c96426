//! Cables: how fast, how long, how clean.

use crate::engine::{Rate, Span};

/// Preamble, start delimiter and the shortest gap between frames: 20 bytes that every frame
/// costs on a link beside its own.
pub const FRAME_GAP: u32 = 20;
/// Shortest Ethernet frame, with its check sequence.
pub const FRAME_MIN: u32 = 64;
/// Ethernet header and frame check sequence.
pub const ETHERNET_OVERHEAD: u32 = 14 + 4;
/// Link MTU that takes packets of 4096 bytes of payload with all their headers.
pub const JUMBO_MTU: u32 = 4200;

/// A cable, and the speed of the ports at its ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Link {
    /// Both ways.
    pub rate: Rate,
    /// The delay from end to end: 5 ns a metre.
    pub delay: Span,
    /// Longest IP packet; longer ones are dropped.
    pub mtu: u32,
    /// Probability that a bit is received wrong. The frame check sequence finds it, and the
    /// receiver drops the frame.
    pub bit_error_rate: f64,
}

impl Link {
    /// Two metres of clean cable, with an MTU for 4 KiB packets.
    pub fn new(rate: Rate) -> Link {
        Link {
            rate,
            delay: Span::of_cable(2),
            mtu: JUMBO_MTU,
            bit_error_rate: 0.0,
        }
    }

    /// This link, so many metres long.
    pub fn metres(self, metres: u64) -> Link {
        Link {
            delay: Span::of_cable(metres),
            ..self
        }
    }

    /// This link, with this delay.
    pub fn delay(self, delay: Span) -> Link {
        Link { delay, ..self }
    }

    /// Longest frame, from the Ethernet header to the check sequence.
    pub fn frame_max(&self) -> u32 {
        self.mtu + ETHERNET_OVERHEAD
    }

    /// Time that a frame of so many bytes keeps the link busy.
    #[inline]
    pub fn occupancy(&self, frame_len: u32) -> Span {
        self.rate.time_of(u64::from(frame_len + FRAME_GAP))
    }
}
