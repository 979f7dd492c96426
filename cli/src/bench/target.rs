//! The other side of a bench, in a process of its own: takes part where the operation needs it.

use urxe::Wc;
use urxe_measure::bench::latency;
use urxe_measure::bench::link::Link;
use urxe_measure::bench::plan::{Op, Plan};

use super::protocol::{Answer, Expected, Request};
use crate::control::{ANSWER_MAX, Control};
use crate::error::CliError;
use crate::station::{RemoteMemory, Station};

pub(crate) fn serve(station: &Station, control: &mut Control) -> Result<(), CliError> {
    let (plan, endpoint, memory) = match control.recv(Some(ANSWER_MAX))? {
        Request::Setup {
            plan,
            endpoint,
            memory,
        } => (plan, endpoint, memory),
        other => return Err(control.out_of_turn(&other)),
    };
    plan.check()?;
    let link = Link::new(station, plan)?;
    if plan.op == Op::Read {
        link.fill(link.in_offset());
    }
    link.connect(&endpoint)?;
    control.send(&Answer::Ready {
        endpoint: link.endpoint(),
        memory: link.window(),
    })?;
    loop {
        match control.recv(None)? {
            Request::Run { iters } => take_part(&link, control, memory, iters)?,
            Request::Check { expected } => check(&link, expected)?,
            Request::Count => {
                control.send(&Answer::Packets(link.packets()?))?;
                continue;
            }
            Request::Bye => return Ok(()),
            other => return Err(control.out_of_turn(&other)),
        }
        control.send(&Answer::Done)?;
    }
}

fn take_part(
    link: &Link,
    control: &mut Control,
    memory: RemoteMemory,
    iters: u64,
) -> Result<(), CliError> {
    let Plan {
        op,
        is_latency,
        is_event,
        ..
    } = link.plan;
    match (op, is_latency) {
        (Op::Send, false) => receive(link, control, iters),
        (Op::Send, true) => {
            link.post_recvs(1)?;
            control.send(&Answer::Running)?;
            latency::answer_sends(link, iters, &mut || control.check_silent())
        }
        (Op::Write, true) => {
            control.send(&Answer::Running)?;
            latency::answer_writes(link, memory, iters, &mut || control.check_silent())
        }
        // One-sided: while the other side measures its latency by polling, this side's engine must not be the
        // one that sleeps.
        (Op::Read | Op::Atomic, true) if !is_event => drive_until_finished(link, control),
        (Op::Write, false) | (Op::Read | Op::Atomic, _) => {
            control.send(&Answer::Running)?;
            wait_finished(control)
        }
    }
}

/// Bandwidth of SEND: receives, and posts a new receive for each.
fn receive(link: &Link, control: &mut Control, iters: u64) -> Result<(), CliError> {
    let depth = 2 * link.plan.depth() as u64;
    let mut posted = depth.min(iters);
    link.post_recvs(posted as usize)?;
    control.send(&Answer::Running)?;
    let mut wcs = [Wc::default(); 64];
    let mut received = 0;
    while received < iters {
        let taken = link.recvs.wait(&mut wcs, &mut || control.check_silent())? as u64;
        received += taken;
        let again = taken.min(iters - posted);
        link.post_recvs(again as usize)?;
        posted += again;
    }
    Ok(())
}

/// Polls an empty completion queue, which is what drives the engine on this thread.
fn drive_until_finished(link: &Link, control: &mut Control) -> Result<(), CliError> {
    control.send(&Answer::Running)?;
    let mut wcs = [Wc::default(); 1];
    loop {
        for _ in 0..1024 {
            link.recvs.poll(&mut wcs)?;
        }
        if control.has_news() {
            return wait_finished(control);
        }
    }
}

fn wait_finished(control: &mut Control) -> Result<(), CliError> {
    match control.recv(None)? {
        Request::Finished => Ok(()),
        other => Err(control.out_of_turn(&other)),
    }
}

fn check(link: &Link, expected: Expected) -> Result<(), CliError> {
    match expected {
        Expected::Anything => Ok(()),
        Expected::Pattern => link.verify(),
        Expected::Count(count) => {
            let found = link.mr.load_u64(link.in_offset());
            if found == count {
                return Ok(());
            }
            Err(CliError::Fault(format!(
                "the counter is {found} after {count} additions"
            )))
        }
    }
}
