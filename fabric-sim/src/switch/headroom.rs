//! Headroom, which is what arrives after a pause was decided: its arithmetic, and that of thresholds
//! for a buffer.

use crate::engine::{Rate, Span};
use crate::link::{FRAME_GAP, FRAME_MIN, Link};

/// A pause frame on the wire, with preamble and gap.
const PAUSE_FRAME: u64 = (FRAME_MIN + FRAME_GAP) as u64;
/// Bytes of a pause quantum.
const QUANTUM: u64 = urxe_wire::PAUSE_QUANTUM_BITS as u64 / 8;

/// Quanta that a port may take to act on a pause frame (IEEE 802.3, 31B.3.7, and what its
/// successors say of faster ports): of the nearest rate that is not slower.
pub fn response_quanta(rate: Rate) -> u64 {
    const TABLE: [(u64, u64); 8] = [
        (1, 2),
        (10, 67),
        (25, 80),
        (40, 118),
        (50, 147),
        (100, 394),
        (200, 453),
        (400, 905),
    ];
    let gbps = rate.as_bps().div_ceil(1_000_000_000);
    TABLE
        .iter()
        .find(|&&(limit, _)| gbps <= limit)
        .map_or(905, |&(_, quanta)| quanta)
}

/// Time that a port takes to act on a pause frame.
pub fn response_time(rate: Rate) -> Span {
    rate.time_of(response_quanta(rate) * QUANTUM)
}

/// Bytes that can arrive at a port after it was decided that its neighbour shall stop:
///
/// * a frame that this port is sending the other way, before the pause frame can leave;
/// * the pause frame itself;
/// * what the cable holds, twice;
/// * what is sent until the neighbour acts on the pause;
/// * a frame that the neighbour has just begun.
///
/// In units of cells, if buffers are: a frame of the shortest kind may take a cell of its own.
pub fn required(link: &Link, cell: u32) -> u32 {
    required_between(link, link, cell)
}

/// The same where the ports at both ends of a cable send at different rates: the neighbour goes on at its own while this port's frames leave
/// at another.
pub fn required_between(own: &Link, neighbour: &Link, cell: u32) -> u32 {
    let frame = u64::from(own.frame_max());
    let telling = match frame + PAUSE_FRAME {
        bytes if own.rate == neighbour.rate => bytes,
        bytes => neighbour.rate.bytes_in(own.rate.time_of(bytes)) + 1,
    };
    let cable = neighbour.rate.bytes_in(own.delay + neighbour.delay);
    let response = response_quanta(neighbour.rate) * QUANTUM;
    let bytes = telling + cable + response + u64::from(neighbour.frame_max());
    let cells = match cell {
        0 | 1 => bytes,
        // The worst case of rounding: every frame one byte longer than full cells, or shortest.
        _ => {
            let cell = u64::from(cell);
            let shortest = u64::from(FRAME_MIN + FRAME_GAP).max(cell + 1 + u64::from(FRAME_GAP));
            let taken = (shortest - u64::from(FRAME_GAP)).div_ceil(cell) * cell;
            (bytes * taken).div_ceil(shortest).max(bytes)
        }
    };
    u32::try_from(cells).unwrap_or(u32::MAX)
}

/// Numbers of a switch that thresholds follow from (Zhu et al., SIGCOMM 2015, section 4).
#[derive(Clone, Copy, Debug)]
pub struct BufferPlan {
    /// The whole buffer in bytes.
    pub buffer: u64,
    /// Ports.
    pub ports: u64,
    /// Classes that are paused one by one.
    pub classes: u64,
    /// Headroom of each port and class.
    pub headroom: u64,
}

impl BufferPlan {
    /// What is left when all headroom is set aside; `None` if the buffer is too small for it.
    pub fn shared(&self) -> Option<u64> {
        self.buffer
            .checked_sub(self.ports * self.classes * self.headroom)
    }

    /// Largest static threshold at which all ports and classes may be filled at once.
    pub fn static_pause(&self) -> Option<u64> {
        Some(self.shared()? / (self.ports * self.classes))
    }

    /// Largest queue at which marking begins before any pause, under static thresholds: all of the
    /// ports may feed one queue.
    pub fn static_mark(&self) -> Option<u64> {
        Some(self.static_pause()? / self.ports)
    }

    /// Threshold at which a class is paused when `used` bytes of the shared buffer are taken:
    /// `beta` times what is free, spread over the classes.
    pub fn dynamic_pause(&self, beta: u64, used: u64) -> Option<u64> {
        Some(beta * self.shared()?.saturating_sub(used) / self.classes)
    }

    /// Largest queue at which marking begins before any pause, under dynamic thresholds.
    pub fn dynamic_mark(&self, beta: u64) -> Option<u64> {
        Some(beta * self.shared()? / (self.classes * self.ports * (beta + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::ETHERNET_OVERHEAD;

    #[test]
    fn a_hundred_metres_at_100g() {
        // 394 quanta, 2 x 500 ns of cable, two frames of 4160 bytes, a pause frame of 84.
        let link = Link {
            mtu: 4160 - ETHERNET_OVERHEAD,
            ..Link::new(Rate::gbps(100)).metres(100)
        };
        assert_eq!(required(&link, 1), 46_120);
        assert!(required(&link, 208) > 46_120);
        assert_eq!(response_time(Rate::gbps(100)), Span::from_ps(394 * 64 * 80));
        assert_eq!(response_quanta(Rate::gbps(800)), 905);
        assert_eq!(response_quanta(Rate::gbps(56)), 394);
    }

    /// The example of the paper: 32 ports of 40 Gb/s, 12 MB, 8 classes, 22.4 KB of headroom.
    #[test]
    fn thresholds_of_a_trident() {
        let plan = BufferPlan {
            buffer: 12_000_000,
            ports: 32,
            classes: 8,
            headroom: 22_400,
        };
        let pause = plan.static_pause().expect("fits");
        assert!((24_470..24_480).contains(&pause), "{pause}");
        // Below one packet: static thresholds cannot mark in time.
        let mark = plan.static_mark().expect("fits");
        assert!(mark < 850, "{mark}");
        let mark = plan.dynamic_mark(8).expect("fits");
        assert!((21_700..21_800).contains(&mark), "{mark}");
        assert_eq!(plan.dynamic_pause(8, 0), plan.shared());
        assert_eq!(
            BufferPlan {
                headroom: 50_000,
                ..plan
            }
            .shared(),
            None
        );
    }
}
