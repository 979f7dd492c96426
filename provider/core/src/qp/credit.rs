//! End-to-end credits, the requester's side (IBTA 9.7.7.2): every ACK says how
//! many receives the responder has posted, and a message that consumes a receive
//! waits until there is one, but for a single probe that brings news.

use urxe_wire::{CreditCode, Msn};

/// How far the responder's receives reach, as a limit on send sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditLimit {
    /// Sequence number of the message started last; the first is 1.
    ssn: Msn,
    /// Messages up to this one (and one more) may start; `None`: no limit.
    lsn: Option<Msn>,
}

impl CreditLimit {
    pub(crate) fn new() -> Self {
        CreditLimit {
            ssn: Msn::ZERO,
            lsn: Some(Msn::ZERO),
        }
    }

    /// May a message that consumes a receive start now?
    #[inline]
    pub(crate) fn allows_next(&self) -> bool {
        // One message beyond the limit is allowed: its ACK renews the credits.
        self.lsn
            .is_none_or(|lsn| !self.ssn.next().is_after(lsn.next()))
    }

    /// How many messages may start now that consume a receive each.
    #[inline]
    pub(crate) fn allowed(&self) -> u32 {
        match self.lsn {
            None => u32::MAX,
            Some(lsn) if self.allows_next() => lsn.next().distance_from(self.ssn),
            Some(_) => 0,
        }
    }

    /// A message starts. One that consumes no receive moves the limit along, since
    /// the responder counts it in the MSN.
    #[inline]
    pub(crate) fn on_start(&mut self, takes_credit: bool) {
        mark!(CreditProbe if takes_credit && self.lsn.is_some_and(|lsn| self.ssn == lsn));
        self.ssn = self.ssn.next();
        if !takes_credit && let Some(lsn) = &mut self.lsn {
            *lsn = lsn.next();
        }
    }

    /// An AETH of ACK kind arrived.
    #[inline]
    pub(crate) fn on_credits(&mut self, msn: Msn, code: CreditCode) {
        match (code.credits(), &mut self.lsn) {
            // "No limit" holds for the life of the connection.
            (None, lsn) => *lsn = None,
            (Some(credits), Some(lsn)) => {
                let reach = msn.add(credits);
                if reach.is_after(*lsn) {
                    *lsn = reach;
                }
            }
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_and_then_what_was_granted() {
        let mut c = CreditLimit::new();
        assert!(c.allows_next(), "the first message is the probe");
        c.on_start(true);
        assert!(!c.allows_next());
        // One message done, three receives left: four in all, and one probe.
        c.on_credits(Msn::new(1), CreditCode::encode(3));
        for left in (1..=4).rev() {
            assert!(c.allows_next());
            assert_eq!(c.allowed(), left);
            c.on_start(true);
        }
        assert!(!c.allows_next());
        assert_eq!(c.allowed(), 0);
    }

    #[test]
    fn writes_do_not_use_credits_up() {
        let mut c = CreditLimit::new();
        for _ in 0..10 {
            c.on_start(false);
        }
        assert!(c.allows_next());
        c.on_start(true);
        assert!(!c.allows_next());
        c.on_credits(Msn::new(11), CreditCode::encode(0));
        assert!(c.allows_next(), "the probe was consumed, another may go");
    }

    #[test]
    fn no_limit_is_for_good_and_the_limit_never_shrinks() {
        let mut c = CreditLimit::new();
        c.on_credits(Msn::new(0), CreditCode::encode(8));
        c.on_credits(Msn::new(0), CreditCode::encode(1));
        for _ in 0..9 {
            assert!(c.allows_next());
            c.on_start(true);
        }
        assert!(!c.allows_next());
        c.on_credits(Msn::new(3), CreditCode::UNLIMITED);
        c.on_credits(Msn::new(4), CreditCode::encode(0));
        for _ in 0..100 {
            assert!(c.allows_next());
            c.on_start(true);
        }
    }

    #[test]
    fn numbers_wrap() {
        let start = 0xff_fff0;
        let mut c = CreditLimit {
            ssn: Msn::new(start),
            lsn: Some(Msn::new(start)),
        };
        for n in start..start + 100 {
            assert!(c.allows_next(), "{n}");
            c.on_start(true);
            c.on_credits(Msn::new(n + 1), CreditCode::encode(1));
        }
    }
}
