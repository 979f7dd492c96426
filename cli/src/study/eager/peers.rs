//! A buffer for each peer that is written by RDMA and polled, beside one queue for all.

use std::time::Duration;

use urxe::{Mr, RecvWr, SendWr};

use super::Curve;
use crate::error::{CliError, Context as _};
use crate::study::book::{Cell, Effort, Grid, crossing};
use crate::study::lab::{Lab, Port, compute, cost, memory};

pub(super) const WAYS: [&str; 2] = ["WRITE into the peer's buffer", "SEND"];

/// Bytes of a peer's buffer: a line of its own in the caches.
const SLOT: usize = 64;

/// `plant` is what a test adds to each look at a buffer.
pub(super) fn measured(
    effort: &Effort,
    lab: &Lab,
    plant: Duration,
) -> Result<(Grid, [Curve; WAYS.len()]), CliError> {
    let peers: &[usize] = effort.pick(&[1, 64], &[1, 4, 16, 64, 256, 1024, 4096]);
    let title = "Microseconds from a post to 8 bytes that are found, by the number of peers that may have sent";
    let columns: Vec<&str> = ["peers"].into_iter().chain(WAYS).collect();
    let mut grid = Grid::new(title, &columns);
    let mut curves: [Curve; WAYS.len()] = Default::default();
    let [near, far] = lab.pair()?;
    // The first messages of a pair find it unprepared.
    let buffer = memory(&lab.far, SLOT)?;
    sent(effort, &near, &far, &buffer)?;
    written(effort, &near, &far, &buffer, Duration::ZERO)?;
    for &count in peers {
        let buffers = memory(&lab.far, count * SLOT)?;
        let costs = [
            written(effort, &near, &far, &buffers, plant)?,
            sent(effort, &near, &far, &buffers)?,
        ];
        let cells = costs.iter().map(|&cost| Cell::number(cost));
        let row = [Cell::Number(count as f64, 0)].into_iter().chain(cells);
        grid.row(row.collect());
        for (curve, cost) in curves.iter_mut().zip(costs) {
            curve.push((count as f64, cost));
        }
    }
    Ok((grid, curves))
}

/// One peer after another writes; all buffers are looked at in turn until one has changed. The queue is polled once a round, as an MPI
/// does it, which lets the transport go on.
fn written(
    effort: &Effort,
    near: &Port,
    far: &Port,
    buffers: &Mr,
    plant: Duration,
) -> Result<f64, CliError> {
    let count = buffers.len() / SLOT;
    let (mut message, mut looked_at) = (0u64, 0);
    let mut none = [urxe::Wc::default()];
    // What each buffer had last.
    let mut known = vec![0u64; count];
    cost(effort, &mut || {
        message += 1;
        // Not the next in turn: a peer is found after half of them, in the mean.
        let peer = (message.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % count;
        let to = buffers.remote(peer * SLOT..peer * SLOT + 8);
        let value = message.to_ne_bytes();
        let write = SendWr::rdma_write_inline(1, &value, to.addr, to.rkey);
        near.qp
            .post_send(&write.signaled())
            .context("cannot write")?;
        loop {
            looked_at = if looked_at + 1 < count {
                looked_at + 1
            } else {
                0
            };
            compute(plant);
            let value = buffers.load_u64(looked_at * SLOT);
            if value != known[looked_at] {
                known[looked_at] = value;
                break;
            }
            if looked_at == 0 {
                // Nothing is posted there that could complete.
                far.cq.poll(&mut none).context("polling failed")?;
            }
        }
        near.done_beside(far).map(|_| ())
    })
}

fn sent(effort: &Effort, near: &Port, far: &Port, buffers: &Mr) -> Result<f64, CliError> {
    let place = [buffers.sge(..8)];
    let mut message = 0u64;
    cost(effort, &mut || {
        message += 1;
        far.qp
            .post_recv(&RecvWr::new(1, &place))
            .context("cannot receive")?;
        let value = message.to_ne_bytes();
        let send = SendWr::send_inline(1, &value).signaled();
        near.qp.post_send(&send).context("cannot send")?;
        far.done_beside(near)?;
        near.done_beside(far).map(|_| ())
    })
}

pub(super) fn follows(curves: &[Curve; WAYS.len()]) -> String {
    let [written, sent] = curves;
    let falls_back = match crossing(written, sent) {
        Some(peers) => {
            format!("beyond {peers:.0} peers it is slower than SEND, and the fall back pays")
        }
        None => "no number of peers that was measured makes it change places with SEND".to_owned(),
    };
    let (Some((few, first)), Some((most, last))) = (written.first(), written.last()) else {
        return falls_back;
    };
    format!(
        "A buffer for each peer takes {first:.2} us with {few:.0} and {last:.2} us with {most:.0}: linear in the buffers to look at, {:.1} ns for each more, as the critique \
         says; {falls_back}. The memory grows with the peers, too, and SEND with a shared queue pays for neither.",
        (last - first) * 1000.0 / (most - few).max(1.0)
    )
}
