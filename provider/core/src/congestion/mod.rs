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
//! | `path.rs` | a rate and a window that follow what the path delivers, in the manner of BBR |
//! | `text.rs` | the controls as people write them |
//! | `rate.rs` | bits per second, and what a packet takes of them |
//! | `pacer.rs` | when the next packet may leave at a rate |

mod dcqcn;
mod delay;
mod held;
mod notify;
mod pacer;
mod path;
mod rate;
mod text;

use core::ops::Range;

use crate::time::Time;
pub use dcqcn::DcqcnParams;
pub use delay::DelayParams;
pub(crate) use held::CONGESTION_EXPERIENCED;
pub use held::CongestionError;
pub(crate) use notify::NotificationPoint;
use pacer::Pacer;
use path::Path;
pub(crate) use path::{Acked, Asked};
pub(crate) use rate::FRAME_OVERHEAD_IPV4;
pub use rate::{Rate, frame_overhead};
pub use text::CongestionTextError;

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
    /// A rate and a window that follow what the path delivers: for long roads, and for roads that lose packets. Losses without
    /// a queue slow nothing down.
    Path,
    /// A window and a rate that the driver of the shard sets, as often as it likes: [`crate::Shard::steer`]. Until then there is neither.
    Steered,
    /// [`CongestionControl::None`] while round trips are short, [`CongestionControl::Path`] from when the shortest takes more than
    /// a millisecond, or packets are lost again and again while there is no queue.
    Auto,
}

impl CongestionControl {
    /// True if packets should say that they can be marked (ECT) and marks be answered.
    pub fn uses_ecn(&self) -> bool {
        matches!(self, CongestionControl::Dcqcn(_) | CongestionControl::Path)
    }

    /// What is wrong with the parameters, if anything.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            CongestionControl::None
            | CongestionControl::Path
            | CongestionControl::Steered
            | CongestionControl::Auto => Ok(()),
            CongestionControl::Window { bytes: 0 } => Err("a window of 0 bytes lets nothing pass"),
            CongestionControl::Window { .. } => Ok(()),
            CongestionControl::Dcqcn(params) => params.check(),
            CongestionControl::Delay(params) => params.check(),
        }
    }
}

/// What a full packet takes on a link beside its payload: BTH, ICRC, and what a datagram has.
const PACKET_OVERHEAD: u32 = 16 + FRAME_OVERHEAD_IPV4;
/// How late a sender may be and still catch up.
const LATE_MAX_NS: u64 = 5_000_000;

/// The state of a QP's congestion control.
#[derive(Debug)]
pub(crate) struct Controller {
    control: CongestionControl,
    algorithm: Algorithm,
    pacer: Pacer,
    mtu: u32,
    /// The QP is in the shard's list of those that are held back.
    pub(crate) is_held: bool,
}

#[derive(Debug)]
enum Algorithm {
    Window,
    Dcqcn(Dcqcn),
    Delay(Delay),
    Path(Box<Path>),
    Steered { window: u32, rate: Option<Rate> },
}

impl Algorithm {
    fn new(control: CongestionControl, now: Time) -> Option<Algorithm> {
        match control {
            CongestionControl::None | CongestionControl::Auto => None,
            CongestionControl::Window { .. } => Some(Algorithm::Window),
            CongestionControl::Dcqcn(params) => Some(Algorithm::Dcqcn(Dcqcn::new(params, now))),
            CongestionControl::Delay(params) => Some(Algorithm::Delay(Delay::new(params))),
            CongestionControl::Steered => Some(Algorithm::Steered {
                window: u32::MAX,
                rate: None,
            }),
            CongestionControl::Path => Some(Algorithm::Path(Box::new(Path::new(256, 0, now)))),
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
            mtu: 256,
            is_held: false,
        })
    }

    pub(crate) fn control(&self) -> CongestionControl {
        self.control
    }

    /// The path's MTU is known (again), and its shortest round trip, or 0: everything starts anew.
    pub(crate) fn restart(&mut self, mtu: u32, min_rtt: u64, now: Time) {
        self.mtu = mtu;
        self.pacer = Pacer::new(self.pacer.burst());
        self.algorithm = match Algorithm::new(self.control, now) {
            Some(Algorithm::Path(_)) => {
                let size = mtu + PACKET_OVERHEAD;
                Algorithm::Path(Box::new(Path::new(size, min_rtt, now)))
            }
            Some(new) => new,
            None => return,
        };
    }

    /// What the driver of the shard allows. False if this is not a controller that it steers.
    pub(crate) fn steer(&mut self, packets: u32, bits: Option<Rate>) -> bool {
        let Algorithm::Steered { window, rate } = &mut self.algorithm else {
            return false;
        };
        (*window, *rate) = (packets, bits);
        true
    }

    /// Packets that may be under way.
    pub(crate) fn window(&self) -> u32 {
        match (&self.algorithm, self.control) {
            (Algorithm::Window, CongestionControl::Window { bytes }) => (bytes / self.mtu).max(1),
            (Algorithm::Delay(delay), _) => delay.window(),
            (Algorithm::Path(path), _) => path.window(),
            (Algorithm::Steered { window, .. }, _) => *window,
            _ => u32::MAX,
        }
    }

    /// The rate that packets leave at now, if it is limited.
    pub(crate) fn rate(&mut self, now: Time) -> Option<Rate> {
        match &mut self.algorithm {
            Algorithm::Window => None,
            Algorithm::Dcqcn(dcqcn) => Some(dcqcn.rate(now)),
            Algorithm::Delay(delay) => delay.rate(self.mtu),
            Algorithm::Path(path) => path.rate(),
            Algorithm::Steered { rate, .. } => *rate,
        }
    }

    /// The same without a look at the clock, for reports.
    pub(crate) fn known_rate(&self) -> Option<Rate> {
        match &self.algorithm {
            Algorithm::Window => None,
            Algorithm::Dcqcn(dcqcn) => Some(dcqcn.known_rate()),
            Algorithm::Delay(delay) => delay.rate(self.mtu),
            Algorithm::Path(path) => path.rate(),
            Algorithm::Steered { rate, .. } => *rate,
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

    /// The path alone says what may be under way, however much that is.
    pub(crate) fn follows_path(&self) -> bool {
        matches!(self.algorithm, Algorithm::Path(_))
    }

    /// It sends no more than the path delivers, as far as it knows.
    pub(crate) fn is_steady(&self) -> bool {
        match &self.algorithm {
            Algorithm::Path(path) => path.is_steady(),
            _ => true,
        }
    }

    /// A packet left that fills a link for `bytes`, and that asks for so many packets of the path MTU.
    pub(crate) fn on_sent(&mut self, bytes: u32, answers: u32, now: Time) {
        let mut paced = bytes;
        match &mut self.algorithm {
            Algorithm::Dcqcn(dcqcn) => dcqcn.on_sent(bytes, now),
            Algorithm::Path(path) => {
                // What a READ brings fills the same road, the other way.
                let with = |answers: u32| {
                    bytes.saturating_add(answers.saturating_mul(self.mtu + PACKET_OVERHEAD))
                };
                paced = with(path.counted(answers));
                path.on_sent(with(answers), answers.max(1));
            }
            _ => {}
        }
        // A program's thread wakes up late, and then has to catch up.
        let late = match &self.algorithm {
            Algorithm::Path(path) => (path.min_rtt() / 4).min(LATE_MAX_NS),
            _ => 0,
        };
        if let Some(rate) = self.rate(now) {
            self.pacer.on_sent(paced, rate, late, now);
        }
    }

    /// A request packet leaves that asks for an acknowledgement.
    pub(crate) fn on_asked(&mut self, asked: Asked, now: Time) {
        if let Algorithm::Path(path) = &mut self.algorithm {
            path.on_asked(asked, now);
        }
    }

    /// All that is under way is sent again.
    pub(crate) fn on_rewind(&mut self) {
        if let Algorithm::Path(path) = &mut self.algorithm {
            path.on_rewind();
        }
    }

    /// The packets with these numbers are sent again, or are answered only after some that are.
    pub(crate) fn on_sent_again(&mut self, numbers: Range<u64>) {
        if let Algorithm::Path(path) = &mut self.algorithm {
            path.on_sent_again(numbers);
        }
    }

    /// Packets were acknowledged.
    pub(crate) fn on_ack(&mut self, acked: Acked, now: Time) {
        match &mut self.algorithm {
            Algorithm::Delay(delay) => delay.on_ack(acked.packets, acked.rtt, now),
            Algorithm::Path(path) => path.on_delivered(acked, now),
            _ => {}
        }
    }

    /// So many packets were lost, as far as is known.
    pub(crate) fn on_loss(&mut self, packets: u32, now: Time) {
        match &mut self.algorithm {
            Algorithm::Delay(delay) => delay.on_loss(now),
            Algorithm::Path(path) => path.on_lost(packets),
            _ => {}
        }
    }

    /// Nothing was heard for a whole timeout.
    pub(crate) fn on_silence(&mut self) {
        if let Algorithm::Path(path) = &mut self.algorithm {
            path.on_silence();
        }
    }

    /// The peer says that a packet was marked.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        match &mut self.algorithm {
            Algorithm::Dcqcn(dcqcn) => dcqcn.on_cnp(now),
            Algorithm::Path(path) => path.on_cnp(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_before_any_round_trip_is_known_holds_nothing_back_for_long() {
        let control = CongestionControl::Path;
        let mut controller = Controller::new(control, 0, Time(0)).expect("a path has one");
        controller.restart(1024, 0, Time(0));
        // Packets that were sent again, one in a long while: no round trip, and hardly a rate.
        let apart = 400_000_000;
        for n in 0..4u64 {
            let now = Time(n * apart);
            let (asked, acked) = path::sent_again(n);
            controller.on_asked(asked, now);
            controller.on_ack(acked, now + apart / 2);
        }
        assert!(controller.known_rate().map(Rate::bps) < Some(1_000_000));
        let now = Time(4 * apart);
        controller.on_sent(100, 64, now);
        let held = controller.may_send_at().since_ns(now);
        assert!((1..=110_000_000).contains(&held), "{held} ns");
    }
}
