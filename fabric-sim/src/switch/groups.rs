//! What switches know of multicast groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::envelope::is_group;
use crate::topology::{HostId, PortId, SwitchId};

/// Ports at which copies leave, switch by switch in order.
pub(crate) type Tree = Vec<(SwitchId, PortId)>;

/// Hosts by group, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<HostId, BTreeSet<HostId>>,
    /// By source and group.
    trees: BTreeMap<(HostId, HostId), Tree>,
}

impl Groups {
    pub(crate) fn join(&mut self, host: HostId, group: HostId) {
        if is_group(group) {
            self.members.entry(group).or_default().insert(host);
            self.trees.clear();
        }
    }

    pub(crate) fn leave(&mut self, host: HostId, group: HostId) {
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&host);
            self.trees.clear();
        }
    }

    /// No host hears any.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the host hears the group.
    pub(crate) fn has(&self, group: HostId, host: HostId) -> bool {
        is_group(group) && self.members.get(&group).is_some_and(|m| m.contains(&host))
    }

    /// The hosts that hear it, in order.
    pub(crate) fn members(&self, group: HostId) -> impl Iterator<Item = HostId> {
        self.members.get(&group).into_iter().flatten().copied()
    }

    /// Ways have changed.
    pub(crate) fn forget_trees(&mut self) {
        self.trees.clear();
    }

    pub(crate) fn has_tree(&self, source: HostId, group: HostId) -> bool {
        self.trees.contains_key(&(source, group))
    }

    pub(crate) fn put_tree(&mut self, source: HostId, group: HostId, tree: Tree) {
        self.trees.insert((source, group), tree);
    }

    /// The ports at which a switch sends a frame on.
    pub(crate) fn ports(&self, source: HostId, group: HostId, switch: SwitchId) -> Vec<PortId> {
        let tree = self
            .trees
            .get(&(source, group))
            .map_or(&[][..], Vec::as_slice);
        let from = tree.partition_point(|(at, _)| *at < switch);
        let here = tree[from..].iter().take_while(|(at, _)| *at == switch);
        here.map(|(_, port)| *port).collect()
    }
}
