//! What a context does about lost packets, as the environment says it.

use urxe_core::Recovery;

use crate::error::Error;
use crate::host::environment;

/// What `URXE_RECOVERY` says.
///
/// # Errors
/// If it is none of the words.
pub(crate) fn of_environment() -> Result<Recovery, Error> {
    let parse = |text: &str| match text {
        "go-back-n" => Ok(Recovery::GoBackN),
        "keep" => Ok(Recovery::Keep),
        "selective" => Ok(Recovery::Selective),
        _ => Err(format!(
            "\"{text}\" is none of go-back-n, keep and selective"
        )),
    };
    Ok(environment::parsed(environment::RECOVERY, parse)?.unwrap_or_default())
}
