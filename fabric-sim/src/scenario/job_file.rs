//! `[[job]]` of a scenario file, as serde reads it.

use serde::Deserialize;

use crate::engine::Span;
use crate::scenario::values::{Congestion, Dscp, Load, Names, PathMtu, Repeat, Size, bytes};
use crate::workload::{Algorithm, Sizes};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobTable {
    pub(super) kind: JobKind,
    pub(super) name: Option<String>,
    /// All, if it does not say.
    pub(super) hosts: Option<Names>,
    #[serde(default)]
    pub(super) start: Span,
    pub(super) dscp: Option<Dscp>,
    pub(super) mtu: Option<PathMtu>,
    pub(super) cc: Option<Congestion>,
}

impl JobTable {
    pub(super) const COMMON: &'static [&'static str] =
        &["name", "hosts", "start", "dscp", "mtu", "cc"];
}

#[derive(Clone, Debug, Deserialize, strum::IntoStaticStr)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "snake_case"
)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum JobKind {
    AllReduce(CollectiveTable),
    AllGather(CollectiveTable),
    ReduceScatter(CollectiveTable),
    AllToAll(AllToAllTable),
    Broadcast(BroadcastTable),
    Arrivals(ArrivalsTable),
    Matrix { file: String },
    Goal { file: String },
}

impl JobKind {
    /// The file that it is read from, if it is.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            JobKind::Matrix { file } | JobKind::Goal { file } => Some(file),
            JobKind::Arrivals(ArrivalsTable { sizes, .. }) => match SizesFrom::of(sizes) {
                SizesFrom::File(file) => Some(file),
                SizesFrom::Known(_) => None,
            },
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectiveTable {
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    pub(super) size: Size,
    #[serde(default)]
    pub(super) repeat: Repeat,
    #[serde(default)]
    pub(super) compute: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BroadcastTable {
    pub(super) size: Size,
    #[serde(default)]
    pub(super) repeat: Repeat,
    #[serde(default)]
    pub(super) compute: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllToAllTable {
    pub(super) size: Option<Size>,
    pub(super) lengths: Option<Vec<Vec<Size<u32>>>>,
    #[serde(default)]
    pub(super) repeat: Repeat,
    #[serde(default)]
    pub(super) compute: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrivalsTable {
    pub(super) load: Load,
    pub(super) sizes: String,
    pub(super) stop: Span,
    /// Receivers: the hosts themselves, if it does not say.
    pub(super) to: Option<Names>,
}

/// Where a distribution of sizes comes from.
#[derive(Debug)]
pub(super) enum SizesFrom<'a> {
    Known(Sizes),
    File(&'a str),
}

impl SizesFrom<'_> {
    /// A name that is built in, a size, or else a file.
    pub(super) fn of(text: &str) -> SizesFrom<'_> {
        let fixed = || bytes(text).ok().map(Sizes::fixed);
        match Sizes::named(text).or_else(fixed) {
            Some(sizes) => SizesFrom::Known(sizes),
            None => SizesFrom::File(text),
        }
    }
}
