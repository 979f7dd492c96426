//! A rate and a window that follow what the path delivers and how fast it answers, in the manner of BBR
//! (draft-ietf-ccwg-bbr). A loss by itself is no signal: on a long road packets are lost that no queue dropped. A loss while
//! the *fastest* answer of a round trip shows a queue is one, and sets a ceiling.

mod bounds;
mod delivery;
mod doubt;
mod kept;
mod road_loss;

use core::ops::Range;

use crate::congestion::Rate;
use crate::time::Time;
use bounds::Bounds;
pub(crate) use delivery::{Acked, Asked};
use delivery::{Delivery, Sample};
use doubt::Doubt;
use kept::Kept;
use road_loss::RoadLoss;

/// Doubles what is sent in each round trip, by rate and by window.
const STARTUP_RATE: f64 = 2.77;
const STARTUP_WINDOW: f64 = 2.0;
/// The window of all other times: room for answers that come late, together.
const WINDOW: f64 = 2.0;
/// A path that is as full as before for so many round trips is full.
const FULL_ROUNDS: u32 = 3;
/// Answers that tell of a queue at the start. One may be that of a packet which waited for its neighbour to be sent again.
const RTTS_MIN: u64 = 8;
/// Packets that a READ request asks for at most, at the path MTU of 1024.
const REQUEST: f64 = 64.0;
/// Round trips after one with a loss and no queue in which answers may come unevenly.
const UNEVEN_ROUNDS: u32 = 6;
/// Packets that leave before anything is known.
const INITIAL: f64 = 32.0;
/// No window is narrower, and no rate lower than such a window has by itself: silence that halves a rate again and again, while
/// hosts are busy, must not have a packet wait for seconds. An answer for each packet needs some.
const LEAST: f64 = 4.0;
/// What stands for the round trip there while none is known: those of packets that are sent again tell nothing.
const UNKNOWN_RTT_NS: u64 = 100_000_000;
/// The shortest round trip is believed for so long.
const MIN_RTT_NS: u64 = 5_000_000_000;
/// How long little is under way when it is measured again.
const DRAINED_NS: u64 = 50_000_000;
/// A look for more sends 1.2 times as much, and found more if so many times as much arrived.
const MORE: f64 = 1.1;
/// Packets lost of a round trip's, with a queue, that are too many.
const LOSS_MAX: f64 = 0.02;

/// So many of a round trip's packets lost, and no fewer of them, are too many without a queue, too, where the shortest round trip is doubted.
const FLOOD: f64 = 0.45;
const FLOOD_PACKETS: u64 = 8;

/// Packets lost of a round trip's, beyond twice what the road loses, that are too many.
const LOSS_EXCESS: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles until the path is full.
    Startup,
    /// What the start put into queues leaves them.
    Drain,
    /// Less than the path delivers: queues get empty.
    Down,
    /// As much as the path delivers.
    Cruise,
    /// The same without the short bounds, for a round trip.
    Refill,
    /// More, to see if there is more.
    Up,
    /// Little, to see the shortest round trip.
    Shortest,
}

/// What happened in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// It ends when a packet is answered that left when so many were delivered.
    end: u64,
    /// Packets delivered before it.
    from: u64,
    lost: u64,
    min_rtt: u64,
    /// All of them together, and how many they are.
    rtt_sum: u64,
    rtts: u64,
    limited: bool,
    cnp: bool,
    /// The fastest delivery.
    bandwidth: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Bytes that a packet takes on the link, of late.
    size: f64,
    /// 0: not known.
    min_rtt: u64,
    /// When it was last seen, or nearly.
    min_rtt_at: Time,
    /// The shortest since then.
    next_min_rtt: u64,
    smooth_rtt: u64,
    /// The fastest delivery of this cycle and the one before, in bytes per nanosecond.
    bandwidth: [f64; 2],
    kept: Kept,
    /// Round trips until the road is taken for one again that loses nothing by itself.
    uneven_rounds: u32,
    phase: Phase,
    phase_at: Time,
    /// Round trips since the phase, and since the cycle began.
    phase_rounds: u32,
    cycle_rounds: u32,
    /// Losses in a queue were heeded in this cycle.
    has_cut: bool,
    /// Answers waited in a queue since the start: the path was full once.
    was_full: bool,
    /// The fastest delivery before the last look for more.
    looked_from: f64,
    /// What the start found to be no more than before, and how often.
    full: f64,
    flat: u32,
    /// Since when all answers of the start waited in a queue, and how many they are.
    waits: Option<(Time, u64)>,
    /// What the road loses by itself: seen in round trips without a queue.
    road_loss: RoadLoss,
    round: Round,
    bounds: Bounds,
    doubt: Doubt,
    /// The bounds before nothing was heard: they are right again once something is.
    before_silence: Option<Bounds>,
    delivery: Delivery,
    under_way: u32,
}

impl Path {
    /// A path for packets of so many bytes on the link, of which a round trip is known, or 0.
    pub(crate) fn new(size: u32, min_rtt: u64, now: Time) -> Path {
        Path {
            size: f64::from(size),
            min_rtt,
            min_rtt_at: now,
            next_min_rtt: u64::MAX,
            smooth_rtt: min_rtt,
            bandwidth: [0.0; 2],
            kept: Kept::new(now),
            uneven_rounds: 0,
            phase: Phase::Startup,
            phase_at: now,
            phase_rounds: 0,
            cycle_rounds: 0,
            has_cut: false,
            was_full: false,
            looked_from: 0.0,
            full: 0.0,
            flat: 0,
            waits: None,
            road_loss: RoadLoss::new(),
            round: Round::default(),
            bounds: Bounds::new(),
            doubt: Doubt::new(now),
            before_silence: None,
            delivery: Delivery::new(),
            under_way: 0,
        }
    }

    /// Bytes per nanosecond that the path delivers.
    fn bandwidth(&self) -> f64 {
        let [this, last] = self.bandwidth;
        this.max(last).min(self.bounds.bandwidth)
    }

    /// Bytes under way that fill the path and none of its queues.
    fn product(&self) -> f64 {
        self.bandwidth() * self.min_rtt as f64
    }

    /// The shortest round trip, in nanoseconds; 0 if there was none.
    pub(crate) fn min_rtt(&self) -> u64 {
        self.min_rtt
    }

    /// Packets that may be under way.
    pub(crate) fn window(&self) -> u32 {
        let bandwidth = self.bandwidth();
        // What the peer says together, or this host hears late.
        let late = (bandwidth * 2e6).clamp(4.0 * self.size, 64.0 * self.size);
        let gain = match self.phase {
            Phase::Startup => STARTUP_WINDOW,
            Phase::Shortest => 0.5,
            _ => WINDOW,
        };
        let product = gain * self.product();
        let bytes = match self.phase {
            Phase::Startup if self.full == 0.0 => (product + late).max(INITIAL * self.size),
            Phase::Startup => product.max(2.0 * self.delivered_in_round()) + late,
            Phase::Shortest => product,
            phase => (product + late).min(self.bounds.ceiling(phase == Phase::Cruise)),
        };
        (bytes / self.size).max(LEAST) as u32
    }

    /// The rate at which packets leave; `None` before anything is known.
    pub(crate) fn rate(&self) -> Option<Rate> {
        let bandwidth = self.bandwidth();
        if bandwidth == 0.0 {
            return None;
        }
        let gain = match self.phase {
            Phase::Startup => STARTUP_RATE,
            Phase::Drain => 0.5,
            Phase::Down => 0.9,
            Phase::Up => 1.2,
            // A little less, so that no queue grows by and by.
            Phase::Cruise | Phase::Refill | Phase::Shortest => 0.99,
        };
        let rtt = match self.smooth_rtt {
            0 => UNKNOWN_RTT_NS,
            rtt => rtt,
        };
        let least = LEAST * self.size / rtt as f64;
        Some(Rate::from_bps(((gain * bandwidth).max(least) * 8e9) as u64))
    }

    /// What the pacer counts of the packets that a READ asks for. While no round trip is known the rate is a guess, and what follows the
    /// READ waits for no longer than for the round trip that stands there.
    pub(crate) fn counted(&self, answers: u32) -> u32 {
        match self.smooth_rtt {
            0 => answers.min(LEAST as u32),
            _ => answers,
        }
    }

    /// It sends no more than it knows that the path delivers.
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self.phase, Phase::Cruise | Phase::Down)
    }

    fn delivered_in_round(&self) -> f64 {
        (self.delivery.delivered - self.round.from) as f64 * self.size
    }

    /// `packets` left that take so many bytes on the link.
    pub(crate) fn on_sent(&mut self, bytes: u32, packets: u32) {
        self.delivery.on_sent(packets);
        let size = f64::from(bytes) / f64::from(packets.max(1));
        self.size += (size - self.size) / 64.0;
    }

    /// A packet leaves that asks for an answer.
    pub(crate) fn on_asked(&mut self, asked: Asked, now: Time) {
        self.delivery.on_asked(asked, now);
    }

    /// All that is under way is sent again.
    pub(crate) fn on_rewind(&mut self) {
        self.delivery.on_rewind();
    }

    /// The packets with these numbers are sent again, or are answered only after some that are.
    pub(crate) fn on_sent_again(&mut self, numbers: Range<u64>) {
        self.delivery.on_sent_again(numbers);
    }

    /// So many packets are known to be lost.
    pub(crate) fn on_lost(&mut self, packets: u32) {
        self.round.lost += u64::from(packets);
    }

    /// A switch marked a packet: a queue is told of.
    pub(crate) fn on_cnp(&mut self) {
        self.round.cnp = true;
    }

    /// Nothing was heard for a whole timeout: less leaves until something is. That says nothing of what the path delivers: hosts may have
    /// been busy, and packets late.
    pub(crate) fn on_silence(&mut self) {
        self.before_silence.get_or_insert(self.bounds);
        let half = self.bandwidth() / 2.0;
        self.bounds.cut_to(half, half * self.min_rtt as f64);
    }

    /// Packets have arrived.
    pub(crate) fn on_delivered(&mut self, acked: Acked, now: Time) {
        self.under_way = acked.under_way;
        if let Some(before) = self.before_silence.take() {
            self.bounds = before;
        }
        if let Some(rtt) = acked.rtt {
            self.on_rtt(rtt, now);
        }
        let sample = self
            .delivery
            .on_delivered(acked.packets, acked.reached, now);
        let Some(sample) = sample else {
            return;
        };
        if let Some(rtt) = sample.rtt {
            self.on_rtt(rtt, now);
        }
        if sample.prior >= self.round.end {
            self.end_round(now);
        }
        self.take_rate(sample, now);
        self.advance(now);
    }

    fn on_rtt(&mut self, rtt: u64, now: Time) {
        self.round.min_rtt = match self.round.min_rtt {
            0 => rtt,
            min => min.min(rtt),
        };
        self.round.rtt_sum += rtt;
        self.round.rtts += 1;
        self.next_min_rtt = self.next_min_rtt.min(rtt);
        if self.phase == Phase::Startup {
            self.watch_start(rtt, now);
        }
        self.smooth_rtt = match self.smooth_rtt {
            0 => rtt,
            smooth => (7 * smooth + rtt) / 8,
        };
        if self.min_rtt == 0 || rtt <= self.min_rtt + self.min_rtt / 16 {
            // Nearly as short is as good: the path has not changed.
            self.min_rtt = if self.min_rtt == 0 {
                rtt
            } else {
                rtt.min(self.min_rtt)
            };
            (self.min_rtt_at, self.next_min_rtt) = (now, u64::MAX);
        }
    }

    fn take_rate(&mut self, sample: Sample, now: Time) {
        self.round.limited |= sample.limited;
        // Faster than the path can answer: answers came together.
        if sample.elapsed == 0 || sample.elapsed < self.min_rtt {
            return;
        }
        // What the road loses has been through the bottleneck, too, or nearly.
        let packets = sample.packets as f64 / (1.0 - self.road_loss.part());
        let rate = packets * self.size / sample.elapsed as f64;
        // At the start each answer tells of twice as much as the one before; and on a road that loses packets, some tell of few.
        let is_even = self.phase != Phase::Startup && self.uneven_rounds == 0;
        let kept = match is_even {
            true => self.kept.take(rate, self.min_rtt, now),
            false => Some(rate),
        };
        let Some(rate) = kept else {
            return;
        };
        self.round.bandwidth = self.round.bandwidth.max(rate);
        if !sample.limited || rate > self.bandwidth[0].max(self.bandwidth[1]) {
            self.bandwidth[0] = self.bandwidth[0].max(rate);
        }
    }

    /// The fastest answer of the round trip did not come on the empty path.
    fn has_some_queue(&self) -> bool {
        let waited = self.round.min_rtt.saturating_sub(self.min_rtt);
        waited > self.min_rtt / 16 + 250_000
    }

    /// The fastest answer of the round trip waited in a queue.
    fn has_queue(&self) -> bool {
        self.round.cnp || self.is_queue(self.round.min_rtt)
    }

    /// Answers waited in a queue, by and large: while much more leaves than the path takes, some find it empty before each burst.
    fn starts_with_queue(&self) -> bool {
        let Round { rtt_sum, rtts, .. } = self.round;
        self.round.cnp || rtts >= RTTS_MIN && self.is_queue(rtt_sum / rtts)
    }

    /// A packet with this round trip waited for longer than a look for more makes it by itself.
    fn is_queue(&self, rtt: u64) -> bool {
        let own = 24.0 * self.size / self.bandwidth().max(1e-6);
        rtt.saturating_sub(self.min_rtt) > self.min_rtt / 4 + 500_000 + own as u64
    }

    /// What the start sends in a round trip is more than a queue holds: it ends as soon as packets wait, and do so for some time.
    fn watch_start(&mut self, rtt: u64, now: Time) {
        if !self.is_queue(rtt) {
            self.waits = None;
            return;
        }
        let (since, answers) = self.waits.get_or_insert((now, 0));
        *answers += 1;
        if *answers >= RTTS_MIN && now.since_ns(*since) > self.min_rtt / 4 + 500_000 {
            self.enter(Phase::Drain, now);
        }
    }

    fn end_round(&mut self, now: Time) {
        self.phase_rounds += 1;
        self.cycle_rounds += 1;
        let delivered = self.delivery.delivered - self.round.from;
        let lost = self.round.lost as f64 / (self.round.lost + delivered).max(1) as f64;
        if self.round.lost > 0 {
            self.doubt.on_loss();
        }
        let is_flood =
            lost > FLOOD && self.round.lost >= FLOOD_PACKETS && doubt::may_be_queue(self.min_rtt);
        let has_loss = self.has_queue() && (self.round.lost > 0 || self.round.cnp) || is_flood;
        self.uneven_rounds = match self.round.lost > 0 && !self.has_some_queue() {
            true => UNEVEN_ROUNDS,
            false => self.uneven_rounds.saturating_sub(1),
        };
        // Not what the start, or a look for more, made overflow. What is plainly too much is unlearnt at any time: a rate that it raised
        // would keep the queue, and the belief, for ever.
        let is_steady = self.phase == Phase::Cruise && self.phase_rounds > 2;
        if is_steady && !self.has_some_queue() || lost < self.road_loss.part() / 2.0 {
            self.road_loss.take(self.round.lost, delivered);
        }
        let excess = self.has_some_queue() && lost > 2.0 * self.road_loss.part() + LOSS_EXCESS;
        let too_many = has_loss && (lost > LOSS_MAX || self.round.cnp) || excess;
        let (rate, arrived) = (self.round.bandwidth, delivered as f64 * self.size);
        match self.phase {
            // However few of the lost packets are known.
            Phase::Startup => {
                let lost = self.round.lost > 0 || self.round.cnp;
                let overflows = lost && self.starts_with_queue() || is_flood;
                self.end_startup_round(overflows, arrived, now);
            }
            Phase::Up if too_many => {
                self.bounds.set_high(arrived.max(self.product()));
                self.begin_cycle(now);
            }
            Phase::Up => {
                let under_way = f64::from(self.under_way) * self.size;
                self.bounds.raise_high(under_way, REQUEST * self.size);
            }
            // Once a cycle: losses that go on are another's, which heeds none, and would have all that is given up.
            Phase::Down | Phase::Cruise | Phase::Drain if has_loss && !self.has_cut => {
                self.has_cut = true;
                let [this, last] = self.bandwidth;
                self.bounds
                    .cut(this.max(last), rate, self.product(), arrived);
            }
            // Losses had it end too early.
            Phase::Down | Phase::Cruise if self.cycle_rounds == 1 && self.found_more() => {
                (self.full, self.flat) = (self.bandwidth(), 0);
                self.enter(Phase::Startup, now);
            }
            _ => {}
        }
        self.was_full |= self.phase != Phase::Startup && self.has_some_queue();
        self.round = Round {
            end: self.delivery.delivered,
            from: self.delivery.delivered,
            ..Round::default()
        };
    }

    fn end_startup_round(&mut self, overflows: bool, arrived: f64, now: Time) {
        if overflows {
            self.bounds.set_high(arrived.max(self.product()));
            return self.enter(Phase::Drain, now);
        }
        if self.round.limited {
            return;
        }
        let bandwidth = self.bandwidth();
        if bandwidth > self.full * 1.25 {
            (self.full, self.flat) = (bandwidth, 0);
            return;
        }
        self.flat += 1;
        if self.flat >= FULL_ROUNDS {
            self.enter(Phase::Drain, now);
        }
    }

    /// A look for more found it, and the path was never seen full.
    fn found_more(&self) -> bool {
        let is_more = self.bandwidth() > MORE * self.looked_from;
        is_more && !self.was_full && !self.has_some_queue() && !self.round.limited
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        (self.phase, self.phase_at, self.phase_rounds) = (phase, now, 0);
    }

    /// After a look for more; what was found in the cycle before the last does not count any more.
    fn begin_cycle(&mut self, now: Time) {
        let [this, _] = self.bandwidth;
        if !self.round.limited && this > 0.0 {
            self.bandwidth = [0.0, this];
        }
        (self.cycle_rounds, self.has_cut) = (0, false);
        self.enter(Phase::Down, now);
    }

    /// Round trips between two looks for more: with fewer, flows that heed each loss get less than their share beside this one, with
    /// more, it gets less beside flows that heed none. Not the same for all, so that flows do not look together.
    fn cycle(&self) -> u32 {
        8 + (self.delivery.delivered / 7 % 4) as u32
    }

    fn advance(&mut self, now: Time) {
        let under_way = f64::from(self.under_way) * self.size;
        let product = self.product();
        match self.phase {
            Phase::Startup => {}
            Phase::Drain if under_way <= product => self.begin_cycle(now),
            Phase::Down if under_way <= product.min(self.bounds.headroom()) => {
                self.enter(Phase::Cruise, now);
            }
            Phase::Down | Phase::Cruise if self.cycle_rounds >= self.cycle() => {
                self.bounds.forget_short();
                self.enter(Phase::Refill, now);
            }
            Phase::Refill if self.phase_rounds >= 1 => {
                self.looked_from = self.bandwidth();
                self.enter(Phase::Up, now);
            }
            Phase::Up => {
                // Of few packets more, answers tell nothing.
                let is_full = under_way >= (1.2 * product).max(product + 16.0 * self.size);
                if self.phase_rounds >= if is_full { 1 } else { 3 } {
                    self.begin_cycle(now);
                }
            }
            Phase::Shortest => self.end_shortest(now),
            _ => {}
        }
        let is_steady = !matches!(self.phase, Phase::Startup | Phase::Shortest);
        if is_steady && now.since_ns(self.min_rtt_at) > MIN_RTT_NS {
            self.enter(Phase::Shortest, now);
        } else if is_steady && self.doubt.is_due(self.min_rtt, now) {
            self.doubt.begin(self.min_rtt);
            self.enter(Phase::Shortest, now);
        }
    }

    /// The shortest round trip is what was seen of late, the empty path included.
    fn end_shortest(&mut self, now: Time) {
        let look = self.doubt.look_ns();
        let seen = now.since_ns(self.min_rtt_at) <= MIN_RTT_NS;
        let waited = now.since_ns(self.phase_at) > look.unwrap_or(DRAINED_NS.max(2 * self.min_rtt));
        if (seen && look.is_none()) || (waited && self.phase_rounds >= 2) {
            if !seen && self.next_min_rtt < u64::MAX {
                self.min_rtt = self.next_min_rtt;
            }
            (self.min_rtt_at, self.next_min_rtt) = (now, u64::MAX);
            self.doubt.end(self.min_rtt, now);
            self.enter(Phase::Cruise, now);
        }
    }
}

/// A packet that was sent again, which measures no round trip, and its answer.
#[cfg(test)]
pub(super) fn sent_again(number: u64) -> (Asked, Acked) {
    let asked = Asked {
        number,
        packets: 1,
        under_way: 1,
        limited: false,
        is_timed: false,
    };
    let acked = Acked {
        packets: 1,
        reached: number + 1,
        under_way: 1,
        rtt: None,
    };
    (asked, acked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leaves_a_rate_although_no_round_trip_is_known() {
        let mut path = Path::new(1106, 0, Time(0));
        for n in 0..100u64 {
            let now = Time(n * 1_000_000);
            let (asked, acked) = sent_again(n);
            path.on_asked(asked, now);
            path.on_delivered(acked, now + 500_000);
        }
        assert!(path.rate() > Some(Rate::from_bps(1_000_000)));
        (0..100).for_each(|_| path.on_silence());
        let least = LEAST as u64 * 1106 * 8 * 10;
        assert_eq!(path.rate().map(Rate::bps), Some(least));
    }
}
