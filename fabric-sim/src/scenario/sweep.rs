//! `[sweep]`: many scenarios in one file, one for each combination of values.

use toml::{Table, Value};

use crate::scenario::ScenarioError;
use crate::scenario::file::Scenario;
use crate::scenario::settings::Setting;

type Result<T> = core::result::Result<T, ScenarioError>;

/// Combinations of values that a file may have.
const VARIANTS_MAX: usize = 10_000;

impl Scenario {
    /// All combinations of the values of `[sweep]`, in order, the last field changing fastest; one without any
    /// settings if there is no sweep.
    ///
    /// # Errors
    /// [`ScenarioError::Value`] if a list or a range makes no sense.
    pub fn variants(&self) -> Result<Vec<Vec<Setting>>> {
        let mut variants = vec![Vec::new()];
        for (path, values) in &self.file.sweep {
            let place = || format!("sweep.{path}");
            let values = match values {
                Value::Array(values) if !values.is_empty() => values.clone(),
                Value::Array(_) => return Err(ScenarioError::value(place(), "the list is empty")),
                Value::Table(range) => expand(&place(), range)?,
                _ => {
                    let fault = "a list, or a range like { from = 1, to = 8, factor = 2 }";
                    return Err(ScenarioError::value(place(), fault));
                }
            };
            if variants.len() * values.len() > VARIANTS_MAX {
                let fault = format!("more than {VARIANTS_MAX} combinations");
                return Err(ScenarioError::value(place(), fault));
            }
            let with = |variant: &Vec<Setting>, value: &Value| {
                let setting = Setting {
                    path: path.clone(),
                    value: value.clone(),
                };
                variant.iter().cloned().chain([setting]).collect()
            };
            variants = variants
                .iter()
                .flat_map(|variant| values.iter().map(move |value| with(variant, value)))
                .collect();
        }
        Ok(variants)
    }
}

/// A number with what stands behind it: `64KiB`, `0.5`, `10us`.
struct Quantity {
    number: f64,
    unit: Option<String>,
    is_whole: bool,
}

fn quantity(value: &Value) -> Option<Quantity> {
    let (number, unit, is_whole) = match value {
        Value::Integer(n) => (*n as f64, None, true),
        Value::Float(x) => (*x, None, false),
        Value::String(text) => {
            let end = text
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            (
                number.parse().ok()?,
                Some(unit.to_owned()),
                !number.contains('.'),
            )
        }
        _ => return None,
    };
    Some(Quantity {
        number,
        unit,
        is_whole,
    })
}

/// `{ from, to, step }` or `{ from, to, factor }`.
fn expand(place: &str, range: &Table) -> Result<Vec<Value>> {
    let fault = |text: &str| Err(ScenarioError::value(place, text));
    let known = ["from", "to", "step", "factor"];
    if let Some(other) = range.keys().find(|key| !known.contains(&key.as_str())) {
        return fault(&format!("{other:?} is not from, to, step or factor"));
    }
    let read = |key: &str| range.get(key).map(quantity);
    let (Some(Some(from)), Some(Some(to))) = (read("from"), read("to")) else {
        return fault("a range has from and to, both numbers or both with the same unit");
    };
    if from.unit != to.unit || from.number > to.number {
        return fault("from and to have the same unit, and from is not above to");
    }
    let next: Box<dyn Fn(f64) -> f64> = match (read("step"), read("factor")) {
        (Some(Some(step)), None) if step.number > 0.0 && step.unit == from.unit => {
            Box::new(move |x| x + step.number)
        }
        (None, Some(Some(factor))) if factor.number > 1.0 && from.number > 0.0 => {
            Box::new(move |x| x * factor.number)
        }
        _ => return fault("a range has a step above 0 of the same unit, or a factor above 1"),
    };
    let mut values = Vec::new();
    let mut x = from.number;
    // A little beyond the end: 0.1 + 0.1 + 0.1 is more than 0.3.
    while x <= to.number * (1.0 + 1e-9) {
        if values.len() == VARIANTS_MAX {
            return fault("too many values");
        }
        let is_whole = from.is_whole && x.fract() == 0.0;
        values.push(match &from.unit {
            Some(unit) => Value::String(format!("{x}{unit}")),
            None if is_whole => Value::Integer(x as i64),
            None => Value::Float(x),
        });
        x = next(x);
    }
    Ok(values)
}
