//! The result: JSON for programs, some lines for people.

use serde::Serialize;

/// Memory of one idle, connected queue pair.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    /// What the process grew by, divided by the number of queue pairs.
    pub(super) resident_bytes_per_qp: u64,
    /// Of these, the send and receive queue: the program chose their size.
    pub(super) queue_bytes_per_qp: u64,
}

impl Memory {
    fn beyond_queues(self) -> u64 {
        self.resident_bytes_per_qp
            .saturating_sub(self.queue_bytes_per_qp)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) qps: u64,
    #[serde(flatten)]
    pub(super) memory: Memory,
    pub(super) few: u64,
    pub(super) msg_per_s_few: f64,
    pub(super) msg_per_s: f64,
    /// Median over neighbouring samples of many by few.
    pub(super) ratio: f64,
}

impl Report {
    pub(super) fn text(&self) -> String {
        let Report {
            qps, memory, few, ..
        } = self;
        format!(
            "{qps} connected RC queue pairs in each of two processes\n\
             \x20 resident memory of an idle one: {} bytes, of which its queues are {}; {} beyond them\n\
             \x20 8-byte SENDs, one at a time on each in turn:\n\
             \x20   across {few:>6}: {:>9.0} messages/s\n\
             \x20   across {qps:>6}: {:>9.0} messages/s\n\
             \x20 ratio {:.2} (median over samples that took turns)\n",
            memory.resident_bytes_per_qp,
            memory.queue_bytes_per_qp,
            memory.beyond_queues(),
            self.msg_per_s_few,
            self.msg_per_s,
            self.ratio,
        )
    }
}
