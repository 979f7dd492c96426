//! When a plain ACK leaves: one table, by what drives the shard.
//!
//! The thread that drives says what it is ([`Driver`]); no other place chooses an [`AckMode`]. What the modes then do
//! for each QP is in `qp/answer.rs` and `qp/ack.rs`.

/// When plain ACKs leave that no data of the shard follows. Data is never before them: what leaves may answer what they
/// acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// Send now. For a caller that will not look again for a while.
    Now,
    /// When the peer waits for them, as far as that is known, or after a few
    /// microseconds. For a caller that looks again and again.
    Patient,
    /// They stay owed. For a caller that is about to hand completions to an application which will
    /// probably answer.
    Defer,
    /// Send now, except when the application usually answers a WRITE with a WRITE: then wait up to `ANSWER_NS`, so
    /// that the ACK leaves with it. For a caller that fetches packets in the place of an application
    /// that looks at its memory.
    Answered,
    /// Not at all, whatever leaves: what they would say is not true yet. For a caller that has not put all into memory
    /// that it was given, and so has shown the application nothing of it.
    Withhold,
}

/// What drives a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A thread that posts requests, or serves those that other threads left.
    Poster,
    /// A thread that polls a completion queue.
    Poller {
        /// It has completions for its program.
        yields: bool,
    },
    /// A thread that waits for an event, and otherwise sleeps.
    Sleeper {
        /// It has the event.
        yields: bool,
    },
    /// The background thread.
    Background {
        /// The program drives too, at least now and then.
        beside: bool,
    },
    /// A call that changes an object or a connection, and does not look again.
    Visitor,
}

impl Driver {
    /// The table. `is_placed` is false while bytes that were received are not in memory yet.
    #[inline]
    pub const fn acks(self, is_placed: bool) -> AckMode {
        match self {
            _ if !is_placed => AckMode::Withhold,
            // The ACK goes with the requests, if any leave. A full window costs no packet this way.
            Driver::Poster => AckMode::Defer,
            // The program will probably answer.
            Driver::Poller { yields: true } | Driver::Sleeper { yields: true } => AckMode::Defer,
            Driver::Poller { yields: false } => AckMode::Patient,
            // The answer that the ACK was to travel with did not come.
            Driver::Sleeper { yields: false } | Driver::Visitor => AckMode::Now,
            Driver::Background { beside: true } => AckMode::Patient,
            Driver::Background { beside: false } => AckMode::Answered,
        }
    }
}

impl AckMode {
    /// When ACKs leave that data follows.
    #[inline]
    pub(crate) const fn before_data(self) -> AckMode {
        match self {
            AckMode::Withhold => AckMode::Withhold,
            _ => AckMode::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every driver, and what each may have for its program.
    const TABLE: [(Driver, AckMode); 8] = [
        (Driver::Poster, AckMode::Defer),
        (Driver::Poller { yields: true }, AckMode::Defer),
        (Driver::Poller { yields: false }, AckMode::Patient),
        (Driver::Sleeper { yields: true }, AckMode::Defer),
        (Driver::Sleeper { yields: false }, AckMode::Now),
        (Driver::Background { beside: true }, AckMode::Patient),
        (Driver::Background { beside: false }, AckMode::Answered),
        (Driver::Visitor, AckMode::Now),
    ];

    #[test]
    fn what_drives_decides_when_plain_acks_leave() {
        for (driver, mode) in TABLE {
            assert_eq!(driver.acks(true), mode, "{driver:?}");
        }
    }

    #[test]
    fn no_driver_acknowledges_bytes_that_are_not_in_memory() {
        for (driver, _) in TABLE {
            let mode = driver.acks(false);
            assert_eq!(mode, AckMode::Withhold, "{driver:?}");
            assert_eq!(mode.before_data(), AckMode::Withhold, "{driver:?}");
        }
    }

    #[test]
    fn an_ack_leaves_before_data_whatever_drives() {
        for (driver, _) in TABLE {
            assert_eq!(driver.acks(true).before_data(), AckMode::Now, "{driver:?}");
        }
    }
}
