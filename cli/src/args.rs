//! The command line, as clap sees it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// RDMA without RDMA hardware: RoCEv2 over ordinary UDP sockets.
#[derive(Debug, Parser)]
#[command(name = "urxe", version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the RoCE packets of a capture file and check every ICRC
    Decode(DecodeArgs),
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
