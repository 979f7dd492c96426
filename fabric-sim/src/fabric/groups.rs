//! Multicast: which hosts hear which group, and where switches send copies.
//!
//! Each source has a tree of its own to a group: a shortest way to every switch, chosen among equal ones by a hash. So a host gets one copy, whatever
//! the network looks like. Groups are known to all switches as soon as a host joins or leaves.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use crate::engine::mix64;
use crate::envelope::is_group;
use crate::fabric::{DropReason, Fabric};
use crate::frame::{Frame, FrameId, Payload};
use crate::switch::Tree;
use crate::topology::{HostId, Node, PortId, SwitchId};

impl Fabric {
    /// A host hears a group from now on. Frames to groups are lost where there is no room, in lossless classes too, and each copy
    /// takes room of its own.
    pub fn join(&mut self, host: HostId, group: Ipv4Addr) {
        self.groups.join(host, HostId(group.to_bits()));
    }

    /// It does no more.
    pub fn leave(&mut self, host: HostId, group: Ipv4Addr) {
        self.groups.leave(host, HostId(group.to_bits()));
    }

    /// Whether frames of its class are lossless for the frame. To groups they are not: a switch cannot have a sender wait for the slowest
    /// of many receivers.
    #[inline]
    pub(crate) fn is_lossless(&self, f: &Frame) -> bool {
        self.qos.is_lossless(f.priority) && !is_group(f.dst)
    }

    /// A switch sends a frame on by each port behind which there are members.
    #[cold]
    pub(super) fn replicate(&mut self, switch: SwitchId, frame: FrameId, f: &Frame) {
        // Its place in a buffer with credits is free: copies have theirs in the part without.
        self.give_credit(f.ingress, frame);
        if !self.groups.has_tree(f.src, f.dst) {
            let tree = self.tree(f.src, f.dst);
            self.groups.put_tree(f.src, f.dst, tree);
        }
        let ports = self.groups.ports(f.src, f.dst, switch);
        let Some((first, others)) = ports.split_first() else {
            return self.discard(f.ingress, frame, DropReason::NoRoute);
        };
        for port in others {
            let copy = self.copy_of(f);
            self.ports[f.ingress.index()].copied_bytes += u64::from(f.len);
            self.store(switch, *port, copy, f);
        }
        self.store(switch, *first, frame, f);
    }

    fn copy_of(&mut self, f: &Frame) -> FrameId {
        let payload = match f.payload {
            Payload::Roce { body, len } => Payload::Roce {
                body: self.bodies.copy(body),
                len,
            },
            other => other,
        };
        self.inject(Frame { payload, ..*f })
    }

    /// The shortest ways from a host to the members of a group, as ports of switches in order.
    fn tree(&self, source: HostId, group: HostId) -> Tree {
        let topology = &self.topology;
        let root = topology.node_at(self.port_of(source).peer());
        let Node::Switch(root) = root else {
            return Vec::new();
        };
        let is_up = |port: &PortId| !self.ports[port.index()].is_down;
        let mut ways = vec![Vec::new(); topology.switch_count()];
        for port in topology.ports().filter(is_up) {
            if let (Node::Switch(from), Node::Switch(to)) =
                (topology.node_at(port), topology.node_at(port.peer()))
            {
                ways[from.index()].push((port, to));
            }
        }
        let mut distance = vec![u32::MAX; ways.len()];
        // The ports that lead to a switch from one that is nearer to the source.
        let mut above: Vec<Vec<(SwitchId, PortId)>> = vec![Vec::new(); ways.len()];
        distance[root.index()] = 0;
        let mut queue = VecDeque::from([root]);
        while let Some(at) = queue.pop_front() {
            let next = distance[at.index()] + 1;
            for &(port, to) in &ways[at.index()] {
                if distance[to.index()] == u32::MAX {
                    distance[to.index()] = next;
                    queue.push_back(to);
                }
                if distance[to.index()] == next {
                    above[to.index()].push((at, port));
                }
            }
        }
        let salt = u64::from(source.0) << 32 | u64::from(group.0);
        let mut tree = BTreeSet::new();
        for member in self.groups.members(group) {
            let last = self.port_of(member).peer();
            let Node::Switch(mut at) = topology.node_at(last) else {
                continue;
            };
            if member == source || !is_up(&last) || distance[at.index()] == u32::MAX {
                continue;
            }
            tree.insert((at, last));
            while at != root {
                let choice = mix64(salt ^ mix64(u64::from(at.0)));
                let above = &above[at.index()];
                let (nearer, port) = above[(choice % above.len() as u64) as usize];
                tree.insert((nearer, port));
                at = nearer;
            }
        }
        tree.into_iter().collect()
    }
}
