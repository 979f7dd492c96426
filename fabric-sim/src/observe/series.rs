//! Time series of queues, pauses and rates: samples of a run at even intervals.

use core::cell::RefCell;
use std::rc::Rc;

use crate::Sim;
use crate::engine::{Span, Time};
use crate::fabric::{Tap, TapEvent};
use crate::host::StreamId;
use crate::link::FRAME_GAP;
use crate::qos::PRIORITIES;
use crate::topology::PortId;

/// How often to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampling {
    /// At this interval, however long it takes.
    Every(Span),
    /// At an interval that follows from the run, so that there are not more samples than this, and more than half of it
    /// if the run is not shorter than so many times 400 ns. Rounded down to an even number.
    AtMost(usize),
}

/// The first interval of [`Sampling::AtMost`], of a few frames at usual rates; it doubles whenever there are too many samples.
const FINEST: Span = Span::from_ns(400);

/// A run, sample by sample. Sample `i` is what happened from `i` to `i + 1` times the interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// Time of a sample.
    pub interval: Span,
    /// Number of samples, up to the last in which anything happened.
    pub len: usize,
    /// What each port did, by class: those classes that it had frames of, lowest first.
    pub ports: Vec<Vec<ClassSeries>>,
    /// Bytes of payload that arrived for the first time, of each plain flow and then of each stream.
    pub flows: Vec<Vec<u64>>,
}

/// What one class of a port did; each has [`Series::len`] samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassSeries {
    /// The class.
    pub priority: u8,
    /// Most bytes in the port's queue.
    pub queue: Vec<u64>,
    /// Most bytes in the switch's buffer of what came through the port; 0 at hosts.
    pub buffered: Vec<u64>,
    /// Most bytes of those that were in headroom.
    pub headroom: Vec<u64>,
    /// Picoseconds in which the neighbour had the port stop.
    pub paused: Vec<u64>,
    /// Bytes of frames that began to leave, with preamble and gap: a full link has its rate. A frame is of the sample in
    /// which it begins.
    pub sent: Vec<u64>,
}

/// Runs a simulation until a time, and samples it meanwhile.
///
/// # Panics
/// If the interval is zero, or fewer than two samples are wanted.
pub fn sampled(sim: &mut Sim, until: Time, sampling: Sampling) -> Series {
    let mut sampler = Sampler::begin(sim, sampling);
    loop {
        let end = sampler.end().min(until);
        let goes_on = sim.advance(end);
        if !sampler.pass(sim, end, until) || !goes_on {
            break;
        }
    }
    let series = sampler.finish(sim);
    // What time it is now must not depend on samples.
    sim.run_until(until);
    series
}

/// Samples a simulation that another runs: from the end of a sample to that of the next.
#[derive(Debug)]
pub(crate) struct Sampler {
    meter: Rc<RefCell<Meter>>,
    recorder: Recorder,
    at: Time,
    /// Bytes that have arrived so far of flows that the simulation does not know: of programs. There may be more of them later.
    pub(crate) more: Vec<u64>,
}

impl Sampler {
    /// # Panics
    /// If the interval is zero, or fewer than two samples are wanted.
    pub(crate) fn begin(sim: &mut Sim, sampling: Sampling) -> Sampler {
        let (interval, most) = match sampling {
            Sampling::Every(interval) => (interval, usize::MAX),
            Sampling::AtMost(most) => (FINEST, most / 2 * 2),
        };
        assert!(interval > Span::ZERO && most >= 2, "samples have a length");
        let ports = sim.fabric().topology().port_count();
        let meter = Rc::new(RefCell::new(Meter::new(ports)));
        sim.fabric_mut().add_tap(Box::new(Rc::clone(&meter)));
        let landed = landed(sim);
        let series = Series {
            interval,
            len: 0,
            ports: vec![Vec::new(); ports],
            flows: vec![Vec::new(); landed.len()],
        };
        Sampler {
            meter,
            recorder: Recorder {
                most,
                landed,
                series,
            },
            at: sim.now(),
            more: Vec::new(),
        }
    }

    /// The end of the sample that goes on.
    pub(crate) fn end(&self) -> Time {
        self.recorder.series.end_after(self.at)
    }

    /// The simulation is at `end`, of a sample or of all. False if nothing is left to happen before `until`.
    pub(crate) fn pass(&mut self, sim: &mut Sim, end: Time, until: Time) -> bool {
        let mut meter = self.meter.borrow_mut();
        let mut landed = landed(sim);
        landed.extend(&self.more);
        self.recorder.add(self.at, &meter.read(end), &landed);
        self.at = end;
        let next = sim.fabric_mut().next_event().filter(|&next| next <= until);
        let Some(next) = next.filter(|_| end < until) else {
            return false;
        };
        self.at = self.recorder.wait(self.at, next, &mut meter);
        true
    }

    pub(crate) fn finish(self, sim: &mut Sim) -> Series {
        drop(sim.fabric_mut().take_tap());
        self.recorder.finish()
    }
}

/// Bytes that have arrived so far, of each flow and then of each stream.
fn landed(sim: &Sim) -> Vec<u64> {
    let flows = sim.flows().iter().map(|flow| flow.delivered_bytes);
    let streams = (0..sim.streams().len() as u32).map(|id| sim.stream_bytes(StreamId(id)));
    flows.chain(streams).collect()
}

/// What a class of a port does now, and did since the last sample.
#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    is_used: bool,
    /// Bytes in the queue, in the buffer and in the headroom.
    bytes: [u64; MAXIMA],
    /// The most of each.
    most: [u64; MAXIMA],
    paused_since: Option<Time>,
    paused: Span,
    sent: u64,
}

/// What one class of a port did in a sample, in the order of [`ClassSeries`].
type Row = [u64; 5];

/// Of these columns the larger counts when two samples become one, of the others the sum.
const MAXIMA: usize = 3;

/// Everything in a sample: the classes that are in use.
#[derive(Debug, Default)]
struct Sample(Vec<(PortId, u8, Row)>);

impl Sample {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, _, row)| *row == [0; 5])
    }
}

/// Reads the gauges of all ports.
#[derive(Debug)]
struct Meter(Vec<[Gauge; PRIORITIES]>);

impl Meter {
    fn new(ports: usize) -> Meter {
        Meter(vec![[Gauge::default(); PRIORITIES]; ports])
    }

    fn gauge(&mut self, port: PortId, priority: u8) -> &mut Gauge {
        let gauge = &mut self.0[port.index()][usize::from(priority & 7)];
        gauge.is_used = true;
        gauge
    }

    /// What happened since it was last read.
    fn read(&mut self, now: Time) -> Sample {
        let mut sample = Sample::default();
        for (port, gauges) in (0..).map(PortId).zip(&mut self.0) {
            for (priority, gauge) in (0..).zip(gauges).filter(|(_, g)| g.is_used) {
                if let Some(since) = &mut gauge.paused_since {
                    gauge.paused += now.since(*since);
                    *since = now;
                }
                let [queue, buffered, headroom] = gauge.most;
                let row = [queue, buffered, headroom, gauge.paused.ps(), gauge.sent];
                sample.0.push((port, priority, row));
                (gauge.paused, gauge.sent) = (Span::ZERO, 0);
                gauge.most = gauge.bytes;
            }
        }
        sample
    }
}

impl Tap for Meter {
    fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        match *event {
            TapEvent::Sending { port, frame, .. } if !frame.payload.is_control() => {
                self.gauge(port, frame.priority).sent += u64::from(frame.len + FRAME_GAP);
            }
            TapEvent::Queue {
                port,
                priority,
                bytes,
            } => {
                let gauge = self.gauge(port, priority);
                gauge.bytes[0] = bytes;
                gauge.most[0] = gauge.most[0].max(bytes);
            }
            TapEvent::Buffered {
                port,
                priority,
                taken,
            } => {
                let gauge = self.gauge(port, priority);
                gauge.bytes = [gauge.bytes[0], taken.total(), taken.headroom];
                for (most, bytes) in gauge.most.iter_mut().zip(gauge.bytes) {
                    *most = bytes.max(*most);
                }
            }
            TapEvent::Paused {
                port,
                priority,
                is_paused,
            } => {
                let gauge = self.gauge(port, priority);
                if let Some(since) = gauge.paused_since.take() {
                    gauge.paused += now.since(since);
                }
                gauge.paused_since = is_paused.then_some(now);
            }
            _ => {}
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any> {
        self
    }
}

#[derive(Debug)]
struct Recorder {
    /// How many it may have.
    most: usize,
    /// Bytes of each flow until the last sample.
    landed: Vec<u64>,
    series: Series,
}

impl Recorder {
    /// Adds what happened from `start` on, not longer than an interval.
    fn add(&mut self, start: Time, sample: &Sample, landed: &[u64]) {
        if landed.len() > self.landed.len() {
            self.landed.resize(landed.len(), 0);
            self.series.flows.resize(landed.len(), Vec::new());
        }
        // A host that begins anew counts from nothing.
        let since = landed.iter().zip(&self.landed);
        let arrived: Vec<u64> = since.map(|(now, then)| now.saturating_sub(*then)).collect();
        if sample.is_empty() && arrived.iter().all(|&bytes| bytes == 0) {
            return;
        }
        let place = loop {
            let place = (start.ps() / self.series.interval.ps()) as usize;
            if place < self.most {
                break place;
            }
            self.series.merge();
        };
        self.series.len = self.series.len.max(place + 1);
        for &(port, priority, row) in &sample.0 {
            let class = self.series.class(port, priority);
            for (column, (values, value)) in class.columns().into_iter().zip(row).enumerate() {
                put(values, place, value, column < MAXIMA);
            }
        }
        for (flow, &bytes) in self.series.flows.iter_mut().zip(&arrived) {
            put(flow, place, bytes, false);
        }
        if !landed.is_empty() {
            self.landed.copy_from_slice(landed);
        }
    }

    /// Nothing happens until then: queues stay as they are, and pauses go on. Adds whole samples, and returns the end of the
    /// last.
    fn wait(&mut self, mut at: Time, next: Time, meter: &mut Meter) -> Time {
        while self.series.end_after(at) <= next {
            let end = self.series.end_after(at);
            let sample = meter.read(end);
            if sample.is_empty() {
                let interval = self.series.interval.ps();
                return Time::from_ps(next.ps() / interval * interval);
            }
            self.add(at, &sample, &[]);
            at = end;
        }
        at
    }

    fn finish(mut self) -> Series {
        let len = self.series.len;
        for (values, _) in self.series.all() {
            values.resize(len, 0);
        }
        self.series
    }
}

/// Puts a value into its place of a column, to what is there already.
fn put(values: &mut Vec<u64>, place: usize, value: u64, is_maximum: bool) {
    if value == 0 {
        return;
    }
    if values.len() <= place {
        values.resize(place + 1, 0);
    }
    values[place] = if is_maximum {
        values[place].max(value)
    } else {
        values[place] + value
    };
}

impl ClassSeries {
    fn columns(&mut self) -> [&mut Vec<u64>; 5] {
        let ClassSeries {
            queue,
            buffered,
            headroom,
            paused,
            sent,
            ..
        } = self;
        [queue, buffered, headroom, paused, sent]
    }
}

impl Series {
    /// When a sample begins.
    pub fn start_of(&self, sample: usize) -> Time {
        Time::ZERO + self.interval * sample as u64
    }

    /// The first end of a sample after a time.
    fn end_after(&self, at: Time) -> Time {
        let interval = self.interval.ps();
        let next = (at.ps() / interval).saturating_add(1);
        Time::from_ps(next.saturating_mul(interval))
    }

    fn class(&mut self, port: PortId, priority: u8) -> &mut ClassSeries {
        let classes = &mut self.ports[port.index()];
        let place = classes.partition_point(|class| class.priority < priority);
        if classes.get(place).is_none_or(|c| c.priority != priority) {
            let class = ClassSeries {
                priority,
                ..ClassSeries::default()
            };
            classes.insert(place, class);
        }
        &mut classes[place]
    }

    /// All columns, and whether they are of maxima.
    fn all(&mut self) -> impl Iterator<Item = (&mut Vec<u64>, bool)> {
        let classes = self.ports.iter_mut().flatten();
        let columns = classes.flat_map(|class| {
            let columns = class.columns().into_iter().enumerate();
            columns.map(|(column, values)| (values, column < MAXIMA))
        });
        columns.chain(self.flows.iter_mut().map(|values| (values, false)))
    }

    /// Makes one sample of two.
    fn merge(&mut self) {
        for (values, is_maximum) in self.all() {
            let merged = values.chunks(2).map(|pair| match (is_maximum, pair) {
                (true, pair) => pair.iter().copied().max().unwrap_or(0),
                (false, pair) => pair.iter().sum(),
            });
            *values = merged.collect();
        }
        self.len = self.len.div_ceil(2);
        self.interval = self.interval * 2;
    }
}
