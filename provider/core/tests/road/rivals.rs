//! Flows that do not use urxe: what others send on the same road. Each has a peer that answers every packet, and knows by three
//! later answers what is lost; the data is endless, so nothing needs to be sent again.

use std::collections::BTreeMap;

use urxe_core::Time;

use super::road::{Cargo, Flow};

/// Bytes of payload of a packet, and what it takes on the link.
const PAYLOAD: u64 = 1024;
const SIZE: u64 = PAYLOAD + 44 + 66;
const ANSWER: u64 = 20 + 66;
/// Answers of later packets that show a packet to be lost.
const LATER: u64 = 3;
const MIN_RTO: u64 = 200_000_000;

/// How a rival decides.
pub(crate) trait Control {
    /// A packet leaves; `under_way` before it.
    fn on_sent(&mut self, number: u64, under_way: u64, now: Time);
    fn on_answer(&mut self, number: u64, rtt: u64, under_way: u64, now: Time);
    fn on_loss(&mut self, number: u64, packets: u64, now: Time);
    fn on_timeout(&mut self);
    /// Packets that may be under way.
    fn window(&self) -> f64;
    /// Bytes per nanosecond.
    fn rate(&self) -> Option<f64>;
}

/// A sender that always has data, and its receiver.
pub(crate) struct Rival<C> {
    pub(crate) control: C,
    next: u64,
    /// Packets under way, and when they left.
    sent: BTreeMap<u64, Time>,
    may_send: Time,
    answers: Vec<u64>,
    delivered: u64,
    last_news: Time,
}

impl<C: Control> Rival<C> {
    pub(crate) fn new(control: C) -> Rival<C> {
        Rival {
            control,
            next: 0,
            sent: BTreeMap::new(),
            may_send: Time::ZERO,
            answers: Vec::new(),
            delivered: 0,
            last_news: Time::ZERO,
        }
    }

    fn on_answer(&mut self, number: u64, now: Time) {
        self.last_news = now;
        let Some(left) = self.sent.remove(&number) else {
            return;
        };
        self.delivered += PAYLOAD;
        let lost: Vec<u64> = self
            .sent
            .range(..number.saturating_sub(LATER))
            .map(|(&n, _)| n)
            .collect();
        for n in &lost {
            self.sent.remove(n);
        }
        if let Some(&newest) = lost.last() {
            self.control.on_loss(newest, lost.len() as u64, now);
        }
        self.control
            .on_answer(number, now.since_ns(left), self.sent.len() as u64, now);
    }
}

impl<C: Control> Flow for Rival<C> {
    fn poll(&mut self, now: Time) -> Vec<Cargo> {
        let mut out: Vec<Cargo> = self
            .answers
            .drain(..)
            .map(|number| Cargo {
                from: 1,
                size: ANSWER,
                hint: 0,
                bytes: number.to_le_bytes().into(),
            })
            .collect();
        while (self.sent.len() as f64) < self.control.window() && self.may_send <= now {
            let under_way = self.sent.len() as u64;
            if under_way == 0 {
                self.last_news = now;
            }
            self.control.on_sent(self.next, under_way, now);
            self.sent.insert(self.next, now);
            out.push(Cargo {
                from: 0,
                size: SIZE,
                hint: 0,
                bytes: self.next.to_le_bytes().into(),
            });
            self.next += 1;
            if let Some(rate) = self.control.rate() {
                self.may_send = self.may_send.max(now) + (SIZE as f64 / rate) as u64;
            }
        }
        out
    }

    fn arrive(&mut self, cargo: Cargo, now: Time) {
        let number = u64::from_le_bytes(cargo.bytes.try_into().expect("a number"));
        match cargo.from {
            0 => self.answers.push(number),
            _ => self.on_answer(number, now),
        }
    }

    fn deadline(&self) -> Option<Time> {
        let window = (self.sent.len() as f64) < self.control.window();
        let paced = window.then_some(self.may_send);
        let timeout = (!self.sent.is_empty()).then(|| self.last_news + MIN_RTO * 2);
        paced.into_iter().chain(timeout).min()
    }

    fn tick(&mut self, now: Time) {
        if !self.sent.is_empty() && now >= self.last_news + MIN_RTO * 2 {
            self.sent.clear();
            self.control.on_timeout();
        }
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }
}

/// RFC 9438.
#[derive(Debug)]
pub(crate) struct Cubic {
    window: f64,
    threshold: f64,
    /// Where the last loss was.
    top: f64,
    /// What Reno would have.
    reno: f64,
    epoch: Option<Time>,
    /// Packets before it left before the last cut.
    told: u64,
    next: u64,
    rtt: u64,
}

impl Cubic {
    pub(crate) fn new() -> Cubic {
        Cubic {
            window: 10.0,
            threshold: f64::INFINITY,
            top: 0.0,
            reno: 0.0,
            epoch: None,
            told: 0,
            next: 0,
            rtt: 0,
        }
    }
}

impl Control for Cubic {
    fn on_sent(&mut self, number: u64, _: u64, _: Time) {
        self.next = number + 1;
    }

    fn on_answer(&mut self, _: u64, rtt: u64, _: u64, now: Time) {
        self.rtt = rtt;
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        let (c, seconds) = (0.4, (now.since_ns(epoch) + self.rtt) as f64 * 1e-9);
        let k = (self.top * 0.3 / c).cbrt();
        let target = c * (seconds - k).powi(3) + self.top;
        let step = (target - self.window) / self.window;
        self.window += step.clamp(0.01 / self.window, 0.5);
        self.reno += 0.53 / self.window;
        self.window = self.window.max(self.reno);
    }

    fn on_loss(&mut self, number: u64, _: u64, _: Time) {
        if number < self.told {
            return;
        }
        self.told = self.next;
        self.top = if self.window < self.top {
            self.window * 0.85
        } else {
            self.window
        };
        self.window = (self.window * 0.7).max(2.0);
        (self.threshold, self.reno, self.epoch) = (self.window, self.window, None);
    }

    fn on_timeout(&mut self) {
        self.threshold = (self.window * 0.7).max(2.0);
        (self.window, self.epoch) = (1.0, None);
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn rate(&self) -> Option<f64> {
        None
    }
}

/// The first version of BBR: no loss is a signal.
#[derive(Debug)]
pub(crate) struct Bbr {
    /// The rate of each of the last ten round trips.
    rates: [f64; 10],
    round: usize,
    round_end: u64,
    min_rtt: u64,
    min_rtt_at: Time,
    marks: BTreeMap<u64, (u64, Time)>,
    delivered: u64,
    delivered_at: Time,
    phase: BbrPhase,
    full: (f64, u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BbrPhase {
    Startup,
    Drain,
    Cycle(usize, Time),
    Shortest(Time),
}

const BBR_CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

impl Bbr {
    pub(crate) fn new() -> Bbr {
        Bbr {
            rates: [0.0; 10],
            round: 0,
            round_end: 0,
            min_rtt: 0,
            min_rtt_at: Time::ZERO,
            marks: BTreeMap::new(),
            delivered: 0,
            delivered_at: Time::ZERO,
            phase: BbrPhase::Startup,
            full: (0.0, 0),
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    fn product(&self) -> f64 {
        self.bandwidth() * self.min_rtt as f64 / SIZE as f64
    }

    fn end_round(&mut self) {
        self.round_end = self.delivered;
        if self.phase == BbrPhase::Startup {
            let bandwidth = self.bandwidth();
            self.full = if bandwidth > self.full.0 * 1.25 {
                (bandwidth, 0)
            } else {
                (self.full.0, self.full.1 + 1)
            };
            if self.full.1 >= 3 {
                self.phase = BbrPhase::Drain;
            }
        }
        self.round = (self.round + 1) % self.rates.len();
        self.rates[self.round] = 0.0;
    }

    fn advance(&mut self, under_way: u64, now: Time) {
        let is_drained = under_way as f64 <= self.product();
        match self.phase {
            BbrPhase::Drain if is_drained => self.phase = BbrPhase::Cycle(2, now),
            BbrPhase::Cycle(at, since) => {
                let is_over = now.since_ns(since) > self.min_rtt;
                if is_over || (BBR_CYCLE[at] < 1.0 && is_drained) {
                    self.phase = BbrPhase::Cycle((at + 1) % BBR_CYCLE.len(), now);
                }
                if now.since_ns(self.min_rtt_at) > 10_000_000_000 {
                    self.phase = BbrPhase::Shortest(now);
                    self.min_rtt = u64::MAX / 4;
                }
            }
            BbrPhase::Shortest(since) if now.since_ns(since) > 200_000_000 => {
                self.min_rtt_at = now;
                self.phase = BbrPhase::Cycle(2, now);
            }
            _ => {}
        }
    }
}

impl Control for Bbr {
    fn on_sent(&mut self, number: u64, under_way: u64, now: Time) {
        if under_way == 0 {
            self.delivered_at = now;
        }
        self.marks
            .insert(number, (self.delivered, self.delivered_at));
    }

    fn on_answer(&mut self, number: u64, rtt: u64, under_way: u64, now: Time) {
        if self.min_rtt == 0 || rtt <= self.min_rtt {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        self.delivered += 1;
        self.delivered_at = now;
        self.marks = self.marks.split_off(&number);
        if let Some((delivered, at)) = self.marks.remove(&number) {
            if delivered >= self.round_end {
                self.end_round();
            }
            let elapsed = now.since_ns(at);
            if elapsed > 0 {
                let rate = (self.delivered - delivered) as f64 * SIZE as f64 / elapsed as f64;
                self.rates[self.round] = self.rates[self.round].max(rate);
            }
        }
        self.advance(under_way, now);
    }

    fn on_loss(&mut self, _: u64, _: u64, _: Time) {}

    fn on_timeout(&mut self) {}

    fn window(&self) -> f64 {
        match self.phase {
            BbrPhase::Startup => (2.885 * self.product()).max(10.0),
            BbrPhase::Shortest(_) => 4.0,
            _ => (2.0 * self.product()).max(4.0),
        }
    }

    fn rate(&self) -> Option<f64> {
        let gain = match self.phase {
            BbrPhase::Startup => 2.885,
            BbrPhase::Drain => 1.0 / 2.885,
            BbrPhase::Cycle(at, _) => BBR_CYCLE[at],
            BbrPhase::Shortest(_) => 1.0,
        };
        let bandwidth = self.bandwidth();
        (bandwidth > 0.0).then_some(bandwidth * gain)
    }
}
