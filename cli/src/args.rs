//! The command line, as clap sees it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use urxe::congestion::{CongestionControl, CongestionTextError};
use urxe::{FaultSpec, Likeness, PortSpeed, Security};

use crate::bench::{self, Op, Road};
use crate::control::PORT_DEFAULT;
use crate::key::KeyCommand;
use crate::pingpong::Variant;
#[cfg(feature = "sim")]
use crate::sim::args::SimCommand;
#[cfg(feature = "sim")]
use crate::study::args::StudyArgs;
use crate::target::{self, Measurement};
use crate::units;
use crate::wire::{WireArgs, WireName};

/// What follows the list of commands.
const MORE: &str = "\
Examples:
  urxe pingpong                                two processes, every byte verified
  urxe run -- ibv_devinfo                      a program that was built for adapters
  urxe run --faults drop=1% -- ./my_program    the same, where packets are lost
  urxe bench write --size 65536                bandwidth, beside what bare UDP reaches
  urxe decode file.pcapng                      the packets of a capture, in words
  urxe explain 12                              what a status, errno or counter means

Exit codes: 0 if all went well, 1 if something failed, 2 for a wrong command line. 'urxe run' ends as
the program does: with its code, or by its signal; 126 and 127 if it cannot be started.";

/// RDMA without RDMA hardware: RoCEv2 over ordinary UDP sockets.
#[derive(Debug, Parser)]
#[command(name = "urxe", bin_name = "urxe", version, about, after_help = MORE)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// End when the process with this id does
    #[arg(long, global = true, hide = true)]
    pub(crate) parent: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the four classic RDMA ping-pongs between two processes, and verify every byte
    Pingpong(PingpongArgs),
    /// Measure bandwidth or latency between two processes, beside that of bare UDP
    Bench(BenchArgs),
    /// What thousands of queue pairs cost: memory of an idle one, and message rate beside that of ten
    Scale(ScaleArgs),
    /// Answer questions about RDMA by measurement here, beside what documents say
    #[cfg(feature = "sim")]
    Study(StudyArgs),
    /// Answer questions about RDMA by measurement here, beside what documents say
    #[cfg(not(feature = "sim"))]
    #[command(disable_help_flag = true)]
    Study {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Run a program that was built for RDMA adapters (libibverbs) on urxe
    Run(RunArgs),
    /// Print what `run` sets in the environment, for `eval "$(urxe env)"`
    Env(EnvArgs),
    /// Make a folder with this command and its libraries, to be copied to other machines
    Package {
        /// The folder
        folder: PathBuf,
    },
    /// Make and change the keys that packets are sealed with
    #[command(subcommand)]
    Key(KeyCommand),
    /// List the devices: every network interface is one
    Devices(DevicesArgs),
    /// Print the RoCE packets of a capture file and check every ICRC
    Decode(DecodeArgs),
    /// Print the counters and QPs of running urxe processes, once or again and again
    Stat(StatArgs),
    /// Say what a status, vendor_err, event, errno or counter means, and what usually causes it
    Explain(ExplainArgs),
    /// Simulate networks of switches in virtual time, under the real transport
    #[cfg(feature = "sim")]
    #[command(subcommand)]
    Sim(SimCommand),
    /// Simulate networks of switches in virtual time, under the real transport
    #[cfg(not(feature = "sim"))]
    #[command(disable_help_flag = true)]
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Write manual pages and completions for shells into FOLDER/share, for packages
    #[cfg(feature = "manuals")]
    #[command(hide = true)]
    Manuals {
        /// The folder
        folder: PathBuf,
    },
    /// The other side of a measurement, started by it
    #[command(name = target::SUBCOMMAND, hide = true)]
    Target {
        of: Measurement,
        /// Address of the device to open
        address: IpAddr,
        #[command(flatten)]
        wire: WireArgs,
        /// What happens to the packets that it sends
        #[arg(long)]
        faults: Option<FaultSpec>,
    },
    /// One of the two sides of the bare UDP measurement
    #[command(name = bench::floor::ROLE_SUBCOMMAND, hide = true)]
    FloorRole {
        /// The role, as JSON
        role: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct PingpongArgs {
    /// Rounds of each variant [default: as many as take about a second]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) iters: Option<u64>,
    /// Bytes of a message, such as 4096 or 64k
    #[arg(short, long, default_value_t = 64, value_parser = units::size)]
    pub(crate) size: u64,
    /// Only this variant; can be given more than once
    #[arg(long, value_enum)]
    pub(crate) variant: Vec<Variant>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) role: RoleArgs,
}

/// Which side of a two-process measurement this process is.
#[derive(Debug, clap::Args)]
pub(crate) struct RoleArgs {
    /// Be the server, on this address of this host
    #[arg(long, value_name = "HOST", value_parser = units::host, conflicts_with_all = ["connect", "local"])]
    pub(crate) server: Option<IpAddr>,
    /// Be the client of the server on this address
    #[arg(long, value_name = "HOST", value_parser = units::host)]
    pub(crate) connect: Option<IpAddr>,
    /// With --connect: the address of this host to use [default: the one that leads to the server]
    #[arg(long, value_name = "HOST", value_parser = units::host, requires = "connect")]
    pub(crate) local: Option<IpAddr>,
    /// TCP port of the control connection
    #[arg(short, long, default_value_t = PORT_DEFAULT)]
    pub(crate) port: u16,
}

/// Arguments of `urxe bench`: those of one operation, or a measurement of another kind.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) other: Option<OtherBench>,
    #[command(flatten)]
    pub(crate) of_op: Option<OpBenchArgs>,
    #[command(flatten)]
    pub(crate) role: RoleArgs,
}

/// Measurements of more than one operation.
#[derive(Debug, Subcommand)]
pub(crate) enum OtherBench {
    /// QPs that stream beside one with small messages: their shares, and how long the small ones wait
    Fairness(FairnessArgs),
    /// Threads of one process with small WRITEs, each on QPs of its own: in a context of one shard, and of several
    Shards(ShardsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShardsArgs {
    /// Threads, each with a completion queue and two QPs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) threads: u64,
    /// Shards of the context [default: as many as threads]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) shards: Option<u32>,
    /// Bytes of a message, such as 8 or 64k
    #[arg(short, long, default_value_t = 8, value_parser = units::size)]
    pub(crate) size: u64,
    /// Batches of 32 messages in a sample of each thread [default: as many as take 0.3 seconds]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) iters: Option<u64>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FairnessArgs {
    /// QPs that stream
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) qps: u64,
    /// Bytes of their messages, such as 64k or 1M
    #[arg(short, long, default_value = "1M", value_parser = units::long_size)]
    pub(crate) size: u64,
    /// Small messages there and back in a sample [default: as many as take half a second]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) iters: Option<u64>,
    /// Path MTU: bytes of payload in a packet
    #[arg(long, default_value_t = 4096, value_parser = parse_mtu)]
    pub(crate) mtu: u32,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpBenchArgs {
    /// The operation
    #[arg(value_enum, required_unless_present = "server")]
    pub(crate) op: Option<Op>,
    /// Bytes of a message, such as 8 or 64k [default: 1M, with --lat 8, with --road 64k]
    #[arg(short, long, value_parser = units::size)]
    pub(crate) size: Option<u64>,
    /// Operations in a sample [default: as many as take a while]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) iters: Option<u64>,
    /// Time of all samples together, in seconds or as in 500ms [default: 2.25 seconds, with --road 15 or more]
    #[arg(short = 'D', long, value_name = "TIME", value_parser = units::time, conflicts_with = "iters")]
    pub(crate) duration: Option<Duration>,
    /// Path MTU: bytes of payload in a packet [default: 4096; with --connect, what this host's port can carry]
    #[arg(long, value_parser = parse_mtu)]
    pub(crate) mtu: Option<u32>,
    /// Latency instead of bandwidth
    #[arg(long)]
    pub(crate) lat: bool,
    /// With --lat: sleep until a completion event instead of polling
    #[arg(long)]
    pub(crate) event: bool,
    /// With --lat, of send and write: wait for the completion (the ACK) of each message before looking for the answer,
    /// and post each receive before the next message, as ib_send_lat does
    #[arg(long)]
    pub(crate) signaled: bool,
    /// Both processes on one address, as programs on one host often are: a program in the kernel says which of them a
    /// packet is for
    #[arg(long, conflicts_with = "connect")]
    pub(crate) one_address: bool,
    /// What packets between the two processes travel through [default: what URXE_WIRE says, else auto]
    // No `WireArgs`: arguments that have others flattened into them cannot be left out as a whole.
    #[arg(long, value_enum)]
    pub(crate) wire: Option<WireName>,
    /// Measure on a road of this kind both ways, in place of the floor: rate=200M,rtt=20ms,loss=1%; also queue=500k,
    /// reorder=1%, seed=7
    #[arg(long, value_name = "ROAD", conflicts_with = "connect")]
    pub(crate) road: Option<Road>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl OpBenchArgs {
    /// Whether nothing is given that only the measuring side decides.
    pub(crate) fn is_of_server(&self) -> bool {
        let is_any = self.lat || self.event || self.signaled || self.one_address || self.json;
        let is_set = self.op.is_some() || self.size.is_some() || self.iters.is_some();
        let is_timed = self.duration.is_some() || self.road.is_some();
        !(is_any || is_set || is_timed || self.mtu.is_some())
    }
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse().map_err(|_| "not a number".to_owned())?;
    if [256, 512, 1024, 2048, 4096].contains(&mtu) {
        return Ok(mtu);
    }
    Err("a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// The text as it is, if it says a congestion control.
fn parse_congestion(text: &str) -> Result<String, CongestionTextError> {
    text.parse::<CongestionControl>()?;
    Ok(text.to_owned())
}

/// As `URXE_RECOVERY` has them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RecoveryName {
    /// Only what was lost is sent again, between peers that agree on it
    Selective,
    /// Packets ahead of a gap are kept, whatever the peer does
    Keep,
    /// All packets from the lost one on are sent again, as by the standard
    GoBackN,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct StatArgs {
    /// Only the processes with these ids
    #[arg(value_name = "PID")]
    pub(crate) pid: Vec<u32>,
    /// Only the processes of this program, by its name
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Print again each time that so much time has passed, with what was counted meanwhile: 2, 500ms
    #[arg(short, long, value_name = "TIME", value_parser = units::time)]
    pub(crate) watch: Option<Duration>,
    /// How often to print, with --watch [default: until the processes are gone]
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The counters of the engine too (threads, wake-ups, system calls)
    #[arg(long)]
    pub(crate) engine: bool,
    /// All QPs, however many
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// A number (12, 0x202), a name (RETRY_EXC_ERR, EINVAL, drop_icrc), or a line of output that holds one
    #[arg(value_name = "WHAT")]
    pub(crate) what: Vec<String>,
    /// Everything there is to explain
    #[arg(long, conflicts_with = "what")]
    pub(crate) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeArgs {
    /// A pcap or pcapng file; - reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print only the summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print JSON: an object a packet, each on a line, then the summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Open sealed packets with this key of 'urxe key new'
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Queue pairs in each of the two processes
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) qps: u64,
    /// Samples of the many and of the ten, each; the result is the median
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) samples: u64,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

/// What a program on urxe can be given.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvArgs {
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: EnvFormat,
    /// Keep the device files that are made, for programs that start when the shell that asks has ended
    #[arg(long)]
    pub(crate) persist: bool,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
}

#[derive(Clone, Copy, Default, Debug, ValueEnum)]
pub(crate) enum EnvFormat {
    /// export NAME='VALUE', for eval
    #[default]
    Shell,
    /// NAME=VALUE, for $GITHUB_ENV, env files of containers and systemd
    Lines,
    /// One object
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    /// A network interface or address of this host to be a device; can be given more than once. With NAME= it is
    /// called that, else urxe0, urxe1 and so on [default: every network interface is one]
    #[arg(long, value_name = "[NAME=]IFACE|ADDR")]
    pub(crate) device: Vec<String>,
    /// Write every packet to this file; %p in its name becomes the process id
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Report uses of verbs that work by luck
    #[arg(long)]
    pub(crate) strict: bool,
    /// What happens to packets that the program sends: drop=2%,dup=1%,reorder=1%,corrupt=0.5%,delay=50us..1ms,
    /// rate=200M,queue=500k,seed=7
    #[arg(long, value_name = "SPEC")]
    pub(crate) faults: Option<FaultSpec>,
    /// Largest path MTU that the devices offer: bytes of payload in a packet
    #[arg(long, value_parser = parse_mtu)]
    pub(crate) mtu: Option<u32>,
    /// Speed that the ports report, in Gb/s: 2.5, 10, 20, 25, 40, 50, 56, 100, 200, 400 or 800 [default: 100]
    #[arg(long, value_name = "GBPS")]
    pub(crate) speed: Option<PortSpeed>,
    /// The adapter that the devices look like, by name, maker's numbers and GID table: generic, rxe or mlx5
    #[arg(long = "as", value_name = "ADAPTER")]
    pub(crate) likeness: Option<Likeness>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// What is done for packets that pass sockets: off, auth, seal, or seal,require, which refuses peers that only authenticate;
    /// with ,pairs connections have keys of their own [default: seal with a key file, else off]
    #[arg(long, value_name = "MODE")]
    pub(crate) security: Option<Security>,
    /// The key for that, of 'urxe key new'
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// How connections react to congestion: auto, none, path, delay=TIME, dcqcn=RATE or window=BYTES
    #[arg(long, value_name = "CONTROL", value_parser = parse_congestion)]
    pub(crate) congestion: Option<String>,
    /// What is done about lost packets
    #[arg(long, value_enum)]
    pub(crate) recovery: Option<RecoveryName>,
    /// Engines that work for each device that the program opens, 1 to 64: for programs with several threads that each poll a
    /// completion queue of their own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) shards: Option<u32>,
    /// Do not show the program device files in /sys and /dev that there are none of (by LD_PRELOAD)
    #[arg(long)]
    pub(crate) no_sysfs: bool,
    /// Set no LD_PRELOAD: the program shall find the libraries by their names alone (LD_LIBRARY_PATH)
    #[arg(long)]
    pub(crate) no_preload: bool,
    /// Say in words what goes wrong
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
