//! `urxe explain`: what a number or a name in a program's output means.

use std::io::Write;

use crate::args::ExplainArgs;
use crate::error::CliError;

/// Prints everything that each argument may mean.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    if args.list {
        for topic in urxe::topics() {
            writeln!(out, "{topic}")?;
        }
        return Ok(());
    }
    let mut unknown = Vec::new();
    for what in &args.what {
        let found = urxe::explain(what);
        if found.is_empty() {
            unknown.push(format!("\"{what}\""));
        }
        for topic in found {
            writeln!(out, "{topic}")?;
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed(format!(
        "nothing is known about {}; `urxe explain --list` shows what is",
        unknown.join(", ")
    )))
}
