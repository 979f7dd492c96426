//! How long the peer takes to answer, measured as by Karn: one packet at a time, which is forgotten when it is sent again,
//! because its answer would mean either time.

use urxe_wire::Psn;

use crate::time::Time;

/// Round trips of a connection, in nanoseconds. 0 stands for: not known yet. One that takes longer than 4.29 s is counted as that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    smooth: u32,
    /// The mean of how far a round trip is off the smoothed one.
    var: u32,
    min: u32,
    last: u32,
    /// How many there were, as far as that matters.
    count: u8,
    /// The packet that is timed, if one is, and when it left.
    timed: Option<Psn>,
    left: Time,
}

impl Rtt {
    /// A new packet left that asks for an answer.
    #[inline]
    pub(crate) fn start(&mut self, psn: Psn, now: Time) {
        if self.timed.is_none() {
            (self.timed, self.left) = (Some(psn), now);
        }
    }

    /// Everything before `una` is answered. A round trip, if that ends one.
    #[inline]
    pub(crate) fn finish(&mut self, una: Psn, now: Time) -> Option<u64> {
        let psn = self.timed?;
        if !psn.is_before(una) {
            return None;
        }
        self.timed = None;
        let rtt = now.since_ns(self.left).clamp(1, u32::MAX.into()) as u32;
        self.add(rtt);
        Some(rtt.into())
    }

    /// What is timed may be sent again.
    pub(crate) fn forget(&mut self) {
        self.timed = None;
    }

    /// So many packets from `first` on are sent again.
    pub(crate) fn forget_some(&mut self, first: Psn, packets: u32) {
        let again = |psn: Psn| psn.distance_from(first) < packets;
        self.timed = self.timed.filter(|&psn| !again(psn));
    }

    /// RFC 6298's estimator.
    #[inline]
    fn add(&mut self, rtt: u32) {
        if self.smooth == 0 {
            (self.smooth, self.var, self.min) = (rtt, rtt / 2, rtt);
        } else {
            let off = u64::from(self.smooth.abs_diff(rtt));
            // Means of numbers of 32 bits.
            self.var = ((3 * u64::from(self.var) + off) / 4) as u32;
            self.smooth = (7 * self.smooth() + u64::from(rtt)).div_ceil(8) as u32;
            self.min = self.min.min(rtt);
        }
        self.last = rtt;
        self.count = self.count.saturating_add(1);
    }

    /// How many round trips there were: 255 stands for more, too.
    pub(crate) fn count(&self) -> u8 {
        self.count
    }

    /// The smoothed round trip.
    pub(crate) fn smooth(&self) -> u64 {
        self.smooth.into()
    }

    /// The shortest one.
    pub(crate) fn min(&self) -> u64 {
        self.min.into()
    }

    /// The last one.
    pub(crate) fn last(&self) -> u64 {
        self.last.into()
    }

    /// After so long without an answer something is wrong.
    #[inline]
    pub(crate) fn patience(&self) -> Option<u64> {
        /// What a peer that is scheduled out for a moment may add.
        const SCHEDULING_NS: u64 = 2_000_000;
        let (smooth, var) = (self.smooth(), u64::from(self.var));
        let late = (4 * var).max(smooth / 4);
        (smooth > 0).then(|| smooth + late + SCHEDULING_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(n: u32) -> Psn {
        Psn::new(n)
    }

    #[test]
    fn one_packet_is_timed_until_it_is_answered() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.patience(), None, "nothing is known");
        rtt.start(psn(5), Time(100));
        rtt.start(psn(6), Time(200));
        assert_eq!(rtt.finish(psn(5), Time(300)), None, "5 is not answered");
        assert_eq!(rtt.finish(psn(9), Time(1100)), Some(1000));
        assert_eq!(rtt.finish(psn(9), Time(1200)), None);
        assert_eq!((rtt.smooth(), rtt.min(), rtt.last()), (1000, 1000, 1000));
        assert_eq!(rtt.patience(), Some(1000 + 2000 + 2_000_000));
    }

    #[test]
    fn what_is_sent_again_is_not_timed() {
        let mut rtt = Rtt::default();
        rtt.start(psn(5), Time(100));
        rtt.forget();
        assert_eq!(rtt.finish(psn(6), Time(300)), None);
        rtt.start(psn(6), Time(400));
        assert_eq!(rtt.finish(psn(7), Time(500)), Some(100));
    }

    #[test]
    fn a_steady_round_trip_is_smoothed_to_itself() {
        let mut rtt = Rtt::default();
        for n in 0..200 {
            rtt.start(psn(n), Time(0));
            rtt.finish(psn(n + 1), Time(20_000_000));
        }
        assert_eq!(rtt.smooth(), 20_000_000);
        assert_eq!(rtt.patience(), Some(27_000_000), "a quarter, and 2 ms");
        rtt.start(psn(200), Time(0));
        rtt.finish(psn(201), Time(5_000_000));
        assert_eq!((rtt.min(), rtt.last()), (5_000_000, 5_000_000));
    }
}
