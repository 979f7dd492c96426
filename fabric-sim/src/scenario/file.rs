//! The scenario file, as serde reads it.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;

use crate::scenario::ScenarioError;

/// A simulation as a file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(default)]
    pub(super) sim: SimTable,
    pub(super) topology: TopologyTable,
    #[serde(default)]
    pub(super) switch: SwitchTable,
    #[serde(default)]
    pub(super) qos: QosTable,
    #[serde(default)]
    pub(super) host: HostTable,
    #[serde(default, rename = "flow")]
    pub(super) flows: Vec<FlowTable>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Table>,
    #[serde(default)]
    pub(super) expect: ExpectTable,
    #[serde(default)]
    pub(super) checks: ChecksTable,
    #[serde(default)]
    pub(super) sweep: Table,
    /// All of it, as it stands in the file or was changed.
    #[serde(skip)]
    pub(crate) table: Table,
    /// What it was read from, for the lines of errors.
    #[serde(skip)]
    pub(super) text: String,
}

impl Scenario {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ScenarioError::Syntax`] says which line, and what was expected there.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let syntax = |error: toml::de::Error| ScenarioError::Syntax(error.to_string());
        let scenario: Scenario = toml::from_str(text).map_err(syntax)?;
        Ok(Scenario {
            text: text.to_owned(),
            table: text.parse().map_err(syntax)?,
            ..scenario
        })
    }

    /// This scenario, with every frame as bytes: what a capture needs. Events are the same in both modes.
    pub fn in_bytes(mut self) -> Scenario {
        self.sim.mode = "bytes".to_owned();
        self
    }

    /// The seed that the file names.
    pub fn seed(&self) -> u64 {
        self.sim.seed
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SimTable {
    pub(super) seed: u64,
    pub(super) until: Option<String>,
    pub(super) mode: String,
    /// Each seed draws its own faults of those of the file.
    pub(super) swarm: bool,
}

impl Default for SimTable {
    fn default() -> Self {
        SimTable {
            seed: 1,
            until: None,
            mode: "bytes".to_owned(),
            swarm: false,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyTable {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) hosts: Option<u32>,
    #[serde(default)]
    pub(super) left: Option<u32>,
    #[serde(default)]
    pub(super) right: Option<u32>,
    #[serde(default)]
    pub(super) switches: Option<u32>,
    #[serde(default)]
    pub(super) leaves: Option<u32>,
    #[serde(default)]
    pub(super) spines: Option<u32>,
    #[serde(default)]
    pub(super) hosts_per_switch: Option<u32>,
    #[serde(default)]
    pub(super) k: Option<u32>,
    #[serde(default)]
    pub(super) edges: Option<String>,
    #[serde(default)]
    pub(super) rate: Option<String>,
    #[serde(default)]
    pub(super) cable: Option<String>,
    #[serde(default)]
    pub(super) uplink_rate: Option<String>,
    #[serde(default)]
    pub(super) uplink_cable: Option<String>,
    #[serde(default)]
    pub(super) mtu: Option<u32>,
    #[serde(default)]
    pub(super) bit_error_rate: Option<f64>,
}

/// Bytes as a number, or as text: `64KiB`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Bytes(u64),
    Text(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SwitchTable {
    pub(super) buffer: Option<Size>,
    pub(super) cell: Option<u32>,
    pub(super) reserved: Option<Size>,
    pub(super) alpha: Option<f64>,
    pub(super) threshold: Option<Size>,
    pub(super) xon_offset: Option<Size>,
    pub(super) headroom: Option<Size>,
    pub(super) headroom_pool: Option<Size>,
    pub(super) lossy_alpha: Option<f64>,
    pub(super) lossy_threshold: Option<Size>,
    pub(super) lossy_pool: Option<Size>,
    pub(super) ecn: Option<EcnTable>,
    pub(super) watchdog: Option<WatchdogTable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EcnTable {
    pub(super) kmin: Size,
    pub(super) kmax: Size,
    pub(super) pmax: f64,
    /// All lossless classes, if it does not say.
    pub(super) priorities: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchdogTable {
    pub(super) detect: Option<String>,
    pub(super) restore: Option<String>,
    pub(super) action: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QosTable {
    pub(super) lossless: Option<Vec<u8>>,
    pub(super) flow_control: Option<String>,
    pub(super) credit_buffer: Option<Size>,
    pub(super) credit_update: Option<Size>,
    pub(super) dscp_map: Option<BTreeMap<String, u8>>,
    pub(super) trust: Option<String>,
    pub(super) strict: Option<Vec<u8>>,
    pub(super) weights: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostTable {
    pub(super) rx_rate: Option<String>,
    pub(super) rx_buffer: Option<Size>,
    pub(super) window: Option<Size>,
    pub(super) cc: Option<String>,
    /// The first PSN of every connection; drawn, if it does not say.
    pub(super) first_psn: Option<u32>,
}

/// A name, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Names {
    One(String),
    Some(Vec<String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowTable {
    pub(super) op: String,
    pub(super) from: Names,
    pub(super) to: String,
    #[serde(default)]
    pub(super) size: Option<Size>,
    #[serde(default)]
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) depth: Option<u32>,
    #[serde(default)]
    pub(super) receives: Option<u32>,
    #[serde(default)]
    pub(super) repost: Option<String>,
    #[serde(default)]
    pub(super) start: Option<String>,
    #[serde(default)]
    pub(super) stop: Option<String>,
    #[serde(default)]
    pub(super) rate: Option<String>,
    #[serde(default)]
    pub(super) arrivals: Option<String>,
    #[serde(default)]
    pub(super) dscp: Option<u8>,
    #[serde(default)]
    pub(super) mtu: Option<u32>,
    #[serde(default)]
    pub(super) source_port: Option<u16>,
    #[serde(default)]
    pub(super) cc: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectTable {
    pub(super) lossless_drops: Option<u64>,
    pub(super) drops: Option<u64>,
    pub(super) deadlock: Option<bool>,
    pub(super) complete: Option<bool>,
    pub(super) goodput_min: Option<String>,
    pub(super) jain_min: Option<f64>,
    /// Marks that a set of runs must have seen.
    pub(super) sometimes: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ChecksTable {
    /// Checks to leave out.
    pub(super) skip: Option<Vec<String>>,
    pub(super) progress: Option<String>,
}
