//! `--wire`, of several subcommands.

use clap::ValueEnum;
use urxe::{FaultSpec, Wire};

/// What packets between processes of this host travel through.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct WireArgs {
    /// What packets between processes of this host travel through [default: what URXE_WIRE says, else auto]
    #[arg(long, value_enum)]
    pub wire: Option<WireName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WireName {
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

/// What packets of one process travel through, and what happens to them there.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub wire: Option<WireName>,
    /// Beside those of the environment, none.
    pub faults: Option<FaultSpec>,
}

impl From<Option<WireName>> for Way {
    fn from(wire: Option<WireName>) -> Way {
        Way { wire, faults: None }
    }
}
