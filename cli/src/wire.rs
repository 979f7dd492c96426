//! `--wire`, of several subcommands.

use clap::ValueEnum;
use urxe::Wire;

/// What packets between processes of this host travel through.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WireArgs {
    /// What packets between processes of this host travel through [default: what URXE_WIRE says, else auto]
    #[arg(long, value_enum)]
    pub(crate) wire: Option<WireName>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WireName {
    /// Memory that the two processes share, where that is possible
    Auto,
    /// UDP sockets, as between hosts
    Sockets,
}

impl From<WireName> for Wire {
    fn from(name: WireName) -> Wire {
        match name {
            WireName::Auto => Wire::Auto,
            WireName::Sockets => Wire::Sockets,
        }
    }
}
