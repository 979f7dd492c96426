//! The side that receives, in a process of its own: it answers small messages, and its engine takes the WRITEs.

use std::net::IpAddr;

use urxe::Wc;

use super::ends::Ends;
use super::protocol::{Answer, Request};
use super::{ENDPOINTS_A_LINE, QPS_SMALL};
use crate::control::{self, ANSWER_MAX, Control};
use crate::error::CliError;
use crate::process;
use crate::station::Station;

/// Empty polls between two looks at the control connection.
const POLLS_PER_LOOK: u32 = 1 << 14;

pub(super) fn run(address: IpAddr, cpu: usize) -> Result<(), CliError> {
    // Before the device is opened, so that its threads stay there, too.
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
    let Request::Create(plan) = control.recv(Some(ANSWER_MAX))? else {
        return Err(out_of_turn());
    };
    let mut ends = Ends::create(station, plan)?;
    ends.blank();
    let mut remotes = Vec::new();
    while remotes.len() < plan.qps + QPS_SMALL {
        match control.recv(Some(ANSWER_MAX))? {
            Request::Endpoints(part) => remotes.extend(part),
            _ => return Err(out_of_turn()),
        }
    }
    ends.connect(&remotes)?;
    for part in ends.endpoints().chunks(ENDPOINTS_A_LINE) {
        control.send(&Answer::Endpoints(part.to_vec()))?;
    }
    let (addr, rkey) = ends.memory();
    control.send(&Answer::Memory { addr, rkey })?;
    loop {
        match control.recv(None)? {
            Request::Run => answer(&mut ends, control)?,
            Request::Check => ends.verify()?,
            Request::Bye => return Ok(()),
            _ => return Err(out_of_turn()),
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
                    _ => Err(out_of_turn()),
                };
            }
        }
    }
}

fn out_of_turn() -> CliError {
    CliError::Failed("a request out of turn".to_owned())
}
