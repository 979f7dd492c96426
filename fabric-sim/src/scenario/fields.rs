//! A table of which only some keys make sense, depending on others: each is taken once, and what is left at
//! the end is a mistake.

use toml::{Table, Value};

use crate::scenario::ScenarioError;
use crate::scenario::build::bytes;
use crate::scenario::file::Size;

type Result<T> = core::result::Result<T, ScenarioError>;

/// What is left of a table.
#[derive(Debug)]
pub(super) struct Fields {
    /// How errors call it: `fault[2]`.
    name: String,
    left: Table,
}

impl Fields {
    pub(super) fn new(name: String, table: &Table) -> Fields {
        Fields {
            name,
            left: table.clone(),
        }
    }

    /// Nothing else may be in it; `who` does not take what is.
    pub(super) fn finish(self, who: &str) -> Result<()> {
        match self.left.keys().next() {
            Some(key) => Err(self.fault(key, format!("{who} does not take it"))),
            None => Ok(()),
        }
    }

    pub(super) fn fault(&self, key: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(format!("{}.{key}", self.name), fault)
    }

    fn take<T>(
        &mut self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.left.remove(key) else {
            return Ok(None);
        };
        let fault = || self.fault(key, format!("{} is not {wanted}", shown(&value)));
        read(&value).map(Some).ok_or_else(fault)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key, "a text", |v| v.as_str().map(str::to_owned))
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>> {
        let read = |v: &Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
        self.take(key, "a number of 0 or more", read)
    }

    pub(super) fn float(&mut self, key: &str) -> Result<Option<f64>> {
        let read = |v: &Value| match v {
            Value::Integer(n) => Some(*n as f64),
            other => other.as_float(),
        };
        self.take(key, "a number", read)
    }

    pub(super) fn is_set(&mut self, key: &str) -> Result<bool> {
        Ok(self
            .take(key, "true or false", Value::as_bool)?
            .unwrap_or(false))
    }

    pub(super) fn numbers(&mut self, key: &str) -> Result<Option<Vec<u64>>> {
        let read = |v: &Value| {
            let each = |n: &Value| n.as_integer().and_then(|n| u64::try_from(n).ok());
            v.as_array()?.iter().map(each).collect()
        };
        self.take(key, "a list of numbers", read)
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let read = |v: &Value| match v {
            Value::String(one) => Some(vec![one.clone()]),
            other => other
                .as_array()?
                .iter()
                .map(|t| t.as_str().map(str::to_owned))
                .collect(),
        };
        self.take(key, "a list of names", read)
    }

    /// A time, a rate: whatever reads itself from text.
    pub(super) fn quantity<T: core::str::FromStr<Err: core::fmt::Display>>(
        &mut self,
        key: &str,
    ) -> Result<Option<T>> {
        let text = self.text(key)?;
        let parse = |text: String| text.parse().map_err(|error| self.fault(key, error));
        text.map(parse).transpose()
    }

    /// A quantity that must be there.
    pub(super) fn needed<T: core::str::FromStr<Err: core::fmt::Display>>(
        &mut self,
        key: &str,
        who: &str,
    ) -> Result<T> {
        let value = self.quantity(key)?;
        value.ok_or_else(|| self.fault(key, format!("{who} needs it")))
    }

    /// Bytes, as a number or as text.
    pub(super) fn size(&mut self, key: &str) -> Result<Option<u64>> {
        let read = |v: &Value| match v {
            Value::Integer(n) => u64::try_from(*n).ok().map(Size::Bytes),
            Value::String(text) => Some(Size::Text(text.clone())),
            _ => None,
        };
        let place = format!("{}.{key}", self.name);
        let given = self.take(key, "a size like 64KiB", read)?;
        given.map(|size| bytes(&place, &size)).transpose()
    }
}

/// A value as an error shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        other => other
            .as_integer()
            .map(|n| n.to_string())
            .or(other.as_float().map(|x| x.to_string()))
            .or(other.as_bool().map(|b| b.to_string()))
            .unwrap_or_else(|| other.type_str().to_owned()),
    }
}
