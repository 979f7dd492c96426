//! A failure under faults, with as few of them as it takes.
//!
//! A test adds its faults by itself, so they are taken away behind its back: each run of a smaller test is given what is left of each of
//! its faults, by its place. As in [`crate::shrink`], what counts is that the failure stays the same.

use crate::fault::{Chance, Fault, FaultKind};

/// Runs that are tried at most.
const RUNS_MAX: usize = 200;

/// What is left of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// All of it.
    Whole,
    /// These frames, by number.
    Frames(Vec<u64>),
    Nothing,
}

impl Left {
    /// What is left of a fault, at a place of the list; what it does has the draws of that place.
    pub(crate) fn of(&self, place: usize, mut fault: Fault) -> Option<Fault> {
        fault.stream.get_or_insert(place as u32);
        match self {
            Left::Whole => Some(fault),
            Left::Frames(numbers) => Some(fault.nth(numbers.clone())),
            Left::Nothing => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Left::Whole => usize::MAX,
            Left::Frames(numbers) => numbers.len(),
            Left::Nothing => 0,
        }
    }
}

/// What a run says of each of its faults, for the next.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Did {
    /// In words.
    pub(crate) fault: String,
    /// The frames that it hit, if they can be chosen one by one.
    pub(crate) frames: Option<Vec<u64>>,
}

impl Did {
    pub(crate) fn of(active: &crate::fault::ActiveFault) -> Did {
        let fault = active.fault();
        let is_chosen = fault.kind.is_about_frames()
            && !matches!(fault.kind, FaultKind::BurstLoss { .. })
            && !matches!(fault.chance, Chance::Always);
        let is_known = active.numbers().len() as u64 == active.hits();
        Did {
            fault: fault.kind.name().to_owned(),
            frames: (is_chosen && is_known).then(|| active.numbers().to_vec()),
        }
    }
}

/// Two failures are the same if they say the same, but for when, and for numbers.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    let words = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        let cause = match first.split_once(": ") {
            Some((when, cause)) if when.starts_with("seed ") => cause,
            _ => first,
        };
        cause.replace(|c: char| c.is_ascii_digit(), "")
    };
    words(a) == words(b)
}

/// Takes away what the failure does not need. `fails` runs the test with so much left of its faults, and says whether it
/// fails as before; `did` is what the faults of the failing run did.
pub(crate) fn fewest(did: &[Did], fails: impl Fn(&[Left]) -> bool) -> Vec<Left> {
    let mut left = vec![Left::Whole; did.len()];
    let mut runs = 0;
    let mut attempt = |left: &mut Vec<Left>, place: usize, less: Left| {
        runs += 1;
        if runs > RUNS_MAX || left[place].size() <= less.size() {
            return false;
        }
        let before = core::mem::replace(&mut left[place], less);
        let is_enough = fails(left);
        if !is_enough {
            left[place] = before;
        }
        is_enough
    };
    for place in 0..did.len() {
        attempt(&mut left, place, Left::Nothing);
    }
    for (place, did) in did.iter().enumerate() {
        let Some(frames) = did.frames.clone().filter(|_| left[place] == Left::Whole) else {
            continue;
        };
        if !attempt(&mut left, place, Left::Frames(frames.clone())) {
            continue;
        }
        // Halves, quarters, and so on to single frames.
        let (mut frames, mut part) = (frames, usize::MAX);
        while part > 1 && frames.len() > 1 {
            part = part.min(frames.len()).div_ceil(2);
            let mut from = 0;
            while from < frames.len() && frames.len() > 1 {
                let mut fewer = frames.clone();
                fewer.drain(from..(from + part).min(frames.len()));
                if attempt(&mut left, place, Left::Frames(fewer.clone())) {
                    frames = fewer;
                } else {
                    from += part;
                }
            }
        }
    }
    left
}

/// What is left, in words.
pub(crate) fn describe(did: &[Did], left: &[Left]) -> String {
    let each = did.iter().zip(left).filter_map(|(did, left)| match left {
        Left::Nothing => None,
        Left::Whole => Some(did.fault.clone()),
        Left::Frames(numbers) => Some(format!("{} of frames {numbers:?}", did.fault)),
    });
    let each: Vec<String> = each.collect();
    match each.len() {
        0 => "no fault at all".to_owned(),
        _ => each.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes() {
        let did = |fault: &str, frames: Option<Vec<u64>>| Did {
            fault: fault.to_owned(),
            frames,
        };
        let did = [
            did("loss", Some((0..40).collect())),
            did("duplicate", Some(vec![3, 9])),
            did("link-down", None),
        ];
        // Needs frames 7 and 31 lost, and the cable down.
        let fails = |left: &[Left]| {
            let is_lost = match &left[0] {
                Left::Whole => true,
                Left::Frames(numbers) => [7, 31].iter().all(|n| numbers.contains(n)),
                Left::Nothing => false,
            };
            is_lost && left[2] == Left::Whole
        };
        let left = fewest(&did, fails);
        assert_eq!(
            left,
            [Left::Frames(vec![7, 31]), Left::Nothing, Left::Whole]
        );
        assert_eq!(describe(&did, &left), "loss of frames [7, 31], link-down");
        assert_eq!(describe(&did, &fewest(&did, |_| true)), "no fault at all");
    }

    #[test]
    fn numbers_do_not_make_failures_different() {
        assert!(is_same(
            "seed 3, at 4.5 us: h1 panicked\nx",
            "seed 3, at 7.1 ms: h1 panicked\ny"
        ));
        assert!(!is_same("h1 panicked", "h1 waits"));
    }
}
