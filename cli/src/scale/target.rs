//! The side that receives, in a process of its own.

use urxe::Wc;
use urxe_measure::fleet::{DEPTH, Fleet};

use super::protocol::{Answer, Request};
use crate::control::{ANSWER_MAX, Control};
use crate::error::CliError;
use crate::station::Station;

pub(crate) fn serve(station: &Station, control: &mut Control) -> Result<(), CliError> {
    let qps = match control.recv(Some(ANSWER_MAX))? {
        Request::Create { qps } => qps,
        other => return Err(control.out_of_turn(&other)),
    };
    // The sender hears of what the engine took, not of what this side has polled: all receives may be used by then.
    let mut fleet = Fleet::create(station, qps, qps * DEPTH)?;
    fleet.connect(&control.recv_endpoints(qps)?)?;
    for index in 0..qps {
        fleet.post_recvs(index, DEPTH)?;
    }
    control.send_endpoints(&fleet.endpoints())?;
    loop {
        match control.recv(None)? {
            Request::Run { messages } => receive(&fleet, control, messages)?,
            Request::Bye => return Ok(()),
            other => return Err(control.out_of_turn(&other)),
        }
    }
}

/// Takes so many messages, and posts a receive for each.
fn receive(fleet: &Fleet, control: &mut Control, messages: u64) -> Result<(), CliError> {
    control.send(&Answer::Running)?;
    let mut wcs = [Wc::default(); 64];
    let mut received = 0;
    while received < messages {
        let taken = fleet.recvs.wait(&mut wcs, &mut || control.check_silent())?;
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
