//! Work on all processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;

use crate::error::CliError;
use crate::output;

/// As many threads as were asked for, or processors.
pub(super) fn jobs(wanted: Option<u64>) -> usize {
    match wanted {
        Some(jobs) => usize::try_from(jobs).unwrap_or(usize::MAX),
        None => thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Does something for each number below `count`. Each thread takes the next free one; results are in
/// order.
pub(super) fn each<T: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Result<Vec<T>, CliError> {
    let next = AtomicUsize::new(0);
    let shares: Vec<_> = thread::scope(|scope| {
        let run = || {
            let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < count);
            std::iter::from_fn(take)
                .map(|place| (place, work(place)))
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..jobs.clamp(1, count.max(1)))
            .map(|_| scope.spawn(run))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut results = Vec::with_capacity(count);
    for share in shares {
        results.extend(share.map_err(|_| CliError::Failed("a run panicked".to_owned()))?);
    }
    results.sort_by_key(|(place, _)| *place);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// A bar of so many runs.
pub(super) fn progress(count: usize) -> ProgressBar {
    output::progress(false, "{bar:30} {pos}/{len} runs, {eta} left {msg}", count)
}
