//! The pacer: when the next packet may leave.

use crate::congestion::Rate;
use crate::time::Time;

/// Spreads packets out to a rate. Exact in the long run: what a packet takes is added up
/// in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// The link is busy with what was sent until then.
    busy_until_ps: u128,
    /// Bytes that may leave ahead of their time, together.
    burst: u32,
    /// What the burst is worth at the last rate.
    burst_ps: u64,
}

impl Pacer {
    /// A pacer that lets `burst` bytes leave in one go: 0 in virtual time; over sockets,
    /// where each wake-up costs, some packets.
    pub(crate) fn new(burst: u32) -> Pacer {
        Pacer {
            busy_until_ps: 0,
            burst,
            burst_ps: 0,
        }
    }

    pub(crate) fn burst(&self) -> u32 {
        self.burst
    }

    /// The time from which a packet may leave.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        let ps = self.busy_until_ps.saturating_sub(u128::from(self.burst_ps));
        Time(ps.div_ceil(1000).try_into().unwrap_or(u64::MAX))
    }

    /// A packet left that takes `bytes` on the link. A sender that may be `late_ns` late catches up with as much.
    pub(crate) fn on_sent(&mut self, bytes: u32, rate: Rate, late_ns: u64, now: Time) {
        let now_ps = u128::from(now.0) * 1000;
        // Clocks count nanoseconds: what is less than one is no idleness.
        let late_ps = u128::from(late_ns) * 1000;
        let begin = match now_ps.saturating_sub(self.busy_until_ps) {
            0..1000 => self.busy_until_ps,
            behind => now_ps - behind.min(late_ps),
        };
        self.busy_until_ps = begin + u128::from(picoseconds(bytes, rate));
        self.burst_ps = picoseconds(self.burst, rate);
    }
}

/// How long so many bytes take.
fn picoseconds(bytes: u32, rate: Rate) -> u64 {
    let bits = u128::from(bytes) * 8;
    (bits * 1_000_000_000_000 / u128::from(rate.bps()))
        .try_into()
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_the_picosecond() {
        // 1000 bytes at 3 Gbit/s are 2666.67 ns.
        let rate = Rate::from_gbps(3);
        let mut pacer = Pacer::new(0);
        let mut now = Time(0);
        for _ in 0..3_000_000u32 {
            pacer.on_sent(1000, rate, 0, now);
            now = pacer.next();
        }
        let off = now.0.abs_diff(8_000_000_000);
        assert!(off <= 3_000, "{off} ns in 3 million packets");
    }

    #[test]
    fn an_idle_sender_saves_nothing_up() {
        let rate = Rate::from_gbps(8);
        let mut pacer = Pacer::new(0);
        pacer.on_sent(1000, rate, 0, Time(0));
        assert_eq!(pacer.next(), Time(1000));
        pacer.on_sent(1000, rate, 0, Time(50_000));
        assert_eq!(pacer.next(), Time(51_000));
    }

    #[test]
    fn a_burst_leaves_at_once_and_is_paid_for() {
        let rate = Rate::from_gbps(8);
        let mut pacer = Pacer::new(4000);
        let mut sent = 0;
        while pacer.next() <= Time(0) {
            pacer.on_sent(1000, rate, 0, Time(0));
            sent += 1;
        }
        assert_eq!((sent, pacer.next()), (5, Time(1000)));
        while pacer.next() <= Time(100_000) {
            let at = pacer.next().max(Time(5_000));
            pacer.on_sent(1000, rate, 0, at);
            sent += 1;
        }
        assert!((100..=106).contains(&sent), "{sent}");
    }

    #[test]
    fn a_sender_that_wakes_up_late_catches_up() {
        let rate = Rate::from_gbps(8);
        let mut pacer = Pacer::new(0);
        pacer.on_sent(1000, rate, 5_000, Time(0));
        // 4 us late, and then no more: it has four packets good.
        let mut sent = 0;
        while pacer.next() <= Time(5_000) {
            pacer.on_sent(1000, rate, 5_000, Time(5_000));
            sent += 1;
        }
        assert_eq!(sent, 5);
        // A long sleep is not saved up.
        while pacer.next() <= Time(1_000_000) {
            pacer.on_sent(1000, rate, 5_000, Time(1_000_000));
            sent += 1;
        }
        assert_eq!(sent, 5 + 6);
    }
}
