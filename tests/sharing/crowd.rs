//! All processes, and what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::ball::mix;
use crate::leaks;
use crate::member::{Event, Member};

/// Longer than anything takes when all of them want the processor.
const PATIENCE: Duration = Duration::from_secs(120);

/// Within this time the chosen ones are killed.
const KILLING: Duration = Duration::from_millis(1500);

pub(crate) struct Crowd {
    addr: IpAddr,
    size: usize,
    dice: u64,
    members: BTreeMap<u32, Member>,
    pairs: BTreeMap<[u32; 2], Pair>,
    /// Dead, but the others were not told yet.
    dead: Vec<u32>,
    /// The members that have answered the last `report`.
    reported: BTreeSet<u32>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    story: Story,
}

/// Two members, the lower first.
#[derive(Debug, Default)]
struct Pair {
    endpoints: [Option<String>; 2],
    has_joined: [bool; 2],
    balls: [u64; 2],
}

/// What happened, for the last line.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Of all that ever ran.
    pub(crate) pids: BTreeSet<u32>,
    pub(crate) killed: usize,
    /// Connections that found out by themselves that the peer was dead.
    noticed: usize,
    balls: u64,
    /// Of members that left in the end.
    counters: BTreeMap<String, u64>,
}

impl Crowd {
    pub(crate) fn gather(addr: IpAddr, size: usize, seed: u64) -> Crowd {
        let (sender, events) = mpsc::channel();
        let mut crowd = Crowd {
            addr,
            size,
            dice: mix(seed),
            members: BTreeMap::new(),
            pairs: BTreeMap::new(),
            dead: Vec::new(),
            reported: BTreeSet::new(),
            sender,
            events,
            story: Story::default(),
        };
        crowd.replace_the_dead();
        crowd
    }

    /// Starts as many as are missing, and connects them with all others.
    pub(crate) fn replace_the_dead(&mut self) {
        for dead in std::mem::take(&mut self.dead) {
            for member in self.members.values_mut() {
                member.tell(&format!("drop {dead}"));
            }
        }
        while self.members.len() < self.size {
            let number = self.story.pids.len() as u32;
            let mut member = Member::start(self.addr, number, self.sender.clone());
            self.story.pids.insert(member.pid());
            for (&other, friend) in &mut self.members {
                member.tell(&format!("make {other}"));
                friend.tell(&format!("make {number}"));
                self.pairs.insert([other, number], Pair::default());
            }
            self.members.insert(number, member);
        }
    }

    /// Kills them at random moments, while the others go on.
    pub(crate) fn kill_a_quarter(&mut self) {
        let count = self.members.len() / 4;
        let mut moments: Vec<Duration> = (0..count)
            .map(|_| KILLING.mul_f64(self.below(1000) as f64 / 1000.0))
            .collect();
        moments.sort_unstable();
        let start = Instant::now();
        for moment in moments {
            self.hear_until(start + moment);
            let chosen = self.below(self.members.len());
            let number = *self.members.keys().nth(chosen).expect("there are so many");
            // Dropping is killing.
            drop(self.members.remove(&number));
            self.pairs.retain(|pair, _| !pair.contains(&number));
            self.dead.push(number);
            self.story.killed += 1;
        }
    }

    /// Waits until every two living members have thrown their ball once more, both ways.
    pub(crate) fn all_go_on(&mut self) {
        self.report();
        let before: BTreeMap<_, _> = self.pairs.iter().map(|(k, p)| (*k, p.balls)).collect();
        let start = Instant::now();
        loop {
            self.report();
            let stuck = self.pairs.iter().filter(|(k, pair)| {
                let before = before[*k];
                (0..2).any(|end| pair.balls[end] <= before[end])
            });
            let stuck: Vec<_> = stuck.map(|(k, _)| *k).collect();
            if stuck.is_empty() {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "these do not go on within {PATIENCE:?}: {stuck:?}"
            );
        }
    }

    fn report(&mut self) {
        self.reported.clear();
        for member in self.members.values_mut() {
            member.tell("report");
        }
        self.until("all report", |crowd| {
            crowd.reported.len() == crowd.members.len()
        });
    }

    /// All are connected with all.
    pub(crate) fn is_whole(&self) -> bool {
        self.members.len() == self.size && self.pairs.values().all(|p| p.has_joined == [true; 2])
    }

    /// Each has mapped one ring each way for each of the others, at most.
    pub(crate) fn has_no_rings_of_the_dead(&self) -> bool {
        let most = 2 * (self.members.len() - 1);
        let mut pids = self.members.values().map(Member::pid);
        pids.all(|pid| leaks::rings_of(pid) <= most)
    }

    /// All leave in good order.
    pub(crate) fn disperse(mut self) -> Story {
        self.story.balls += self
            .pairs
            .values()
            .map(|p| p.balls.iter().sum::<u64>())
            .sum::<u64>();
        for (number, mut member) in std::mem::take(&mut self.members) {
            member.tell("end");
            let start = Instant::now();
            // The others still play: their balls to this one are lost.
            self.pairs.retain(|pair, _| !pair.contains(&number));
            let mut has_left = false;
            while !has_left {
                assert!(start.elapsed() < PATIENCE, "{number} does not leave");
                match self.events.recv_timeout(PATIENCE) {
                    Ok((of, Some(line))) if of == number && line.starts_with("left") => {
                        self.count(&line);
                        has_left = true;
                    }
                    Ok((of, Some(line))) => assert!(!line.starts_with("wrong"), "{of}: {line}"),
                    Ok((of, None)) => assert_ne!(of, number, "{of} ended"),
                    Err(_) => {}
                }
            }
            assert!(member.wait(), "{number} ended badly");
        }
        self.story
    }

    fn count(&mut self, line: &str) {
        for word in line.split(' ').skip(1) {
            let (name, value) = word.split_once(':').expect("name:value");
            let value: u64 = value.parse().expect("a number");
            *self.story.counters.entry(name.to_owned()).or_default() += value;
        }
    }

    /// Listens until it is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Crowd) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}"
            );
            self.hear_until(Instant::now() + Duration::from_millis(50));
        }
    }

    /// Listens until then.
    fn hear_until(&mut self, end: Instant) {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok((number, line)) = self.events.recv_timeout(left) else {
                return;
            };
            if self.members.contains_key(&number) {
                let line = line.unwrap_or_else(|| panic!("{number} ended by itself"));
                self.hear(number, &line);
            }
            if left.is_zero() {
                return;
            }
        }
    }

    fn hear(&mut self, number: u32, line: &str) {
        let mut words = line.split(' ');
        let verb = words.next().expect("split has a first");
        match verb {
            "made" | "joined" => {
                let other = words.next().and_then(|w| w.parse().ok());
                let other: u32 = other.expect("a member");
                self.connect(number, other, words.next());
            }
            "balls" => {
                for word in words {
                    let (other, count) = word.split_once(':').expect("member:count");
                    let other: u32 = other.parse().expect("a member");
                    let pair = [number.min(other), number.max(other)];
                    if let Some(pair) = self.pairs.get_mut(&pair) {
                        pair.balls[usize::from(number > other)] = count.parse().expect("a count");
                    }
                }
                self.reported.insert(number);
            }
            "failed" => {
                let other = words.next().and_then(|w| w.parse().ok());
                let other: u32 = other.expect("a member");
                assert!(
                    !self.members.contains_key(&other),
                    "{number} lost its connection to {other}, who lives: {line}"
                );
                self.story.noticed += 1;
            }
            _ => panic!("{number}: {line}"),
        }
    }

    /// A step on the way of two to a connection.
    fn connect(&mut self, number: u32, other: u32, endpoint: Option<&str>) {
        let key = [number.min(other), number.max(other)];
        let end = usize::from(number > other);
        // One of them may be dead by now.
        let Some(pair) = self.pairs.get_mut(&key) else {
            return;
        };
        match endpoint {
            Some(endpoint) => {
                pair.endpoints[end] = Some(endpoint.to_owned());
                if let [Some(low), Some(high)] = &pair.endpoints {
                    let orders = [
                        format!("join {} {high}", key[1]),
                        format!("join {} {low}", key[0]),
                    ];
                    self.tell(key[0], &orders[0]);
                    self.tell(key[1], &orders[1]);
                }
            }
            None => {
                pair.has_joined[end] = true;
                if pair.has_joined == [true; 2] {
                    self.tell(key[0], &format!("serve {}", key[1]));
                }
            }
        }
    }

    fn tell(&mut self, number: u32, order: &str) {
        if let Some(member) = self.members.get_mut(&number) {
            member.tell(order);
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice = mix(self.dice);
        (self.dice % bound as u64) as usize
    }
}

impl Story {
    /// A counter of the members that left in the end, all together.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Story {
            pids,
            killed,
            noticed,
            balls,
            ..
        } = self;
        write!(
            f,
            "{} processes, {killed} killed, {noticed} connections that found it out; the last ones had {balls} messages",
            pids.len()
        )?;
        for name in [
            "handed_over",
            "taken_over",
            "drop_no_qp",
            "tx_records",
            "rings_full",
        ] {
            write!(f, ", {name} {}", self.count(name))?;
        }
        Ok(())
    }
}
