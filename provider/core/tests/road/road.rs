//! A road in virtual time: a bottleneck of a rate with a queue that drops its tail, a delay, and losses that follow from a
//! seed. Flows share it: each has a sender and a receiver, one at each end.

use std::collections::BTreeMap;

use urxe_core::Time;
use urxe_core::mix::SplitMix64;

/// What a road is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Road {
    /// Bits per second, each way.
    pub(crate) rate: u64,
    /// Nanoseconds for both ways.
    pub(crate) rtt: u64,
    /// Bytes that wait for the bottleneck at most.
    pub(crate) queue: u64,
    /// Packets that are lost, of 100,000, each way.
    pub(crate) loss: u64,
    /// Packets that are late, by up to 2 ms, of 100,000.
    pub(crate) reorder: u64,
    /// Packets that are lost one after the other, whenever one is.
    pub(crate) burst: u64,
    /// Both hosts are busy with something else for the second time, again and again after the first: packets wait for them.
    pub(crate) pause: Option<(u64, u64)>,
}

impl Road {
    /// A road with a queue for one bandwidth-delay product, and at least 100 kB.
    pub(crate) fn new(rate: u64, rtt: u64, loss: u64) -> Road {
        let product = rate / 8 * (rtt / 1000) / 1_000_000;
        Road {
            rate,
            rtt,
            queue: product.max(100_000),
            loss,
            reorder: 0,
            burst: 1,
            pause: None,
        }
    }

    /// When a host has time for what arrives then.
    fn heeded(&self, at: u64) -> u64 {
        match self.pause {
            Some((every, long)) if at % every < long => at - at % every + long,
            _ => at,
        }
    }
}

/// A packet that travels.
#[derive(Debug)]
pub(crate) struct Cargo {
    /// 0: from the flow's sender to its receiver; 1: back.
    pub(crate) from: usize,
    /// Bytes that it takes on the link.
    pub(crate) size: u64,
    /// Its place in the train that it left in.
    pub(crate) hint: u16,
    pub(crate) bytes: Vec<u8>,
}

/// One pair of ends.
pub(crate) trait Flow {
    /// All that leaves now.
    fn poll(&mut self, now: Time) -> Vec<Cargo>;
    /// A packet came to its end.
    fn arrive(&mut self, cargo: Cargo, now: Time);
    /// When it wants [`Flow::tick`].
    fn deadline(&self) -> Option<Time>;
    fn tick(&mut self, now: Time);
    /// Bytes of payload that were delivered, and known to be.
    fn delivered(&self) -> u64;
    /// It gave up.
    fn is_dead(&self) -> bool {
        false
    }
    /// Packets that its sender sent again.
    fn sent_again(&self) -> u64 {
        0
    }
    /// Packets that not every adapter knows.
    fn unknown(&self) -> u64 {
        0
    }
    /// READ requests that the other end dropped, as some adapters do.
    fn refused(&self) -> u64 {
        0
    }
    /// Nanoseconds that each message took.
    fn times(&self) -> &[u64] {
        &[]
    }
    /// The longest that one took, until `end` if it is not done.
    fn longest(&self, _end: Time) -> u64 {
        0
    }
}

/// What a run found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Bits of payload per second, of each flow, after the first fifth of the time.
    pub(crate) goodput: Vec<f64>,
    /// Packets that found the queue full, and that were lost on the way.
    pub(crate) overflowed: u64,
    pub(crate) lost: u64,
    /// Of both, those from a sender.
    pub(crate) lost_forth: u64,
    /// Packets that senders sent again.
    pub(crate) again: u64,
    /// Packets that not every adapter knows.
    pub(crate) unknown: u64,
    /// READ requests that the other end dropped, as some adapters do.
    pub(crate) refused: u64,
    /// Milliseconds in which 99 of 100 messages of the first flow were done, and all of them, those that never were included.
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
    /// The mean wait in the queue, in milliseconds.
    pub(crate) queue_ms: f64,
    pub(crate) dead: bool,
}

struct Traffic {
    road: Road,
    rng: SplitMix64,
    free: [u64; 2],
    /// Packets that are still lost of a burst.
    burst: [u64; 2],
    wire: BTreeMap<(Time, u64), (usize, Cargo)>,
    count: u64,
    waits: u64,
    out: Outcome,
}

impl Traffic {
    fn launch(&mut self, flow: usize, cargo: Cargo, now: Time) {
        let road = self.road;
        let free = &mut self.free[cargo.from];
        let wait = free.saturating_sub(now.0);
        self.count += 1;
        self.waits += wait;
        if wait as u128 * u128::from(road.rate) / 8_000_000_000 + u128::from(cargo.size)
            > road.queue.into()
        {
            self.out.overflowed += 1;
            self.out.lost_forth += u64::from(cargo.from == 0);
            return;
        }
        *free = (*free).max(now.0) + cargo.size * 8_000_000_000 / road.rate;
        let mut at = *free + road.rtt / 2;
        let burst = &mut self.burst[cargo.from];
        if *burst == 0 && self.rng.below(100_000 * road.burst) < road.loss {
            *burst = road.burst;
        }
        if *burst > 0 {
            *burst -= 1;
            self.out.lost += 1;
            self.out.lost_forth += u64::from(cargo.from == 0);
            return;
        }
        if self.rng.below(100_000) < road.reorder {
            at += self.rng.below(2_000_000);
        }
        let at = Time(road.heeded(at));
        self.wire.insert((at, self.count), (flow, cargo));
    }
}

/// Runs flows, each from its time on, for so many seconds.
pub(crate) fn drive(
    road: Road,
    flows: &mut [(f64, Box<dyn Flow>)],
    seconds: f64,
    seed: u64,
) -> Outcome {
    let mut traffic = Traffic {
        road,
        rng: SplitMix64::new(seed),
        free: [0; 2],
        burst: [0; 2],
        wire: BTreeMap::new(),
        count: 0,
        waits: 0,
        out: Outcome::default(),
    };
    let time = |s: f64| Time((s * 1e9) as u64);
    let (mut now, warm, end) = (Time::ZERO, time(seconds / 5.0), time(seconds));
    let mut before: Option<Vec<u64>> = None;
    while now < end && !traffic.out.dead {
        for (k, (start, flow)) in flows.iter_mut().enumerate() {
            if time(*start) <= now {
                for cargo in flow.poll(now) {
                    traffic.launch(k, cargo, now);
                }
                traffic.out.dead |= flow.is_dead();
            }
        }
        let started = flows.iter().filter(|(start, _)| time(*start) <= now);
        let timers = started.filter_map(|(_, flow)| flow.deadline());
        let starts = flows
            .iter()
            .map(|(start, _)| time(*start))
            .filter(|&at| at > now);
        let arrival = traffic.wire.keys().next().map(|key| key.0);
        let Some(next) = arrival.into_iter().chain(timers).chain(starts).min() else {
            break;
        };
        now = next.max(now);
        while let Some(entry) = traffic.wire.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (flow, cargo) = entry.remove();
            flows[flow].1.arrive(cargo, now);
        }
        for (start, flow) in flows.iter_mut() {
            if time(*start) <= now {
                flow.tick(now);
            }
        }
        if now >= warm && before.is_none() {
            before = Some(flows.iter().map(|(_, flow)| flow.delivered()).collect());
        }
    }
    let before = before.unwrap_or_else(|| vec![0; flows.len()]);
    let span = seconds * 0.8;
    let goodput = flows
        .iter()
        .zip(before)
        .map(|((_, flow), before)| (flow.delivered() - before) as f64 * 8.0 / span);
    traffic.out.goodput = goodput.collect();
    traffic.out.again = flows.iter().map(|(_, flow)| flow.sent_again()).sum();
    traffic.out.unknown = flows.iter().map(|(_, flow)| flow.unknown()).sum();
    traffic.out.refused = flows.iter().map(|(_, flow)| flow.refused()).sum();
    traffic.out.p99_ms = part_of(flows[0].1.times(), 0.99) as f64 * 1e-6;
    traffic.out.longest_ms = flows[0].1.longest(end) as f64 * 1e-6;
    traffic.out.queue_ms = traffic.waits as f64 / traffic.count.max(1) as f64 * 1e-6;
    traffic.out
}

/// What this part of all values is below.
fn part_of(values: &[u64], part: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at).copied().unwrap_or(0)
}

/// Jain's index of fairness: 1 for equal shares, 1/n if one has all.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (
        shares.iter().sum::<f64>(),
        shares.iter().map(|x| x * x).sum::<f64>(),
    );
    sum * sum / (shares.len() as f64 * squares)
}
