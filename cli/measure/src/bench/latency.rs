//! Latency, one operation at a time: ping-pongs by SEND and by WRITE, and whole READs and atomics.

use std::time::{Duration, Instant};

use urxe::{SendWr, Wc};

use super::link::Link;
use super::plan::Op;
use crate::error::CliError;
use crate::samples::Samples;
use crate::station::{PeerCheck, RemoteMemory};

/// A completion is asked for every so many messages of a ping-pong: enough to reclaim queue places.
const SIGNAL_EVERY: u64 = 32;

/// Times `iters` operations; a ping-pong's time is halved.
pub fn measure(
    link: &Link,
    remote: RemoteMemory,
    iters: u64,
    check: &mut PeerCheck<'_>,
) -> Result<Samples, CliError> {
    let mut samples = Samples::with_capacity(iters as usize);
    let mut inline = inline_message(link);
    for round in 0..iters {
        samples.push(match link.plan.op {
            Op::Send => ping_by_send(link, &inline, round, iters, check)? / 2,
            Op::Write => ping_by_write(link, (remote, &mut inline), round, iters, check)? / 2,
            Op::Read | Op::Atomic => whole_operation(link, remote, check)?,
        });
    }
    Ok(samples)
}

/// A message that travels inline is made once: a program has its bytes at hand. Empty if messages do not.
fn inline_message(link: &Link) -> Vec<u8> {
    let len = if link.plan.is_inline() {
        link.plan.size
    } else {
        0
    };
    let mut message = vec![0; len];
    link.mr.read(0, &mut message);
    message
}

fn whole_operation(
    link: &Link,
    remote: RemoteMemory,
    check: &mut PeerCheck<'_>,
) -> Result<Duration, CliError> {
    let sges = [link.local_sge()];
    let start = Instant::now();
    link.post(&[link.work_request(&sges, remote).signaled()])?;
    link.wait_send(check)?;
    Ok(start.elapsed())
}

fn ping_by_send(
    link: &Link,
    inline: &[u8],
    round: u64,
    iters: u64,
    check: &mut PeerCheck<'_>,
) -> Result<Duration, CliError> {
    let start = Instant::now();
    let is_signaled = send(link, inline, round, iters)?;
    if link.plan.is_signaled {
        // The order of calls is that of ib_send_lat.
        link.wait_send(check)?;
        link.wait_recv(check)?;
        link.post_recvs(1)?;
        return Ok(start.elapsed());
    }
    link.post_recvs(1)?;
    link.wait_recv(check)?;
    let time = start.elapsed();
    reclaim(link, is_signaled, check)?;
    Ok(time)
}

/// Answers each message with one of the same size. The receive for the first is posted already.
pub fn answer_sends(link: &Link, iters: u64, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
    let inline = inline_message(link);
    for round in 0..iters {
        link.wait_recv(check)?;
        let needs_recv = round + 1 < iters;
        if needs_recv && link.plan.is_signaled {
            link.post_recvs(1)?;
        }
        // The answer first: there are receives enough.
        let is_signaled = send(link, &inline, round, iters)?;
        if needs_recv && !link.plan.is_signaled {
            link.post_recvs(1)?;
        }
        reclaim(link, is_signaled, check)?;
    }
    Ok(())
}

fn send(link: &Link, inline: &[u8], round: u64, iters: u64) -> Result<bool, CliError> {
    if link.plan.is_inline() {
        return post_maybe_signaled(link, SendWr::send_inline(0, inline), round, iters);
    }
    let sges = [link.out_sge()];
    post_maybe_signaled(link, SendWr::send(0, &sges), round, iters)
}

/// A WRITE there, a WRITE back: each side waits for the last byte of its memory to change.
fn ping_by_write(
    link: &Link,
    (remote, inline): (RemoteMemory, &mut [u8]),
    round: u64,
    iters: u64,
    check: &mut PeerCheck<'_>,
) -> Result<Duration, CliError> {
    let start = Instant::now();
    let is_signaled = write(link, (remote, inline), round, iters)?;
    if link.plan.is_signaled {
        link.wait_send(check)?;
        wait_for_byte(link, mark(round), check)?;
        return Ok(start.elapsed());
    }
    wait_for_byte(link, mark(round), check)?;
    let time = start.elapsed();
    reclaim(link, is_signaled, check)?;
    Ok(time)
}

/// Answers each WRITE with one into the other side's memory.
pub fn answer_writes(
    link: &Link,
    remote: RemoteMemory,
    iters: u64,
    check: &mut PeerCheck<'_>,
) -> Result<(), CliError> {
    let mut inline = inline_message(link);
    for round in 0..iters {
        wait_for_byte(link, mark(round), check)?;
        let is_signaled = write(link, (remote, &mut inline), round, iters)?;
        reclaim(link, is_signaled, check)?;
    }
    Ok(())
}

fn write(
    link: &Link,
    (remote, inline): (RemoteMemory, &mut [u8]),
    round: u64,
    iters: u64,
) -> Result<bool, CliError> {
    let (size, rkey) = (link.plan.size, remote.rkey());
    if link.plan.is_inline() {
        inline[size - 1] = mark(round);
        let wr = SendWr::rdma_write_inline(0, inline, remote.addr, rkey);
        return post_maybe_signaled(link, wr, round, iters);
    }
    link.mr.write(size - 1, &[mark(round)]);
    let sges = [link.out_sge()];
    let wr = SendWr::rdma_write(0, &sges, remote.addr, rkey);
    post_maybe_signaled(link, wr, round, iters)
}

/// The last byte of a round's message: never that of the round before it, and never 0, which is there first.
fn mark(round: u64) -> u8 {
    (round % 255) as u8 + 1
}

/// Polls the memory. The completion queue is polled, too: that is what makes urxe receive on this thread; with an
/// adapter the memory alone would do.
fn wait_for_byte(link: &Link, mark: u8, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
    const LOOKS: usize = 256;
    let last = link.in_offset() + link.plan.size - 1;
    let mut started = None;
    loop {
        for _ in 0..LOOKS {
            if link.mr.load_u8(last) == mark {
                return Ok(());
            }
            link.recvs.poll(&mut [Wc::default(); 1])?;
        }
        if started.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(100) {
            check()?;
            started = None;
        }
    }
}

/// Posts; every so often, and at the end, with a completion.
fn post_maybe_signaled(
    link: &Link,
    wr: SendWr<'_>,
    round: u64,
    iters: u64,
) -> Result<bool, CliError> {
    let is_due = (round + 1).is_multiple_of(SIGNAL_EVERY) || round + 1 == iters;
    let is_signaled = link.plan.is_signaled || is_due;
    link.post(&[if is_signaled { wr.signaled() } else { wr }])?;
    Ok(is_signaled)
}

fn reclaim(link: &Link, is_signaled: bool, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
    if is_signaled {
        link.wait_send(check)
    } else {
        Ok(())
    }
}
