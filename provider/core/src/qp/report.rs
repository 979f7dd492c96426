//! The state of a QP for reports: its queues and PSNs, and what went wrong.

use core::net::IpAddr;

use urxe_wire::{Psn, Qpn};

use crate::detail::ErrorDetail;
use crate::qp::Qp;
use crate::qp::state::{QpState, QpType};

macro_rules! counts {
    ($name:ident { $($field:ident: $meaning:literal,)* }) => {
        /// What went wrong at one QP; nothing here is touched while all goes well.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $(#[doc = $meaning] pub $field: u32,)* }

        impl $name {
            /// Every counter with its name, those of the device's counters.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), u64::from(self.$field))),*].into_iter()
            }
        }
    };
}

counts! { RequesterCounts {
    rcvd_rnr_err: "RNR NAKs received.",
    rcvd_seq_err: "Sequence NAKs received.",
    implied_nak: "Responses found missing because a later one arrived.",
    ack_timeout: "Local ACK timeouts.",
    retransmitted_pkts: "Packets sent again.",
} }

counts! { ResponderCounts {
    duplicate_request: "Duplicate requests received.",
    out_of_seq_request: "Requests received ahead of the expected PSN.",
    send_rnr_err: "RNR NAKs sent.",
} }

/// What is known of the path to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathReport {
    /// The smoothed round trip, in nanoseconds; 0 while nothing is known, as below.
    pub srtt_ns: u64,
    /// The shortest round trip.
    pub min_rtt_ns: u64,
    /// Packets that may be under way.
    pub window: u32,
    /// Packets under way.
    pub under_way: u32,
    /// The rate at which packets leave, in bits per second, if one is kept.
    pub rate_bps: Option<u64>,
    /// The window and the rate follow a model of the path ([`crate::congestion::CongestionControl::Path`]).
    pub has_model: bool,
    /// The two sides tell each other which packets are lost, and send those alone again.
    pub is_selective: bool,
}

/// One QP, as [`crate::Shard::qp_report`] shows it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QpReport<'a> {
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: QpState,
    /// The peer's address and QPN, once it has one.
    pub peer: Option<(IpAddr, Qpn)>,
    /// Requests in the send queue, and how many it takes.
    pub sq: (u32, u32),
    /// Receives in the receive queue, and how many it takes.
    pub rq: (u32, u32),
    /// PSN of the next packet to send.
    pub next_psn: Psn,
    /// Oldest PSN that is not acknowledged.
    pub una_psn: Psn,
    /// PSN that is expected from the peer.
    pub expected_psn: Psn,
    /// The path to its peer, for services that acknowledge.
    pub path: Option<PathReport>,
    /// Counts as requester.
    pub requester: RequesterCounts,
    /// Counts as responder.
    pub responder: ResponderCounts,
    /// Why it failed, if it did.
    pub last_error: Option<&'a ErrorDetail>,
}

impl Qp {
    pub(crate) fn report(&self) -> QpReport<'_> {
        let (req, resp) = (&self.req, &self.resp);
        let has_peer = self.attr.ah_attr.is_some();
        QpReport {
            qpn: self.link.qpn,
            qp_type: self.init.qp_type,
            state: self.state(),
            peer: has_peer.then_some((self.link.dest.remote, self.link.dest_qpn)),
            sq: (req.sq.posted(), req.sq.capacity()),
            rq: (resp.rq.len(), resp.rq.capacity()),
            next_psn: req.next_psn,
            una_psn: req.una,
            expected_psn: resp.epsn,
            path: (has_peer && !self.is_unreliable()).then(|| req.path_report(&self.link)),
            requester: req.counts,
            responder: resp.counts,
            last_error: self.last_error.as_deref(),
        }
    }
}
