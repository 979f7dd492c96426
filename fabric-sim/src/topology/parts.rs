//! Divides a network into parts that can be simulated at the same time.

use crate::engine::Span;
use crate::topology::{HostId, Node, PortId, SwitchId, Topology};

/// Work of a host, in that of a port of a switch: packets are made and taken apart there.
const HOST_WORK: u64 = 4;

/// Which part has which node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    hosts: Vec<u8>,
    switches: Vec<u8>,
    count: usize,
}

impl Parts {
    /// Divides a network into so many parts of nearly equal work, with few cables between them. Some can be empty if it has few nodes.
    ///
    /// Hosts are with their switch if it is a small part of all, and so are switches with most of their neighbours.
    pub(crate) fn new(topology: &Topology, count: usize) -> Parts {
        let count = count.clamp(1, usize::from(u8::MAX));
        let mut divider = Divider::new(topology, count);
        divider.place_edges();
        divider.place_others();
        let part = |node: &Option<u8>| node.unwrap_or(0);
        let (hosts, switches) = divider.placed.split_at(topology.host_count());
        Parts {
            hosts: hosts.iter().map(part).collect(),
            switches: switches.iter().map(part).collect(),
            count,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn of_host(&self, host: HostId) -> usize {
        usize::from(self.hosts[host.index()])
    }

    #[inline]
    pub(crate) fn of_switch(&self, switch: SwitchId) -> usize {
        usize::from(self.switches[switch.index()])
    }

    #[inline]
    pub(crate) fn of(&self, node: Node) -> usize {
        match node {
            Node::Host(host) => self.of_host(host),
            Node::Switch(switch) => self.of_switch(switch),
        }
    }

    /// The ports with cables that lead to another part.
    pub(crate) fn cut<'a>(&'a self, topology: &'a Topology) -> impl Iterator<Item = PortId> + 'a {
        topology.ports().filter(|&port| {
            self.of(topology.node_at(port)) != self.of(topology.node_at(port.peer()))
        })
    }

    /// What the shortest cable between two parts takes; `None` if there is no cable.
    pub(crate) fn shortest(&self, topology: &Topology) -> Option<Span> {
        let delays = self.cut(topology).map(|port| topology.link_at(port).delay);
        delays.min()
    }
}

/// A network that is being divided. Nodes are by number: hosts, then switches.
struct Divider {
    placed: Vec<Option<u8>>,
    work: Vec<u64>,
    load: Vec<u64>,
    /// By switch.
    hosts: Vec<Vec<usize>>,
    /// By switch: the switches at its cables.
    neighbours: Vec<Vec<usize>>,
}

impl Divider {
    fn new(topology: &Topology, count: usize) -> Divider {
        let hosts = topology.host_count();
        let nodes = hosts + topology.switch_count();
        let mut divider = Divider {
            placed: vec![None; nodes],
            work: vec![0; nodes],
            load: vec![0; count],
            hosts: vec![Vec::new(); topology.switch_count()],
            neighbours: vec![Vec::new(); topology.switch_count()],
        };
        let mut has_switch = vec![false; hosts];
        for port in topology.ports() {
            match (topology.node_at(port), topology.node_at(port.peer())) {
                (Node::Host(host), other) => {
                    divider.work[host.index()] += HOST_WORK;
                    let is_first = !core::mem::replace(&mut has_switch[host.index()], true);
                    if let (Node::Switch(switch), true) = (other, is_first) {
                        divider.hosts[switch.index()].push(host.index());
                    }
                }
                (Node::Switch(switch), other) => {
                    divider.work[hosts + switch.index()] += 1;
                    if let Node::Switch(other) = other {
                        divider.neighbours[switch.index()].push(other.index());
                    }
                }
            }
        }
        divider
    }

    fn first_switch(&self) -> usize {
        self.placed.len() - self.hosts.len()
    }

    /// What a part should have.
    fn share(&self) -> u64 {
        let all: u64 = self.work.iter().sum();
        all.div_ceil(self.load.len() as u64)
    }

    fn place(&mut self, node: usize, part: usize) {
        self.placed[node] = Some(part as u8);
        self.load[part] += self.work[node];
    }

    /// Hosts, with the switches that they are at, one after the other: neighbours mostly have near numbers.
    fn place_edges(&mut self) {
        let first_switch = self.first_switch();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let share = self.share();
        for (switch, hosts) in self.hosts.iter().enumerate().filter(|(_, h)| !h.is_empty()) {
            let all = hosts.iter().copied().chain([first_switch + switch]);
            let work: u64 = all.clone().map(|node| self.work[node]).sum();
            if 2 * work <= share {
                groups.push(all.collect());
            } else {
                groups.extend(all.map(|node| vec![node]));
            }
        }
        let mut at_switch = vec![false; first_switch];
        for &host in self.hosts.iter().flatten() {
            at_switch[host] = true;
        }
        let others = (0..first_switch).filter(|&host| !at_switch[host]);
        groups.extend(others.map(|host| vec![host]));
        let work = |group: &Vec<usize>| group.iter().map(|&node| self.work[node]).sum::<u64>();
        let all: u64 = groups.iter().map(work).sum();
        let parts = self.load.len() as u64;
        let mut before = 0;
        let mut places = Vec::new();
        for group in &groups {
            let work = work(group);
            // By its middle: the part in which most of it would be.
            places.push(((2 * before + work) * parts / (2 * all.max(1))).min(parts - 1));
            before += work;
        }
        for (group, place) in groups.into_iter().zip(places) {
            for node in group {
                self.place(node, place as usize);
            }
        }
    }

    /// Switches without hosts: with most of their neighbours, if that part has room.
    fn place_others(&mut self) {
        let first = self.first_switch();
        let room = self.share() + self.share() / 32;
        loop {
            let is_open = |switch: &usize| self.placed[first + switch].is_none();
            let open: Vec<usize> = (0..self.hosts.len()).filter(is_open).collect();
            if open.is_empty() {
                return;
            }
            let before = self.placed.clone();
            let mut has_placed = false;
            for switch in open {
                let mut cables = vec![0usize; self.load.len()];
                for &neighbour in &self.neighbours[switch] {
                    if let Some(part) = before[first + neighbour] {
                        cables[usize::from(part)] += 1;
                    }
                }
                let work = self.work[first + switch];
                let has_room = |part: &usize| self.load[*part] + work <= room;
                let wanted = |part: &usize| (cables[*part], core::cmp::Reverse(self.load[*part]));
                let parts = 0..self.load.len();
                let best = parts.clone().filter(has_room).max_by_key(wanted);
                let least = parts.min_by_key(|&part| self.load[part]);
                if cables.iter().any(|&count| count > 0)
                    && let Some(part) = best.or(least)
                {
                    self.place(switch + first, part);
                    has_placed = true;
                }
            }
            if !has_placed {
                // They are of no network with hosts.
                for switch in 0..self.hosts.len() {
                    if self.placed[first + switch].is_none() {
                        self.place(first + switch, 0);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rate;
    use crate::link::Link;

    fn work_of(topology: &Topology, parts: &Parts) -> Vec<u64> {
        let mut work = vec![0; parts.count()];
        for port in topology.ports() {
            let node = topology.node_at(port);
            let is_host = matches!(node, Node::Host(_));
            work[parts.of(node)] += if is_host { HOST_WORK } else { 1 };
        }
        work
    }

    #[test]
    fn parts_have_equal_work_and_few_cables_between_them() {
        let link = Link::new(Rate::gbps(100));
        for (topology, count, cut) in [
            (Topology::fat_tree(8, link, link), 2, 128),
            (Topology::fat_tree(16, link, link), 2, 1024),
            (Topology::fat_tree(16, link, link), 4, 1600),
            (Topology::leaf_spine(8, 4, 8, link, link), 2, 32),
            (Topology::single_switch(33, link), 2, 40),
            (Topology::ring(9, 2, link, link), 3, 3),
        ] {
            let parts = Parts::new(&topology, count);
            let work = work_of(&topology, &parts);
            let (most, least) = (work.iter().max(), work.iter().min());
            let (most, least) = (most.copied().unwrap_or(0), least.copied().unwrap_or(0));
            assert!(most * 4 <= least * 5, "{work:?}");
            let cables = parts.cut(&topology).count() / 2;
            assert!(cables <= cut, "{cables} cables of {count} parts");
        }
    }

    #[test]
    fn more_parts_than_nodes_are_empty() {
        let topology = Topology::back_to_back(Link::new(Rate::gbps(100)));
        let parts = Parts::new(&topology, 5);
        assert_eq!(parts.cut(&topology).count(), 2);
        let shortest = parts.shortest(&topology);
        assert_eq!(shortest, Some(Span::of_cable(2)));
        assert_eq!(Parts::new(&topology, 1).shortest(&topology), None);
    }
}
