//! Owners of QPNs that have ended: requests to them fail when what they sent before has been received.

use core::net::IpAddr;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;

/// So long after an owner was found to have ended, in nanoseconds: an ACK of its last moments may be another shard's to hand over.
const GRACE_NS: u64 = 100_000_000;

/// Those that were found, and when their requests fail.
#[derive(Debug, Default)]
pub(super) struct Ended(Vec<(Time, (IpAddr, QpnChunk))>);

impl Ended {
    pub(super) fn found(&mut self, owner: (IpAddr, QpnChunk), now: Time) {
        self.0.push((now + GRACE_NS, owner));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.iter().map(|&(due, _)| due).min()
    }

    pub(super) fn take_due(&mut self, now: Time) -> Vec<(IpAddr, QpnChunk)> {
        let due = self.0.extract_if(.., |(due, _)| *due <= now);
        due.map(|(_, owner)| owner).collect()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn requests_fail_some_time_after_their_owner_was_found_to_have_ended() {
        let owner = |n: u8| (IpAddr::V4(Ipv4Addr::new(127, 0, 0, n)), QpnChunk(7));
        let (start, later) = (Time::ZERO, Time::ZERO + GRACE_NS / 2);
        let mut ended = Ended::default();
        assert_eq!((ended.next(), ended.take_due(start)), (None, vec![]));
        ended.found(owner(1), start);
        ended.found(owner(2), later);
        let due = start + GRACE_NS;
        assert_eq!((ended.next(), ended.take_due(later)), (Some(due), vec![]));
        assert_eq!(ended.take_due(due), [owner(1)]);
        assert_eq!(ended.next(), Some(later + GRACE_NS));
    }
}
