//! Simulations as TOML files: docs/SIMULATION.md has the format with an example.

mod build;
mod congestion;
mod file;
mod report;
#[cfg(test)]
mod tests;

pub use file::Scenario;
pub use report::{FlowReport, Report};

/// Why a scenario cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no such file.
    #[error("{0}")]
    Syntax(String),
    /// A value makes no sense.
    #[error("{place}: {fault}")]
    Value {
        /// Where: the name of the field.
        place: String,
        /// In words.
        fault: String,
    },
    /// The network is impossible.
    #[error(transparent)]
    Build(#[from] crate::host::BuildError),
    /// A connection is impossible.
    #[error(transparent)]
    Stream(#[from] crate::host::StreamError),
}

impl ScenarioError {
    pub(crate) fn value(place: impl Into<String>, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::Value {
            place: place.into(),
            fault: fault.to_string(),
        }
    }
}
