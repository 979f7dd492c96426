//! A frame that a fault hit, to be told when a run fails.

use urxe_wire::Opcode;

use crate::engine::Time;
use crate::envelope::{address_of, is_group};
use crate::topology::{HostId, PortId, PortName, Topology};

/// A frame that a fault hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// When it left a port.
    pub at: Time,
    /// Which.
    pub port: PortId,
    /// Its number among those that the fault looked at, as [`Chance::Nth`](crate::fault::Chance::Nth) takes it.
    pub number: u64,
    /// The host that sent it.
    pub from: HostId,
    /// The host that it is for.
    pub to: HostId,
    /// Bytes.
    pub len: u32,
    /// The BTH, if it is a RoCE packet.
    pub bth: Option<[u8; 12]>,
}

impl Hit {
    /// In words: the packet, its way, and when.
    pub fn describe(&self, topology: &Topology) -> String {
        let what = match self.bth {
            Some([opcode, .., a, b, c]) => {
                let psn = u32::from_be_bytes([0, a, b, c]);
                let name = Opcode(opcode)
                    .info()
                    .map(|info| format!("{:?}", info.operation));
                format!(
                    "{} PSN {psn:#x}",
                    name.unwrap_or_else(|| format!("opcode {opcode:#x}"))
                )
            }
            None => format!("a frame of {} bytes", self.len),
        };
        let from = topology.name(self.from);
        let to = if is_group(self.to) {
            address_of(self.to).to_string()
        } else {
            topology.name(self.to).to_owned()
        };
        let port = PortName(topology, self.port);
        format!(
            "frame {} ({what}, {from} to {to}) at {port} at {}",
            self.number, self.at
        )
    }
}
