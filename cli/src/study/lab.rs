//! What studies measure with: two devices of this process, QPs between them, and clocks.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use urxe::{ConnectOptions, Cq, Mr, Qp, QpBuilder, Wc};

use super::book::Effort;
use crate::error::{CliError, Context as _};
use crate::samples::median;
use crate::station::Station;
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER};

/// Two devices of this process: packets between them go the way that packets between two processes do.
pub(super) struct Lab {
    pub(super) near: Station,
    pub(super) far: Station,
}

impl Lab {
    pub(super) fn open() -> Result<Lab, CliError> {
        Ok(Lab {
            near: Station::open(LOOPBACK_CLIENT, None)?,
            far: Station::open(LOOPBACK_SERVER, None)?,
        })
    }

    /// A QP at each device, connected with each other.
    pub(super) fn pair(&self) -> Result<[Port; 2], CliError> {
        let [near, far] = [
            Port::new(&self.near, |qp| qp)?,
            Port::new(&self.far, |qp| qp)?,
        ];
        join(&near.qp, &far.qp)?;
        Ok([near, far])
    }
}

/// Connects two QPs of this process.
pub(super) fn join(one: &Qp, other: &Qp) -> Result<(), CliError> {
    let options = ConnectOptions::default();
    let both = one
        .connect(&other.endpoint(), &options)
        .and_then(|()| other.connect(&one.endpoint(), &options));
    both.context("cannot connect QPs")
}

const UNPOISONED: &str = "no thread panics while it has the lock";

/// A QP with a completion queue of its own.
pub(super) struct Port {
    pub(super) qp: Qp,
    pub(super) cq: Cq,
    /// Completions that came while another port was waited for.
    early: Mutex<VecDeque<Wc>>,
}

impl Port {
    pub(super) fn new(
        station: &Station,
        more: impl for<'a> FnOnce(QpBuilder<'a>) -> QpBuilder<'a>,
    ) -> Result<Port, CliError> {
        let what = "cannot create a QP";
        let cq = station.context.create_cq(1024).context(what)?;
        let qp = station.pd.qp(&cq).max_send_wr(64).max_recv_wr(64);
        let qp = more(qp).create().context(what)?;
        Ok(Port::of(qp, cq))
    }

    pub(super) fn of(qp: Qp, cq: Cq) -> Port {
        let early = Mutex::default();
        Port { qp, cq, early }
    }

    /// The next completion, polled for at both ends in turn: one thread that is both ends has no other that moves the far one.
    pub(super) fn done_beside(&self, other: &Port) -> Result<Wc, CliError> {
        let what = "polling failed";
        let mut wc = [Wc::default()];
        loop {
            if let Some(early) = self.early.lock().expect(UNPOISONED).pop_front() {
                return early.ok().copied().context("a work request failed");
            }
            for port in [self, other] {
                if port.cq.poll(&mut wc).context(what)? == 1 {
                    port.early.lock().expect(UNPOISONED).push_back(wc[0]);
                }
            }
        }
    }

    /// The next completion, polled for.
    pub(super) fn done(&self) -> Result<Wc, CliError> {
        let wc = self.cq.poll_one().context("polling failed")?;
        wc.ok().copied().context("a work request failed")
    }
}

/// Memory that peers may read and write.
pub(super) fn memory(station: &Station, len: usize) -> Result<Mr, CliError> {
    let rights = urxe::Access::LOCAL_WRITE
        | urxe::Access::REMOTE_READ
        | urxe::Access::REMOTE_WRITE
        | urxe::Access::REMOTE_ATOMIC;
    let mr = station.pd.reg_owned(vec![0; len], rights);
    mr.context("cannot register memory")
}

/// What a thread came to.
pub(super) fn joined<T>(
    thread: thread::ScopedJoinHandle<'_, Result<T, CliError>>,
) -> Result<T, CliError> {
    let ended = thread.join();
    ended.unwrap_or_else(|_| Err(CliError::Failed("a thread panicked".to_owned())))
}

/// Keeps a processor busy for so long; for no time, it does not even look at the clock.
pub(super) fn compute(time: Duration) {
    if time.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

/// Samples of a cost.
const SAMPLES: usize = 31;
/// The least time of a sample: long against a clock's steps.
const SAMPLE: Duration = Duration::from_micros(200);

/// What an operation takes, in microseconds: the median over samples of as many as take a while.
pub(super) fn cost(
    effort: &Effort,
    op: &mut dyn FnMut() -> Result<(), CliError>,
) -> Result<f64, CliError> {
    op()?;
    let start = Instant::now();
    op()?;
    let once = start.elapsed().max(Duration::from_nanos(20));
    let each = (SAMPLE.as_nanos() / once.as_nanos()).clamp(1, 10_000) as u32;
    let mut values = Vec::new();
    for _ in 0..effort.pick(5, SAMPLES) {
        let start = Instant::now();
        for _ in 0..each {
            op()?;
        }
        values.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(each));
    }
    Ok(median(&values).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_is_planted_is_found() {
        let effort = Effort { is_quick: true };
        let planted = Duration::from_micros(300);
        let found = cost(&effort, &mut || {
            compute(planted);
            Ok(())
        });
        assert!(found.expect("nothing fails") >= 300.0);
    }
}
