//! The part of all packets that a road loses by itself.

/// No more than this is believed.
const MOST: f64 = 0.3;
/// What a round trip leaves of those before it.
const KEEP: f64 = 15.0 / 16.0;
/// Packets of which none was lost that stand for what is not known yet.
const PRIOR: f64 = 512.0;

/// Packets of late, and those of them that were lost. Packets count, and not round trips: one in which gaps are filled may tell of one
/// or two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoadLoss {
    lost: f64,
    all: f64,
}

impl RoadLoss {
    pub(super) fn new() -> RoadLoss {
        RoadLoss {
            lost: 0.0,
            all: PRIOR,
        }
    }

    pub(super) fn take(&mut self, lost: u64, delivered: u64) {
        self.lost = self.lost * KEEP + lost as f64;
        self.all = self.all * KEEP + (lost + delivered) as f64;
    }

    pub(super) fn part(&self) -> f64 {
        (self.lost / self.all.max(1.0)).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_of_few_packets_count_for_little() {
        let mut road = RoadLoss::new();
        (0..100).for_each(|_| road.take(5, 495));
        assert!((road.part() - 0.01).abs() < 0.001, "{}", road.part());
        (0..4).for_each(|_| road.take(1, 1));
        assert!(road.part() < 0.012, "{}", road.part());
        (0..200).for_each(|_| road.take(9, 1));
        assert_eq!(road.part(), MOST);
    }
}
