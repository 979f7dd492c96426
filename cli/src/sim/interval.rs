//! How sure a median over seeds is.

/// Values that a median is known from, without any assumption about how they are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Median<T> {
    pub(super) value: T,
    /// The true median lies between these with 95 % confidence. `None` for fewer than 6 values, which cannot say so.
    pub(super) between: Option<(T, T)>,
}

/// Of values in ascending order; `None` of none.
pub(super) fn median<T: Copy>(sorted: &[T]) -> Option<Median<T>> {
    let value = *sorted.get(sorted.len() / 2)?;
    let between = rank(sorted.len());
    Some(Median {
        value,
        between: between.map(|rank| (sorted[rank], sorted[sorted.len() - 1 - rank])),
    })
}

/// How many of the least, and of the greatest, of so many values are outside of the interval. Each value is below the true median with
/// a chance of one half, so the number of those below it has a binomial distribution: no more than 2.5 % is cut off at each end.
fn rank(count: usize) -> Option<usize> {
    const TAIL: f64 = 0.025;
    /// Up to here the chance that none is below does not underflow; beyond it the normal distribution is as good.
    const EXACT_MAX: usize = 1000;
    let n = count as f64;
    if count > EXACT_MAX {
        return Some((n / 2.0 - 0.98 * n.sqrt() - 1.0) as usize);
    }
    let (mut chance, mut tail, mut outside) = (0.5_f64.powf(n), 0.0, None);
    for below in 0..count {
        tail += chance;
        if tail > TAIL {
            break;
        }
        outside = Some(below);
        chance *= (count - below) as f64 / (below + 1) as f64;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks of tables for the sign test, at 5 % and two sides.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        assert_eq!([0, 1, 5].map(rank), [None; 3]);
        let ranks = [
            (6, 0),
            (8, 0),
            (9, 1),
            (12, 2),
            (20, 5),
            (50, 17),
            (100, 39),
        ];
        for (count, outside) in ranks {
            assert_eq!(rank(count), Some(outside), "{count} values");
        }
        // Exact and approximate agree where they meet.
        let (exact, near) = (rank(1000), rank(1001));
        assert_eq!(exact, Some(468));
        assert!(near.is_some_and(|near| near.abs_diff(468) <= 1), "{near:?}");
    }

    #[test]
    fn the_interval_holds_the_median_and_shrinks() {
        assert_eq!(median::<u64>(&[]), None);
        let few = median(&[1, 2, 3]).expect("some");
        assert_eq!((few.value, few.between), (2, None));
        let width = |count: u64| {
            let values: Vec<u64> = (0..count).map(|n| n * 1000 / count).collect();
            let of = median(&values).expect("some");
            let (low, high) = of.between.expect("enough values");
            assert!(low <= of.value && of.value <= high);
            high - low
        };
        assert!(width(1000) * 2 < width(100) && width(100) * 2 < width(10));
    }
}
