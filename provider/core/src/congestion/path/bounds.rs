//! What losses in a queue say about how much a path takes: for long, until a look for more finds it, and for short, until
//! the next look.

/// What a round trip with such losses leaves.
const CUT: f64 = 0.85;
/// What of the ceiling is left for others.
const HEADROOM: f64 = 0.95;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes per nanosecond, for short.
    pub(super) bandwidth: f64,
    /// Bytes under way, for short.
    low: f64,
    /// Bytes under way, for long.
    high: f64,
}

impl Bounds {
    pub(super) fn new() -> Bounds {
        Bounds {
            bandwidth: f64::INFINITY,
            low: f64::INFINITY,
            high: f64::INFINITY,
        }
    }

    /// Bytes that may be under way; `leaves` some room for others.
    pub(super) fn ceiling(&self, leaves: bool) -> f64 {
        let high = if leaves { self.headroom() } else { self.high };
        high.min(self.low)
    }

    pub(super) fn headroom(&self) -> f64 {
        HEADROOM * self.high
    }

    pub(super) fn set_high(&mut self, bytes: f64) {
        self.high = bytes;
    }

    /// So much was under way, and little was lost. It was as much as could be if less than a `request` more had room: those of READs ask for
    /// many packets at a time.
    pub(super) fn raise_high(&mut self, under_way: f64, request: f64) {
        if under_way > (0.9 * self.high).min(self.high - request) {
            self.high *= 1.25;
        }
    }

    /// Losses in a queue: no less than what arrived all the same.
    pub(super) fn cut(&mut self, bandwidth: f64, rate: f64, product: f64, arrived: f64) {
        self.bandwidth = (CUT * self.bandwidth.min(bandwidth)).max(rate);
        self.low = (CUT * self.low.min(2.0 * product)).max(arrived);
    }

    pub(super) fn cut_to(&mut self, bandwidth: f64, bytes: f64) {
        self.bandwidth = bandwidth;
        self.low = bytes;
    }

    pub(super) fn forget_short(&mut self) {
        (self.bandwidth, self.low) = (f64::INFINITY, f64::INFINITY);
    }
}
