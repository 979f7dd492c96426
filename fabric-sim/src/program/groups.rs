//! What switches hear of the multicast groups of hosts.

use crate::program::world::World;
use crate::topology::HostId;

impl World {
    /// The switches hear which groups the host has joined and left.
    pub(super) fn tell_groups(&mut self, host: HostId) {
        while let Some((group, is_member)) = self.hosts[host.index()].nic.take_changed_group() {
            let fabric = self.sim.fabric_mut();
            if is_member {
                fabric.join(host, group);
            } else {
                fabric.leave(host, group);
            }
        }
    }
}
