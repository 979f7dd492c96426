//! The side that receives, in a process of its own: it answers small messages, and its engine takes the WRITEs.

use urxe::Wc;

use super::QPS_SMALL;
use super::protocol::{Answer, Request};
use crate::control::{ANSWER_MAX, Control};
use crate::error::CliError;
use crate::station::Station;
use urxe_measure::fairness::Ends;

/// Empty polls between two looks at the control connection.
const POLLS_PER_LOOK: u32 = 1 << 14;

pub(crate) fn serve(station: &Station, control: &mut Control) -> Result<(), CliError> {
    let plan = match control.recv(Some(ANSWER_MAX))? {
        Request::Create(plan) => plan,
        other => return Err(control.out_of_turn(&other)),
    };
    let mut ends = Ends::create(station, plan)?;
    ends.blank();
    ends.connect(&control.recv_endpoints(plan.qps + QPS_SMALL)?)?;
    control.send_endpoints(&ends.endpoints())?;
    control.send(&Answer::Memory(ends.memory()))?;
    loop {
        match control.recv(None)? {
            Request::Run => answer(&mut ends, control)?,
            Request::Check => ends.verify()?,
            Request::Bye => return Ok(()),
            other => return Err(control.out_of_turn(&other)),
        }
        control.send(&Answer::Done)?;
    }
}

/// Answers each small message with another.
fn answer(ends: &mut Ends, control: &mut Control) -> Result<(), CliError> {
    control.send(&Answer::Running)?;
    let mut polls = 0;
    loop {
        if ends.small_recvs.poll(&mut [Wc::default(); 1])? > 0 {
            // The answer first: there are receives enough.
            ends.post_small(&mut || Ok(()))?;
            ends.repost_small()?;
            continue;
        }
        polls += 1;
        if polls == POLLS_PER_LOOK {
            polls = 0;
            if control.has_news() {
                return match control.recv(None)? {
                    Request::Finished => Ok(()),
                    other => Err(control.out_of_turn(&other)),
                };
            }
        }
    }
}
