//! Congestion control from papers, beside what the transport has itself: for networks that can tell a sender more than one over
//! sockets hears, and to compare. An algorithm hears of acknowledgements and steers its QP ([`urxe_core::Shard::steer`]).
//!
//! | file | what |
//! |---|---|
//! | `swift.rs` | Swift: a window by the delay, with a target that grows with the number of flows |
//! | `timely.rs` | TIMELY, as patched: a rate by the delay and its change |
//! | `hpcc.rs` | HPCC: a window by what switches write into packets (INT) |
//! | `nscc.rs` | NSCC of Ultra Ethernet: a window by marks and the delay |
//! | `rccc.rs` | RCCC of Ultra Ethernet: credit that the receiver gives its senders in turn |

mod hpcc;
mod nscc;
mod rccc;
mod swift;
mod timely;

use crate::engine::{Rate, Span, Time};
use crate::fabric::Hop;

pub use hpcc::HpccParams;
pub use nscc::NsccParams;
pub use rccc::RcccParams;
pub(crate) use rccc::{Grant, Pacer};
pub use swift::SwiftParams;
pub use timely::TimelyParams;

/// Which algorithm, with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Steering {
    /// Kumar et al., SIGCOMM 2020.
    Swift(SwiftParams),
    /// Mittal et al., SIGCOMM 2015, with the patch of Zhu et al., CoNEXT 2016.
    Timely(TimelyParams),
    /// Li et al., SIGCOMM 2019.
    Hpcc(HpccParams),
    /// Ultra Ethernet specification 1.0.
    Nscc(NsccParams),
    /// Ultra Ethernet specification 1.0; Olteanu et al., NSDI 2022.
    Rccc(RcccParams),
}

impl Steering {
    /// It reads what switches write.
    pub(crate) fn reads_telemetry(&self) -> bool {
        matches!(self, Steering::Hpcc(_))
    }

    pub(crate) fn begin(&self, road: Road) -> Box<dyn Algorithm> {
        match *self {
            Steering::Swift(params) => Box::new(swift::Swift::new(params, road)),
            Steering::Timely(params) => Box::new(timely::Timely::new(params, road)),
            Steering::Hpcc(params) => Box::new(hpcc::Hpcc::new(params, road)),
            Steering::Nscc(params) => Box::new(nscc::Nscc::new(params, road)),
            Steering::Rccc(params) => Box::new(rccc::Spender::new(params, road)),
        }
    }
}

/// What is known of the way to the peer before the first packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Road {
    /// Of a full packet and its acknowledgement, with empty queues.
    pub base_rtt: Span,
    /// Of the sender's link.
    pub rate: Rate,
    /// Switches on the way.
    pub switches: u32,
    /// A full packet on the link, preamble and gap included.
    pub packet: u32,
}

impl Road {
    /// Packets that fill the way.
    pub(crate) fn bdp(&self) -> f64 {
        self.base_rtt.as_secs_f64() * self.rate.as_bps() as f64 / (8.0 * f64::from(self.packet))
    }

    /// A rate of so many packets in a time.
    pub(crate) fn rate_of(&self, packets: f64, span: Span) -> Rate {
        let bits = packets * f64::from(self.packet) * 8.0;
        Rate::bps(((bits / span.as_secs_f64().max(1e-12)) as u64).max(1))
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack<'a> {
    pub(crate) now: Time,
    /// Of the newest packet that it acknowledges.
    pub(crate) rtt: Span,
    /// Packets that it acknowledges.
    pub(crate) packets: u32,
    /// Packets that were acknowledged so far, and that have left for the first time.
    pub(crate) acked: u64,
    pub(crate) sent: u64,
    /// What switches wrote into the newest data packet that the peer had when it answered.
    pub(crate) hops: &'a [Hop],
    /// A switch marked one of the data packets since the acknowledgement before.
    pub(crate) marked: bool,
    /// The newest packet that left was the last of a message.
    pub(crate) is_at_end: bool,
}

/// What a QP may do from now on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Allowance {
    /// Packets under way; 0: nothing new leaves.
    pub(crate) window: u32,
    pub(crate) rate: Option<Rate>,
}

/// An algorithm for one QP.
pub(crate) trait Algorithm: core::fmt::Debug + Send {
    /// What the QP may do at first.
    fn start(&self) -> Allowance;

    /// What it may do after an acknowledgement.
    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance;

    /// What it may do when the receiver has given credit for so many packets since the connection began.
    fn on_grant(&mut self, packets: u64) -> Option<Allowance> {
        let _ = packets;
        None
    }
}
