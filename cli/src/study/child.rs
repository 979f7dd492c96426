//! Measurements by other commands of this executable.

use std::process::Stdio;

use serde_json::Value;

use crate::error::{CliError, Context as _};
use crate::process::ChildGuard;

/// Runs `urxe` with these arguments and `--json`, and reads what it prints.
pub(super) fn json(args: &[&str]) -> Result<Value, CliError> {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let child = ChildGuard::spawn("measuring", &args, Stdio::piped())?;
    let printed = child.output()?;
    serde_json::from_str(&printed).context("the measuring process printed no JSON")
}

/// A number of a JSON object.
pub(super) fn number(of: &Value, field: &str) -> Result<f64, CliError> {
    let number = of[field].as_f64();
    number.ok_or_else(|| CliError::Failed(format!("the measuring process told no {field}")))
}
