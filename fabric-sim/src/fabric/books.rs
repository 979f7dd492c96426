//! Checks the accounts: frames and bytes that came, went, and are there.

use crate::fabric::Fabric;
use crate::topology::{Node, SwitchId};

impl Fabric {
    /// Checks that nothing was lost in the books: what was sent arrived, was dropped, or is still
    /// there; and that every buffer holds what its queues hold.
    ///
    /// # Errors
    /// Says in words what does not add up.
    pub fn check_books(&self) -> Result<(), String> {
        let inside = u64::from(self.frames.len());
        let accounted = self.delivered + self.drops.total() + inside;
        if self.injected != accounted {
            return Err(format!(
                "{} frames were sent, but {} arrived, {} were dropped and {inside} are inside",
                self.injected,
                self.delivered,
                self.drops.total(),
            ));
        }
        for (id, switch) in (0..).zip(&self.switches) {
            let queued = self.bytes_in(SwitchId(id));
            let booked = switch.mmu.sum();
            let credited = self.credited_bytes(SwitchId(id));
            if self.config.switch.cell <= 1 && queued != booked + credited {
                let name = self.topology.name(SwitchId(id));
                return Err(format!(
                    "switch {name} holds {queued} bytes, and its books say {booked} + {credited}"
                ));
            }
        }
        Ok(())
    }

    /// Switches that do not hold what came in, less what went out or was dropped; with what differs.
    pub(crate) fn unbalanced_nodes(&self) -> Vec<(Node, String)> {
        let mut wrong = Vec::new();
        let mut sums = vec![(0u64, 0u64); self.switches.len()];
        for port in &self.ports {
            let Node::Switch(switch) = port.node else {
                continue;
            };
            let (came, left) = &mut sums[switch.index()];
            let stats = port.stats();
            *came += stats.received_bytes + port.copied_bytes;
            *left += stats.sent_bytes.iter().sum::<u64>();
            *left += stats.dropped_bytes + port.queued;
        }
        for (id, (came, left)) in (0..).zip(sums) {
            if came != left {
                let fault = format!("{came} bytes came in, {left} were sent, dropped or are there");
                wrong.push((Node::Switch(SwitchId(id)), fault));
            }
        }
        wrong
    }

    /// Bytes in the queues of a switch, with those that are being sent.
    fn bytes_in(&self, switch: SwitchId) -> u64 {
        let ports = self.ports.iter().filter(|p| p.node == Node::Switch(switch));
        ports
            .map(|port| {
                let sending = port.busy.map(|id| self.frames.get(id));
                let sending = sending
                    .filter(|f| !f.payload.is_control())
                    .map_or(0, |f| f.len);
                port.classes
                    .iter()
                    .map(|class| class.queue.bytes)
                    .sum::<u64>()
                    + u64::from(sending)
            })
            .sum()
    }
}
