//! Computing while a transfer goes on: what a transfer takes of the processor of the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use urxe::{Mr, RecvWr, SendWr, Wc};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study, bytes};
use super::chart::{Kind, Picture, Series};
use super::lab::{Lab, Port, compute, joined, memory};
use crate::error::{CliError, Context as _};
use crate::samples::median;
use crate::target::CPUS;
use urxe_measure::pin::pin;

pub(super) const STUDY: Study = Study {
    name: "overlap",
    question: "How much of a processor is left for a program while a transfer of its own goes on?",
    claims: &[Claim {
        document: Document::Critique,
        says: "asynchronous progress is what a network is to be judged by, as much as latency: overhead of sending and receiving, and what is left for the \
               application, by the suite that does work between a post and its completion. On five systems most of a processor was left only where the \
               adapter made the progress.",
    }],
    measure: |effort| measured(effort, Duration::ZERO),
};

/// What the program does while it computes.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    /// It computes, and looks when it has finished.
    Neither,
    /// It polls each 20 us.
    Polls,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Send,
    Receive,
}

/// What comes of a size: times in microseconds, and the part of the processor that is left.
struct Row {
    alone: f64,
    overhead: f64,
    left: f64,
}

/// `plant` is what a test adds to the time between a post and its completion.
fn measured(effort: &Effort, plant: Duration) -> Result<Findings, CliError> {
    let sizes: &[usize] = effort.pick(&[64 << 10], &[4 << 10, 64 << 10, 1 << 20, 8 << 20]);
    let mut grid = Grid::new(
        "A transfer alone, what it adds to work of twice that time, and the part of a processor that is left",
        &[
            "bytes",
            "way",
            "program",
            "alone us",
            "overhead us",
            "left %",
        ],
    );
    let mut series = Vec::new();
    let mut left_when_computing = 0.0;
    for (way, way_name) in [(Way::Send, "send"), (Way::Receive, "receive")] {
        for (habit, name) in [(Habit::Neither, "computes"), (Habit::Polls, "polls too")] {
            let mut points = Vec::new();
            for &size in sizes {
                // On a thread of its own, which stays on a processor.
                let row = thread::scope(|scope| {
                    let thread = scope.spawn(|| transfer(effort, way, habit, size, plant));
                    joined(thread)
                })?;
                grid.row(vec![
                    Cell::text(bytes(size)),
                    Cell::text(way_name),
                    Cell::text(name),
                    Cell::Number(row.alone, 1),
                    Cell::Number(row.overhead, 1),
                    Cell::Number(100.0 * row.left, 0),
                ]);
                points.push((size as f64, row.overhead.max(0.1)));
                if way == Way::Receive && habit == Habit::Neither {
                    left_when_computing = row.left;
                }
            }
            series.push(Series::new(
                format!("{way_name}, program that {name}"),
                points,
            ));
        }
    }
    let picture = Picture {
        name: "overlap".to_owned(),
        title: "What a transfer adds to the work beside it".to_owned(),
        x: "bytes".to_owned(),
        y: "microseconds".to_owned(),
        kind: Kind::Curves,
        series,
    };
    let largest = bytes(sizes[sizes.len() - 1]);
    Ok(Findings {
        tables: vec![grid],
        pictures: vec![picture],
        follows: follows(&largest, left_when_computing),
        lacks: Vec::new(),
    })
}

fn follows(largest: &str, left: f64) -> Vec<String> {
    vec![
            format!(
                "A transfer goes on while the program computes: the engine's own thread makes the progress when no thread of the program polls. For {largest} received beside work \
                 {:.0} % of a processor was left to the program that never looked.",
                100.0 * left
            ),
            "That thread is a processor's time all the same: with as many busy programs as processors it takes from them what the transfer costs. An adapter does \
             not; that is the difference that no software removes."
                .to_owned(),
            "To poll now and then moves the transfer into the program's own time: less is left, and the transfer ends sooner. For a program with a processor to \
             spare the first is right, for latency the second."
                .to_owned(),
        ]
}

/// The other side, which takes part at once: it has a processor of its own, if there are two.
fn take_part(
    far: &Port,
    there: &Mr,
    way: Way,
    is_over: &AtomicBool,
    go: &AtomicBool,
) -> Result<(), CliError> {
    pin(CPUS[1]);
    let part = || match way {
        Way::Send => far.qp.post_recv(&RecvWr::new(1, &[there.sge(..)])),
        Way::Receive => far
            .qp
            .post_send(&SendWr::send(1, &[there.sge(..)]).signaled()),
    };
    let mut wcs = [Wc::default(); 1];
    // One more than is under way: no transfer waits for a receive.
    for _ in 0..if way == Way::Send { 2 } else { 0 } {
        part().context("cannot post")?;
    }
    while !is_over.load(Ordering::Acquire) {
        if far.cq.poll(&mut wcs).context("polling failed")? == 1 {
            wcs[0].ok().context("a work request failed")?;
            if way == Way::Send {
                part().context("cannot post")?;
            }
        }
        if way == Way::Receive && go.swap(false, Ordering::AcqRel) {
            part().context("cannot post")?;
        }
        thread::yield_now();
    }
    Ok(())
}

fn transfer(
    effort: &Effort,
    way: Way,
    habit: Habit,
    size: usize,
    plant: Duration,
) -> Result<Row, CliError> {
    let lab = Lab::open()?;
    let ports = lab.pair()?;
    let [near, far] = &ports;
    let (here, there) = (memory(&lab.near, size)?, memory(&lab.far, size)?);
    // The other side shall end; and it shall send.
    let [is_over, go] = [const { AtomicBool::new(false) }; 2];
    let rounds = effort.pick(3, 15);
    thread::scope(|scope| {
        let other = scope.spawn(|| take_part(far, &there, way, &is_over, &go));
        pin(CPUS[0]);
        let round = |work: Duration| -> Result<f64, CliError> {
            if way == Way::Receive {
                let posted = near.qp.post_recv(&RecvWr::new(2, &[here.sge(..)]));
                posted.context("cannot post")?;
            }
            let start = Instant::now();
            match way {
                Way::Send => {
                    let sges = [here.sge(..)];
                    let wr = SendWr::send(2, &sges).signaled();
                    near.qp.post_send(&wr).context("cannot post")?;
                }
                Way::Receive => go.store(true, Ordering::Release),
            }
            compute(plant);
            let is_done = work_beside(near, habit, work)?;
            if !is_done {
                near.done()?;
            }
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        let several = |work: Duration| -> Result<f64, CliError> {
            let times = (0..rounds)
                .map(|_| round(work))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(median(&times).unwrap_or_default())
        };
        let measured = (|| {
            several(Duration::ZERO)?;
            let alone = several(Duration::ZERO)?;
            let work = Duration::from_secs_f64(2e-6 * alone);
            let beside = several(work)?;
            let overhead = beside - work.as_secs_f64() * 1e6;
            let left = (1.0 - overhead / alone).clamp(0.0, 1.0);
            Ok(Row {
                alone,
                overhead,
                left,
            })
        })();
        is_over.store(true, Ordering::Release);
        joined(other)?;
        measured
    })
}

/// Works, and says whether the transfer was seen to end meanwhile.
fn work_beside(port: &Port, habit: Habit, work: Duration) -> Result<bool, CliError> {
    const SLICE: Duration = Duration::from_micros(20);
    if habit == Habit::Neither {
        compute(work);
        return Ok(false);
    }
    let (mut is_done, mut left) = (false, work);
    let mut wcs = [Wc::default(); 1];
    while !left.is_zero() {
        let slice = left.min(SLICE);
        compute(slice);
        left -= slice;
        if !is_done && port.cq.poll(&mut wcs).context("polling failed")? == 1 {
            wcs[0].ok().context("a work request failed")?;
            is_done = true;
        }
    }
    Ok(is_done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_that_is_planted_is_found_in_every_row() {
        let effort = Effort { is_quick: true };
        let found = measured(&effort, Duration::from_millis(3)).expect("it runs");
        for row in &found.tables[0].rows {
            let Cell::Number(alone, _) = row[3] else {
                panic!("no number: {row:?}");
            };
            assert!(alone >= 3000.0, "{row:?}");
        }
        assert_eq!(found.tables[0].rows.len(), 4);
    }
}
