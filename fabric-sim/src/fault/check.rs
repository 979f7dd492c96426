//! Refuses faults that make no sense.

use crate::fault::{Chance, Fault, FaultKind, Scope};
use crate::topology::{HostId, Topology};

/// Why a fault cannot be added.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FaultError {
    /// A probability that is none.
    #[error("{0} is no probability: 0 to 1")]
    Probability(f64),
    /// The window ends before it begins, or where it begins.
    #[error("the window ends before it begins")]
    Window,
    /// No such host, switch or port.
    #[error("there is no such place in this network")]
    Place,
    /// The kind needs a host, or a node.
    #[error("{kind} needs {needs}")]
    Scope {
        /// The kind of fault.
        kind: &'static str,
        /// In words.
        needs: &'static str,
    },
    /// Numbers of frames that do not rise.
    #[error("numbers of frames must rise")]
    Order,
    /// Something must be more than nothing.
    #[error("{0} must be more than 0")]
    Zero(&'static str),
}

impl Fault {
    /// Finds out whether it makes sense in a network.
    ///
    /// # Errors
    /// [`FaultError`] says what does not.
    pub fn check(&self, topology: &Topology) -> Result<(), FaultError> {
        if self.from >= self.to {
            return Err(FaultError::Window);
        }
        let is_there = match self.scope {
            Scope::Everything => true,
            Scope::Cable(port) | Scope::Port(port) => port.index() < topology.port_count(),
            Scope::Host(host) => is_host(topology, host),
            Scope::Switch(switch) => switch.index() < topology.switch_count(),
        };
        if !is_there {
            return Err(FaultError::Place);
        }
        match &self.chance {
            Chance::Probability(p) => check_probability(*p)?,
            Chance::Every(0) => return Err(FaultError::Zero("every")),
            Chance::Nth(numbers) if !numbers.is_sorted_by(|a, b| a < b) => {
                return Err(FaultError::Order);
            }
            _ => {}
        }
        self.check_kind(topology)
    }

    fn check_kind(&self, topology: &Topology) -> Result<(), FaultError> {
        let needs = |needs| {
            let kind = self.kind.name();
            Err(FaultError::Scope { kind, needs })
        };
        match &self.kind {
            FaultKind::BurstLoss { enter, leave, loss } => [enter, leave, loss]
                .into_iter()
                .copied()
                .try_for_each(check_probability),
            FaultKind::Reorder { by } if by.ps() == 0 => Err(FaultError::Zero("the delay")),
            FaultKind::LinkDown {
                flap: Some((down, up)),
                ..
            } if down.ps() == 0 || up.ps() == 0 => Err(FaultError::Zero("the time down and up")),
            FaultKind::Partition { side, .. } => {
                if side.is_empty() {
                    needs("hosts of one side")
                } else if side.iter().all(|&host| is_host(topology, host)) {
                    Ok(())
                } else {
                    Err(FaultError::Place)
                }
            }
            FaultKind::PauseStorm { classes: 0 } => needs("a class, 0 to 7"),
            FaultKind::PauseStorm { .. } => match self.scope {
                Scope::Everything | Scope::Cable(_) => needs("a host, a switch or a port"),
                _ => Ok(()),
            },
            FaultKind::SlowReceiver(_) => match self.scope {
                Scope::Everything | Scope::Host(_) => Ok(()),
                _ => needs("a host, or everything"),
            },
            FaultKind::Crash { reroute } => match self.scope {
                Scope::Switch(_) => Ok(()),
                Scope::Host(_) if reroute.is_some() => needs("a switch, to route around it"),
                Scope::Host(_) => Ok(()),
                _ => needs("a host or a switch"),
            },
            FaultKind::BlackHole { mtu: 0 } => Err(FaultError::Zero("the MTU")),
            _ => Ok(()),
        }
    }
}

fn is_host(topology: &Topology, host: HostId) -> bool {
    host.index() < topology.host_count()
}

fn check_probability(p: f64) -> Result<(), FaultError> {
    if (0.0..=1.0).contains(&p) {
        Ok(())
    } else {
        Err(FaultError::Probability(p))
    }
}
