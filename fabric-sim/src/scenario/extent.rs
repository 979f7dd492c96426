//! How large a topology may be: more is a mistake in the file, and would take all memory before anything runs.

use super::ScenarioError;
use super::file::Shape;

const HOSTS_MAX: u64 = 32_768;
const CABLES_MAX: u64 = 1 << 20;
/// Routes at most: each switch has one to each host.
const ROUTES_MAX: u64 = 1 << 26;

/// Hosts, switches, and cables between switches. None of the numbers overflows: counts have 16 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    hosts: u64,
    switches: u64,
    between: u64,
    planes: u64,
    /// Routes of a switch to a host.
    ways: u64,
}

impl Extent {
    /// What a shape comes to, before it is built.
    pub(super) fn of(shape: &Shape) -> Extent {
        let mut ways = 1;
        let (hosts, switches, between) = match shape {
            Shape::SingleSwitch { hosts } => (hosts.0.into(), 1, 0),
            Shape::BackToBack {} => (2, 0, 1),
            Shape::Dumbbell { left, right } => (u64::from(left.0) + u64::from(right.0), 2, 1),
            Shape::ParkingLot(row) | Shape::Ring(row) => {
                let switches = u64::from(row.switches.0);
                let hosts = switches * u64::from(row.hosts_per_switch.0);
                (hosts, switches, switches)
            }
            Shape::LeafSpine {
                leaves,
                spines,
                hosts_per_switch,
            } => {
                let (leaves, spines) = (u64::from(leaves.0), u64::from(spines.0));
                let hosts = leaves * u64::from(hosts_per_switch.0);
                (hosts, leaves + spines, leaves * spines)
            }
            Shape::Rails {
                rails,
                groups,
                spines,
                hosts_per_switch,
            } => {
                let (rails, groups) = (u64::from(rails.0), u64::from(groups.0));
                let spines = u64::from(spines.0);
                let hosts = groups * u64::from(hosts_per_switch.0);
                // One to each port, and to the nearest.
                ways = rails + 1;
                let leaves = groups * rails;
                let between = leaves * spines + hosts * (rails - 1);
                (hosts, leaves + spines, between)
            }
            Shape::FatTree { k } => {
                let half = u64::from(k.0) / 2;
                let cubed = half * half * half;
                (2 * cubed, 5 * half * half, 4 * cubed)
            }
            Shape::Dragonfly {
                routers,
                hosts_per_switch,
                global,
            } => {
                let (routers, global) = (u64::from(routers.0), u64::from(global.0));
                let groups = routers * global + 1;
                let switches = groups * routers;
                let within = groups * routers * (routers - 1) / 2;
                let between = within + groups * (groups - 1) / 2;
                (switches * u64::from(hosts_per_switch.0), switches, between)
            }
            Shape::Edges { edges } => (
                edges.host_count() as u64,
                edges.switch_count() as u64,
                edges.cables().len() as u64,
            ),
        };
        Extent {
            hosts,
            switches,
            between,
            planes: 1,
            ways,
        }
    }

    /// So many times all but the hosts.
    pub(super) fn planes(self, count: u32) -> Extent {
        let planes = u64::from(count);
        Extent { planes, ..self }
    }

    /// # Errors
    /// It is too large.
    pub(super) fn check(self) -> Result<(), ScenarioError> {
        for (count, what, max) in [
            (self.hosts, "hosts", HOSTS_MAX),
            (
                (self.hosts + self.between) * self.planes,
                "cables",
                CABLES_MAX,
            ),
            (
                self.hosts * self.switches * self.planes * self.ways,
                "routes (hosts times switches)",
                ROUTES_MAX,
            ),
        ] {
            if count > max {
                let fault = format!("it has {count} {what}: at most {max}");
                return Err(ScenarioError::value("topology", fault));
            }
        }
        Ok(())
    }
}
