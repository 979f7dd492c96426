//! What a command prints: reports, and how far it is.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::CliError;

/// Prints a measurement's result: JSON for programs, text for people.
pub(crate) fn print_report(
    is_json: bool,
    report: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), CliError> {
    let text = if is_json {
        serde_json::to_string(report).expect("a report is plain data") + "\n"
    } else {
        text()
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// A line on stderr that shows how far something is, by a template of indicatif; on a terminal, and unless it is to be
/// quiet.
pub(crate) fn progress(is_quiet: bool, template: &str, len: usize) -> ProgressBar {
    if is_quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(len as u64).with_style(style.expect("the template is valid"))
}
