//! A window that keeps the round trip near a target, in the manner of Swift (Kumar et al.,
//! SIGCOMM 2020): it grows by a fixed step per round trip below the target, and shrinks in
//! proportion to the excess above it, once per round trip. Needs nothing from switches or
//! from the peer but acknowledgements. A window of less than a packet becomes a pause
//! between packets, so that many senders can share a link.

use crate::congestion::{FRAME_OVERHEAD_IPV4, Rate};
use crate::time::Time;

/// Parameters of the control by delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayParams {
    /// The round trip to aim at, in nanoseconds: that of the empty path, plus what its
    /// queues may add, plus the time that the peer takes until it acknowledges.
    pub target_ns: u64,
    /// Packets that a window grows by in a round trip.
    pub additive_increase: f64,
    /// Weight of the excess over the target, between 0 and 1.
    pub beta: f64,
    /// The largest part of a window that one round trip can take, between 0 and 1.
    pub max_decrease: f64,
    /// The largest window, in packets.
    pub max_window: f64,
}

impl DelayParams {
    /// The smallest window: one packet in a thousand round trips.
    const WINDOW_MIN: f64 = 0.001;

    /// The longest pause between packets, of a window of less than one: on a path that always takes longer than the
    /// target, a thousand round trips would be a stall.
    const PAUSE_MAX_NS: f64 = 100e6;

    /// Common parameters, for a target round trip.
    pub const fn target(target_ns: u64) -> DelayParams {
        DelayParams {
            target_ns,
            additive_increase: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
            max_window: 1024.0,
        }
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_part = |x: f64| x > 0.0 && x < 1.0;
        if self.target_ns == 0 {
            return Err("a round trip of 0 ns cannot be aimed at");
        }
        if !is_part(self.beta) || !is_part(self.max_decrease) {
            return Err("beta and max_decrease must lie between 0 and 1");
        }
        // Not a number fails, too.
        if !(self.additive_increase > 0.0 && self.max_window >= 1.0) {
            return Err("a window must be able to grow, and to hold a packet");
        }
        Ok(())
    }
}

/// Packets that a window begins with.
const START_PACKETS: f64 = 32.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    params: DelayParams,
    /// In packets.
    window: f64,
    /// The last round trip that was measured.
    rtt_ns: u64,
    /// The window does not shrink again before this time.
    shrink_after: Time,
    /// No round trip was longer than the target yet, and nothing was lost: the window doubles.
    is_untried: bool,
}

impl Delay {
    pub(crate) fn new(params: DelayParams) -> Delay {
        Delay {
            params,
            // The paper begins as wide as allowed. A receiver's buffer that is shared may hold less than that.
            window: params.max_window.min(START_PACKETS),
            rtt_ns: params.target_ns,
            shrink_after: Time::ZERO,
            is_untried: true,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        (self.window as u32).max(1)
    }

    /// The rate that stands for a window of less than a packet.
    pub(crate) fn rate(&self, mtu: u32) -> Option<Rate> {
        if self.window >= 1.0 {
            return None;
        }
        let bits = f64::from((mtu + FRAME_OVERHEAD_IPV4) * 8);
        let pause = self.rtt_ns.max(1) as f64 / self.window;
        Some(Rate::from_bps(
            (bits * 1e9 / pause.min(DelayParams::PAUSE_MAX_NS)) as u64,
        ))
    }

    pub(crate) fn on_ack(&mut self, packets: u32, rtt: Option<u64>, now: Time) {
        if let Some(rtt) = rtt {
            self.rtt_ns = rtt;
        }
        if self.rtt_ns < self.params.target_ns {
            let acked = f64::from(packets);
            let step = self.params.additive_increase * acked;
            self.window += if self.is_untried {
                acked
            } else if self.window >= 1.0 {
                step / self.window
            } else {
                step
            };
        } else if rtt.is_some() && self.shrink_after <= now {
            let excess = (self.rtt_ns - self.params.target_ns) as f64 / self.rtt_ns as f64;
            let part = (self.params.beta * excess).min(self.params.max_decrease);
            self.shrink(part, now);
        }
        self.window = self.window.min(self.params.max_window);
    }

    pub(crate) fn on_loss(&mut self, now: Time) {
        if self.shrink_after <= now {
            self.shrink(self.params.max_decrease, now);
        }
    }

    fn shrink(&mut self, part: f64, now: Time) {
        self.is_untried = false;
        self.window = (self.window * (1.0 - part)).max(DelayParams::WINDOW_MIN);
        self.shrink_after = now + self.rtt_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that takes `per_packet` ns for a packet, and `base` ns for the way: the round
    /// trip of `senders` windows that are full.
    fn settle(senders: usize, per_packet: f64, base: f64, target: u64) -> (f64, Vec<f64>) {
        let mut all = vec![Delay::new(DelayParams::target(target)); senders];
        let mut now = Time(0);
        let mut rtt = base;
        for _ in 0..4000 {
            let under_way: f64 = all.iter().map(|d| d.window).sum();
            rtt = base.max(under_way * per_packet);
            now = now + rtt as u64;
            for d in &mut all {
                let packets = d.window();
                d.on_ack(packets, Some(rtt as u64), now);
            }
        }
        (rtt, all.iter().map(|d| d.window).collect())
    }

    #[test]
    fn the_round_trip_settles_near_the_target_and_the_link_stays_full() {
        for senders in [1, 2, 8] {
            let (rtt, windows) = settle(senders, 333.0, 12_000.0, 25_000);
            assert!(
                (12_500.0..30_000.0).contains(&rtt),
                "{senders}: {rtt} {windows:?}"
            );
        }
    }

    #[test]
    fn more_senders_than_packets_fit_are_paced() {
        let (_, windows) = settle(400, 333.0, 12_000.0, 25_000);
        assert!(windows.iter().all(|&w| w < 1.0), "{windows:?}");
        let mut d = Delay::new(DelayParams::target(25_000));
        d.window = 0.5;
        d.rtt_ns = 100_000;
        let rate = d.rate(1024).expect("paced").bps();
        assert_eq!(rate, (1024 + 66) * 8 * 5_000);
        assert_eq!(d.window(), 1);
        (d.window, d.rtt_ns) = (DelayParams::WINDOW_MIN, 20_000_000);
        let rate = d.rate(1024).expect("paced").bps();
        assert_eq!(rate, (1024 + 66) * 8 * 10, "no pause of 20 s");
    }

    #[test]
    fn it_doubles_until_the_target_is_exceeded_or_a_packet_is_lost() {
        let lost = |d: &mut Delay| d.on_loss(Time(1));
        let late = |d: &mut Delay| d.on_ack(1, Some(20_000), Time(20_001));
        for end in [lost, late] {
            let mut d = Delay::new(DelayParams::target(10_000));
            assert_eq!(d.window(), 32);
            d.on_ack(32, Some(5_000), Time(5_000));
            assert_eq!(d.window(), 64);
            end(&mut d);
            d.rtt_ns = 5_000;
            let before = d.window;
            d.on_ack(1, Some(5_000), Time(25_001));
            assert!((d.window - before) < 0.1, "{before} {}", d.window);
        }
    }

    #[test]
    fn one_decrease_in_a_round_trip() {
        let mut d = Delay::new(DelayParams::target(10_000));
        d.window = 1024.0;
        d.on_ack(1, Some(100_000), Time(200_000));
        assert_eq!(d.window, 512.0);
        d.on_ack(1, Some(100_000), Time(299_999));
        d.on_loss(Time(299_999));
        assert_eq!(d.window, 512.0);
        d.on_loss(Time(300_000));
        assert_eq!(d.window, 256.0);
    }

    #[test]
    fn senseless_parameters_are_refused() {
        let good = DelayParams::target(1000);
        assert_eq!(good.check(), Ok(()));
        for bad in [
            DelayParams::target(0),
            DelayParams { beta: 0.0, ..good },
            DelayParams {
                beta: f64::NAN,
                ..good
            },
            DelayParams {
                max_decrease: 1.0,
                ..good
            },
            DelayParams {
                additive_increase: 0.0,
                ..good
            },
            DelayParams {
                max_window: 0.5,
                ..good
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
