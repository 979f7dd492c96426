//! The command line of `urxe sim`.

use std::path::PathBuf;

use clap::value_parser;

/// What `urxe sim` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario (docs/SIMULATION.md has the format) and print what it came to
    Run(RunArgs),
    /// Run many seeds, and each combination of the values of `[sweep]`
    Sweep(SweepArgs),
    /// Run a seed again, and tell whether it is the run that was told
    Replay(ReplayArgs),
    /// Make a scenario that fails as small as it can be
    Shrink(ShrinkArgs),
    /// Run each of many seeds twice, and compare every event
    CheckDeterminism(DeterminismArgs),
    /// Run a scenario and write a page that shows it: the network over time, queues, pauses, flows
    Report(ReportArgs),
    /// Run experiments with known outcomes, and print expected and measured values
    Experiments(ExperimentsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExperimentsArgs {
    /// Only these
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Their names and what each shows, without running any
    #[arg(long, conflicts_with_all = ["names", "json"])]
    pub(crate) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A scenario, and changes to it that are not in its file.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Another value for a field, such as `host.window=64KiB` or `fault[0].p=0.01`; can be given more than once
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Each seed takes some of the file's faults, with strengths and windows of its own
    #[arg(long)]
    pub(crate) swarm: bool,
}

/// A scenario under one seed.
#[derive(Debug, clap::Args)]
pub(crate) struct SeedArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// The seed [default: the file's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) of: SeedArgs,
    /// Write a capture of every frame at every port, for Wireshark
    #[arg(long, value_name = "FILE.pcapng")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write tables into a folder: queues, pauses and rates of ports, rates and outcomes of flows
    #[arg(long, value_name = "FOLDER")]
    pub(crate) csv: Option<PathBuf>,
    /// Time of a sample of the tables, such as 10us [default: the run in at most 512]
    #[arg(long, value_name = "TIME", requires = "csv")]
    pub(crate) every: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) of: SeedArgs,
    /// The page
    #[arg(short, long, value_name = "PAGE.html", default_value = "report.html")]
    pub(crate) output: PathBuf,
    /// Time of a sample, such as 10us [default: the run in at most 512]
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeterminismArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Number of seeds
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub(crate) first: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Number of seeds for each combination of values
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub(crate) first: u64,
    /// Runs at a time [default: the number of processors]
    #[arg(long, value_parser = value_parser!(u64).range(1..=1024))]
    pub(crate) jobs: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) of: SeedArgs,
    /// Hash of the run as it was told: anything else is another run
    #[arg(long, value_name = "HASH")]
    pub(crate) trace: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShrinkArgs {
    #[command(flatten)]
    pub(crate) of: SeedArgs,
    /// Folder for the small scenario, its capture and its test; made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Seconds to go on for, at most
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
