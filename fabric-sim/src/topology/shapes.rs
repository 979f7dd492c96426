//! The usual topologies.

use crate::link::Link;
use crate::topology::{HostId, Node, SwitchId, Topology};

/// # The usual shapes
///
/// Hosts are called `h0`, `h1` and so on.
impl Topology {
    /// `hosts` hosts on one switch, `s0`.
    pub fn single_switch(hosts: u32, link: Link) -> Topology {
        let mut t = Topology::new();
        let switch = t.add_switch("s0");
        t.add_hosts(switch, hosts, link);
        t
    }

    /// Two switches, `s0` and `s1`, with a cable between them and hosts on both: `h0` to
    /// `h(left-1)` on the first, the others on the second.
    pub fn dumbbell(left: u32, right: u32, edge: Link, middle: Link) -> Topology {
        let mut t = Topology::new();
        let (a, b) = (t.add_switch("s0"), t.add_switch("s1"));
        t.add_hosts(a, left, edge);
        t.add_hosts(b, right, edge);
        t.connect(a, b, middle);
        t
    }

    /// Switches `s0` to `s(n-1)` in a row, with `hosts` hosts on each: flows join and leave the row
    /// like cars from a parking lot.
    pub fn parking_lot(switches: u32, hosts: u32, edge: Link, middle: Link) -> Topology {
        let mut t = Topology::new();
        let row = t.add_row(switches, hosts, edge);
        for pair in row.windows(2) {
            t.connect(pair[0], pair[1], middle);
        }
        t
    }

    /// Switches in a ring, with `hosts` hosts on each.
    pub fn ring(switches: u32, hosts: u32, edge: Link, middle: Link) -> Topology {
        let mut t = Topology::new();
        let row = t.add_row(switches, hosts, edge);
        for (i, &switch) in row.iter().enumerate() {
            t.connect(switch, row[(i + 1) % row.len()], middle);
        }
        t
    }

    /// Leaves `leaf0`... with `hosts` hosts each, and spines `spine0`..., each connected to all leaves.
    pub fn leaf_spine(leaves: u32, spines: u32, hosts: u32, edge: Link, up: Link) -> Topology {
        let mut t = Topology::new();
        let spines = t.add_switches("spine", spines);
        for leaf in t.add_switches("leaf", leaves) {
            t.add_hosts(leaf, hosts, edge);
            for &spine in &spines {
                t.connect(leaf, spine, up);
            }
        }
        t
    }

    /// Rails that spines join: `groups` groups of `hosts` hosts, which have an adapter on each of `rails` rails. A rail has a leaf in each
    /// group, `leaf<group>.r<rail>`, and each leaf is connected to all spines, `spine0`...: within a group a rail is one switch, and between
    /// groups and between rails frames go over a spine.
    pub fn rails(
        rails: u32,
        groups: u32,
        spines: u32,
        hosts: u32,
        edge: Link,
        up: Link,
    ) -> Topology {
        let mut t = Topology::new();
        let spines = t.add_switches("spine", spines);
        for group in 0..groups {
            let leaves = t.add_switches(&format!("leaf{group}.r"), rails);
            let first = t.host_count();
            let hosts = (0..hosts as usize).map(|n| t.add_host(format!("h{}", first + n)));
            let hosts: Vec<HostId> = hosts.collect();
            for leaf in leaves {
                for &host in &hosts {
                    t.connect(host, leaf, edge);
                }
                for &spine in &spines {
                    t.connect(leaf, spine, up);
                }
            }
        }
        t.with_rails()
    }

    /// The fat tree of switches with `k` ports (Al-Fares et al.): k pods of k/2 edge and k/2 aggregation
    /// switches, (k/2)^2 cores, k^3/4 hosts. `edge` is the link of a host, `up` each link between switches: from edge to aggregation
    /// switches, and from those to the cores.
    ///
    /// # Panics
    /// If `k` is odd or zero.
    pub fn fat_tree(k: u32, edge: Link, up: Link) -> Topology {
        assert!(
            k > 0 && k.is_multiple_of(2),
            "a fat tree has an even number of ports a switch"
        );
        let half = k / 2;
        let mut t = Topology::new();
        let cores = t.add_switches("core", half * half);
        for pod in 0..k {
            let aggregation = t.add_switches(&format!("agg{pod}."), half);
            for switch in t.add_switches(&format!("edge{pod}."), half) {
                t.add_hosts(switch, half, edge);
                for &agg in &aggregation {
                    t.connect(switch, agg, up);
                }
            }
            for (&agg, cores) in aggregation.iter().zip(cores.chunks(half as usize)) {
                for &core in cores {
                    t.connect(agg, core, up);
                }
            }
        }
        t
    }

    /// A dragonfly (Kim et al.): groups of `routers` switches, each connected to all others of its group, to `hosts` hosts and
    /// by `global` cables to other groups. As many groups as can be: each pair of them has one cable. Switches are `g<group>.<n>`.
    pub fn dragonfly(routers: u32, hosts: u32, global: u32, edge: Link, up: Link) -> Topology {
        let mut t = Topology::new();
        let others = routers * global;
        let mut groups = Vec::new();
        for group in 0..=others {
            let switches = t.add_switches(&format!("g{group}."), routers);
            for (i, &switch) in switches.iter().enumerate() {
                t.add_hosts(switch, hosts, edge);
                for &before in &switches[..i] {
                    t.connect(before, switch, up);
                }
            }
            groups.push(switches);
        }
        // Cable n of a group leads to the n-th group behind it, and ends there at the cable that is as far from the last.
        for (from, switches) in groups.iter().enumerate() {
            for (n, to) in (from + 1..groups.len()).enumerate() {
                let back = others as usize - 1 - n;
                let ends = (n / global as usize, back / global as usize);
                t.connect(switches[ends.0], groups[to][ends.1], up);
            }
        }
        t
    }

    /// Two hosts and a cable.
    pub fn back_to_back(link: Link) -> Topology {
        let mut t = Topology::new();
        let (a, b) = (t.add_host("h0"), t.add_host("h1"));
        t.connect(a, b, link);
        t
    }

    /// The same network several times, with the same hosts: each host has a port in each plane. Switches of plane 1 are called
    /// `leaf0.p1`, and so on. So are rails built: an adapter of each host is in a network of its own.
    pub fn planes(self, count: u32) -> Topology {
        let mut t = self.clone();
        for plane in 1..count {
            let names = self.switches.iter().map(|name| format!("{name}.p{plane}"));
            let copies: Vec<SwitchId> = names.map(|name| t.add_switch(name)).collect();
            let copy = |node| match node {
                Node::Switch(switch) => copies[switch.index()].into(),
                host @ Node::Host(_) => host,
            };
            for cable in &self.cables {
                let (port, back) = t.connect(copy(cable.a), copy(cable.b), cable.link);
                t.set_rate(port, cable.link.rate);
                t.set_rate(back, cable.back.rate);
            }
        }
        t
    }

    /// The same network over cables that take frames of so many bytes, and have so many bit errors.
    pub(crate) fn of_quality(mut self, mtu: u32, bit_error_rate: f64) -> Topology {
        for cable in &mut self.cables {
            for link in [&mut cable.link, &mut cable.back] {
                (link.mtu, link.bit_error_rate) = (mtu, bit_error_rate);
            }
        }
        self
    }

    /// Adds hosts to a switch, numbered on from those that there are.
    pub fn add_hosts(&mut self, switch: SwitchId, count: u32, link: Link) -> Vec<HostId> {
        (0..count)
            .map(|_| {
                let host = self.add_host(format!("h{}", self.host_count()));
                self.connect(host, switch, link);
                host
            })
            .collect()
    }

    fn add_switches(&mut self, prefix: &str, count: u32) -> Vec<SwitchId> {
        let names = (0..count).map(|i| format!("{prefix}{i}"));
        names.map(|name| self.add_switch(name)).collect()
    }

    fn add_row(&mut self, switches: u32, hosts: u32, edge: Link) -> Vec<SwitchId> {
        let row = self.add_switches("s", switches);
        for &switch in &row {
            self.add_hosts(switch, hosts, edge);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::Rate;

    #[test]
    fn shapes_have_the_sizes_of_their_definitions() {
        let link = Link::new(Rate::gbps(100));
        let sizes = |t: &Topology| {
            t.check().expect("can be simulated");
            (t.host_count(), t.switch_count(), t.cables().len())
        };
        assert_eq!(sizes(&Topology::single_switch(5, link)), (5, 1, 5));
        assert_eq!(sizes(&Topology::dumbbell(2, 3, link, link)), (5, 2, 6));
        assert_eq!(sizes(&Topology::parking_lot(4, 1, link, link)), (4, 4, 7));
        assert_eq!(sizes(&Topology::ring(4, 1, link, link)), (4, 4, 8));
        assert_eq!(
            sizes(&Topology::leaf_spine(4, 2, 3, link, link)),
            (12, 6, 20)
        );
        assert_eq!(sizes(&Topology::fat_tree(4, link, link)), (16, 20, 48));
        assert_eq!(
            sizes(&Topology::fat_tree(16, link, link)),
            (1024, 320, 3072)
        );
        assert_eq!(sizes(&Topology::back_to_back(link)), (2, 0, 1));
        // 9 groups of 4: 72 cables to hosts, 6 in each group, 36 between groups.
        assert_eq!(
            sizes(&Topology::dragonfly(4, 2, 2, link, link)),
            (72, 36, 72 + 54 + 36)
        );
    }

    #[test]
    fn planes_share_their_hosts_and_nothing_else() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::leaf_spine(2, 2, 3, link, link).planes(4);
        t.check().expect("can be simulated");
        assert_eq!((t.host_count(), t.switch_count()), (6, 16));
        assert_eq!(t.cables().len(), 4 * 10);
        let names: Vec<&str> = t
            .host_ports(HostId(0))
            .map(|port| t.name(t.node_at(port.peer())))
            .collect();
        assert_eq!(names, ["leaf0", "leaf0.p1", "leaf0.p2", "leaf0.p3"]);
        assert!(t.planes(3).check().is_err(), "12 ports");
    }

    #[test]
    fn rails_have_a_leaf_in_each_group_and_spines_in_common() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::rails(4, 2, 3, 5, link, link);
        t.check().expect("can be simulated");
        assert_eq!((t.host_count(), t.switch_count()), (10, 3 + 8));
        assert_eq!(t.cables().len(), 10 * 4 + 8 * 3);
        let names: Vec<&str> = t
            .host_ports(HostId(7))
            .map(|port| t.name(t.node_at(port.peer())))
            .collect();
        assert_eq!(names, ["leaf1.r0", "leaf1.r1", "leaf1.r2", "leaf1.r3"]);
        assert!(t.has_rails());
    }

    #[test]
    fn each_pair_of_groups_of_a_dragonfly_has_a_cable_and_no_switch_more_than_its_share() {
        let link = Link::new(Rate::gbps(100));
        let t = Topology::dragonfly(4, 2, 2, link, link);
        let group = |node| match node {
            Node::Switch(switch) => Some((switch.index(), switch.index() / 4)),
            Node::Host(_) => None,
        };
        let mut pairs = BTreeSet::new();
        let mut global = [0; 36];
        for cable in t.cables() {
            let (Some((a, from)), Some((b, to))) = (group(cable.a), group(cable.b)) else {
                continue;
            };
            if from != to {
                assert!(pairs.insert((from.min(to), from.max(to))), "a second cable");
                global[a] += 1;
                global[b] += 1;
            }
        }
        assert_eq!(pairs.len(), 36);
        assert_eq!(global, [2; 36]);
        // Between 4 groups and the other 5 there are 20 cables, and so many hosts' worth of rate.
        let bisection = pairs.iter().filter(|(a, b)| *a < 4 && *b >= 4).count();
        assert_eq!(bisection, 20);
    }
}
