//! The numbers of a context's protection domains.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use urxe_core::mr::PdId;

use crate::error::{Error, ErrorKind};
use crate::lock::lock;

/// Gives each live domain a number of its own. A number comes back as late as possible: when all others had their turn.
#[derive(Debug)]
pub(crate) struct PdNumbers {
    state: Mutex<State>,
    max: u32,
}

#[derive(Debug)]
struct State {
    next: u32,
    live: HashSet<u32>,
}

impl PdNumbers {
    /// Numbers for at most `max` domains at once.
    pub(crate) fn new(max: u32) -> PdNumbers {
        let live = HashSet::new();
        PdNumbers {
            state: Mutex::new(State { next: 1, live }),
            max,
        }
    }

    /// A number that no live domain has.
    ///
    /// # Errors
    /// [`ErrorKind::TooManyPds`].
    pub(crate) fn take(&self) -> Result<PdId, Error> {
        let mut state = self.state();
        if state.live.len() >= self.max as usize {
            return Err(ErrorKind::TooManyPds(self.max).into());
        }
        loop {
            let number = state.next;
            state.next = number.wrapping_add(1);
            // The last number stands for no domain in the tables of the core.
            if number != u32::MAX && state.live.insert(number) {
                return Ok(PdId(number));
            }
        }
    }

    /// The domain is gone.
    pub(crate) fn give_back(&self, pd: PdId) {
        self.state().live.remove(&pd.0);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_past_the_domains_that_live() {
        let numbers = PdNumbers::new(3);
        let first = numbers.take().expect("there is room");
        numbers.state().next = u32::MAX - 1;
        let last = numbers.take().expect("there is room");
        assert_eq!((first, last), (PdId(1), PdId(u32::MAX - 1)));
        assert_eq!(numbers.take().expect("there is room"), PdId(0));
        assert_eq!(
            numbers.take().expect_err("there are three").kind(),
            &ErrorKind::TooManyPds(3)
        );
        numbers.give_back(PdId(0));
        assert_eq!(
            numbers.take().expect("there is room"),
            PdId(2),
            "1 is in use"
        );
    }
}
