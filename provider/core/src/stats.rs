//! Counters. Those that Linux's rdma_rxe also has bear its names, so that scripts
//! and habits carry over.

use crate::error::DropReason;

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// Everything that a shard counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $(#[doc = $meaning] pub $name: u64,)*
            /// Packets dropped, by [`DropReason`].
            pub dropped: [u64; DropReason::ALL.len()],
        }

        impl Stats {
            /// What every counter counts, by name (the drops are [`DropReason::meaning`]).
            pub const MEANINGS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $meaning)),*];

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
    sent_pkts: "Packets sent.",
    rcvd_pkts: "Packets received, the bad ones too.",
    split_pkts: "Packets that left in a train and arrived alone, as far as their IPv4 Identification shows.",
    duplicate_request: "Duplicate requests received.",
    out_of_seq_request: "Requests received ahead of the expected PSN.",
    rcvd_rnr_err: "RNR NAKs received.",
    send_rnr_err: "RNR NAKs sent.",
    rcvd_seq_err: "Sequence NAKs received.",
    ack_sent: "ACKs (and NAKs) sent.",
    ack_deferred: "Times that an ACK was held back because the peer does not wait for it.",
    completer_retry_err: "Times that a requester went back to send again: timeouts, sequence NAKs, missing responses.",
    rdma_sends: "SENDs of connections that a peer acknowledged.",
    rdma_recvs: "Receives of connections that were filled.",
    retry_exceeded_err: "Requesters that ran out of retries.",
    retry_rnr_exceeded_err: "Requesters that ran out of RNR retries.",
    ack_timeout: "Local ACK timeouts.",
    implied_nak: "Responses found missing because a later one arrived (implied NAK).",
    retransmitted_pkts: "Packets sent again.",
    completer_err: "Completions that ended in an error, flushed ones not counted.",
    responder_err: "Requests refused with a NAK for an invalid request or a failed access check.",
    sent_messages: "Messages sent for the first time (READs in several requests count as such).",
    rcvd_messages: "Messages received and executed.",
    rcvd_cnp: "Congestion notification packets received.",
    sent_cnp: "Congestion notification packets sent, because a packet was marked on its way.",
    cm_sent_msgs: "Messages of the connection manager sent.",
    cm_rcvd_msgs: "Messages of the connection manager received.",
    cm_malformed: "Datagrams to QP 1 that are no message of the connection manager.",
    cm_stray_msgs: "Messages about connections that are not there, or not at that point.",
    cm_duplicate_msgs: "Messages of the connection manager that had arrived before.",
    cm_retries: "Messages of the connection manager sent again because no answer came.",
    cm_refused_reqs: "Requests for connections refused because there is no listener, the backlog is full, or they are stale.",
    cm_evicted: "Connections given up before their time as there were too many: half open, or at rest after their end.",
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
