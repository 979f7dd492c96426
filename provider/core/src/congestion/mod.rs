//! Congestion control: how fast a QP sends, and how much it has under way.
//!
//! A QP has at most one controller, chosen by [`CongestionControl`]; one that has none
//! pays a branch for it. The controllers see what a sender can see (acknowledgements and
//! their delay, congestion notifications, losses) and answer with a window in packets, a
//! rate, or both. The same code runs in virtual time and over sockets.
//!
//! | file | what |
//! |---|---|
//! | `dcqcn.rs` | the reaction point of DCQCN: a rate that falls with notifications |
//! | `delay.rs` | a window that keeps the round trip near a target, in the manner of Swift |
//! | `notify.rs` | the notification point: marked packets are answered with CNPs |
//! | `held.rs` | the shard's lists of QPs that wait for their time, or owe a CNP |
//! | `pacer.rs` | when the next packet may leave at a rate |

mod dcqcn;
mod delay;
mod held;
mod notify;
mod pacer;

use core::num::NonZeroU64;

use urxe_wire::Psn;

use crate::time::Time;
pub use dcqcn::DcqcnParams;
pub use delay::DelayParams;
pub(crate) use held::CONGESTION_EXPERIENCED;
pub use held::CongestionError;
pub(crate) use notify::NotificationPoint;
use pacer::Pacer;

use dcqcn::Dcqcn;
use delay::Delay;

/// How a QP reacts to congestion. Set with [`crate::Shard::set_congestion_control`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// None, but for the window that losses narrow: what adapters do if their congestion
    /// control is switched off.
    #[default]
    None,
    /// A fixed window: one bandwidth-delay product keeps a path full and its queues short.
    Window {
        /// Bytes of payload that may be under way; at least one packet may.
        bytes: u32,
    },
    /// DCQCN: a rate that falls with congestion notifications and recovers by itself.
    Dcqcn(DcqcnParams),
    /// A window that keeps the round trip near a target.
    Delay(DelayParams),
}

impl CongestionControl {
    /// True if packets should say that they can be marked (ECT) and marks be answered.
    pub(crate) fn uses_ecn(&self) -> bool {
        matches!(self, CongestionControl::Dcqcn(_))
    }

    /// What is wrong with the parameters, if anything.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            CongestionControl::None => Ok(()),
            CongestionControl::Window { bytes: 0 } => Err("a window of 0 bytes lets nothing pass"),
            CongestionControl::Window { .. } => Ok(()),
            CongestionControl::Dcqcn(params) => params.check(),
            CongestionControl::Delay(params) => params.check(),
        }
    }
}

/// Bits per second; never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// A rate of `bits` per second; 0 is taken as 1.
    pub const fn from_bps(bits: u64) -> Rate {
        match NonZeroU64::new(bits) {
            Some(bits) => Rate(bits),
            None => Rate(NonZeroU64::MIN),
        }
    }

    /// A rate in gigabits (10^9 bits) per second.
    pub const fn from_gbps(gigabits: u64) -> Rate {
        Rate::from_bps(gigabits.saturating_mul(1_000_000_000))
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0.get()
    }
}

/// Bytes that a datagram has beside its UDP payload on an Ethernet link, the gap between
/// frames and the preamble included: what a rate has to pay for besides the packet.
pub(crate) const FRAME_OVERHEAD_IPV4: u32 = 14 + 20 + 8 + 4 + 20;
/// The overhead over IPv6.
pub(crate) const FRAME_OVERHEAD_IPV6: u32 = FRAME_OVERHEAD_IPV4 + 20;

/// The state of a QP's congestion control.
#[derive(Debug)]
pub(crate) struct Controller {
    control: CongestionControl,
    algorithm: Algorithm,
    pacer: Pacer,
    /// The packet of the round trip that is being measured.
    timed: Option<(Psn, Time)>,
    mtu: u32,
    /// The QP is in the shard's list of those that are held back.
    pub(crate) is_held: bool,
}

#[derive(Debug)]
enum Algorithm {
    Window,
    Dcqcn(Dcqcn),
    Delay(Delay),
}

impl Algorithm {
    fn new(control: CongestionControl, now: Time) -> Option<Algorithm> {
        match control {
            CongestionControl::None => None,
            CongestionControl::Window { .. } => Some(Algorithm::Window),
            CongestionControl::Dcqcn(params) => Some(Algorithm::Dcqcn(Dcqcn::new(params, now))),
            CongestionControl::Delay(params) => Some(Algorithm::Delay(Delay::new(params))),
        }
    }
}

impl Controller {
    /// The controller of a QP, from now on; `None` for a QP that needs none.
    pub(crate) fn new(control: CongestionControl, burst: u32, now: Time) -> Option<Controller> {
        Some(Controller {
            control,
            algorithm: Algorithm::new(control, now)?,
            pacer: Pacer::new(burst),
            timed: None,
            mtu: 256,
            is_held: false,
        })
    }

    pub(crate) fn control(&self) -> CongestionControl {
        self.control
    }

    /// The path's MTU is known (again): everything starts anew.
    pub(crate) fn restart(&mut self, mtu: u32, now: Time) {
        self.mtu = mtu;
        self.timed = None;
        self.pacer = Pacer::new(self.pacer.burst());
        if let Some(new) = Algorithm::new(self.control, now) {
            self.algorithm = new;
        }
    }

    /// Packets that may be under way.
    pub(crate) fn window(&self) -> u32 {
        match (&self.algorithm, self.control) {
            (Algorithm::Window, CongestionControl::Window { bytes }) => (bytes / self.mtu).max(1),
            (Algorithm::Delay(delay), _) => delay.window(),
            _ => u32::MAX,
        }
    }

    /// The rate that packets leave at now, if it is limited.
    pub(crate) fn rate(&mut self, now: Time) -> Option<Rate> {
        match &mut self.algorithm {
            Algorithm::Window => None,
            Algorithm::Dcqcn(dcqcn) => Some(dcqcn.rate(now)),
            Algorithm::Delay(delay) => delay.rate(self.mtu),
        }
    }

    /// READ responses leave at the rate, too. A delay is measured by requests, and says
    /// nothing about the way of responses.
    pub(crate) fn paces_responses(&self) -> bool {
        matches!(self.algorithm, Algorithm::Dcqcn(_))
    }

    /// When the next packet may leave: now, or later.
    pub(crate) fn may_send_at(&self) -> Time {
        self.pacer.next()
    }

    /// A packet left that fills a link for `bytes`.
    pub(crate) fn on_sent(&mut self, bytes: u32, now: Time) {
        if let Algorithm::Dcqcn(dcqcn) = &mut self.algorithm {
            dcqcn.on_sent(bytes, now);
        }
        if let Some(rate) = self.rate(now) {
            self.pacer.on_sent(bytes, rate, now);
        }
    }

    /// A new request packet left that asks for an acknowledgement.
    pub(crate) fn on_asked(&mut self, psn: Psn, now: Time) {
        self.timed.get_or_insert((psn, now));
    }

    /// What is timed may be sent again: its acknowledgement would mean neither time.
    pub(crate) fn on_rewind(&mut self) {
        self.timed = None;
    }

    /// `packets` before `una` were acknowledged.
    pub(crate) fn on_ack(&mut self, una: Psn, packets: u32, now: Time) {
        let rtt = match self.timed {
            Some((psn, sent)) if psn.is_before(una) => {
                self.timed = None;
                Some(now.since_ns(sent))
            }
            _ => None,
        };
        if let Algorithm::Delay(delay) = &mut self.algorithm {
            delay.on_ack(packets, rtt, now);
        }
    }

    /// Packets were lost.
    pub(crate) fn on_loss(&mut self, now: Time) {
        if let Algorithm::Delay(delay) = &mut self.algorithm {
            delay.on_loss(now);
        }
    }

    /// The peer says that a packet was marked.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        if let Algorithm::Dcqcn(dcqcn) = &mut self.algorithm {
            dcqcn.on_cnp(now);
        }
    }
}
