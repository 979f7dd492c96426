//! The notification point: the receiver of a packet that a switch has marked (CE) tells the
//! sender with a CNP, though not more often than it can react.

use crate::time::Time;

/// The least time between two CNPs of a QP. The sender cuts its rate once for each, and
/// needs a round trip to show the effect; adapters use 50 us.
const INTERVAL_NS: u64 = 50_000;

/// What a QP knows about marks on packets that it receives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotificationPoint {
    /// No CNP leaves before this time.
    quiet_until: Time,
    owed: bool,
}

impl NotificationPoint {
    /// A marked packet arrived.
    pub(crate) fn on_marked(&mut self, now: Time) {
        if self.quiet_until <= now {
            self.quiet_until = now + INTERVAL_NS;
            self.owed = true;
        }
    }

    /// True if a CNP is to be sent.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed
    }

    /// It was sent, or its QP is gone.
    pub(crate) fn settle(&mut self) {
        self.owed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notification_in_an_interval() {
        let mut point = NotificationPoint::default();
        let mut sent = 0;
        for ns in (0..1_000_000).step_by(100) {
            point.on_marked(Time(ns));
            if point.is_owed() {
                sent += 1;
                point.settle();
            }
        }
        assert_eq!(sent, 1_000_000 / INTERVAL_NS);
    }
}
