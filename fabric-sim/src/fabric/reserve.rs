//! Bandwidth reservation: a connection asks for a rate, every link on its way must have it left,
//! and the sender keeps to it. Then queues hardly form, and nothing need be stopped or dropped.

use crate::engine::Rate;
use crate::fabric::Fabric;
use crate::flow::FlowSpec;
use crate::topology::{Node, PortId};

/// A reservation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReserveError {
    /// A link has only this much left.
    #[error("the link at port {} has {left} b/s left", .port.0)]
    Full {
        /// The port that sends into the link.
        port: PortId,
        /// Bits per second that it has left.
        left: u64,
    },
    /// There is no way to the destination.
    #[error("no way leads there")]
    NoRoute,
}

impl Fabric {
    /// The ports that frames of a flow leave by, first to last; `None` if there is no way, or one that
    /// does not end.
    pub fn path(&self, spec: &FlowSpec) -> Option<Vec<PortId>> {
        let hash = crate::envelope::flow_hash(spec.from, spec.to, spec.source_port);
        let first = self.plane_by_hash(spec.from, spec.to, hash);
        let rail = self.rail_to(spec.from, first, hash);
        let mut ports = vec![first];
        loop {
            let last = *ports.last()?;
            match self.ports[last.peer().index()].node {
                Node::Host(host) => return (host == spec.to).then_some(ports),
                Node::Switch(switch) => {
                    let next = self.choose(switch, (spec.to, rail), hash)?;
                    if ports.len() > self.switches.len() + 1 {
                        return None;
                    }
                    ports.push(next);
                }
            }
        }
    }

    /// Sets a rate on the wire aside for a flow, on every link of its way. The flow keeps to it if it is
    /// paced at it.
    ///
    /// # Errors
    /// [`ReserveError`]; nothing was set aside.
    pub fn reserve(&mut self, spec: &FlowSpec, rate: Rate) -> Result<(), ReserveError> {
        let path = self.path(spec).ok_or(ReserveError::NoRoute)?;
        for &port in &path {
            let left = self.ports[port.index()].unreserved();
            if left < rate.as_bps() {
                return Err(ReserveError::Full { port, left });
            }
        }
        for port in path {
            self.ports[port.index()].reserved_bps += rate.as_bps();
        }
        Ok(())
    }
}
