//! The measuring side's connection to the other process, and one sample over it.

use std::time::{Duration, Instant};

use urxe::Wc;

use super::QPS_SMALL;
use super::protocol::{Answer, Request};
use crate::control::ANSWER_MAX;
use crate::error::CliError;
use crate::samples::Samples;
use crate::station::{Patience, PeerCheck, RemoteMemory, Station};
use crate::target::{LOOPBACK_CLIENT, Measurement, Target};
use crate::wire::WireName;
use urxe_measure::fairness::{Ends, Plan};

/// How long a sample lasts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Time(Duration),
    RoundTrips(usize),
}

/// What a sample gave.
#[derive(Debug)]
pub(super) struct Sample {
    /// Half the round trip of each small message.
    pub(super) small: Samples,
    /// Messages that each streaming QP completed meanwhile.
    pub(super) messages: Vec<u64>,
    pub(super) time: Duration,
}

/// A connected pair of processes.
#[derive(Debug)]
pub(super) struct Session {
    plan: Plan,
    ends: Ends,
    remote: RemoteMemory,
    target: Target,
}

impl Session {
    pub(super) fn start(plan: Plan, wire: Option<WireName>) -> Result<Session, CliError> {
        let mut target = Target::start(Measurement::Fairness, wire)?;
        let control = &mut target.control;
        let station = Station::open(LOOPBACK_CLIENT, wire)?;
        let ends = Ends::create(&station, plan)?;
        control.send(&Request::Create(plan))?;
        control.send_endpoints(&ends.endpoints())?;
        ends.connect(&control.recv_endpoints(plan.qps + QPS_SMALL)?)?;
        let remote = match control.recv(Some(ANSWER_MAX))? {
            Answer::Memory(memory) => memory,
            other => return Err(control.out_of_turn(&other)),
        };
        Ok(Session {
            plan,
            ends,
            remote,
            target,
        })
    }

    /// Small messages there and back, one after the other, while `qps` QPs stream.
    pub(super) fn sample(&mut self, qps: usize, length: Length) -> Result<Sample, CliError> {
        self.target.control.send(&Request::Run)?;
        self.target.control.expect(&Answer::Running)?;
        let mut run = Run {
            ends: &mut self.ends,
            remote: self.remote,
            completed: vec![0; qps],
            under_way: 0,
            is_over: false,
        };
        let check = &mut || self.target.control.check();
        let sample = run.measure(self.plan.depth(), length, check)?;
        self.target.control.send(&Request::Finished)?;
        self.target.control.expect(&Answer::Done)?;
        Ok(sample)
    }

    /// Verifies what the WRITEs left behind, and ends the other side.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        self.target.control.send(&Request::Check)?;
        self.target.control.expect(&Answer::Done)?;
        self.target.control.send(&Request::Bye)?;
        self.target.wait()
    }
}

/// A sample that is being taken.
struct Run<'a> {
    ends: &'a mut Ends,
    remote: RemoteMemory,
    /// Messages that each QP completed.
    completed: Vec<u64>,
    under_way: usize,
    /// Nothing more is posted.
    is_over: bool,
}

impl Run<'_> {
    fn measure(
        &mut self,
        depth: usize,
        length: Length,
        check: &mut PeerCheck<'_>,
    ) -> Result<Sample, CliError> {
        for _ in 0..depth {
            for index in 0..self.completed.len() {
                self.ends.post_bulk(index, self.remote)?;
                self.under_way += 1;
            }
        }
        // Until all are at it, and what was posted at once is gone.
        while self.completed.iter().any(|&count| count < depth as u64) {
            self.round_trip(check)?;
        }
        let before = self.completed.clone();
        let start = Instant::now();
        let mut small = Samples::with_capacity(1 << 20);
        loop {
            small.push(self.round_trip(check)? / 2);
            let is_over = match length {
                Length::Time(time) => start.elapsed() >= time,
                Length::RoundTrips(count) => small.count() >= count,
            };
            if is_over {
                break;
            }
        }
        let time = start.elapsed();
        let messages = self.completed.iter().zip(before);
        let messages = messages.map(|(now, before)| now - before).collect();
        self.is_over = true;
        let mut patience = Patience::begin();
        while self.under_way > 0 {
            if self.refill()? {
                patience = Patience::begin();
            }
            patience.look(check)?;
        }
        Ok(Sample {
            small,
            messages,
            time,
        })
    }

    /// A small message there and back; meanwhile what was completed is posted again.
    fn round_trip(&mut self, check: &mut PeerCheck<'_>) -> Result<Duration, CliError> {
        let start = Instant::now();
        let mut patience = None;
        self.ends.post_small(check)?;
        while self.ends.small_recvs.poll(&mut [Wc::default(); 1])? == 0 {
            if !self.completed.is_empty() && self.refill()? {
                patience = None;
            }
            let patience = patience.get_or_insert_with(Patience::begin);
            patience.look(check)?;
        }
        let time = start.elapsed();
        self.ends.repost_small()?;
        Ok(time)
    }

    /// Counts what was completed, and posts as many messages again. Returns false if there was nothing.
    fn refill(&mut self) -> Result<bool, CliError> {
        let mut wcs = [Wc::default(); 16];
        let taken = self.ends.completions.poll(&mut wcs)?;
        for wc in &wcs[..taken] {
            let index = wc.wr_id as usize;
            self.completed[index] += 1;
            self.under_way -= 1;
            if !self.is_over {
                self.ends.post_bulk(index, self.remote)?;
                self.under_way += 1;
            }
        }
        Ok(taken > 0)
    }
}
