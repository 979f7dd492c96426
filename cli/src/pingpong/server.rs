//! The server's side of a ping-pong: answers in the two-sided variants, lends its memory in the others.

use std::net::IpAddr;

use super::protocol::{Answer, Request};
use crate::control::Control;
use crate::error::CliError;
use crate::pattern::Direction;
use crate::station::Station;
use crate::target;
use crate::usage::CpuClock;
use crate::wire::WireName;
use urxe_measure::pingpong::{Link, Slot};

/// Serves one client, then ends.
pub(super) fn run(address: IpAddr, port: u16, wire: Option<WireName>) -> Result<(), CliError> {
    target::serve_one(address, wire, port, serve)
}

fn serve(station: &Station, control: &mut Control) -> Result<(), CliError> {
    let mut link: Option<Link> = None;
    loop {
        match control.recv(None)? {
            Request::Setup {
                variant,
                size,
                endpoint,
            } => {
                // The previous variant's objects go first.
                drop(link.take());
                let new = Link::new(station, variant, size)?;
                new.connect(&endpoint)?;
                control.send(&Answer::Ready {
                    endpoint: new.endpoint(),
                    memory: new.window(),
                })?;
                link = Some(new);
            }
            run @ Request::Run { first, iters } => {
                let Some(link) = &mut link else {
                    return Err(control.out_of_turn(&run));
                };
                if link.variant().is_two_sided() {
                    answer_rounds(link, control, first, iters)?;
                } else {
                    lend_memory(link, control, first, iters)?;
                }
            }
            Request::Bye => return Ok(()),
            other @ Request::Finished => return Err(control.out_of_turn(&other)),
        }
    }
}

/// SEND/RECV: sends a message back for each that arrives.
fn answer_rounds(
    link: &mut Link,
    control: &mut Control,
    first: u64,
    iters: u64,
) -> Result<(), CliError> {
    link.post_recv(Slot::of_round(first))?;
    control.send(&Answer::Running)?;
    let clock = CpuClock::start();
    for round in first..first + iters {
        link.fill(Slot::Out(round), round, Direction::ToClient);
        link.wait_recv(&mut || control.check_silent())?;
        if round + 1 < first + iters {
            link.post_recv(Slot::of_round(round + 1))?;
        }
        link.post_send(Slot::Out(round), &mut || control.check_silent())?;
        // After the answer is on its way: the round trip does not wait for the check.
        link.verify(Slot::of_round(round), round, Direction::ToServer)?;
    }
    let cpu = clock.read();
    link.drain_sends(&mut || control.check_silent())?;
    control.send(&Answer::Report { cpu })
}

/// WRITE/READ: this thread sleeps in its own code, outside urxe, until the client says that it is done. What
/// moves the data meanwhile is the engine.
fn lend_memory(
    link: &mut Link,
    control: &mut Control,
    first: u64,
    iters: u64,
) -> Result<(), CliError> {
    link.post_recv(Slot::Count)?;
    control.send(&Answer::Running)?;
    let clock = CpuClock::start();
    match control.recv(None)? {
        Request::Finished => {}
        Request::Bye => return Err(CliError::Failed("the client gave up".to_owned())),
        other => return Err(control.out_of_turn(&other)),
    }
    let cpu = clock.read();
    link.wait_recv(&mut || control.check_silent())?;
    let count = link.count();
    if count != iters {
        let text = format!("the client finished after {count} transfers, not {iters}");
        return Err(CliError::Fault(text));
    }
    link.verify(Slot::In0, first + iters - 1, Direction::ToServer)?;
    control.send(&Answer::Report { cpu })
}
