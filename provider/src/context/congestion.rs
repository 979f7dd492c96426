//! The congestion control that connections of a context begin with.

use urxe_core::congestion::{CongestionControl, CongestionError, CongestionTextError};

use crate::error::{Error, ErrorKind};
use crate::host::environment;

/// What `URXE_CONGESTION` says, or else the default: a model of the path where that is long, or loses packets.
///
/// # Errors
/// If it is none of them.
pub(super) fn of_environment() -> Result<CongestionControl, Error> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|error: CongestionTextError| format!("\"{text}\": {error}"))
    };
    let given = environment::parsed(environment::CONGESTION, parse)?;
    Ok(given.unwrap_or(CongestionControl::Auto))
}

/// What a program asks for.
///
/// # Errors
/// If a parameter makes no sense.
pub(super) fn checked(control: CongestionControl) -> Result<CongestionControl, Error> {
    let made_sense = control.check().map_err(CongestionError::Value);
    made_sense.map_err(ErrorKind::from)?;
    Ok(control)
}
