//! `urxe sim scenarios`: what comes with the command.

use std::io::{Write, stdout};

use fabric_sim::scenario::{EXAMPLES, Scenario};

use crate::error::{CliError, Context};

/// Lists them, each with the first line of its text, or prints the one that is named.
pub(super) fn run(name: Option<&str>) -> Result<(), CliError> {
    let Some(name) = name else {
        for (name, text) in EXAMPLES {
            let about = Scenario::parse(text).context(name)?.about();
            let sentence = about.split_inclusive(". ").next().unwrap_or_default();
            writeln!(stdout(), "{name}: {}", sentence.trim_end())?;
        }
        return Ok(());
    };
    match EXAMPLES.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(write!(stdout(), "{text}")?),
        None => Err(CliError::Usage(format!(
            "no scenario {name}: there are {}",
            EXAMPLES.map(|(name, _)| name).join(", ")
        ))),
    }
}
