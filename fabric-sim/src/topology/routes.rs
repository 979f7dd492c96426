//! Routes: every shortest path, and a hash to choose among them.

use core::ops::Range;
use core::slice::from_ref;
use std::collections::{BTreeMap, VecDeque};

use crate::topology::{HostId, Node, PortId, SwitchId, Topology};

/// Next hops by switch and destination.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    hosts: usize,
    /// By switch and host.
    table: Vec<Next>,
    /// The same to a certain port of a host, if hosts have one on each of several rails: by switch, host and port.
    to_rails: Vec<Next>,
    /// Ports that a host has at most.
    rails: usize,
    /// Sets of ports of equal cost: where each is in `ports`. The first is empty.
    sets: Vec<Range<u32>>,
    ports: Vec<PortId>,
    known: BTreeMap<Box<[PortId]>, Next>,
}

/// Where a switch sends frames on: the one port that leads there, as its number; or a set of several or none.
///
/// Most entries of a large table are in no cache. With the port in the entry itself nothing more need be looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next(PortId);

impl Next {
    /// Of the numbers of sets.
    const IS_SET: u32 = 1 << 31;
    const NOWHERE: Next = Next(PortId(Next::IS_SET));

    /// The set that it is, by number.
    #[inline]
    fn set(self) -> Option<usize> {
        (self.0.0 & Next::IS_SET != 0).then_some((self.0.0 & !Next::IS_SET) as usize)
    }
}

/// Ports that lead nearer to a switch, and how far it is.
#[derive(Clone, Copy, Debug)]
struct Towards {
    next: Next,
    distance: u32,
}

impl Routes {
    /// All shortest paths. Hosts forward nothing; ports in `down` are not used.
    pub fn shortest(topology: &Topology, is_down: impl Fn(PortId) -> bool) -> Routes {
        let mut routes = Routes {
            hosts: topology.host_count(),
            table: vec![Next::NOWHERE; topology.host_count() * topology.switch_count()],
            ..Routes::default()
        };
        routes.intern(Box::default());
        let mut count = vec![0; topology.host_count()];
        let mut neighbours = vec![Vec::new(); topology.switch_count()];
        let mut attached = vec![Vec::new(); topology.host_count()];
        for port in topology.ports() {
            match (topology.node_at(port), topology.node_at(port.peer())) {
                (Node::Switch(from), Node::Switch(to)) if !is_down(port) => {
                    neighbours[from.index()].push((port, to));
                }
                (Node::Switch(from), Node::Host(host)) => {
                    let rail: &mut usize = &mut count[host.index()];
                    if !is_down(port) {
                        attached[host.index()].push((from, port, *rail));
                    }
                    *rail += 1;
                }
                _ => {}
            }
        }
        // Hosts on one switch have all but the last hop in common.
        let mut by_edge: BTreeMap<SwitchId, Vec<Towards>> = BTreeMap::new();
        for host in topology.hosts() {
            // Of several ports of a host the nearest counts. In most networks with several a switch has a way to one of them only.
            let mut nearest = vec![u32::MAX; topology.switch_count()];
            for &(edge, port, _) in &attached[host.index()] {
                let towards = by_edge
                    .entry(edge)
                    .or_insert_with(|| routes.towards(edge, &neighbours));
                for (switch, towards) in towards.iter().enumerate() {
                    let near = &mut nearest[switch];
                    if towards.distance < *near {
                        *near = towards.distance;
                        *routes.entry(switch, host) = towards.next;
                    } else if towards.distance == *near && *near != u32::MAX {
                        routes.add(switch, host, towards.next);
                    }
                }
                let mut ports = vec![port];
                if nearest[edge.index()] == 0 {
                    ports.extend(routes.next(edge, host));
                }
                routes.set(edge, host, &ports);
            }
        }
        if topology.has_rails() {
            routes.rails = count.iter().copied().max().unwrap_or(0);
            routes.add_rails(&attached, &by_edge);
        }
        routes
    }

    /// The ways to each port of each host.
    fn add_rails(
        &mut self,
        attached: &[Vec<(SwitchId, PortId, usize)>],
        by_edge: &BTreeMap<SwitchId, Vec<Towards>>,
    ) {
        let rails = self.rails;
        self.to_rails = vec![Next::NOWHERE; self.table.len() * rails];
        for (host, ports) in attached.iter().enumerate() {
            for &(edge, port, rail) in ports {
                let last = self.intern([port].into());
                for (switch, towards) in by_edge[&edge].iter().enumerate() {
                    let is_edge = towards.distance == 0;
                    self.to_rails[(switch * self.hosts + host) * rails + rail] =
                        if is_edge { last } else { towards.next };
                }
            }
        }
    }

    /// Ports are as good as those that there are.
    fn add(&mut self, switch: usize, host: HostId, next: Next) {
        let mut ports = self.next(SwitchId(switch as u32), host).to_vec();
        let old = ports.len();
        for port in self.ports(&next) {
            if !ports[..old].contains(port) {
                ports.push(*port);
            }
        }
        *self.entry(switch, host) = self.intern(ports.into());
    }

    fn entry(&mut self, switch: usize, host: HostId) -> &mut Next {
        &mut self.table[switch * self.hosts + host.index()]
    }

    #[inline]
    fn ports<'a>(&'a self, next: &'a Next) -> &'a [PortId] {
        match next.set() {
            None => from_ref(&next.0),
            Some(set) => {
                let Range { start, end } = self.sets[set];
                &self.ports[start as usize..end as usize]
            }
        }
    }

    /// The ports that lead towards a host.
    #[inline]
    pub fn next(&self, switch: SwitchId, host: HostId) -> &[PortId] {
        if host.index() >= self.hosts {
            return &[];
        }
        self.ports(&self.table[switch.index() * self.hosts + host.index()])
    }

    /// The ports that lead towards the port of a host with this number, counted from 1; towards the nearest if it is 0, or if none does.
    #[inline]
    pub(crate) fn next_on(&self, switch: SwitchId, host: HostId, rail: u8) -> &[PortId] {
        let rail = usize::from(rail);
        if rail == 0 || rail > self.rails {
            return self.next(switch, host);
        }
        let place = (switch.index() * self.hosts + host.index()) * self.rails + rail - 1;
        match &self.to_rails[place] {
            &Next::NOWHERE => self.next(switch, host),
            next => self.ports(next),
        }
    }

    /// Overrides the routes of a switch to a host, whichever of its ports they lead to: for fixed paths, and for loops on purpose.
    pub fn set(&mut self, switch: SwitchId, host: HostId, ports: &[PortId]) {
        *self.entry(switch.index(), host) = self.intern(ports.into());
        if !self.to_rails.is_empty() {
            let first = (switch.index() * self.hosts + host.index()) * self.rails;
            self.to_rails[first..first + self.rails].fill(Next::NOWHERE);
        }
    }

    /// By switch: what leads nearer to the switch `edge`.
    fn towards(&mut self, edge: SwitchId, neighbours: &[Vec<(PortId, SwitchId)>]) -> Vec<Towards> {
        let mut distance = vec![u32::MAX; neighbours.len()];
        distance[edge.index()] = 0;
        let mut queue = VecDeque::from([edge]);
        while let Some(at) = queue.pop_front() {
            for &(_, next) in &neighbours[at.index()] {
                if distance[next.index()] == u32::MAX {
                    distance[next.index()] = distance[at.index()] + 1;
                    queue.push_back(next);
                }
            }
        }
        let nearer = |from: usize, to: SwitchId| {
            distance[to.index()] != u32::MAX && distance[to.index()] + 1 == distance[from]
        };
        (0..neighbours.len())
            .map(|from| {
                let ports = neighbours[from].iter().filter(|(_, to)| nearer(from, *to));
                Towards {
                    next: self.intern(ports.map(|&(port, _)| port).collect()),
                    distance: distance[from],
                }
            })
            .collect()
    }

    fn intern(&mut self, set: Box<[PortId]>) -> Next {
        if let [only] = *set {
            return Next(only);
        }
        if let Some(&known) = self.known.get(&set) {
            return known;
        }
        let count = |len| u32::try_from(len).expect("sets of ports take memory");
        let next = Next(PortId(Next::IS_SET | count(self.sets.len())));
        let start = count(self.ports.len());
        self.ports.extend_from_slice(&set);
        self.sets.push(start..count(self.ports.len()));
        self.known.insert(set, next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rate;
    use crate::link::Link;

    #[test]
    fn every_hop_leads_nearer_and_all_equal_ones_are_there() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::fat_tree(4, link, link);
        let routes = Routes::shortest(&t, |_| false);
        let Some(Node::Switch(edge)) = t.find("edge0.0") else {
            panic!("named so")
        };
        assert_eq!(routes.next(edge, HostId(0)).len(), 1, "its own host");
        assert_eq!(
            routes.next(edge, HostId(15)).len(),
            2,
            "both aggregation switches"
        );
        for host in t.hosts() {
            // Follow the last of the choices: at most 5 switches to anywhere.
            let mut at = edge;
            let hops = (1..=5).find(|_| {
                let port = *routes.next(at, host).last().expect("a way");
                match t.node_at(port.peer()) {
                    Node::Host(there) => there == host,
                    Node::Switch(next) => {
                        at = next;
                        false
                    }
                }
            });
            assert!(hops.is_some(), "{host:?}");
        }
    }

    #[test]
    fn each_port_of_a_host_on_rails_has_a_way_of_its_own() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::rails(3, 2, 2, 2, link, link);
        let switch = |name| match t.find(name) {
            Some(Node::Switch(switch)) => switch,
            _ => panic!("named so"),
        };
        let leads_to = |routes: &Routes, from, rail| -> Vec<String> {
            let ports = routes.next_on(switch(from), HostId(3), rail).iter();
            let node = |port: &PortId| t.name(t.node_at(port.peer())).to_owned();
            ports.map(node).collect()
        };
        let routes = Routes::shortest(&t, |_| false);
        for rail in [1, 2, 3] {
            assert_eq!(leads_to(&routes, "leaf0.r1", rail), ["spine0", "spine1"]);
            let last = format!("leaf1.r{}", rail - 1);
            assert_eq!(leads_to(&routes, "spine1", rail), [last]);
        }
        assert_eq!(leads_to(&routes, "leaf1.r2", 3), ["h3"]);
        assert_eq!(leads_to(&routes, "leaf1.r2", 1), ["spine0", "spine1"]);
        assert_eq!(leads_to(&routes, "leaf1.r2", 0), ["h3"], "the nearest");
        // Without its cable, and with another way to the host.
        let cut = t
            .port_between(switch("leaf1.r2"), HostId(3))
            .expect("there");
        let routes = Routes::shortest(&t, |p| p == cut || p == cut.peer());
        assert_eq!(leads_to(&routes, "leaf1.r2", 3), ["spine0", "spine1"]);
        assert_eq!(leads_to(&routes, "spine0", 3), ["leaf1.r0", "leaf1.r1"]);
        assert_eq!(leads_to(&routes, "spine0", 2), ["leaf1.r1"]);
    }

    #[test]
    fn without_the_cable_there_is_another_way_or_none() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::leaf_spine(2, 2, 1, link, link);
        let (Some(Node::Switch(leaf)), Some(spine)) = (t.find("leaf0"), t.find("spine0")) else {
            panic!("named so")
        };
        let port = t.port_between(leaf, spine).expect("connected");
        let routes = Routes::shortest(&t, |p| p == port || p == port.peer());
        assert_eq!(routes.next(leaf, HostId(1)).len(), 1);
        let cut = Routes::shortest(&t, |p| t.node_at(p) == Node::Switch(leaf));
        assert!(cut.next(leaf, HostId(1)).is_empty());
    }
}
