//! DCQCN's reaction point (Zhu et al., SIGCOMM 2015): the rate falls with congestion
//! notifications, by more the more of them came lately, and recovers with time and with
//! bytes sent: first half-way back to where it was, then slowly beyond.

use crate::congestion::Rate;
use crate::time::Time;

/// Parameters of DCQCN. [`DcqcnParams::at`] gives those of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnParams {
    /// The link's rate: where a QP starts, and never goes beyond.
    pub line_rate: Rate,
    /// The least rate.
    pub min_rate: Rate,
    /// Added to the target rate in each step of additive increase.
    pub additive_increase: Rate,
    /// Added in each step of hyper increase.
    pub hyper_increase: Rate,
    /// Weight of one notification in alpha, between 0 and 1.
    pub g: f64,
    /// Alpha decays after this time without a notification, in nanoseconds.
    pub alpha_timer_ns: u64,
    /// Time between two steps of increase, in nanoseconds.
    pub increase_timer_ns: u64,
    /// Bytes between two steps of increase.
    pub increase_bytes: u64,
    /// Steps of fast recovery before additive increase.
    pub fast_recovery_steps: u32,
}

impl DcqcnParams {
    /// The paper's parameters, on a link of this rate.
    pub const fn at(line_rate: Rate) -> DcqcnParams {
        DcqcnParams {
            line_rate,
            min_rate: Rate::from_bps(10_000_000),
            additive_increase: Rate::from_bps(40_000_000),
            hyper_increase: Rate::from_bps(400_000_000),
            g: 1.0 / 256.0,
            alpha_timer_ns: 55_000,
            increase_timer_ns: 55_000,
            increase_bytes: 10_000_000,
            fast_recovery_steps: 5,
        }
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.min_rate > self.line_rate {
            return Err("DCQCN's least rate is above the link's");
        }
        // Not a number fails, too.
        if !(self.g > 0.0 && self.g <= 1.0) {
            return Err("DCQCN's g must be above 0 and at most 1");
        }
        if self.alpha_timer_ns == 0 || self.increase_timer_ns == 0 || self.increase_bytes == 0 {
            return Err("DCQCN's timers and byte counter must not be 0");
        }
        Ok(())
    }
}

/// Rates are kept as numbers of bits per second, with fractions: only sums, products and
/// quotients are taken, which give the same bits on every machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dcqcn {
    params: DcqcnParams,
    current: f64,
    target: f64,
    alpha: f64,
    alpha_due: Time,
    increase_due: Time,
    bytes_left: u64,
    /// Steps since the last cut, by time and by bytes.
    time_steps: u32,
    byte_steps: u32,
}

impl Dcqcn {
    pub(crate) fn new(params: DcqcnParams, now: Time) -> Dcqcn {
        let line = params.line_rate.bps() as f64;
        Dcqcn {
            params,
            current: line,
            target: line,
            alpha: 1.0,
            alpha_due: now + params.alpha_timer_ns,
            increase_due: now + params.increase_timer_ns,
            bytes_left: params.increase_bytes,
            time_steps: 0,
            byte_steps: 0,
        }
    }

    /// The rate now: whatever the timers should have done meanwhile is done first.
    pub(crate) fn rate(&mut self, now: Time) -> Rate {
        self.run_timers(now);
        self.known_rate()
    }

    /// The rate when it was looked at last.
    pub(crate) fn known_rate(&self) -> Rate {
        Rate::from_bps(self.current as u64)
    }

    pub(crate) fn on_sent(&mut self, bytes: u32, now: Time) {
        self.run_timers(now);
        let mut bytes = u64::from(bytes);
        while bytes >= self.bytes_left {
            bytes -= self.bytes_left;
            self.bytes_left = self.params.increase_bytes;
            self.byte_steps += 1;
            self.increase();
        }
        self.bytes_left -= bytes;
    }

    pub(crate) fn on_cnp(&mut self, now: Time) {
        self.run_timers(now);
        self.target = self.current;
        self.current *= 1.0 - self.alpha / 2.0;
        self.current = self.current.max(self.params.min_rate.bps() as f64);
        self.alpha = (1.0 - self.params.g) * self.alpha + self.params.g;
        self.alpha_due = now + self.params.alpha_timer_ns;
        self.increase_due = now + self.params.increase_timer_ns;
        self.bytes_left = self.params.increase_bytes;
        (self.time_steps, self.byte_steps) = (0, 0);
    }

    fn run_timers(&mut self, now: Time) {
        while self.alpha_due <= now {
            self.alpha *= 1.0 - self.params.g;
            self.alpha_due = self.alpha_due + self.params.alpha_timer_ns;
            if self.alpha < 1e-9 {
                // It says "no congestion" already: an idle QP need not count on.
                self.alpha_due = now + self.params.alpha_timer_ns;
            }
        }
        while self.increase_due <= now {
            self.time_steps = self.time_steps.saturating_add(1);
            self.increase();
            self.increase_due = self.increase_due + self.params.increase_timer_ns;
            if self.is_at_line_rate() {
                self.increase_due = self.increase_due.max(now) + self.params.increase_timer_ns;
            }
        }
    }

    fn is_at_line_rate(&self) -> bool {
        self.current >= self.params.line_rate.bps() as f64
    }

    fn increase(&mut self) {
        let steps = self.params.fast_recovery_steps;
        let (fewer, more) = if self.time_steps < self.byte_steps {
            (self.time_steps, self.byte_steps)
        } else {
            (self.byte_steps, self.time_steps)
        };
        if fewer > steps {
            self.target += self.params.hyper_increase.bps() as f64;
        } else if more > steps {
            self.target += self.params.additive_increase.bps() as f64;
        }
        let line = self.params.line_rate.bps() as f64;
        self.target = self.target.min(line);
        self.current = (self.current + self.target) / 2.0;
        if line - self.current < 1.0 {
            self.current = line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G40: f64 = 40e9;

    fn dcqcn() -> Dcqcn {
        Dcqcn::new(DcqcnParams::at(Rate::from_gbps(40)), Time(0))
    }

    #[test]
    fn starts_at_the_links_rate_and_halves_at_first_congestion() {
        let mut d = dcqcn();
        assert_eq!(d.rate(Time(0)), Rate::from_gbps(40));
        d.on_cnp(Time(0));
        assert_eq!(d.rate(Time(0)), Rate::from_gbps(20));
    }

    #[test]
    fn fast_recovery_goes_half_the_way_each_step() {
        let mut d = dcqcn();
        d.on_cnp(Time(0));
        let mut expected = 20e9;
        for step in 1..=5 {
            expected = (expected + G40) / 2.0;
            assert_eq!(d.rate(Time(55_000 * step)).bps(), expected as u64, "{step}");
        }
    }

    #[test]
    fn after_recovery_the_target_grows_by_the_additive_step() {
        let mut d = dcqcn();
        d.on_cnp(Time(0));
        d.on_cnp(Time(1));
        // The second cut leaves a target of 20 Gbit/s; alpha is 1 still, or nearly.
        let recovered = d.rate(Time(1 + 55_000 * 5)).bps() as f64;
        assert!((19.6e9..20e9).contains(&recovered), "{recovered}");
        d.run_timers(Time(1 + 55_000 * 6));
        assert_eq!(d.target, 20e9 + 40e6);
        d.run_timers(Time(1 + 55_000 * 16));
        assert_eq!(d.target, 20e9 + 11.0 * 40e6);
    }

    #[test]
    fn bytes_and_time_together_increase_fast() {
        let mut d = dcqcn();
        d.on_cnp(Time(0));
        d.on_cnp(Time(1));
        for step in 1..=6 {
            d.on_sent(10_000_000, Time(1 + 55_000 * step));
        }
        assert_eq!(d.target, 20e9 + 40e6 + 400e6);
    }

    #[test]
    fn never_below_the_least_rate_nor_above_the_links() {
        let mut d = dcqcn();
        for n in 0..10_000 {
            d.on_cnp(Time(n));
        }
        assert_eq!(
            d.rate(Time(10_000)),
            DcqcnParams::at(Rate::from_gbps(40)).min_rate
        );
        assert_eq!(d.rate(Time(10_000_000_000)), Rate::from_gbps(40));
        assert_eq!(d.target, G40);
    }

    #[test]
    fn alpha_forgets() {
        let mut d = dcqcn();
        d.on_cnp(Time(0));
        // 2000 timers later alpha is (255/256)^2000, and a notification changes little.
        let now = Time(55_000 * 2000);
        d.run_timers(now);
        assert!((3e-4..6e-4).contains(&d.alpha), "{}", d.alpha);
        d.on_cnp(now);
        assert!(d.rate(now).bps() > 39_980_000_000);
    }

    #[test]
    fn an_idle_year_takes_no_time() {
        let mut d = dcqcn();
        d.on_cnp(Time(0));
        let rate = d.rate(Time(365 * 86_400 * 1_000_000_000));
        assert_eq!(rate, Rate::from_gbps(40));
    }

    #[test]
    fn senseless_parameters_are_refused() {
        let good = DcqcnParams::at(Rate::from_gbps(40));
        assert_eq!(good.check(), Ok(()));
        for bad in [
            DcqcnParams {
                min_rate: Rate::from_gbps(41),
                ..good
            },
            DcqcnParams { g: 0.0, ..good },
            DcqcnParams {
                g: f64::NAN,
                ..good
            },
            DcqcnParams { g: 1.5, ..good },
            DcqcnParams {
                alpha_timer_ns: 0,
                ..good
            },
            DcqcnParams {
                increase_timer_ns: 0,
                ..good
            },
            DcqcnParams {
                increase_bytes: 0,
                ..good
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
