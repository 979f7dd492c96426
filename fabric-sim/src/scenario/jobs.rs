//! Builds the jobs of a scenario file.

use urxe_core::qp::attr::Mtu;

use crate::Sim;
use crate::engine::Time;
use crate::host::{ConnectOptions, JobSpec};
use crate::qos::Qos;
use crate::scenario::file::Scenario;
use crate::scenario::job_file::{ArrivalsTable, JobKind, JobTable, SizesFrom};
use crate::scenario::values::{Names, Repeat, Size};
use crate::scenario::{ScenarioError, host_of};
use crate::topology::{HostId, Topology};
use crate::workload::{
    Arriving, Collective, CollectiveKind, Goal, MESSAGE_MAX, Matrix, Sizes, Workload,
};

type Result<T> = core::result::Result<T, ScenarioError>;

/// Names the fields of one job.
struct At(u32);

impl At {
    fn fault(&self, name: &str, fault: impl core::fmt::Display) -> ScenarioError {
        ScenarioError::value(format!("job[{}].{name}", self.0), fault)
    }

    /// Hosts by their names, `all`, or a range like `h0..h15`, with both ends.
    fn hosts(&self, topology: &Topology, field: &str, names: &Names) -> Result<Vec<HostId>> {
        let mut hosts = Vec::new();
        for name in names.each() {
            let one = |name: &str| host_of(topology, name).map_err(|e| self.fault(field, e));
            match name.split_once("..") {
                None if name == "all" => hosts.extend(topology.hosts()),
                None => hosts.push(one(name)?),
                Some((first, last)) => {
                    let (first, last) = (one(first)?, one(last)?);
                    if first > last {
                        return Err(
                            self.fault(field, format!("{name}: the last is before the first"))
                        );
                    }
                    hosts.extend(topology.hosts().filter(|h| (first..=last).contains(h)));
                }
            }
        }
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(self.fault(field, "a host is named twice"));
        }
        Ok(hosts)
    }
}

impl Scenario {
    pub(super) fn add_job(&self, sim: &mut Sim, number: u32, table: &JobTable) -> Result<()> {
        let at = At(number);
        let topology = sim.fabric().topology();
        let hosts = match &table.hosts {
            Some(names) => at.hosts(topology, "hosts", names)?,
            None => topology.hosts().collect(),
        };
        let first = hosts.first();
        let rate = first.map(|&host| topology.link_at(topology.host_port(host)).rate);
        let rate = rate.ok_or_else(|| at.fault("hosts", "a job needs hosts"))?;
        let workload: Box<dyn Workload> = match &table.kind {
            JobKind::Matrix { file } => {
                let read = Matrix::parse(self.text_of(&at, "file", file)?);
                let matrix = read.map_err(|e| at.fault("file", format!("{file}: {e}")))?;
                let nodes = matrix.nodes() as usize;
                self.enough(&at, "nodes", nodes, &hosts)?;
                Box::new(matrix.on(&hosts))
            }
            JobKind::Goal { file } => {
                let read = Goal::parse(self.text_of(&at, "file", file)?);
                let goal = read.map_err(|e| at.fault("file", format!("{file}: {e}")))?;
                self.enough(&at, "ranks", goal.ranks(), &hosts)?;
                Box::new(goal.on(hosts))
            }
            JobKind::Arrivals(arrivals) => {
                let job = (sim.fabric().config().seed, number);
                Box::new(self.arrivals(&at, topology, arrivals, (job, rate, hosts))?)
            }
            kind => Box::new(collective(&at, kind, hosts)?),
        };
        let kind: &str = (&table.kind).into();
        let name = || format!("{kind} {number}");
        sim.add_job(JobSpec {
            name: table.name.clone().unwrap_or_else(name),
            start: Time::ZERO + table.start,
            options: ConnectOptions {
                tos: table.dscp.as_ref().map_or(Qos::ROCE_TOS, |dscp| dscp.0),
                mtu: table.mtu.as_ref().map_or(Mtu::Mtu1024, |mtu| mtu.0),
                ..self.file.host.options(table.cc, rate)?
            },
            workload,
        });
        Ok(())
    }

    fn text_of(&self, at: &At, field: &str, file: &str) -> Result<&str> {
        let text = self.texts.get(file).map(String::as_str);
        text.ok_or_else(|| at.fault(field, format!("the text of {file} was not given")))
    }

    fn enough(&self, at: &At, what: &str, count: usize, hosts: &[HostId]) -> Result<()> {
        let fault = || format!("it has {count} {what}, and the job {} hosts", hosts.len());
        match count <= hosts.len() {
            true => Ok(()),
            false => Err(at.fault("hosts", fault())),
        }
    }

    fn arrivals(
        &self,
        at: &At,
        topology: &Topology,
        table: &ArrivalsTable,
        (job, rate, hosts): ((u64, u32), crate::Rate, Vec<HostId>),
    ) -> Result<Arriving> {
        let sizes = match SizesFrom::of(&table.sizes) {
            SizesFrom::Known(sizes) => sizes,
            SizesFrom::File(file) => {
                let text = self.text_of(at, "sizes", file)?;
                let read = text.parse::<Sizes>();
                read.map_err(|e| at.fault("sizes", format!("{file}: {e}")))?
            }
        };
        if sizes.mean() == 0 || sizes.mean() > MESSAGE_MAX {
            return Err(at.fault("sizes", "messages have 1 byte to 2 GiB"));
        }
        let to = match &table.to {
            Some(names) => at.hosts(topology, "to", names)?,
            None => hosts.clone(),
        };
        let is_alone = |host: &HostId| to.iter().all(|other| other == host);
        if let Some(&host) = hosts.iter().find(|host| is_alone(host)) {
            let name = topology.name(host);
            return Err(at.fault("to", format!("{name} has no other host to send to")));
        }
        let stop = Time::ZERO + table.stop;
        Ok(Arriving::new(
            job,
            sizes,
            (rate, table.load.0),
            stop,
            (&hosts, to),
        ))
    }
}

fn collective(at: &At, kind: &JobKind, hosts: Vec<HostId>) -> Result<Collective> {
    let sizes = |lengths: &Vec<Vec<Size<u32>>>| {
        let row = |row: &Vec<Size<u32>>| row.iter().map(|size| size.0).collect();
        lengths.iter().map(row).collect()
    };
    let (kind, size, repeat, compute) = match kind {
        JobKind::AllReduce(t) => {
            let kind = CollectiveKind::AllReduce(t.algorithm);
            (kind, t.size.0, &t.repeat, t.compute)
        }
        JobKind::AllGather(t) => {
            let kind = CollectiveKind::AllGather(t.algorithm);
            (kind, t.size.0, &t.repeat, t.compute)
        }
        JobKind::ReduceScatter(t) => {
            let kind = CollectiveKind::ReduceScatter(t.algorithm);
            (kind, t.size.0, &t.repeat, t.compute)
        }
        JobKind::AllToAll(t) => {
            let (kind, size) = match (&t.size, &t.lengths) {
                (Some(size), None) => (CollectiveKind::AllToAll, size.0),
                (None, Some(lengths)) => (CollectiveKind::AllToAllV(sizes(lengths)), 0),
                _ => return Err(at.fault("size", "an all-to-all has a size, or lengths")),
            };
            (kind, size, &t.repeat, t.compute)
        }
        JobKind::Broadcast(t) => (CollectiveKind::Broadcast, t.size.0, &t.repeat, t.compute),
        JobKind::Arrivals(_) | JobKind::Matrix { .. } | JobKind::Goal { .. } => {
            return Err(at.fault("kind", "no collective"));
        }
    };
    let collective = Collective::new(kind, hosts, size);
    let collective = collective.map_err(|error| at.fault("kind", error))?;
    let Repeat(times) = repeat;
    Ok(collective.repeat(*times).compute(compute))
}
