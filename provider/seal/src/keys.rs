//! The secrets that are in use, and which of them at a time.

use crate::key_file::{Epoch, GRACE_S, KeyFile};
use crate::refusal::Refusal;

/// The secrets of a key file, as senders and receivers have them.
#[derive(Clone, Debug)]
pub struct Keys {
    id: u16,
    epochs: Vec<Epoch>,
}

impl Keys {
    /// Those of a file.
    pub fn new(file: &KeyFile) -> Keys {
        Keys {
            id: file.id(),
            epochs: file.secrets().to_vec(),
        }
    }

    /// The key file's number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The epoch that senders use at a time: the last that has begun, or the first.
    pub(crate) fn sending(&self, now: u64) -> &Epoch {
        let begun = self.epochs.iter().rev().find(|epoch| epoch.since <= now);
        begun.unwrap_or(&self.epochs[0])
    }

    /// The epoch that a sender uses that has used one: none before it, should its clock be set back, as others have given those up.
    pub(crate) fn sending_after(&self, used: u8, now: u64) -> &Epoch {
        let place = self.epochs.iter().position(|epoch| epoch.number == used);
        let next = self.sending(now);
        match place {
            Some(place) if self.epochs[place].since > next.since => &self.epochs[place],
            _ => next,
        }
    }

    /// When senders use another one than now.
    pub(crate) fn change_at(&self, now: u64) -> u64 {
        let mut later = self.epochs.iter().map(|epoch| epoch.since);
        later.find(|&since| since > now).unwrap_or(u64::MAX)
    }

    /// An epoch, if its packets are accepted: also before it begins here, and for a while after the next one began.
    #[inline]
    pub(crate) fn accepted(&self, number: u8, now: u64) -> Result<&Epoch, Refusal> {
        let place = self.epochs.iter().position(|epoch| epoch.number == number);
        let place = place.ok_or(Refusal::UnknownEpoch(number))?;
        match self.epochs.get(place + 1) {
            Some(next) if next.since + GRACE_S <= now => Err(Refusal::OldEpoch(number)),
            _ => Ok(&self.epochs[place]),
        }
    }

    /// True if an epoch has the same secret in both.
    pub(crate) fn shares(&self, other: &Keys, number: u8) -> bool {
        let of = |keys: &Keys| keys.epochs.iter().position(|epoch| epoch.number == number);
        match (of(self), of(other)) {
            (Some(own), Some(others)) => *self.epochs[own].secret == *other.epochs[others].secret,
            _ => false,
        }
    }

    /// Where the secrets are.
    pub(crate) fn hide(&self, hide: crate::Hide) {
        for epoch in &self.epochs {
            hide(epoch.secret.as_ptr(), epoch.secret.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is rotated when: what one host sends, another accepts, if its clock is up to a grace apart, and it has the file
        /// before the epoch begins.
        #[test]
        fn rotation_loses_nothing(
            gaps in proptest::collection::vec(1_u64..500, 1..6),
            apart in 0..GRACE_S,
        ) {
            let mut file = KeyFile::new(1, [0; 32], 1000);
            let mut now = 1000;
            for (n, gap) in gaps.into_iter().enumerate() {
                now += gap;
                let before = Keys::new(&file);
                file.rotate([n as u8 + 1; 32], now, now + 60);
                let after = Keys::new(&file);
                for at in now..now + 60 {
                    // Some hosts have the new file, others the old one.
                    for (sender, receiver) in [(&before, &after), (&after, &before), (&after, &after)] {
                        let epoch = sender.sending(at);
                        let found = receiver.accepted(epoch.number, at);
                        prop_assert!(found.is_ok_and(|found| *found.secret == *epoch.secret), "{at}");
                    }
                    for at_receiver in [at - apart, at + apart] {
                        let number = after.sending(at).number;
                        prop_assert!(after.accepted(number, at_receiver).is_ok());
                    }
                }
            }
        }
    }

    #[test]
    fn an_epoch_ends_a_grace_after_the_next_began() {
        let mut file = KeyFile::new(1, [1; 32], 0);
        file.rotate([2; 32], 100, 160);
        let keys = Keys::new(&file);
        assert_eq!(
            [99, 159, 160].map(|now| keys.sending(now).number),
            [1, 1, 2]
        );
        assert_eq!(
            [0, 159, 160].map(|now| keys.change_at(now)),
            [160, 160, u64::MAX]
        );
        // A clock that was set back: what has begun goes on.
        let after = |used, now| keys.sending_after(used, now).number;
        assert_eq!(
            [(1, 99), (1, 160), (2, 99)].map(|(used, now)| after(used, now)),
            [1, 2, 2]
        );
        assert_eq!(after(3, 99), 1, "of another file");
        assert!(keys.accepted(1, 160 + GRACE_S - 1).is_ok());
        assert_eq!(
            keys.accepted(1, 160 + GRACE_S).err(),
            Some(Refusal::OldEpoch(1))
        );
        assert!(keys.accepted(2, 0).is_ok(), "another clock is ahead");
        assert_eq!(keys.accepted(3, 0).err(), Some(Refusal::UnknownEpoch(3)));
        assert!(keys.shares(&Keys::new(&file), 2));
        assert!(!keys.shares(&Keys::new(&KeyFile::new(1, [9; 32], 0)), 1));
    }
}
