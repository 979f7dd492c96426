//! Counters. Those that Linux's rdma_rxe also has bear its names, so that scripts
//! and habits carry over.

use crate::error::DropReason;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Everything that a shard counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// Packets dropped, by [`DropReason`].
            pub dropped: [u64; DropReason::ALL.len()],
        }

        impl Stats {
            /// What every counter counts, by name (the drops are [`DropReason::meaning`]).
            pub const MEANINGS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),*))),*];

            /// Every counter with its name, the drops last.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name)),*].into_iter().chain(
                    DropReason::ALL.iter().map(|&r| (r.name(), self.dropped[r as usize])),
                )
            }
        }
    };
}

counters! {
    /// Packets sent.
    sent_pkts,
    /// Packets received, the bad ones too.
    rcvd_pkts,
    /// Packets that left in a train and arrived alone, as far as their IPv4 Identification shows.
    split_pkts,
    /// Duplicate requests received.
    duplicate_request,
    /// Requests received ahead of the expected PSN.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// Sequence NAKs received.
    rcvd_seq_err,
    /// ACKs (and NAKs) sent.
    ack_sent,
    /// Times that an ACK was held back because the peer does not wait for it.
    ack_deferred,
    /// Times that a requester went back to send again: timeouts, sequence NAKs, missing responses.
    completer_retry_err,
    /// SENDs of connections that a peer acknowledged.
    rdma_sends,
    /// Receives of connections that were filled.
    rdma_recvs,
    /// Requesters that ran out of retries.
    retry_exceeded_err,
    /// Requesters that ran out of RNR retries.
    retry_rnr_exceeded_err,
    /// Local ACK timeouts.
    ack_timeout,
    /// Responses found missing because a later one arrived (implied NAK).
    implied_nak,
    /// Packets sent again.
    retransmitted_pkts,
    /// Completions that ended in an error, flushed ones not counted.
    completer_err,
    /// Requests refused with a NAK for an invalid request or a failed access check.
    responder_err,
    /// Messages sent for the first time (READs in several requests count as such).
    sent_messages,
    /// Messages received and executed.
    rcvd_messages,
    /// Congestion notification packets received.
    rcvd_cnp,
    /// Congestion notification packets sent, because a packet was marked on its way.
    sent_cnp,
    /// Messages of the connection manager sent.
    cm_sent_msgs,
    /// Messages of the connection manager received.
    cm_rcvd_msgs,
    /// Datagrams to QP 1 that are no message of the connection manager.
    cm_malformed,
    /// Messages about connections that are not there, or not at that point.
    cm_stray_msgs,
    /// Messages of the connection manager that had arrived before.
    cm_duplicate_msgs,
    /// Messages of the connection manager sent again because no answer came.
    cm_retries,
    /// Requests for connections refused because there is no listener, the backlog is full, or they are stale.
    cm_refused_reqs,
    /// Connections given up before their time as there were too many: half open, or at rest after their end.
    cm_evicted,
}

impl Stats {
    /// Counts a dropped packet.
    #[inline]
    pub fn drop_packet(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Packets dropped for this reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}
