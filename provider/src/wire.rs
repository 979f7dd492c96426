//! What packets between processes of one host travel through.

use core::str::FromStr;

use crate::error::Error;
use crate::host::environment;

/// What packets between QPs of one host travel through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Wire {
    /// Shared memory, where both ends share their addresses ([SHARING.md](https://github.com/urxe/urxe/blob/main/docs/SHARING.md))
    /// and neither has it switched off; UDP sockets else.
    #[default]
    Auto,
    /// UDP sockets always: for comparisons, and for tools that watch or change what passes the network.
    Sockets,
}

impl FromStr for Wire {
    type Err = String;

    fn from_str(text: &str) -> Result<Wire, String> {
        match text {
            "auto" => Ok(Wire::Auto),
            "sockets" => Ok(Wire::Sockets),
            _ => Err(format!("\"{text}\" is neither \"auto\" nor \"sockets\"")),
        }
    }
}

impl Wire {
    /// What `URXE_WIRE` says.
    pub(crate) fn of_environment() -> Result<Wire, Error> {
        Ok(environment::parsed(environment::WIRE, str::parse)?.unwrap_or_default())
    }
}
