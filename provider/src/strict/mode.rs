//! Whether strict mode is on.

use crate::error::Error;
use crate::host::environment;

/// Whether strict mode is on, and what it does with what it finds.
///
/// Set by [`crate::ContextBuilder::strict`] or the environment variable `URXE_STRICT`:
/// unset or `0`, `1`, `abort`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum StrictMode {
    /// Strict mode is off, and costs nothing.
    #[default]
    Off,
    /// Findings are printed to standard error, once for each kind and place, until the
    /// program takes them with [`crate::Context::take_strict_reports`].
    Report,
    /// The first finding is printed and ends the process, for debuggers and CI.
    Abort,
}

impl StrictMode {
    pub(crate) fn of_environment() -> Result<StrictMode, Error> {
        let parse = |text: &str| match text {
            "0" | "off" => Ok(StrictMode::Off),
            "1" | "on" => Ok(StrictMode::Report),
            "abort" => Ok(StrictMode::Abort),
            other => Err(format!("\"{other}\" is none of 0, 1 and abort")),
        };
        let given = environment::parsed(environment::STRICT, parse)?;
        Ok(given.unwrap_or_default())
    }
}
