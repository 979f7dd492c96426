//! Changing a scenario without its file: `host.window=64KiB`.

use core::fmt;
use core::str::FromStr;

use toml::{Table, Value};

use crate::scenario::ScenarioError;
use crate::scenario::file::Scenario;

/// A value for a field of a scenario, by the name that errors give it: `fault[0].p=0.01`.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// Which field.
    pub path: String,
    /// What it shall be.
    pub value: Value,
}

impl FromStr for Setting {
    type Err = ScenarioError;

    /// Reads `path=value`; a value that is no TOML is a text.
    fn from_str(text: &str) -> Result<Setting, ScenarioError> {
        let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.is_empty()) else {
            return Err(ScenarioError::value(text, "a setting is path=value"));
        };
        let read = format!("value = {value}").parse::<Table>().ok();
        let value = match read.and_then(|mut table| table.remove("value")) {
            Some(read) => read,
            None => Value::String(value.trim().to_owned()),
        };
        Ok(Setting {
            path: path.trim().to_owned(),
            value,
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::String(text) => write!(f, "{}={text}", self.path),
            other => write!(f, "{}={other}", self.path),
        }
    }
}

impl Scenario {
    /// This scenario with other values. Fields that are not there yet are added; elements of lists are not.
    ///
    /// # Errors
    /// [`ScenarioError`] if a path leads nowhere, or what comes out is no scenario.
    pub fn with(&self, settings: &[Setting]) -> Result<Scenario, ScenarioError> {
        if settings.is_empty() {
            return Ok(self.clone());
        }
        let mut table = self.table.clone();
        for setting in settings {
            set(&mut table, setting)?;
        }
        self.with_table(table)
    }
}

fn set(root: &mut Table, setting: &Setting) -> Result<(), ScenarioError> {
    let fault = |text: String| Err(ScenarioError::value(&setting.path, text));
    let steps: Vec<&str> = setting.path.split('.').collect();
    let mut table = root;
    for (place, step) in steps.iter().enumerate() {
        let is_last = place + 1 == steps.len();
        let (key, index) = match step.split_once('[') {
            None => (*step, None),
            Some((key, rest)) => match rest.strip_suffix(']').map(str::parse::<usize>) {
                Some(Ok(index)) => (key, Some(index)),
                _ => return fault(format!("{step:?} is not like flow[0]")),
            },
        };
        if key.is_empty() {
            return fault("a name is missing".to_owned());
        }
        let slot = match index {
            None if is_last => {
                table.insert(key.to_owned(), setting.value.clone());
                return Ok(());
            }
            None => table
                .entry(key)
                .or_insert_with(|| Value::Table(Table::new())),
            Some(index) => {
                let list = table.get_mut(key).and_then(Value::as_array_mut);
                let count = list.as_ref().map_or(0, |list| list.len());
                match list.and_then(|list| list.get_mut(index)) {
                    Some(slot) => slot,
                    None => return fault(format!("there are {count} of {key}")),
                }
            }
        };
        if is_last {
            *slot = setting.value.clone();
            return Ok(());
        }
        table = match slot {
            Value::Table(inner) => inner,
            _ => return fault(format!("{step} holds no fields")),
        };
    }
    Ok(())
}
