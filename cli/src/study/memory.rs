//! What peers cost in memory, by the ways to have many of them, and in time to connect.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use urxe::cm::{ConnectBuilder, listen};
use urxe::{AddressVector, RecvWr, SendWr, SrqAttr};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::child::{json, number};
use super::lab::{Port, join, joined, memory};
use crate::error::{CliError, Context as _};
use crate::resident::resident;
use crate::station::Station;
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER};

pub(super) const STUDY: Study = Study {
    name: "memory",
    question: "What does a process pay for each peer that it may hear from, in memory and in time to connect?",
    claims: &[
        Claim {
            document: Document::Critique,
            says: "a queue pair for each peer, N - 1 in each process, each with receives of its own: memory grows linearly and comes to several GB at scale. \
                   A shared receive queue flattens the curve.",
        },
        Claim {
            document: Document::Critique,
            says: "to connect when a peer is first needed saves what programs with few partners do not use.",
        },
    ],
    measure,
};

/// Receives of a queue pair with a queue of its own, and of a queue that all share; bytes of each.
const OWN: usize = 16;
const SHARED: usize = 512;
const LEN: usize = 4096;
/// Processes of a host, to each of which one queue pair of XRC leads.
const PROCESSES: usize = 8;

const WAYS: [(&str, &str); 4] = [
    ("rc", "RC, own receives"),
    ("srq", "RC, shared receives"),
    ("xrc", "XRC, 8 processes a host"),
    ("ud", "UD"),
];

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let counts: &[usize] = effort.pick(&[16, 64], &[16, 64, 256, 1024, 4096]);
    let mut columns = vec!["peers"];
    columns.extend(WAYS.map(|(_, name)| name));
    let title = format!(
        "KiB that a process grew by, with {OWN} receives of {LEN} bytes for each queue, or {SHARED} that all share"
    );
    let mut grid = Grid::new(title, &columns);
    let mut curves: [Vec<(f64, f64)>; WAYS.len()] = Default::default();
    for &peers in counts {
        let mut cells = vec![Cell::Number(peers as f64, 0)];
        for (curve, (way, _)) in curves.iter_mut().zip(WAYS) {
            // A process of its own: what another way has left would count.
            let part = format!("{way}:{peers}");
            let kib = number(&json(&["study", "memory", "--part", &part])?, "bytes")? / 1024.0;
            curve.push((peers as f64, kib));
            cells.push(Cell::Number(kib, 0));
        }
        grid.row(cells);
    }
    let (connecting, each_us) = connecting(effort)?;
    let last = |way: usize| curves[way].last().map_or(0.0, |point| point.1);
    let most = counts[counts.len() - 1];
    let follows = vec![
        format!(
            "With receives of its own a peer costs {:.1} KiB here, of which {} KiB are the receives; {most} peers cost {:.0} MiB, and a million, as the critique counts them, \
             {:.0} GB: it grows as the critique says.",
            last(0) / most as f64,
            OWN * LEN / 1024,
            last(0) / 1024.0,
            last(0) * 1024.0 / most as f64 / 1e3
        ),
        format!(
            "A shared queue makes that {:.1} KiB a peer: what is left is the queue pair. XRC divides these by the processes of a host, and UD has one for all ({:.0} KiB \
             with {most} peers).",
            last(1) / most as f64,
            last(3)
        ),
        format!(
            "A connection takes {each_us:.0} us. A program that talks to 10 of {most} peers is ready {:.0} times sooner if it connects when it needs to, and has \
             {:.2} % of the memory.",
            most as f64 / 10.0,
            1000.0 / most as f64
        ),
    ];
    let series = WAYS.iter().zip(curves);
    let series = series
        .map(|((_, name), points)| Series::new(*name, points))
        .collect();
    let picture = Picture {
        name: "memory".to_owned(),
        title: "Memory of a process by its peers".to_owned(),
        x: "peers".to_owned(),
        y: "KiB".to_owned(),
        kind: Kind::Curves,
        series,
    };
    Ok(Findings {
        tables: vec![grid, connecting],
        pictures: vec![picture],
        follows,
        lacks: Vec::new(),
    })
}

/// Time to make so many connections by address, one after the other, and the time of one.
fn connecting(effort: &Effort) -> Result<(Grid, f64), CliError> {
    let mut grid = Grid::new(
        "Connections by address, one after the other, both ends in one process",
        &["connections", "ms", "us each"],
    );
    let mut each = 0.0;
    for &count in effort.pick(&[8usize][..], &[16, 64, 256, 1024]) {
        let ms = connect(count)?;
        each = 1e3 * ms / count as f64;
        grid.row(vec![
            Cell::Number(count as f64, 0),
            Cell::Number(ms, 1),
            Cell::Number(each, 0),
        ]);
    }
    Ok((grid, each))
}

/// Milliseconds for so many.
fn connect(count: usize) -> Result<f64, CliError> {
    let what = "cannot connect by address";
    let listener = listen(SocketAddr::new(LOOPBACK_SERVER, 0)).context(what)?;
    let to = listener.local_addr();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let accepted = (0..count).map(|_| listener.accept());
            accepted.collect::<Result<Vec<_>, _>>().context(what)
        });
        let start = Instant::now();
        let made = (0..count).map(|_| {
            let from = SocketAddr::new(LOOPBACK_CLIENT, 0);
            ConnectBuilder::new(to).from(from).connect()
        });
        let made = made.collect::<Result<Vec<_>, _>>().context(what)?;
        let accepted = joined(server)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        drop((made, accepted));
        Ok(ms)
    })
}

/// `urxe study memory --part WAY:PEERS`: what one way costs, in this process.
pub(super) fn part(text: &str) -> Result<u64, CliError> {
    let bad = || CliError::Usage(format!("{text} is no part of the study"));
    let (way, peers) = text.split_once(':').ok_or_else(bad)?;
    let peers: usize = peers.parse().map_err(|_| bad())?;
    let station = Station::open(LOOPBACK_CLIENT, None)?;
    // What the first queue pair brings is there before.
    let first = [Port::new(&station, |qp| qp)?, Port::new(&station, |qp| qp)?];
    join(&first[0].qp, &first[1].qp)?;
    let before = resident()?;
    let kept = match way {
        "rc" => own(&station, peers)?,
        "srq" => shared(&station, peers)?,
        "xrc" => domains(&station, peers)?,
        "ud" => datagrams(&station, peers)?,
        _ => return Err(bad()),
    };
    let bytes = resident()?.saturating_sub(before);
    drop(kept);
    Ok(bytes)
}

/// What has to live until it was measured.
type Kept = Box<dyn std::any::Any>;

/// Receives of these bytes, in memory that is touched.
fn receives(
    station: &Station,
    count: usize,
    post: &mut dyn FnMut(&RecvWr<'_>) -> Result<(), urxe::Error>,
) -> Result<urxe::Mr, CliError> {
    let mr = memory(station, count * LEN)?;
    for n in 0..count {
        mr.write(n * LEN, &[1]);
        let sges = [mr.sge(n * LEN..(n + 1) * LEN)];
        post(&RecvWr::new(n as u64, &sges)).context("cannot post a receive")?;
    }
    Ok(mr)
}

/// So many queue pairs, connected two by two; both of a pair stand for a peer each.
fn pairs(
    peers: usize,
    mut make: impl FnMut() -> Result<urxe::Qp, urxe::Error>,
) -> Result<Vec<urxe::Qp>, CliError> {
    let qps = (0..peers.next_multiple_of(2)).map(|_| make());
    let qps = qps
        .collect::<Result<Vec<_>, _>>()
        .context("cannot create a queue pair")?;
    qps.chunks(2)
        .try_for_each(|pair| join(&pair[0], &pair[1]))?;
    Ok(qps)
}

fn own(station: &Station, peers: usize) -> Result<Kept, CliError> {
    let cq = station.context.create_cq(1024).context("no queue")?;
    let builder = station.pd.qp(&cq).max_send_wr(OWN as u32);
    let builder = builder.max_recv_wr(OWN as u32).max_sge(1);
    let qps = pairs(peers, || builder.clone().create())?;
    let buffers = qps
        .iter()
        .map(|qp| receives(station, OWN, &mut |wr| qp.post_recv(wr)));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new((cq.clone(), qps, buffers)))
}

fn shared(station: &Station, peers: usize) -> Result<Kept, CliError> {
    let cq = station.context.create_cq(1024).context("no queue")?;
    let srq = station
        .pd
        .create_srq(&shared_attr())
        .context("no shared queue")?;
    let builder = station
        .pd
        .qp(&cq)
        .max_send_wr(OWN as u32)
        .max_sge(1)
        .srq(&srq);
    let qps = pairs(peers, || builder.clone().create())?;
    let buffers = receives(station, SHARED, &mut |wr| srq.post_recv(wr))?;
    Ok(Box::new((cq.clone(), qps, buffers, srq.clone())))
}

fn domains(station: &Station, peers: usize) -> Result<Kept, CliError> {
    let what = "cannot create what XRC needs";
    let cq = station.context.create_cq(1024).context(what)?;
    let domain = station.context.open_xrcd().context(what)?;
    let srq = domain
        .create_srq(&station.pd, &cq, &shared_attr())
        .context(what)?;
    let builder = station
        .pd
        .qp(&cq)
        .max_send_wr(OWN as u32)
        .max_sge(1)
        .xrc_send();
    let mut kept = Vec::new();
    for _ in 0..peers.div_ceil(PROCESSES) {
        let from = builder.clone().create().context(what)?;
        let to = domain.create_target().context(what)?;
        join(&from, &to)?;
        kept.push((from, to));
    }
    let buffers = receives(station, SHARED, &mut |wr| srq.post_recv(wr))?;
    Ok(Box::new((kept, buffers, srq)))
}

fn datagrams(station: &Station, peers: usize) -> Result<Kept, CliError> {
    let what = "cannot create what datagrams need";
    let port = Port::new(station, |qp| {
        qp.qp_type(urxe::QpType::Ud).max_recv_wr(SHARED as u32)
    })?;
    port.qp.start_datagrams(urxe::Qkey(7)).context(what)?;
    let local = station.context.address();
    let path = AddressVector {
        local,
        remote: LOOPBACK_SERVER,
        traffic_class: 0,
        hop_limit: 64,
    };
    let ways = (0..peers).map(|_| station.pd.create_ah(&path));
    let ways = ways.collect::<Result<Vec<_>, _>>().context(what)?;
    let buffers = receives(station, SHARED, &mut |wr| port.qp.post_recv(wr))?;
    // One is used, so that what a path needs is there.
    let wr = SendWr::send_inline(1, b"x").signaled();
    let sent = port
        .qp
        .post_send(&wr.ud_addr(&ways[0], urxe::Qpn::new(2), urxe::Qkey(7)));
    sent.context(what)?;
    port.done()?;
    Ok(Box::new((port.qp, ways, buffers)))
}

fn shared_attr() -> SrqAttr {
    SrqAttr {
        max_wr: SHARED as u32,
        max_sge: 1,
        srq_limit: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_that_each_peer_has_are_found_and_shared_ones_are_not() {
        // Rising counts: what the allocator kept of the one before does not hide the next.
        let few = part("rc:32").expect("runs");
        let many = part("rc:512").expect("runs");
        let planted = (512 - 32) * OWN * LEN;
        assert!(
            many > few && many - few > planted as u64 / 2,
            "{few} {many}"
        );
        for bad in ["rc", "rc:x", "nothing:7"] {
            assert!(matches!(part(bad), Err(CliError::Usage(_))), "{bad}");
        }
    }
}
