//! The side that receives, in a process of its own.

use std::net::IpAddr;

use urxe::Wc;

use super::fleet::{DEPTH, Fleet};
use super::protocol::{Answer, ENDPOINTS_A_LINE, Request};
use crate::control::{self, ANSWER_MAX, Control};
use crate::error::CliError;
use crate::process;
use crate::station::Station;

pub(super) fn run(address: IpAddr, cpu: usize) -> Result<(), CliError> {
    process::pin(cpu);
    let station = Station::open(address)?;
    let listener = control::listen(address, 0)?;
    control::announce(&listener)?;
    let mut control = control::accept(&listener)?;
    let served = serve(&station, &mut control);
    if let Err(error) = &served {
        // The other side may be gone already, which then is the error at hand.
        let _ = control.send(&Answer::Fault {
            text: error.to_string(),
        });
    }
    served
}

fn serve(station: &Station, control: &mut Control) -> Result<(), CliError> {
    let Request::Create { qps } = control.recv(Some(ANSWER_MAX))? else {
        return Err(out_of_turn());
    };
    let mut fleet = Fleet::create(station, qps)?;
    let mut remotes = Vec::with_capacity(qps);
    while remotes.len() < qps {
        match control.recv(Some(ANSWER_MAX))? {
            Request::Endpoints(part) => remotes.extend(part),
            _ => return Err(out_of_turn()),
        }
    }
    fleet.connect(&remotes)?;
    for index in 0..qps {
        fleet.post_recvs(index, DEPTH as usize)?;
    }
    for part in fleet.endpoints().chunks(ENDPOINTS_A_LINE) {
        control.send(&Answer::Endpoints(part.to_vec()))?;
    }
    loop {
        match control.recv(None)? {
            Request::Run { messages } => receive(&fleet, control, messages)?,
            Request::Bye => return Ok(()),
            _ => return Err(out_of_turn()),
        }
    }
}

/// Takes so many messages, and posts a receive for each.
fn receive(fleet: &Fleet, control: &mut Control, messages: u64) -> Result<(), CliError> {
    control.send(&Answer::Running)?;
    let mut wcs = [Wc::default(); 64];
    let mut received = 0;
    while received < messages {
        let taken = fleet.recvs.wait(&mut wcs, &mut || {
            if control.has_news() {
                return Err(CliError::Failed("the measuring process gave up".to_owned()));
            }
            Ok(())
        })?;
        for wc in &wcs[..taken] {
            fleet.repost_recv(wc.wr_id as usize)?;
        }
        received += taken as u64;
    }
    if !fleet.is_message_whole() {
        return Err(CliError::Fault("a message arrived changed".to_owned()));
    }
    control.send(&Answer::Done)
}

fn out_of_turn() -> CliError {
    CliError::Failed("a request out of turn".to_owned())
}
