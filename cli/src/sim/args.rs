//! The command line of `urxe sim`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::value_parser;

/// What `urxe sim` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario (docs/SIMULATION.md has the format) and print what it came to
    Run(RunArgs),
    /// Run unmodified programs of C verbs on the hosts of a simulated network
    Exec(ExecArgs),
    /// Run many seeds, and each combination of the values of `[sweep]`
    Sweep(SweepArgs),
    /// Put the results of a sweep's shards together, and judge them as one
    Merge(MergeArgs),
    /// Run a seed again, and tell whether it is the run that was told
    Replay(ReplayArgs),
    /// Make a scenario that fails as small as it can be
    Shrink(ShrinkArgs),
    /// Run two scenarios, or one in two ways, and tell the first event that is not the same in both
    Diff(DiffArgs),
    /// Run each of many seeds twice, and compare every event
    CheckDeterminism(DeterminismArgs),
    /// Run a scenario and write a page that shows it: the network over time, queues, pauses, flows
    Report(ReportArgs),
    /// List the scenarios that come with urxe, or print one: a file to begin with
    Scenarios {
        /// Print this one
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
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
    /// The scenario: a TOML file, or the name of one that comes with urxe (`urxe sim scenarios`)
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
    /// Write a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: flows, jobs, faults, pauses, drops
    #[arg(long, value_name = "FILE.json")]
    pub(crate) perfetto: Option<PathBuf>,
    /// Write tables into a folder: queues, pauses and rates of ports, rates and outcomes of flows
    #[arg(long, value_name = "FOLDER")]
    pub(crate) csv: Option<PathBuf>,
    /// Time of a sample of the tables, such as 10us [default: the run in at most 512]
    #[arg(long, value_name = "TIME", requires = "csv")]
    pub(crate) every: Option<String>,
    /// Threads for parts of the network; the outcome is the same with any number. What cannot be divided is told, and runs on one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=64))]
    pub(crate) threads: u8,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXEC_HELP)]
pub(crate) struct ExecArgs {
    /// A scenario: its network, faults and [[program]] tables [default: two hosts at one switch]
    #[arg(value_name = "FILE", required_unless_present = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Another value for a field of the scenario, as for `urxe sim run`
    #[arg(long, value_name = "PATH=VALUE", requires = "file")]
    pub(crate) set: Vec<String>,
    /// The seed, or the first of several [default: the scenario's, or 1]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Number of seeds, one after another
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// Run each seed twice, and compare every event and all that the programs print
    #[arg(long)]
    pub(crate) twice: bool,
    /// Write a capture of every frame at every port, for Wireshark
    #[arg(long, value_name = "FILE.pcapng", conflicts_with = "seeds")]
    pub(crate) pcap: Option<PathBuf>,
    /// Seconds of real time that a program may go on without a call
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = value_parser!(u64).range(1..=3600))]
    pub(crate) patience: u64,
    /// Print JSON: a line a seed
    #[arg(long)]
    pub(crate) json: bool,
    /// A server: it runs on the first host, and on the second with the first's address behind its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

const EXEC_HELP: &str = "\
Programs see one device (urxe0), virtual time, and TCP between the hosts of the simulation. What a program \
can do there is in docs/SIMULATION.md: one thread, no children, no counter of the processor.";

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
    /// Only part K of N of the runs: the others are for other machines
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
    /// Write what each run came to, a line of JSON for each, for `urxe sim merge` and for programs
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) results: Option<PathBuf>,
}

/// Part `number` of `of` parts, counted from 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shard {
    pub(crate) number: u64,
    pub(crate) of: u64,
}

impl Default for Shard {
    /// All of it.
    fn default() -> Shard {
        Shard { number: 1, of: 1 }
    }
}

impl Shard {
    /// True for the runs of this part.
    pub(crate) fn has(self, run: u64) -> bool {
        run % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Shard { number, of }),
            _ => Err("a shard is K/N, with K from 1 to N".to_owned()),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// Results of `urxe sim sweep --shard K/N --results FILE`, of all shards in any order
    #[arg(value_name = "FILE.jsonl", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write them as one file, as a single machine would have
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) results: Option<PathBuf>,
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
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) of: SeedArgs,
    /// The other scenario [default: the same]
    #[arg(value_name = "OTHER")]
    pub(crate) with: Option<PathBuf>,
    /// The other run's seed [default: the same]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed_b: Option<u64>,
    /// As --set, for the other run alone
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set_b: Vec<String>,
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
