//! Many queue pairs that share two completion queues and one small memory region.

use urxe::{Access, ConnectOptions, Mr, Qp, RecvWr, SendWr, Sge};

use crate::error::{CliError, Context};
use crate::station::{self, Queue, Station};

pub(super) const MESSAGE: [u8; 8] = *b"urxe8byt";

/// Work requests that each queue has room for.
pub(super) const DEPTH: usize = 16;

#[derive(Debug)]
pub(super) struct Fleet {
    qps: Vec<Qp>,
    pub(super) sends: Queue,
    pub(super) recvs: Queue,
    sink: Mr,
}

impl Fleet {
    /// `received` is for how many messages there is room until they are polled.
    pub(super) fn create(
        station: &Station,
        qps: usize,
        received: usize,
    ) -> Result<Fleet, CliError> {
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

    pub(super) fn endpoints(&self) -> Vec<String> {
        let qps = self.qps.iter();
        qps.map(|qp| qp.endpoint().to_string()).collect()
    }

    /// Connects each to the remote one with the same index.
    pub(super) fn connect(&mut self, remotes: &[String]) -> Result<(), CliError> {
        let options = ConnectOptions::default();
        let mut pairs = self.qps.iter().zip(remotes);
        pairs.try_for_each(|(qp, remote)| station::connect(qp, remote, &options))
    }

    /// Bytes of the work queues of one queue pair.
    pub(super) fn queue_bytes_per_qp(&self) -> u64 {
        self.qps.first().map_or(0, |qp| qp.queue_bytes() as u64)
    }

    pub(super) fn post_send(&self, index: usize, wr: &SendWr<'_>) -> Result<(), CliError> {
        let posted = self.qps[index].post_send(wr);
        posted.context("cannot post a work request")
    }

    /// Posts receives on one queue pair; its index is their work request id.
    pub(super) fn post_recvs(&self, index: usize, count: usize) -> Result<(), CliError> {
        let sges: [Sge; 1] = [self.sink.sge(0..MESSAGE.len())];
        let wr = RecvWr::new(index as u64, &sges);
        let posted = self.qps[index].post_recv_list(&vec![wr; count]);
        posted.context("cannot post receives")
    }

    pub(super) fn repost_recv(&self, index: usize) -> Result<(), CliError> {
        let sges: [Sge; 1] = [self.sink.sge(0..MESSAGE.len())];
        let posted = self.qps[index].post_recv(&RecvWr::new(index as u64, &sges));
        posted.context("cannot post a receive")
    }

    /// Whether the last message arrived whole.
    pub(super) fn is_message_whole(&self) -> bool {
        let mut found = [0; MESSAGE.len()];
        self.sink.read(0, &mut found);
        found == MESSAGE
    }
}
