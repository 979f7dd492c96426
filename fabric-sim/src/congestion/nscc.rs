//! NSCC, the sender's congestion control of Ultra Ethernet (UEC specification 1.0): a window that four cases of mark and delay
//! change, and that falls at once to what was delivered when the network is far too full.
//!
//! | | delay below the target | above |
//! |---|---|---|
//! | not marked | proportional increase: by the distance from the target | fair increase: the same for all |
//! | marked | nothing | multiplicative decrease: by the excess of the mean delay, once in a round trip |
//!
//! Increases are gathered and added now and then (fulfill adjustment), with a little for all flows. Steps grow with what fills the
//! way (BDP), against a way of 100 Gb/s and 12 us.

use crate::congestion::{Ack, Algorithm, Allowance, Road};
use crate::engine::{Span, Time};

/// Parameters, by default those of the public simulation of Ultra Ethernet's transport (`ultraethernet/uet-htsim`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NsccParams {
    /// What queues may add to the empty path; `None`: three quarters of its round trip.
    pub target: Option<Span>,
    /// The widest window, in what fills the empty path. A flow begins with it.
    pub widest: f64,
    /// Packets of proportional increase in a round trip without a queue, on the reference way.
    pub proportional: f64,
    /// Packets of fair increase in a round trip, on the reference way.
    pub fair: f64,
    /// Packets that a flow gets in a round trip in any case, on the reference way.
    pub always: f64,
    /// Part of what is acknowledged that a window grows by, once all of one came back without a queue, on the reference way.
    pub fast: f64,
    /// The delay below which there is no queue.
    pub no_queue: Span,
    /// Weight of the excess in a decrease.
    pub gamma: f64,
    /// The largest part of a window that a decrease takes.
    pub max_decrease: f64,
    /// Weight of the newest delay in the mean.
    pub smoothing: f64,
    /// Quick adapt: a delay of so many targets.
    pub quick_delay: f64,
    /// Quick adapt: less than this part of the widest window was delivered in a round trip and a target.
    pub quick_part: f64,
}

impl Default for NsccParams {
    fn default() -> Self {
        NsccParams {
            target: None,
            widest: 1.5,
            proportional: 4.0,
            fair: 5.0,
            always: 0.15,
            fast: 0.25,
            no_queue: Span::from_us(1),
            gamma: 0.8,
            max_decrease: 0.5,
            smoothing: 0.0125,
            quick_delay: 4.0,
            quick_part: 0.125,
        }
    }
}

/// The way that increases are given for: 100 Gb/s and 12 us.
const REFERENCE_RTT: Span = Span::from_us(12);
const REFERENCE_BYTES: f64 = 150_000.0;
/// Packets after which increases are added, if that is before a round trip.
const GATHERED_PACKETS: f64 = 8.0;

#[derive(Debug)]
pub(crate) struct Nscc {
    params: NsccParams,
    base_rtt: Span,
    target: Span,
    /// What fills the way, against the reference.
    scale: f64,
    /// All in packets.
    window: f64,
    widest: f64,
    /// Increase times window, and what was acknowledged, since it was added last.
    gathered: f64,
    acked: f64,
    added_at: Time,
    decreased_at: Option<Time>,
    /// Seconds.
    mean_delay: f64,
    /// Acknowledged in a row without a queue.
    without_queue: f64,
    is_fast: bool,
    quick: Quick,
}

/// What quick adapt knows: its period, what was delivered in it, and what was under way when it last adapted, of which marks say
/// nothing new.
#[derive(Debug, Default)]
struct Quick {
    until: Option<Time>,
    delivered: f64,
    old: f64,
    old_heard: f64,
}

impl Nscc {
    pub(crate) fn new(params: NsccParams, road: Road) -> Nscc {
        let full = road.bdp().max(1.0);
        let widest = (params.widest * full).max(1.0);
        Nscc {
            params,
            base_rtt: road.base_rtt,
            target: params
                .target
                .unwrap_or(Span::from_ps(road.base_rtt.ps() / 4 * 3)),
            scale: full * f64::from(road.packet) / REFERENCE_BYTES,
            window: widest,
            widest,
            gathered: 0.0,
            acked: 0.0,
            added_at: Time::ZERO,
            decreased_at: None,
            mean_delay: 0.0,
            without_queue: 0.0,
            is_fast: false,
            quick: Quick::default(),
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            window: self.window as u32,
            rate: None,
        }
    }

    fn clamp(&mut self) {
        self.window = self.window.clamp(1.0, self.widest);
    }

    /// The network is far too full: the window becomes what it delivers. True if nothing else is to be done.
    fn adapts_quickly(&mut self, now: Time, under_way: u64, marked: bool, delay: Span) -> bool {
        let quick = &mut self.quick;
        let mut is_done = false;
        if marked && quick.old_heard < quick.old {
            is_done = true;
        } else if quick.until.is_none_or(|until| now > until) {
            let limit = self.target.ps() as f64 * self.params.quick_delay;
            let is_full = delay.ps() as f64 > limit;
            let is_slow = quick.delivered < self.widest * self.params.quick_part;
            if quick.until.is_some() && is_full && is_slow {
                self.window = quick.delivered.max(1.0);
                (quick.old, quick.old_heard) = (under_way as f64, 0.0);
                is_done = true;
            }
            quick.delivered = 0.0;
            quick.until = Some(now + self.base_rtt + self.target);
        }
        if is_done {
            (self.gathered, self.acked) = (0.0, 0.0);
        }
        is_done
    }

    fn note_delay(&mut self, delay: Span, marked: bool) {
        // Without a mark a queue is on its way out, whatever the packet still met.
        let seen = match !marked && delay > self.target {
            true => Span::from_ps(self.base_rtt.ps() / 4),
            false => delay,
        };
        let weight = self.params.smoothing;
        self.mean_delay = weight * seen.as_secs_f64() + (1.0 - weight) * self.mean_delay;
    }

    fn increase(&mut self, packets: f64, delay: Span) {
        if delay >= self.target {
            self.gathered += self.params.fair * self.scale * packets;
            return;
        }
        if delay < self.params.no_queue {
            self.without_queue += packets;
            self.is_fast |= self.without_queue > self.window;
        } else {
            self.without_queue = 0.0;
            self.is_fast = false;
        }
        if self.is_fast {
            self.window += packets * self.params.fast * self.scale;
        } else {
            let room = (self.target - delay).ps() as f64 / REFERENCE_RTT.ps() as f64;
            self.gathered += self.params.proportional * self.scale * room * packets;
        }
    }

    fn decrease(&mut self, now: Time) {
        (self.is_fast, self.without_queue) = (false, 0.0);
        let target = self.target.as_secs_f64();
        let is_next = self
            .decreased_at
            .is_none_or(|at| now.since(at) > self.base_rtt);
        if self.mean_delay > target && is_next {
            let part = self.params.gamma * (self.mean_delay - target) / self.mean_delay;
            self.window *= 1.0 - part.min(self.params.max_decrease);
            self.decreased_at = Some(now);
        }
    }

    /// Adds what was gathered.
    fn fulfill(&mut self, now: Time) {
        let is_round = now.since(self.added_at) >= self.base_rtt;
        if self.acked <= GATHERED_PACKETS && !is_round {
            return;
        }
        self.window += self.gathered / self.window;
        if is_round {
            self.window += self.params.always * self.scale;
            self.added_at = now;
        }
        (self.gathered, self.acked) = (0.0, 0.0);
    }
}

impl Algorithm for Nscc {
    fn start(&self) -> Allowance {
        self.allowance()
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance {
        let packets = f64::from(ack.packets);
        let delay = ack.rtt - self.base_rtt;
        self.acked += packets;
        self.quick.delivered += packets;
        self.quick.old_heard += packets;
        self.note_delay(delay, ack.marked);
        if !self.adapts_quickly(ack.now, ack.sent - ack.acked, ack.marked, delay) {
            match ack.marked {
                false => self.increase(packets, delay),
                true if delay >= self.target => self.decrease(ack.now),
                true => {}
            }
            self.clamp();
            self.fulfill(ack.now);
        }
        self.clamp();
        self.allowance()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rate;

    /// 100 Gb/s and 12 us, in packets of 1500 bytes: 100 of them.
    fn nscc() -> Nscc {
        let road = Road {
            base_rtt: Span::from_us(12),
            rate: Rate::gbps(100),
            switches: 1,
            packet: 1500,
        };
        Nscc::new(NsccParams::default(), road)
    }

    /// Acknowledges `count` packets, one in every 100 ns from `from` on.
    fn acks(nscc: &mut Nscc, from: Span, count: u64, delay: Span, marked: bool) -> u32 {
        let mut window = 0;
        for n in 0..count {
            let ack = Ack {
                now: Time::ZERO + from + Span::from_ns(100) * n,
                rtt: nscc.base_rtt + delay,
                packets: 1,
                acked: n,
                sent: n + 40,
                hops: &[],
                marked,
                is_at_end: false,
            };
            window = nscc.on_ack(&ack).window;
        }
        window
    }

    #[test]
    fn a_flow_begins_with_one_and_a_half_of_what_fills_the_way() {
        assert_eq!(nscc().start().window, 150);
    }

    #[test]
    fn a_mark_below_the_target_changes_nothing() {
        let mut nscc = nscc();
        nscc.window = 50.0;
        let window = acks(&mut nscc, Span::from_us(1), 50, Span::from_us(5), true);
        assert_eq!(window, 50);
    }

    #[test]
    fn increase_is_proportional_below_the_target_and_fair_above() {
        let grown = |delay| {
            let mut nscc = nscc();
            nscc.window = 50.0;
            acks(&mut nscc, Span::from_us(1), 54, delay, false);
            nscc.window - 50.0
        };
        // A target of 9 us: 54 packets at a distance of 6 us add 4 x 1/2 x 54/50, at 3 us half of it; and above 5 x 54/50, whatever the delay.
        let (far, near) = (grown(Span::from_us(3)), grown(Span::from_us(6)));
        assert!((far / near - 2.0).abs() < 0.1, "{far} {near}");
        assert!((1.9..2.3).contains(&far), "{far}");
        let (above, beyond) = (grown(Span::from_us(10)), grown(Span::from_us(20)));
        assert!((4.9..5.6).contains(&above), "{above}");
        assert_eq!(above, beyond);
    }

    #[test]
    fn a_window_without_a_queue_grows_fast() {
        let mut nscc = nscc();
        nscc.window = 50.0;
        // After 50 of them each adds a quarter.
        let window = acks(&mut nscc, Span::from_us(1), 150, Span::ZERO, false);
        assert!((72..=80).contains(&window), "{window}");
    }

    #[test]
    fn a_decrease_is_by_the_excess_of_the_mean_and_once_in_a_round_trip() {
        let mut nscc = nscc();
        (nscc.window, nscc.mean_delay) = (100.0, 18e-6);
        let delay = Span::from_us(18);
        // 0.8 x 9 / 18.
        assert_eq!(acks(&mut nscc, Span::from_us(20), 1, delay, true), 60);
        assert_eq!(acks(&mut nscc, Span::from_us(21), 50, delay, true), 60);
        assert!(acks(&mut nscc, Span::from_us(33), 1, delay, true) < 40);
    }

    #[test]
    fn a_network_that_is_far_too_full_narrows_the_window_to_what_it_delivers() {
        let mut nscc = nscc();
        let delay = Span::from_us(40);
        acks(&mut nscc, Span::from_us(50), 1, delay, true);
        // A period is 21 us; 5 packets come in it.
        for n in 0..5 {
            acks(&mut nscc, Span::from_us(52 + n), 1, delay, true);
        }
        assert!(nscc.window > 60.0, "{}", nscc.window);
        assert_eq!(acks(&mut nscc, Span::from_us(72), 1, delay, true), 6);
        // What was under way then says nothing new: 40 packets.
        assert_eq!(acks(&mut nscc, Span::from_us(100), 38, delay, true), 6);
    }
}
