//! Messages that are copied on the way, and messages that wait for the receiver and are read from where they lie.

mod peers;

use std::time::{Duration, Instant};

use urxe::{Access, Mr, RecvWr, RemoteMr, SendWr};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study, about, bytes, crossing};
use super::chart::{Kind, Picture, Series};
use super::lab::{Lab, Port, compute, cost, memory};
use crate::error::{CliError, Context as _};
use crate::samples::median;

pub(super) const STUDY: Study = Study {
    name: "eager",
    question: "From which size on is it better to announce a message and have it read, than to copy it?",
    claims: &[
        Claim {
            document: Document::Critique,
            says: "short messages are copied into registered memory and sent (eager), long ones are announced, and moved when the receiver is there \
                   (rendezvous); MPIs change over at 16 or 32 KiB. A receiver that is late delays the sender of a long message.",
        },
        Claim {
            document: Document::Critique,
            says: "for the shortest a buffer for each peer is written by RDMA and polled, which saves the matching of a receive. Latency grows with the \
                   number of buffers to look at, and with many peers MPIs fall back to SEND and receive.",
        },
    ],
    measure: |effort| measured(effort, Plants::default()),
};

/// What tests add, to see that it is found.
#[derive(Clone, Copy, Default)]
struct Plants {
    /// To each copy.
    copy: Duration,
    /// To each look at a buffer of a peer.
    look: Duration,
}

/// The ways, in the order of the columns.
const WAYS: [&str; 3] = ["eager", "rendezvous", "rendezvous, registered before"];

fn measured(effort: &Effort, plants: Plants) -> Result<Findings, CliError> {
    let sizes: Vec<usize> = match effort.is_quick {
        true => vec![1 << 10, 256 << 10],
        false => (8..=22).step_by(2).map(|power| 1 << power).collect(),
    };
    let largest = sizes.iter().copied().max().unwrap_or_default();
    let lab = Lab::open()?;
    let mut pair = Ends::new(&lab, largest, plants)?;
    let (grid, curves) = by_size(effort, &mut pair, &sizes)?;
    let late = late(effort, &mut pair)?;
    let (peers, peer_curves) = peers::measured(effort, &lab, plants.look)?;
    let mut follows = vec![
        format!(
            "Here rendezvous is cheaper from {} on where both ends register for each message, and from {} on where the memory is registered. Two copies are \
             saved, and three messages and a READ are paid for it. An adapter does not copy, so there the sizes are those of the critique; and \
             registration costs more there (`urxe study registration`).",
            place(&curves[0], &curves[1]),
            place(&curves[0], &curves[2])
        ),
        "A sender of an eager message goes on as soon as it has copied it, however late the receiver is. A sender of a rendezvous has its buffer back when the receiver \
         has come and has read it: the delay is the receiver's, added to that of the transfer. That holds for any adapter; it is what non-blocking sends \
         are for."
            .to_owned(),
    ];
    follows.push(peers::follows(&peer_curves));
    let picture = |name: &str, title: &str, x: &str, names: &[&str], curves: &[Curve]| Picture {
        name: name.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: "microseconds".to_owned(),
        kind: Kind::Curves,
        series: (names.iter().zip(curves))
            .map(|(&name, curve)| Series::new(name, curve.clone()))
            .collect(),
    };
    Ok(Findings {
        tables: vec![grid, late, peers],
        pictures: vec![
            picture(
                "eager",
                "A message from buffer to buffer",
                "bytes",
                &WAYS,
                &curves,
            ),
            picture(
                "peers",
                "8 bytes by the number of peers",
                "peers",
                &peers::WAYS,
                &peer_curves,
            ),
        ],
        follows,
        lacks: Vec::new(),
    })
}

type Curve = Vec<(f64, f64)>;

fn place(first: &Curve, second: &Curve) -> String {
    match crossing(first, second) {
        Some(size) => about(size),
        None => "no size that was measured".to_owned(),
    }
}

/// From the program's buffer at one end to the program's buffer at the other, and the first one free again.
fn by_size(
    effort: &Effort,
    ends: &mut Ends,
    sizes: &[usize],
) -> Result<(Grid, [Curve; WAYS.len()]), CliError> {
    let columns: Vec<&str> = ["bytes"].into_iter().chain(WAYS).collect();
    let title = "Microseconds for a message from the sender's buffer to the receiver's, by one thread that does the work of both ends";
    let mut grid = Grid::new(title, &columns);
    let mut curves: [Curve; WAYS.len()] = Default::default();
    // The first messages of a pair find it unprepared.
    for _ in 0..effort.pick(1, 1000) {
        ends.eager(sizes[0], Duration::ZERO)?;
        ends.rendezvous(sizes[0], Duration::ZERO, true)?;
    }
    for &size in sizes {
        let costs = [
            cost(effort, &mut || ends.eager(size, Duration::ZERO))?,
            cost(effort, &mut || ends.rendezvous(size, Duration::ZERO, true))?,
            cost(effort, &mut || ends.rendezvous(size, Duration::ZERO, false))?,
        ];
        let cells = costs.iter().map(|&cost| Cell::number(cost));
        grid.row([Cell::text(bytes(size))].into_iter().chain(cells).collect());
        for (curve, cost) in curves.iter_mut().zip(costs) {
            curve.push((size as f64, cost));
        }
    }
    Ok((grid, curves))
}

/// How long the sender does not have its buffer, by how late the receiver comes.
fn late(effort: &Effort, ends: &mut Ends) -> Result<Grid, CliError> {
    let size = ends.largest.min(64 << 10);
    let title = format!(
        "Microseconds until the sender has its buffer of {} back, by how late the receiver is",
        bytes(size)
    );
    let mut grid = Grid::new(
        title,
        &["late by us", "eager", "rendezvous, registered before"],
    );
    for delay in [0, 100, 1000] {
        let late = Duration::from_micros(delay);
        let mut times = [0.0; 2];
        for (is_eager, time) in [true, false].into_iter().zip(&mut times) {
            let mut each = Vec::new();
            for _ in 0..effort.pick(5, 101) {
                match is_eager {
                    true => ends.eager(size, late)?,
                    false => ends.rendezvous(size, late, false)?,
                }
                each.push(ends.held.as_secs_f64() * 1e6);
            }
            *time = median(&each).unwrap_or_default();
        }
        grid.row(vec![
            Cell::Number(delay as f64, 0),
            Cell::number(times[0]),
            Cell::number(times[1]),
        ]);
    }
    Ok(grid)
}

/// Two ends with a QP each, a buffer that is registered for copies, and one of the program.
struct Ends {
    near: Port,
    far: Port,
    lab: [urxe::Pd; 2],
    /// Where eager messages lie: registered once.
    bounce: [Mr; 2],
    /// The program's memory, where it is registered before.
    pinned: [Mr; 2],
    /// The program's memory, where it is not.
    plain: [Option<Box<[u8]>>; 2],
    largest: usize,
    plants: Plants,
    /// How long the sender of the last message did not have its buffer.
    held: Duration,
}

/// What is announced.
const TELL: usize = RemoteMr::BYTES;

impl Ends {
    fn new(lab: &Lab, largest: usize, plants: Plants) -> Result<Ends, CliError> {
        let [near, far] = lab.pair()?;
        let both = [&lab.near, &lab.far];
        let [bounce_near, bounce_far] = both.map(|station| memory(station, largest.max(TELL)));
        let [pinned_near, pinned_far] = both.map(|station| memory(station, largest));
        let plain = || Some(vec![7; largest].into_boxed_slice());
        Ok(Ends {
            near,
            far,
            lab: both.map(|station| station.pd.clone()),
            bounce: [bounce_near?, bounce_far?],
            pinned: [pinned_near?, pinned_far?],
            plain: [plain(), plain()],
            largest,
            plants,
            held: Duration::ZERO,
        })
    }

    /// Copied, sent and copied. The receiver has given its buffers before, as an MPI does when it starts.
    fn eager(&mut self, size: usize, late: Duration) -> Result<(), CliError> {
        let what = "cannot send";
        let [from, to] = &mut self.plain;
        let (from, to) = (
            from.as_mut().expect("given back"),
            to.as_mut().expect("given back"),
        );
        let recv = [self.bounce[1].sge(..size)];
        self.far
            .qp
            .post_recv(&RecvWr::new(1, &recv))
            .context(what)?;
        let start = Instant::now();
        self.bounce[0].write(0, &from[..size]);
        compute(self.plants.copy);
        let send = [self.bounce[0].sge(..size)];
        self.near
            .qp
            .post_send(&SendWr::send(2, &send).signaled())
            .context(what)?;
        self.held = start.elapsed();
        compute(late);
        self.far.done_beside(&self.near)?;
        self.bounce[1].read(0, &mut to[..size]);
        compute(self.plants.copy);
        self.near.done_beside(&self.far).map(|_| ())
    }

    /// Announced, read, and told that it was read.
    fn rendezvous(&mut self, size: usize, late: Duration, registers: bool) -> Result<(), CliError> {
        let what = "cannot send";
        let [at_far, at_near] = [&self.bounce[1], &self.bounce[0]].map(|mr| [mr.sge(..TELL)]);
        self.far
            .qp
            .post_recv(&RecvWr::new(1, &at_far))
            .context(what)?;
        self.near
            .qp
            .post_recv(&RecvWr::new(1, &at_near))
            .context(what)?;
        let start = Instant::now();
        let source = self.buffer(0, registers, Access::REMOTE_READ)?;
        let told = source.mr(&self.pinned[0]).remote(..size).to_bytes();
        self.near
            .qp
            .post_send(&SendWr::send_inline(2, &told))
            .context(what)?;
        compute(late);
        self.far.done_beside(&self.near)?;
        let mut told = [0; TELL];
        self.bounce[1].read(0, &mut told);
        let target = self.buffer(1, registers, Access::LOCAL_WRITE)?;
        let place = [target.mr(&self.pinned[1]).sge(..size)];
        let read = SendWr::read_from(3, &place, RemoteMr::from_bytes(&told)).signaled();
        self.far.qp.post_send(&read).context(what)?;
        self.far.done_beside(&self.near)?;
        self.give_back(1, target)?;
        self.far
            .qp
            .post_send(&SendWr::send_inline(4, b"read"))
            .context(what)?;
        self.near.done_beside(&self.far)?;
        self.give_back(0, source)?;
        self.held = start.elapsed();
        Ok(())
    }

    fn buffer(&mut self, end: usize, registers: bool, rights: Access) -> Result<Buffer, CliError> {
        if !registers {
            return Ok(Buffer::Before);
        }
        let bytes = self.plain[end].take().expect("given back");
        let mr = self.lab[end].reg_owned(bytes, rights);
        Ok(Buffer::Now(mr.context("cannot register memory")?))
    }

    fn give_back(&mut self, end: usize, buffer: Buffer) -> Result<(), CliError> {
        if let Buffer::Now(mr) = buffer {
            let bytes = mr.into_bytes().map_err(|(_, error)| error);
            self.plain[end] = Some(bytes.context("cannot deregister memory")?);
        }
        Ok(())
    }
}

/// The program's memory in a rendezvous.
enum Buffer {
    /// Registered before.
    Before,
    /// Registered for this message.
    Now(Mr),
}

impl Buffer {
    fn mr<'m>(&'m self, before: &'m Mr) -> &'m Mr {
        match self {
            Buffer::Before => before,
            Buffer::Now(mr) => mr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(cell: &Cell) -> f64 {
        let Cell::Number(value, _) = cell else {
            panic!("no number: {cell:?}");
        };
        *value
    }

    #[test]
    fn dearer_copies_and_a_late_receiver_are_found() {
        let effort = Effort { is_quick: true };
        let plants = Plants {
            copy: Duration::from_millis(1),
            look: Duration::from_micros(20),
        };
        let found = measured(&effort, plants).expect("it runs");
        for row in &found.tables[0].rows {
            assert!(number(&row[1]) >= 2000.0, "two copies: {row:?}");
        }
        // The plant is in the eager one only; the delay is in the other only, but a busy machine may add to that one.
        for row in &found.tables[1].rows {
            assert!(number(&row[1]) >= 1000.0, "one copy: {row:?}");
            assert!(number(&row[2]) >= number(&row[0]), "{row:?}");
        }
        for row in &found.tables[2].rows {
            let peers = number(&row[0]);
            assert!(number(&row[1]) >= 20.0 * peers / 2.0, "{row:?}");
        }
        assert!(found.lacks.is_empty());
    }
}
