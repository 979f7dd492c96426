//! Reading a scenario, with the changes of the command line.

use std::fmt::{Display, Write as _};
use std::fs;
use std::io::{self, Write as _, stdout};
use std::path::Path;

use fabric_sim::scenario::{EXAMPLES, Report, Scenario, Setting};

use crate::error::{CliError, Context};
use crate::sim::args::{ScenarioArgs, SeedArgs};

impl ScenarioArgs {
    /// Reads the file and changes what was asked for.
    pub(super) fn open(&self) -> Result<Scenario, CliError> {
        let scenario = self.open_with_programs()?;
        let programs = scenario.programs();
        if programs.is_ok_and(|programs| !programs.is_empty()) {
            return Err(self.fails("it has programs, which `urxe sim exec` runs"));
        }
        Ok(scenario)
    }

    /// The same of a file that may have programs.
    pub(super) fn open_with_programs(&self) -> Result<Scenario, CliError> {
        let file = self.file.display();
        let text = self.text()?;
        let scenario = Scenario::parse(&text).context(&file)?;
        let mut settings = Vec::new();
        for text in &self.set {
            let setting = text.parse::<Setting>();
            settings.push(setting.map_err(|e| CliError::Usage(format!("--set {e}")))?);
        }
        if self.swarm {
            settings.push("sim.swarm=true".parse().expect("is a setting"));
        }
        let changed = scenario.with(&settings);
        self.with_files(changed.context(format_args!("--set: {file}"))?)
    }

    /// What is in the file; or the scenario of that name that comes with the command.
    fn text(&self) -> Result<String, CliError> {
        let error = match fs::read_to_string(&self.file) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let is_it = |name: &str| self.file.as_os_str() == name;
        match EXAMPLES.iter().find(|(name, _)| is_it(name)) {
            Some((_, text)) if error.kind() == io::ErrorKind::NotFound => Ok((*text).to_owned()),
            _ => {
                let names = EXAMPLES.map(|(name, _)| name).join(", ");
                let file = self.file.display();
                let what = format!("cannot read {file} (and these come with urxe: {names})");
                Err(CliError::context(what, error))
            }
        }
    }

    /// Reads the files that a scenario names: their paths begin where its own file is.
    pub(super) fn with_files(&self, mut scenario: Scenario) -> Result<Scenario, CliError> {
        for name in scenario.files() {
            let path = self.file.parent().unwrap_or(Path::new("")).join(&name);
            let text = fs::read_to_string(&path);
            let text = text.context(format_args!("cannot read {}", path.display()))?;
            scenario = scenario.with_text(name, text);
        }
        Ok(scenario)
    }

    /// An error that is about the scenario.
    pub(super) fn fails(&self, error: impl Display) -> CliError {
        CliError::context(self.file.display(), error)
    }

    /// The line that runs it again: `urxe sim replay FILE --seed 7`.
    pub(super) fn line(&self, command: &str, seed: u64, more: &[Setting]) -> String {
        let more: Vec<String> = more.iter().map(Setting::to_string).collect();
        self.line_with(command, seed, &more)
    }

    /// That line for settings as they are written.
    pub(super) fn line_with(&self, command: &str, seed: u64, more: &[String]) -> String {
        let file = self.file.display().to_string();
        let mut line = format!("urxe sim {command} {} --seed {seed}", quoted(&file));
        line.push_str(if self.swarm { " --swarm" } else { "" });
        for setting in self.set.iter().chain(more) {
            let _ = write!(line, " --set {}", quoted(setting));
        }
        line
    }
}

impl SeedArgs {
    /// The scenario, and the seed.
    pub(super) fn open(&self) -> Result<(Scenario, u64), CliError> {
        let scenario = self.scenario.open()?;
        let seed = self.seed.unwrap_or(scenario.seed());
        Ok((scenario, seed))
    }

    /// Fails if anything was not as expected, with the line that repeats the run. In JSON the failures have been told.
    pub(super) fn verdict(
        &self,
        report: &Report,
        seed: u64,
        is_json: bool,
    ) -> Result<(), CliError> {
        let count = report.failures.len();
        if count == 0 {
            return Ok(());
        }
        if !is_json {
            for failure in &report.failures {
                writeln!(stdout(), "  not as expected: {failure}")?;
            }
            let again = self.scenario.line("run", seed, &[]);
            writeln!(stdout(), "  again: {again}")?;
        }
        Err(CliError::Fault(format!("{count} expectations failed")))
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/=,:+@%".contains(c);
    if word.chars().all(is_plain) && !word.is_empty() {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_a_shell() {
        let scenario = ScenarioArgs {
            file: "my file.toml".into(),
            set: vec!["sim.until=5ms".to_owned()],
            swarm: true,
        };
        let more = ["flow[0].size=64KB".parse().expect("a setting")];
        assert_eq!(
            scenario.line("replay", 7, &more),
            "urxe sim replay 'my file.toml' --seed 7 --swarm --set sim.until=5ms --set 'flow[0].size=64KB'"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
