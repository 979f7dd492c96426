//! Simulations as TOML files: [SIMULATION.md](https://github.com/urxe/urxe/blob/main/docs/SIMULATION.md) has the format with an example.

mod build;
mod examples;
mod extent;
mod faults;
mod file;
mod job_file;
mod jobs;
mod judge;
mod lines;
mod network;
mod overrides;
mod report;
mod settings;
mod swarm;
mod sweep;
#[cfg(test)]
mod tests;
mod values;

pub use build::Program;
pub use examples::EXAMPLES;
pub use file::Scenario;
pub use report::{FaultReport, FlowReport, Report};
pub use settings::Setting;
pub(crate) use swarm::{span_of, span_text};
pub(crate) use values::bytes;

use crate::topology::{HostId, Node, Topology};

/// Why a scenario cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is no such file.
    #[error("{0}")]
    Syntax(String),
    /// A value makes no sense.
    #[error("{}{place}: {fault}", line_before(*.line))]
    Value {
        /// The line in the file, counted from 1, if it is known.
        line: Option<usize>,
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

/// The host of a name.
fn host_of(topology: &Topology, name: &str) -> Result<HostId, String> {
    match topology.find(name) {
        Some(Node::Host(host)) => Ok(host),
        _ => Err(format!("{name:?} is no host")),
    }
}

impl ScenarioError {
    fn syntax(error: toml::de::Error) -> ScenarioError {
        ScenarioError::Syntax(error.to_string())
    }

    pub(crate) fn value(place: impl Into<String>, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::Value {
            line: None,
            place: place.into(),
            fault: fault.to_string(),
        }
    }

    /// This error, with the line of the place in the file's text.
    fn in_text(self, text: &str) -> ScenarioError {
        match self {
            ScenarioError::Value { place, fault, .. } => ScenarioError::Value {
                line: lines::line_of(text, &place),
                place,
                fault,
            },
            other => other,
        }
    }
}

/// `line 7: `, or nothing.
fn line_before(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}
