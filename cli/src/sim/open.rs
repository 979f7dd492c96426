//! Reading a scenario, with the changes of the command line.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fabric_sim::scenario::{Scenario, Setting};

use crate::error::CliError;
use crate::sim::args::ChangeArgs;

/// Reads the file and changes what was asked for.
pub(super) fn open(file: &Path, changes: &ChangeArgs) -> Result<Scenario, CliError> {
    let text = fs::read_to_string(file)
        .map_err(|e| CliError::context(format_args!("cannot read {}", file.display()), e))?;
    let scenario = Scenario::parse(&text).map_err(|e| CliError::context(file.display(), e))?;
    let mut settings = Vec::new();
    for text in &changes.set {
        let setting = text.parse::<Setting>();
        settings.push(setting.map_err(|e| CliError::Usage(format!("--set {e}")))?);
    }
    if changes.swarm {
        settings.push("sim.swarm=true".parse().expect("is a setting"));
    }
    scenario
        .with(&settings)
        .map_err(|e| CliError::context(format_args!("--set: {}", file.display()), e))
}

/// The line that runs a scenario again: `urxe sim replay FILE --seed 7`.
pub(super) fn line(
    command: &str,
    file: &Path,
    seed: u64,
    changes: &ChangeArgs,
    more: &[Setting],
) -> String {
    let file = file.display().to_string();
    let mut line = format!("urxe sim {command} {} --seed {seed}", quoted(&file));
    let swarm = if changes.swarm { " --swarm" } else { "" };
    line.push_str(swarm);
    let given = changes.set.iter().cloned();
    for setting in given.chain(more.iter().map(Setting::to_string)) {
        let _ = write!(line, " --set {}", quoted(&setting));
    }
    line
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/=,:+@%".contains(c);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_a_shell() {
        let changes = ChangeArgs {
            set: vec!["sim.until=5ms".to_owned()],
            swarm: true,
        };
        let more = ["flow[0].size=64KB".parse().expect("a setting")];
        assert_eq!(
            line("replay", Path::new("my file.toml"), 7, &changes, &more),
            "urxe sim replay 'my file.toml' --seed 7 --swarm --set sim.until=5ms --set 'flow[0].size=64KB'"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
