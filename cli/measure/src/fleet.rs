//! `urxe scale`: many queue pairs that share two completion queues and one small memory region.

use std::time::{Duration, Instant};

use urxe::{Access, ConnectOptions, Mr, Qp, RecvWr, SendWr, Sge, Wc};

use crate::error::{CliError, Context};
use crate::station::{self, Queue, Station};

/// What is sent.
const MESSAGE: [u8; 8] = *b"urxe8byt";

/// Work requests that each queue has room for.
pub const DEPTH: usize = 16;

/// The queue pairs of one side.
#[derive(Debug)]
pub struct Fleet {
    qps: Vec<Qp>,
    sends: Queue,
    pub recvs: Queue,
    sink: Mr,
}

impl Fleet {
    /// `received` is for how many messages there is room until they are polled.
    pub fn create(station: &Station, qps: usize, received: usize) -> Result<Fleet, CliError> {
        let what = "cannot create a queue pair";
        let sends = station.queue(4096, true)?;
        let recvs = station.queue(received, true)?;
        let sink = vec![0; MESSAGE.len()];
        let sink = station.pd.reg_owned(sink, Access::LOCAL_WRITE);
        let sink = sink.context(what)?;
        let qp = station.qp(&sends, &recvs, [DEPTH; 2], MESSAGE.len());
        let qps = (0..qps).map(|_| qp.clone().create());
        let qps = qps.collect::<Result<Vec<Qp>, _>>().context(what)?;
        Ok(Fleet {
            qps,
            sends,
            recvs,
            sink,
        })
    }

    pub fn endpoints(&self) -> Vec<String> {
        let qps = self.qps.iter();
        qps.map(|qp| qp.endpoint().to_string()).collect()
    }

    /// Connects each to the remote one with the same index.
    pub fn connect(&mut self, remotes: &[String]) -> Result<(), CliError> {
        let options = ConnectOptions::default();
        let mut pairs = self.qps.iter().zip(remotes);
        pairs.try_for_each(|(qp, remote)| station::connect(qp, remote, &options))
    }

    /// Bytes of the work queues of one queue pair.
    pub fn queue_bytes_per_qp(&self) -> u64 {
        self.qps.first().map_or(0, |qp| qp.queue_bytes() as u64)
    }

    /// Sends so many messages, each on the next of the first `qps` queue pairs, with so many under way at most; returns the time
    /// until all had completed.
    pub fn send(
        &self,
        qps: usize,
        messages: usize,
        under_way: usize,
    ) -> Result<Duration, CliError> {
        let mut wcs = [Wc::default(); 64];
        let mut outstanding = vec![0; qps];
        let (mut posted, mut completed) = (0, 0);
        let start = Instant::now();
        while completed < messages {
            while posted < messages && posted - completed < under_way {
                let next = posted % qps;
                if outstanding[next] == DEPTH {
                    break;
                }
                let wr = SendWr::send_inline(next as u64, &MESSAGE).signaled();
                self.post_send(next, &wr)?;
                outstanding[next] += 1;
                posted += 1;
            }
            let taken = self.sends.wait(&mut wcs, &mut || Ok(()))?;
            for wc in &wcs[..taken] {
                outstanding[wc.wr_id as usize] -= 1;
            }
            completed += taken;
        }
        Ok(start.elapsed())
    }

    fn post_send(&self, index: usize, wr: &SendWr<'_>) -> Result<(), CliError> {
        let posted = self.qps[index].post_send(wr);
        posted.context("cannot post a work request")
    }

    /// Posts receives on one queue pair; its index is their work request id.
    pub fn post_recvs(&self, index: usize, count: usize) -> Result<(), CliError> {
        let sges: [Sge; 1] = [self.sink.sge(0..MESSAGE.len())];
        let wr = RecvWr::new(index as u64, &sges);
        let posted = self.qps[index].post_recv_list(&vec![wr; count]);
        posted.context("cannot post receives")
    }

    pub fn repost_recv(&self, index: usize) -> Result<(), CliError> {
        let sges: [Sge; 1] = [self.sink.sge(0..MESSAGE.len())];
        let posted = self.qps[index].post_recv(&RecvWr::new(index as u64, &sges));
        posted.context("cannot post a receive")
    }

    /// Whether the last message arrived whole.
    pub fn is_message_whole(&self) -> bool {
        let mut found = [0; MESSAGE.len()];
        self.sink.read(0, &mut found);
        found == MESSAGE
    }
}
