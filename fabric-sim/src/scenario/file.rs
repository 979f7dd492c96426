//! The scenario file, as serde reads it.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use serde::Deserialize;
use toml::de::{DeString, DeTable, DeValue};
use toml::{Spanned, Table};

use crate::check::{Check, Mark};
use crate::engine::{Rate, Span};
use crate::fabric::{Mode, Planes};
use crate::fault::{Forgery, Frames};
use crate::qos::{PRIORITIES, Trust};
use crate::scenario::ScenarioError;
use crate::scenario::job_file::JobTable;
use crate::scenario::values::{
    Cable, Classes, Congestion, Count, Dscp, DscpMap, Few, FirstPsn, Names, PathMtu, PlaneCount,
    Ports, Probability, Rising, Size,
};
use crate::switch::{DeadQueue, Watchdog};
use crate::topology::Topology;

/// A simulation as a file describes it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(super) file: File,
    /// All of it, as it stands in the file or was changed.
    pub(crate) table: Table,
    /// What it was read from, for the lines of errors.
    pub(super) text: String,
    /// Texts of the files that it names.
    pub(super) texts: BTreeMap<String, String>,
}

impl Scenario {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ScenarioError::Syntax`] says which line, and what was expected there.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Ok(Scenario {
            file: File::parse(text)?,
            table: text.parse().map_err(ScenarioError::syntax)?,
            text: text.to_owned(),
            texts: BTreeMap::new(),
        })
    }

    /// What it says that it is about: the comment that its text begins with, or nothing.
    pub fn about(&self) -> String {
        let lines = self.text.lines();
        let comment = lines.map_while(|line| line.strip_prefix('#'));
        comment.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// Names of the files that its jobs are read from: each is to be given to [`Scenario::with_text`] before it is built.
    pub fn files(&self) -> Vec<String> {
        let names = self.file.jobs.iter().filter_map(|job| job.kind.file());
        names.map(str::to_owned).collect()
    }

    /// Gives it the text of a file that it names.
    pub fn with_text(mut self, file: impl Into<String>, text: impl Into<String>) -> Scenario {
        self.texts.insert(file.into(), text.into());
        self
    }

    /// The files that it was given, and their texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()))
    }

    /// A scenario of a changed table.
    pub(crate) fn with_table(&self, table: Table) -> Result<Scenario, ScenarioError> {
        Ok(Scenario {
            file: File::parse(&text_of(&table))?,
            table,
            text: self.text.clone(),
            texts: self.texts.clone(),
        })
    }

    /// The file's text, or that of a scenario that was changed.
    pub fn to_toml(&self) -> String {
        text_of(&self.table)
    }

    /// This scenario, with every frame as bytes: what a capture needs. Events are the same in both modes.
    pub fn in_bytes(mut self) -> Scenario {
        self.file.sim.mode = Mode::Bytes;
        self
    }

    /// The seed that the file names.
    pub fn seed(&self) -> u64 {
        self.file.sim.seed
    }
}

fn text_of(table: &Table) -> String {
    toml::to_string(table).unwrap_or_default()
}

/// All of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) sim: SimTable,
    pub(super) topology: TopologyTable,
    #[serde(default)]
    pub(super) switch: SwitchTable,
    #[serde(default, rename = "override")]
    pub(super) overrides: Vec<OverrideTable>,
    #[serde(default)]
    pub(super) qos: QosTable,
    #[serde(default)]
    pub(super) host: HostTable,
    #[serde(default, rename = "flow")]
    pub(super) flows: Vec<FlowTable>,
    #[serde(default, rename = "job")]
    pub(super) jobs: Vec<JobTable>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<FaultTable>,
    #[serde(default, rename = "program")]
    pub(super) programs: Vec<ProgramTable>,
    #[serde(default)]
    pub(super) expect: ExpectTable,
    #[serde(default)]
    pub(super) checks: ChecksTable,
    #[serde(default)]
    pub(super) sweep: Table,
}

impl File {
    fn parse(text: &str) -> Result<File, ScenarioError> {
        let mut root = DeTable::parse(text).map_err(ScenarioError::syntax)?;
        let tagged = [
            ("topology", "kind", TopologyTable::COMMON),
            ("flow", "op", FlowTable::COMMON),
            ("job", "kind", JobTable::COMMON),
            ("fault", "kind", FaultTable::COMMON),
        ];
        for (name, tag, common) in tagged {
            match root.get_mut().get_mut(name).map(Spanned::get_mut) {
                Some(DeValue::Table(table)) => nest(table, tag, common),
                Some(DeValue::Array(list)) => list.iter_mut().for_each(|each| {
                    if let DeValue::Table(table) = each.get_mut() {
                        nest(table, tag, common);
                    }
                }),
                _ => {}
            }
        }
        let read = File::deserialize(toml::de::Deserializer::from(root));
        read.map_err(|mut error| {
            error.set_input(Some(text));
            ScenarioError::syntax(error)
        })
    }
}

/// Moves the keys that only things of one kind have into a table of that kind, as serde wants them for an enum:
/// `{ kind = "delay", p = 0.1, by = "1us" }` becomes `{ kind = { delay = { by = "1us" } }, p = 0.1 }`. Serde's own
/// way (`flatten`, `tag`) forgets where values stand in the file.
fn nest<'a>(table: &mut DeTable<'a>, tag: &str, common: &[&str]) {
    let Some((key, kind)) = table.remove_entry(tag) else {
        return;
    };
    let place = kind.span();
    let is_common = |key: &Spanned<DeString<'a>>| common.contains(&key.get_ref().as_ref());
    let all = core::mem::take(table).into_iter();
    let (shared, own): (DeTable<'a>, DeTable<'a>) = all.partition(|(key, _)| is_common(key));
    *table = shared;
    let kind = match kind.into_inner() {
        DeValue::String(name) => {
            let own = Spanned::new(place.clone(), DeValue::Table(own));
            DeValue::Table(
                [(Spanned::new(place.clone(), name), own)]
                    .into_iter()
                    .collect(),
            )
        }
        // What is read from a table here was no table in the file.
        DeValue::Table(_) => DeValue::Boolean(false),
        other => other,
    };
    table.insert(key, Spanned::new(place, kind));
}

/// A program of the system's, on a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramTable {
    pub(super) host: String,
    pub(super) command: Vec<String>,
    pub(super) start: Option<Span>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SimTable {
    pub(super) seed: u64,
    pub(super) until: Option<Span>,
    pub(super) mode: Mode,
    /// Each seed draws its own faults of those of the file.
    pub(super) swarm: bool,
}

impl Default for SimTable {
    fn default() -> Self {
        SimTable {
            seed: 1,
            until: None,
            mode: Mode::Bytes,
            swarm: false,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyTable {
    pub(super) kind: Shape,
    pub(super) rate: Option<Rate>,
    pub(super) cable: Option<Cable>,
    pub(super) uplink_rate: Option<Rate>,
    pub(super) uplink_cable: Option<Cable>,
    pub(super) mtu: Option<u32>,
    pub(super) bit_error_rate: Option<f64>,
    pub(super) planes: Option<PlaneCount>,
}

impl TopologyTable {
    pub(super) fn planes(&self) -> u32 {
        self.planes.as_ref().map_or(1, |planes| planes.0)
    }

    const COMMON: &'static [&'static str] = &[
        "rate",
        "cable",
        "uplink_rate",
        "uplink_cable",
        "mtu",
        "bit_error_rate",
        "planes",
    ];
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "snake_case"
)]
pub(super) enum Shape {
    SingleSwitch {
        hosts: Count,
    },
    BackToBack {},
    Dumbbell {
        left: Count,
        right: Count,
    },
    ParkingLot(Row),
    Ring(Row),
    LeafSpine {
        leaves: Count,
        spines: Count,
        hosts_per_switch: Count,
    },
    Rails {
        rails: PlaneCount,
        groups: Count,
        spines: Count,
        hosts_per_switch: Count,
    },
    FatTree {
        k: Ports,
    },
    Dragonfly {
        routers: Few,
        hosts_per_switch: Few,
        global: Few,
    },
    Edges {
        edges: Topology,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) switches: Count,
    pub(super) hosts_per_switch: Count,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SwitchTable {
    pub(super) buffer: Option<Size>,
    pub(super) cell: Option<u32>,
    pub(super) reserved: Option<Size<u32>>,
    pub(super) alpha: Option<f64>,
    pub(super) threshold: Option<Size>,
    pub(super) xon_offset: Option<Size<u32>>,
    pub(super) headroom: Option<Size<u32>>,
    pub(super) headroom_pool: Option<Size>,
    pub(super) lossy_alpha: Option<f64>,
    pub(super) lossy_threshold: Option<Size>,
    pub(super) lossy_pool: Option<Size>,
    pub(super) ecn: Option<EcnTable>,
    pub(super) watchdog: Option<Watchdog>,
    pub(super) dead_queue: DeadQueue,
    pub(super) latency: Span,
    pub(super) balance: BalanceName,
    pub(super) flowlet_gap: Option<Span>,
}

/// Settings of single switches or ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverrideTable {
    pub(super) switch: Option<Names>,
    pub(super) port: Option<Names>,
    pub(super) link: Option<Names>,
    pub(super) rate: Option<Rate>,
    pub(super) buffer: Option<Size>,
    pub(super) alpha: Option<f64>,
    pub(super) threshold: Option<Size>,
    pub(super) headroom: Option<Size<u32>>,
    pub(super) ecn: Option<EcnTable>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BalanceName {
    #[default]
    Ecmp,
    Flowlets,
    Adaptive,
    Spray,
    Rotate,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EcnTable {
    pub(super) kmin: Size,
    pub(super) kmax: Size,
    pub(super) pmax: Probability,
    /// All lossless classes, if it does not say.
    pub(super) priorities: Option<Classes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QosTable {
    pub(super) lossless: Option<Classes>,
    pub(super) flow_control: FlowControlName,
    pub(super) credit_buffer: Option<Size<u32>>,
    pub(super) credit_update: Option<Size<u32>>,
    pub(super) dscp_map: Option<DscpMap>,
    pub(super) trust: Trust,
    pub(super) strict: Option<Classes>,
    pub(super) weights: Option<[u8; PRIORITIES]>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FlowControlName {
    #[default]
    Pfc,
    Pause,
    Credits,
    None,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostTable {
    pub(super) rx_rate: Option<Rate>,
    pub(super) rx_buffer: Option<Size>,
    pub(super) window: Option<Size<u32>>,
    pub(super) cc: Congestion,
    /// The first PSN of every connection; drawn, if it does not say.
    pub(super) first_psn: Option<FirstPsn>,
    /// As verbs have it: 4.096 us times 2 to its power.
    pub(super) timeout: Option<u8>,
    pub(super) retry_cnt: Option<u8>,
    pub(super) rnr_retry: Option<u8>,
    pub(super) recovery: RecoveryName,
    pub(super) latency: Span,
    pub(super) planes: Planes,
    pub(super) dcqcn: DcqcnTable,
}

/// What the transport does about packets that are lost, or seem to be.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RecoveryName {
    #[default]
    GoBackN,
    Keep,
    Selective,
}

/// What is not as in the paper.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DcqcnTable {
    pub(super) min_rate: Option<Rate>,
    pub(super) additive_increase: Option<Rate>,
    pub(super) hyper_increase: Option<Rate>,
    pub(super) g: Option<f64>,
    pub(super) alpha_timer: Option<Span>,
    pub(super) increase_timer: Option<Span>,
    pub(super) increase_bytes: Option<Size>,
    pub(super) fast_recovery_steps: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowTable {
    pub(super) op: Op,
    pub(super) from: Names,
    pub(super) to: String,
    pub(super) size: Option<Size>,
    #[serde(default)]
    pub(super) start: Span,
    pub(super) dscp: Option<Dscp>,
    pub(super) mtu: Option<PathMtu>,
    pub(super) plane: Option<u8>,
    pub(super) to_plane: Option<u8>,
}

impl FlowTable {
    const COMMON: &'static [&'static str] = &[
        "from", "to", "size", "start", "dscp", "mtu", "plane", "to_plane",
    ];
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Op {
    Frames(FramesTable),
    Write(MessagesTable),
    Read(MessagesTable),
    Send(MessagesTable),
    FetchAdd(MessagesTable),
}

/// Frames without a transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FramesTable {
    pub(super) stop: Option<Span>,
    pub(super) rate: Option<Rate>,
    pub(super) arrivals: Option<ArrivalsName>,
    pub(super) source_port: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ArrivalsName {
    Greedy,
    Paced,
    Poisson,
}

/// Messages of the real transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessagesTable {
    pub(super) count: Option<u64>,
    pub(super) depth: Option<u32>,
    #[serde(default)]
    pub(super) receives: u32,
    #[serde(default)]
    pub(super) repost: Span,
    pub(super) cc: Option<Congestion>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    pub(super) kind: FaultName,
    pub(super) host: Option<String>,
    pub(super) switch: Option<String>,
    pub(super) link: Option<String>,
    pub(super) port: Option<String>,
    #[serde(default)]
    pub(super) from: Span,
    pub(super) to: Option<Span>,
    pub(super) p: Option<Probability>,
    pub(super) every: Option<NonZeroU64>,
    pub(super) nth: Option<Rising>,
    pub(super) frames: Option<Frames>,
    pub(super) stream: Option<u32>,
}

impl FaultTable {
    const COMMON: &'static [&'static str] = &[
        "host", "switch", "link", "port", "from", "to", "p", "every", "nth", "frames", "stream",
    ];
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "snake_case"
)]
pub(super) enum FaultName {
    Loss {},
    BurstLoss {
        enter: Option<Probability>,
        leave: Option<Probability>,
        loss: Option<Probability>,
    },
    Corrupt {},
    CorruptInside {},
    Duplicate {
        by: Option<Span>,
    },
    Reorder {
        by: Span,
    },
    Delay {
        by: Span,
        #[serde(default)]
        jitter: Span,
    },
    Rate {
        rate: Rate,
    },
    LinkDown {
        down: Option<Span>,
        up: Option<Span>,
        reroute: Option<Span>,
    },
    Partition {
        side: Names,
        #[serde(default)]
        one_way: bool,
    },
    PauseStorm {
        classes: Option<Classes>,
    },
    PauseLoss {},
    BleachEcn {},
    BlackHole {
        mtu: Size<u32>,
    },
    SlowReceiver {
        rate: Rate,
    },
    Crash {
        reroute: Option<Span>,
    },
    Forge {
        forgery: Forgery,
    },
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectTable {
    pub(super) lossless_drops: Option<u64>,
    pub(super) drops: Option<u64>,
    pub(super) deadlock: Option<bool>,
    pub(super) complete: Option<bool>,
    pub(super) goodput_min: Option<Rate>,
    pub(super) jain_min: Option<f64>,
    /// The longest that a flow or a job may take.
    pub(super) completion_max: Option<Span>,
    /// Marks that a set of runs must have seen.
    pub(super) sometimes: Vec<Mark>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ChecksTable {
    /// Checks to leave out.
    pub(super) skip: Vec<Check>,
    pub(super) progress: Option<Span>,
}
