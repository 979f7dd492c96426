//! Finding the receive that a message is for: in a list of the program's, and in the list of tags of a shared receive queue.

use std::collections::VecDeque;
use std::time::Duration;

use urxe::{Mr, RecvWr, SendWr, Srq, SrqAttr, TagRecv, TmCap, TmFlags, Tmh, TmhOp};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::lab::{Lab, Port, compute, cost, join, memory};
use crate::error::{CliError, Context as _};

pub(super) const STUDY: Study = Study {
    name: "matching",
    question: "What does it cost to find the receive that a message is for, by the number of those that wait?",
    claims: &[
        Claim {
            document: Document::Critique,
            says: "MPI matches a message by sender, tag and context, some 64 bits, with wildcards, and not in the order of posting; verbs take receives \
                   in posted order. So an MPI over verbs matches in software, behind a header of its own.",
        },
        Claim {
            document: Document::Critique,
            says: "a message that comes before its receive has to be kept, and found when the receive is posted.",
        },
    ],
    measure: |effort| measured(effort, Duration::ZERO),
};

/// What is timed has this tag, and what waits has others.
const TIMED: u64 = 1;
const WAITS: u64 = 1 << 32;
/// The mask of a receive that takes a message of any sender: the sender is in these bits of the tag, in this study.
const ANY_SENDER: u64 = !(0xffff << 16);
const BYTES: usize = 8;
const MESSAGE: usize = Tmh::LEN + BYTES;

const POSTED: [&str; 3] = ["list", "tags of the queue", "the same, any sender"];
const UNEXPECTED: [&str; 2] = ["list", "queue with tags, and a list"];

type Curve = Vec<(f64, f64)>;

/// `plant` is what a test adds to each step along a list.
fn measured(effort: &Effort, plant: Duration) -> Result<Findings, CliError> {
    let lens: &[usize] = effort.pick(&[1, 64], &[1, 16, 64, 256, 1024, 4096, 8192]);
    let lab = Lab::open()?;
    let mut posted = Table::new(
        "Microseconds from posting a receive and sending its message until they have met, by receives that wait before it",
        "receives",
        &POSTED,
    );
    let mut unexpected = Table::new(
        "Microseconds from sending a message until a receive posted afterwards has found it, by messages that wait before it",
        "messages",
        &UNEXPECTED,
    );
    // The first messages between two devices find them unprepared.
    Explicit::new(&lab, Duration::ZERO)?.posted(effort, 1)?;
    for &len in lens {
        let list = || Explicit::new(&lab, plant);
        posted.row(
            len,
            &[
                list()?.posted(effort, len)?,
                Tagged::new(&lab, plant)?.posted(effort, len, u64::MAX)?,
                Tagged::new(&lab, plant)?.posted(effort, len, ANY_SENDER)?,
            ],
        );
        unexpected.row(
            len,
            &[
                list()?.unexpected(effort, len)?,
                Tagged::new(&lab, plant)?.unexpected(effort, len)?,
            ],
        );
    }
    let follows = vec![
        format!(
            "A list of receives costs {} us more from the shortest to the longest here: each step is a compare and, when the list is longer than a cache, a miss. \
             With tags of the queue it is {} us, with a wildcard {}: the engine looks a tag up by its hash, once for each mask in use.",
            posted.growth(0),
            posted.growth(1),
            posted.growth(2)
        ),
        format!(
            "Messages that come first are the program's in both ways, and found along its list: {} us more, and {} us. An adapter does not help there, and a \
             program that posts its receives in time does not need it.",
            unexpected.growth(0),
            unexpected.growth(1)
        ),
        format!(
            "With one receive in front the ways take {} us: a tag is added by a call into the engine, and a receive is posted by one.",
            posted.first_row()
        ),
    ];
    Ok(Findings {
        pictures: vec![
            posted.picture("matching-posted", "Receives that wait"),
            unexpected.picture("matching-unexpected", "Messages that wait"),
        ],
        tables: vec![posted.grid, unexpected.grid],
        follows,
        lacks: Vec::new(),
    })
}

/// A table, and its columns as curves.
struct Table {
    grid: Grid,
    x: &'static str,
    ways: &'static [&'static str],
    curves: Vec<Curve>,
}

impl Table {
    fn new(title: &str, x: &'static str, ways: &'static [&'static str]) -> Table {
        let columns: Vec<&str> = [x].into_iter().chain(ways.iter().copied()).collect();
        Table {
            grid: Grid::new(title, &columns),
            x,
            ways,
            curves: vec![Curve::new(); ways.len()],
        }
    }

    fn row(&mut self, len: usize, costs: &[f64]) {
        let cells = costs.iter().map(|&cost| Cell::number(cost));
        let row = [Cell::Number(len as f64, 0)].into_iter().chain(cells);
        self.grid.row(row.collect());
        for (curve, &cost) in self.curves.iter_mut().zip(costs) {
            curve.push((len as f64, cost));
        }
    }

    /// From the first to the last point of a curve.
    fn growth(&self, way: usize) -> String {
        let curve = &self.curves[way];
        let [first, last] =
            [curve.first(), curve.last()].map(|point| point.map_or(0.0, |&(_, y)| y));
        format!("{:.2}", last - first)
    }

    fn first_row(&self) -> String {
        let first = self.curves.iter().filter_map(|curve| curve.first());
        let shown: Vec<String> = first.map(|(_, y)| format!("{y:.2}")).collect();
        shown.join(", ")
    }

    fn picture(&self, name: &str, title: &str) -> Picture {
        let series = self.ways.iter().zip(&self.curves);
        Picture {
            name: name.to_owned(),
            title: title.to_owned(),
            x: self.x.to_owned(),
            y: "microseconds".to_owned(),
            kind: Kind::Curves,
            series: series
                .map(|(&name, curve)| Series::new(name, curve.clone()))
                .collect(),
        }
    }
}

/// What a receive takes: tags that agree where the mask has ones.
#[derive(Clone, Copy)]
struct Wanted {
    tag: u64,
    mask: u64,
}

/// A list that is searched from its oldest entry on, as MPI's rule has it.
struct List<T> {
    entries: VecDeque<T>,
    plant: Duration,
}

impl<T> List<T> {
    fn new(entries: impl Iterator<Item = T>, plant: Duration) -> List<T> {
        List {
            entries: entries.collect(),
            plant,
        }
    }

    fn take(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let plant = self.plant;
        let place = self.entries.iter().position(|entry| {
            compute(plant);
            is_it(entry)
        });
        self.entries.remove(place?)
    }
}

fn waiting(len: usize) -> impl Iterator<Item = u64> {
    (0..len as u64).map(|n| WAITS + n)
}

fn message(tag: u64) -> Vec<u8> {
    let header = Tmh {
        opcode: TmhOp::Eager as u8,
        tag,
        ..Tmh::default()
    };
    [&header.emit()[..], &[7; BYTES]].concat()
}

fn there<T>(found: Option<T>, what: &str) -> Result<T, CliError> {
    found.ok_or_else(|| CliError::Failed(what.to_owned()))
}

fn send(near: &Port, message: &[u8]) -> Result<(), CliError> {
    let send = SendWr::send_inline(1, message).signaled();
    near.qp.post_send(&send).context("cannot send")
}

/// Matched by the program.
struct Explicit {
    near: Port,
    far: Port,
    memory: Mr,
    plant: Duration,
}

impl Explicit {
    fn new(lab: &Lab, plant: Duration) -> Result<Explicit, CliError> {
        let [near, far] = lab.pair()?;
        Ok(Explicit {
            near,
            far,
            memory: memory(&lab.far, MESSAGE)?,
            plant,
        })
    }

    /// The tag and the bytes of the next message.
    fn arrive(&self, sent: &[u8]) -> Result<(u64, [u8; BYTES]), CliError> {
        let place = [self.memory.sge(..)];
        let recv = RecvWr::new(1, &place);
        self.far.qp.post_recv(&recv).context("cannot receive")?;
        send(&self.near, sent)?;
        self.far.done_beside(&self.near)?;
        let (mut header, mut bytes) = ([0; Tmh::LEN], [0; BYTES]);
        self.memory.read(0, &mut header);
        self.memory.read(Tmh::LEN, &mut bytes);
        Ok((Tmh::parse(&header).tag, bytes))
    }

    fn posted(&self, effort: &Effort, len: usize) -> Result<f64, CliError> {
        let mask = u64::MAX;
        let wait = waiting(len).map(|tag| Wanted { tag, mask });
        let mut list = List::new(wait, self.plant);
        let (sent, mut received) = (message(TIMED), [0; BYTES]);
        cost(effort, &mut || {
            list.entries.push_back(Wanted { tag: TIMED, mask });
            let (tag, bytes) = self.arrive(&sent)?;
            let found = list.take(|wanted| (wanted.tag ^ tag) & wanted.mask == 0);
            there(found, "the message has no receive")?;
            received = std::hint::black_box(bytes);
            self.near.done_beside(&self.far).map(|_| ())
        })
    }

    fn unexpected(&self, effort: &Effort, len: usize) -> Result<f64, CliError> {
        let wait = waiting(len).map(|tag| (tag, [0; BYTES]));
        let mut list = List::new(wait, self.plant);
        let sent = message(TIMED);
        cost(effort, &mut || {
            list.entries.push_back(self.arrive(&sent)?);
            let found = list.take(|(tag, _)| *tag == TIMED);
            std::hint::black_box(there(found, "the message is lost")?);
            self.near.done_beside(&self.far).map(|_| ())
        })
    }
}

/// Matched by the queue.
struct Tagged {
    near: Port,
    far: Port,
    srq: Srq,
    memory: Mr,
    plant: Duration,
}

impl Tagged {
    fn new(lab: &Lab, plant: Duration) -> Result<Tagged, CliError> {
        let what = "cannot create a queue with tags";
        let cq = lab.far.context.create_cq(1024).context(what)?;
        let cap = TmCap {
            max_num_tags: TmCap::NUM_TAGS_MAX,
            ..TmCap::default()
        };
        let attr = SrqAttr {
            max_sge: 1,
            ..SrqAttr::default()
        };
        let srq = lab.far.pd.create_tm_srq(&cq, &attr, &cap).context(what)?;
        let near = Port::new(&lab.near, |qp| qp)?;
        let far = lab.far.pd.qp(&cq).srq(&srq).create().context(what)?;
        join(&near.qp, &far)?;
        let far = Port::of(far, cq);
        Ok(Tagged {
            near,
            far,
            srq,
            memory: memory(&lab.far, MESSAGE)?,
            plant,
        })
    }

    fn add(&self, wanted: Wanted) -> Result<(), CliError> {
        let recv = TagRecv {
            recv_wr_id: 1,
            tag: wanted.tag,
            mask: wanted.mask,
            sges: &[self.memory.sge(Tmh::LEN..)],
        };
        self.srq.add_tag(&recv).context("cannot add a tag")?;
        Ok(())
    }

    /// The next completion, and whether it is of a tag.
    fn next(&self) -> Result<bool, CliError> {
        let wc = self.far.done_beside(&self.near)?;
        Ok(wc.tm.flags.contains(TmFlags::DATA_VALID))
    }

    fn posted(&self, effort: &Effort, len: usize, mask: u64) -> Result<f64, CliError> {
        for tag in waiting(len) {
            self.add(Wanted { tag, mask })?;
        }
        let sent = message(TIMED);
        cost(effort, &mut || {
            self.add(Wanted { tag: TIMED, mask })?;
            send(&self.near, &sent)?;
            let is_matched = self.next()?;
            there(is_matched.then_some(()), "the message has no tag")?;
            self.near.done_beside(&self.far).map(|_| ())
        })
    }

    fn unexpected(&self, effort: &Effort, len: usize) -> Result<f64, CliError> {
        let wait = waiting(len).map(|tag| (tag, [0; BYTES]));
        let mut list = List::new(wait, self.plant);
        let (sent, place) = (message(TIMED), [self.memory.sge(..)]);
        let mut handled = 0u32;
        cost(effort, &mut || {
            let recv = RecvWr::new(1, &place);
            self.srq.post_recv(&recv).context("cannot receive")?;
            send(&self.near, &sent)?;
            let is_matched = self.next()?;
            there((!is_matched).then_some(()), "no tag was added")?;
            let (mut header, mut bytes) = ([0; Tmh::LEN], [0; BYTES]);
            self.memory.read(0, &mut header);
            self.memory.read(Tmh::LEN, &mut bytes);
            let tag = Tmh::parse(&header).tag;
            list.entries.push_back((tag, bytes));
            handled = handled.wrapping_add(1);
            self.srq.sync_tags(handled).context("cannot report it")?;
            let found = list.take(|(tag, _)| *tag == TIMED);
            std::hint::black_box(there(found, "the message is lost")?);
            self.near.done_beside(&self.far).map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_steps_along_a_list_are_found_where_there_is_one() {
        let effort = Effort { is_quick: true };
        let found = measured(&effort, Duration::from_micros(5)).expect("it runs");
        for (table, lists) in found.tables.iter().zip([&[1][..], &[1, 2]]) {
            for row in &table.rows {
                let numbers: Vec<f64> = row
                    .iter()
                    .map(|cell| match cell {
                        Cell::Number(value, _) => *value,
                        Cell::Text(text) => panic!("no number: {text}"),
                    })
                    .collect();
                for &list in lists {
                    assert!(numbers[list] >= 5.0 * numbers[0], "{row:?}");
                }
            }
        }
    }
}
