//! What a poll puts completions into: a slice, or a function that writes each where it belongs.

use super::CqCore;
use crate::wc::Wc;

/// Where polled completions go.
pub(crate) trait Taker {
    /// Takes what there is, as far as there is room. Returns how many.
    fn take(&mut self, cq: &CqCore) -> usize;

    /// The same by a function that needs a slice.
    fn take_by<E>(&mut self, take: impl FnOnce(&mut [Wc]) -> Result<usize, E>) -> Result<usize, E>;
}

impl Taker for [Wc] {
    #[inline]
    fn take(&mut self, cq: &CqCore) -> usize {
        cq.take(self)
    }

    fn take_by<E>(&mut self, take: impl FnOnce(&mut [Wc]) -> Result<usize, E>) -> Result<usize, E> {
        take(self)
    }
}

/// Completions that [`Each`] takes at once.
pub(crate) const EACH_MAX: usize = 16;

/// Gives each completion to a function, at most [`EACH_MAX`] of them. The function may not call the library.
#[derive(Debug)]
pub(crate) struct Each<F> {
    most: usize,
    each: F,
}

impl<F: FnMut(Wc)> Each<F> {
    #[inline]
    pub(crate) fn new(most: usize, each: F) -> Each<F> {
        let most = most.min(EACH_MAX);
        Each { most, each }
    }
}

impl<F: FnMut(Wc)> Taker for Each<F> {
    #[inline]
    fn take(&mut self, cq: &CqCore) -> usize {
        cq.take_each(self.most, &mut self.each)
    }

    fn take_by<E>(&mut self, take: impl FnOnce(&mut [Wc]) -> Result<usize, E>) -> Result<usize, E> {
        let mut wcs = [Wc::default(); EACH_MAX];
        let count = take(&mut wcs[..self.most])?;
        wcs[..count].iter().for_each(|&wc| (self.each)(wc));
        Ok(count)
    }
}
