//! `urxe bench shards`: threads of one process, each with two QPs that are connected with each other.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use urxe::{Access, ConnectOptions, Error, SendWr, Wc};

use crate::error::{CliError, Context};
use crate::pin::pin;

/// WRITEs that are posted together, of which the last one completes.
const BATCH: u64 = 32;
/// Batches under way.
const BATCHES: u64 = 4;

/// How long a sample is.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    Time(Duration),
    Batches(u64),
}

/// What one thread has.
#[derive(Debug)]
pub struct Lane {
    cq: urxe::Cq,
    from: urxe::Qp,
    /// Connected with the other; it answers by itself.
    _to: urxe::Qp,
    source: urxe::Mr,
    target: urxe::Mr,
}

impl Lane {
    /// Two QPs that are connected, and memory for messages of so many bytes.
    ///
    /// # Errors
    /// The device has not what it takes.
    pub fn new(context: &urxe::Context, size: usize) -> Result<Lane, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(256)?;
        let qp = || pd.qp(&cq).max_send_wr((BATCH * BATCHES) as u32).create();
        let (from, to) = (qp()?, qp()?);
        from.connect(&to.endpoint(), &ConnectOptions::default())?;
        to.connect(&from.endpoint(), &ConnectOptions::default())?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Lane {
            source: pd.reg_owned(vec![7; size], Access::NONE)?,
            target: pd.reg_owned(vec![0; size], rights)?,
            cq,
            from,
            _to: to,
        })
    }

    fn post(&self) -> Result<(), Error> {
        let sges = [self.source.sge(..)];
        let (addr, rkey) = (self.target.addr(), self.target.rkey());
        let wrs = (1..=BATCH).map(|n| {
            let wr = SendWr::rdma_write(n, &sges, addr, rkey);
            if n == BATCH { wr.signaled() } else { wr }
        });
        self.from.post_send_iter(wrs).map_err(Error::from)
    }

    /// Writes for so long; returns how many messages were written.
    fn stream(&self, length: Length) -> Result<u64, Error> {
        let end = match length {
            Length::Time(time) => Some(Instant::now() + time),
            Length::Batches(_) => None,
        };
        let (mut posted, mut done) = (0, 0);
        let mut wcs = [Wc::default(); BATCHES as usize];
        loop {
            let is_over = match length {
                Length::Time(_) => end.is_some_and(|end| Instant::now() >= end),
                Length::Batches(count) => posted >= count,
            };
            if is_over && posted == done {
                return Ok(done * BATCH);
            }
            while !is_over && posted < done + BATCHES {
                self.post()?;
                posted += 1;
            }
            let found = self.cq.poll(&mut wcs)?;
            for wc in &wcs[..found] {
                wc.ok()?;
                done += 1;
            }
        }
    }
}

/// Messages a second, of all threads.
///
/// # Errors
/// A WRITE failed.
pub fn sample(lanes: &[Lane], length: Length) -> Result<f64, CliError> {
    let start = Barrier::new(lanes.len());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads = lanes.iter().enumerate().map(|(n, lane)| {
            let start = &start;
            scope.spawn(move || {
                pin(n % cpus);
                start.wait();
                let from = Instant::now();
                let messages = lane.stream(length).context("a WRITE failed")?;
                Ok(messages as f64 / from.elapsed().as_secs_f64())
            })
        });
        let threads: Vec<_> = threads.collect();
        let rates = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(CliError::Failed("a thread panicked".to_owned())))
        });
        rates.sum()
    })
}
