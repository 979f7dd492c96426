//! Arguments of the subcommands that run a scenario many times, and of what changes a scenario.

use std::path::PathBuf;

use clap::value_parser;

/// Changes to a scenario that are not in its file.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Another value for a field, such as `host.window=64KiB` or `fault[0].p=0.01`; can be given more than once
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Each seed takes some of the file's faults, with strengths and windows of its own
    #[arg(long)]
    pub(crate) swarm: bool,
}

/// Arguments of `urxe sim sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimSweepArgs {
    /// The scenario, a TOML file; its `[sweep]` says which values to try
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Number of seeds for each combination of values
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub(crate) first: u64,
    /// Runs at a time [default: the number of processors]
    #[arg(long, value_parser = value_parser!(u64).range(1..=1024))]
    pub(crate) jobs: Option<u64>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Arguments of `urxe sim replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimReplayArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The seed [default: the file's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Hash of the run as it was told: anything else is another run
    #[arg(long, value_name = "HASH")]
    pub(crate) trace: Option<String>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Arguments of `urxe sim shrink`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimShrinkArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A seed under which it fails [default: the file's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Folder for the small scenario, its capture and its test; made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Seconds to go on for, at most
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}
