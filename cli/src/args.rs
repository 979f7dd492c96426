//! The command line, as clap sees it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::control::PORT_DEFAULT;
use crate::pingpong::Variant;

/// RDMA without RDMA hardware: RoCEv2 over ordinary UDP sockets.
#[derive(Debug, Parser)]
#[command(name = "urxe", version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the four classic RDMA ping-pongs between two processes, and verify every byte
    Pingpong(PingpongArgs),
    /// Print the RoCE packets of a capture file and check every ICRC
    Decode(DecodeArgs),
}

/// Message sizes that a measurement takes: what fits comfortably into memory twice.
const SIZE_MAX: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(crate) struct PingpongArgs {
    /// Rounds of each variant [default: as many as take about two seconds]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) iters: Option<u64>,
    /// Bytes of a message
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=SIZE_MAX))]
    pub(crate) size: u64,
    /// Only this variant; can be given more than once
    #[arg(long, value_enum)]
    pub(crate) variant: Vec<Variant>,
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
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["connect", "local"])]
    pub(crate) server: Option<IpAddr>,
    /// Be the client of the server on this address
    #[arg(long, value_name = "ADDR")]
    pub(crate) connect: Option<IpAddr>,
    /// With --connect: the address of this host to use [default: the one that leads to the server]
    #[arg(long, value_name = "ADDR", requires = "connect")]
    pub(crate) local: Option<IpAddr>,
    /// TCP port of the control connection
    #[arg(long, default_value_t = PORT_DEFAULT)]
    pub(crate) port: u16,
    /// End when the process with this id does.
    #[arg(long, hide = true)]
    pub(crate) parent: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeArgs {
    /// A pcap or pcapng file; - reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print only the summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
