//! Trains that arrive one packet at a time.
//!
//! A socket has the kernel join packets from the first burst on (`gro_on_demand`). A
//! conversation in which a message and an ACK travel together is never a burst; but there
//! the sender's kernel cuts what the receiver's could have handed over as one, and the
//! receiver makes two calls. Measured with perftest's `ib_send_lat` on loopback, half a
//! round trip is 3.4 us with joining and 4.3 without.

use urxe_core::Stats;
use urxe_udp::UdpSocket;

/// Packets of trains that arrived alone, from which on it is looked at closely.
const SPLIT_MIN: u64 = 1024;
/// Among at most so many packets they are a habit: in a conversation of pairs every second
/// one is. One of lone packets has a pair now and then, for its ACKs; it is better off
/// without joining, which costs it a tenth of its round trip and lasts: so the habit has to
/// last as well.
const AMONG_MAX: u64 = 3 * SPLIT_MIN;

/// What was counted when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct SplitTrains {
    split: u64,
    received: u64,
}

impl SplitTrains {
    /// After packets were handled: has the kernel join those of the socket, if that is better.
    #[inline]
    pub(super) fn look(&mut self, stats: &Stats, socket: &UdpSocket) {
        if self.want_joining(stats) {
            socket.join_packets();
        }
    }

    #[inline]
    fn want_joining(&mut self, stats: &Stats) -> bool {
        stats.split_pkts - self.split >= SPLIT_MIN && self.are_a_habit(stats)
    }

    #[cold]
    fn are_a_habit(&mut self, stats: &Stats) -> bool {
        let among = stats.rcvd_pkts - self.received;
        *self = SplitTrains {
            split: stats.split_pkts,
            received: stats.rcvd_pkts,
        };
        among <= AMONG_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joins(one_in: u64) -> bool {
        let (mut trains, mut stats) = (SplitTrains::default(), Stats::default());
        (1..=100_000).any(|n| {
            stats.rcvd_pkts += 1;
            stats.split_pkts += u64::from(n % one_in == 0);
            trains.want_joining(&stats)
        })
    }

    #[test]
    fn a_habit_of_pairs_is_joined_and_a_pair_now_and_then_is_not() {
        assert!(joins(2));
        assert!(joins(3));
        assert!(!joins(4), "an ACK with one message in four");
        assert!(!joins(1000));
    }
}
