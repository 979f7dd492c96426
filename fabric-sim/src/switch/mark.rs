//! Marking: a queue that grows says so in the frames (ECN).

use crate::engine::Rng;

/// When a frame is marked, by the length of the queue that it joins: never below `min`, always
/// above `max`, with a probability that rises to `probability` in between (RED on the present
/// length). With both equal it is a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Marking {
    /// Bytes.
    pub min: u64,
    /// Bytes.
    pub max: u64,
    /// The probability at `max`.
    pub probability: f64,
}

impl Marking {
    /// The parameters of the DCQCN paper: 5 KB, 200 KB, 1 %.
    pub const DCQCN: Marking = Marking {
        min: 5_000,
        max: 200_000,
        probability: 0.01,
    };

    /// Marks every frame that joins more than so many bytes.
    pub fn step(at: u64) -> Marking {
        Marking {
            min: at,
            max: at,
            probability: 1.0,
        }
    }

    /// Decides on one frame.
    #[inline]
    pub(crate) fn marks(&self, queue: u64, rng: &mut Rng) -> bool {
        if queue <= self.min {
            false
        } else if queue > self.max {
            true
        } else {
            let top = u128::from(Rng::odds(self.probability));
            let share = top * u128::from(queue - self.min) / u128::from(self.max - self.min);
            rng.hits(share as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_rises_between_the_two() {
        let marking = Marking {
            min: 1000,
            max: 3000,
            probability: 0.5,
        };
        let mut rng = Rng::new(1);
        let mut share = |queue| {
            (0..100_000)
                .filter(|_| marking.marks(queue, &mut rng))
                .count() as f64
                / 100_000.0
        };
        assert_eq!(share(1000), 0.0);
        assert!((share(2000) - 0.25).abs() < 0.01);
        assert!((share(3000) - 0.5).abs() < 0.01);
        assert_eq!(share(3001), 1.0);
        let step = Marking::step(500);
        assert!(!step.marks(500, &mut Rng::new(1)) && step.marks(501, &mut Rng::new(1)));
    }
}
