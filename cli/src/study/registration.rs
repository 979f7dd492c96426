//! What it costs to register memory for a transfer, beside copying the bytes into memory that is registered already.

use std::collections::BTreeMap;
use std::time::Duration;

use memmap2::MmapMut;
use urxe::{Access, MwType, SendWr};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study, about, bytes, crossing};
use super::chart::{Kind, Picture, Series};
use super::lab::{Lab, compute, cost};
use crate::error::{CliError, Context as _};

pub(super) const STUDY: Study = Study {
    name: "registration",
    question: "Is registering memory for a transfer cheaper than copying it into memory that is registered?",
    claims: &[
        Claim {
            document: Document::Critique,
            says: "registration is a system call and a walk over pages, and costs at least as much as a copy, up to a size where the curves cross; \
                   so MPIs keep a cache of registrations behind malloc.",
        },
        Claim {
            document: Document::Essay,
            says: "registering and invalidating are operations like sending: a program does them for each exchange.",
        },
    ],
    measure: |effort| measured(effort, Duration::ZERO),
};

/// The ways, in the order of the columns.
const WAYS: [&str; 6] = [
    "copy",
    "register + deregister",
    "the same, on demand",
    "pin + unpin (mlock)",
    "cache, hit",
    "window: bind + invalidate",
];

/// `plant` is a cost that a test adds to each registration.
fn measured(effort: &Effort, plant: Duration) -> Result<Findings, CliError> {
    let sizes: Vec<usize> = match effort.is_quick {
        true => vec![4 << 10, 64 << 10],
        false => (12..=26).step_by(2).map(|power| 1 << power).collect(),
    };
    let columns: Vec<&str> = ["bytes"].into_iter().chain(WAYS).collect();
    let mut grid = Grid::new(
        "Microseconds of each, by size; the memory was touched before",
        &columns,
    );
    let mut curves: [Vec<(f64, f64)>; WAYS.len()] = Default::default();
    let lab = Lab::open()?;
    let mut lacks = Vec::new();
    for &size in &sizes {
        let costs = [
            Some(copy(effort, size)?),
            Some(register(effort, &lab, size, Access::NONE, plant)?),
            Some(register(effort, &lab, size, Access::ON_DEMAND, plant)?),
            pin(effort, size)?,
            Some(hit(effort, size)?),
            Some(window(effort, &lab, size)?),
        ];
        let cells = costs.iter().map(|cost| match cost {
            Some(cost) => Cell::number(*cost),
            None => Cell::text("-"),
        });
        grid.row([Cell::text(bytes(size))].into_iter().chain(cells).collect());
        for (curve, cost) in curves.iter_mut().zip(costs) {
            curve.extend(cost.map(|cost| (size as f64, cost)));
        }
    }
    if curves[3].len() < sizes.len() {
        lacks.push(
            "pinning the larger sizes: the limit of locked memory is lower (ulimit -l)".to_owned(),
        );
    }
    let follows = follows(&curves, &grid.rows[0][5]);
    let series = WAYS.iter().zip(curves);
    let series = series
        .map(|(name, points)| Series::new(*name, points))
        .collect();
    let picture = Picture {
        name: "registration".to_owned(),
        title: "Registering beside copying".to_owned(),
        x: "bytes".to_owned(),
        y: "microseconds".to_owned(),
        kind: Kind::Curves,
        series,
    };
    Ok(Findings {
        tables: vec![grid],
        pictures: vec![picture],
        follows,
        lacks,
    })
}

fn follows(curves: &[Vec<(f64, f64)>; WAYS.len()], hit: &Cell) -> Vec<String> {
    let at = |other: usize| match crossing(&curves[0], &curves[other]) {
        Some(size) => format!("at {}", about(size)),
        None => "nowhere between these sizes".to_owned(),
    };
    vec![
        format!(
            "What an adapter has to do at least, to pin and to unpin the pages, crosses the copy {}. The critique's curve is that one: both grow with the size, as \
             one walks over pages and the other over bytes.",
            at(3)
        ),
        format!(
            "The surprise: registration in urxe does not grow with the size, and crosses the copy {}. Nothing is pinned and no page is walked: the CPU that moves \
             the bytes uses the program's own page table. A program that is fast here because it registers for each transfer will not be on an adapter.",
            at(1)
        ),
        format!(
            "On demand costs the same here, for the same reason. A hit in a cache is a look-up ({} us), whatever the adapter; the work that it saves there is the \
             pinning above, and the danger that it brings is memory that was unmapped meanwhile.",
            hit.shown()
        ),
        "A window is bound by the queue pair, in order with the requests, without a system call: for rights that change with each exchange it is the way that \
         does not depend on the size on adapters either."
            .to_owned(),
    ]
}

fn copy(effort: &Effort, size: usize) -> Result<f64, CliError> {
    // Large blocks begin at the same place in a page. Processors take a load there for one that waits for the store before it.
    let (from, mut block) = (vec![7u8; size], vec![1u8; size + 2048]);
    let to = &mut block[2048..];
    cost(effort, &mut || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut *to);
        Ok(())
    })
}

fn register(
    effort: &Effort,
    lab: &Lab,
    size: usize,
    more: Access,
    plant: Duration,
) -> Result<f64, CliError> {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | more;
    let mut memory = Some(vec![7u8; size].into_boxed_slice());
    cost(effort, &mut || {
        let what = "cannot register memory";
        let bytes = memory.take().expect("given back");
        let mr = lab.near.pd.reg_owned(bytes, rights).context(what)?;
        compute(plant);
        let back = mr.into_bytes().map_err(|(_, error)| error);
        memory = Some(back.context("cannot deregister memory")?);
        Ok(())
    })
}

/// `None` if so much cannot be pinned.
fn pin(effort: &Effort, size: usize) -> Result<Option<f64>, CliError> {
    let mut map = MmapMut::map_anon(size).context("no memory")?;
    map.fill(7);
    if map.lock().is_err() {
        return Ok(None);
    }
    map.unlock().context("cannot unpin")?;
    let found = cost(effort, &mut || {
        map.lock().context("cannot pin")?;
        map.unlock().context("cannot unpin")
    });
    found.map(Some)
}

/// A look-up among a thousand registrations by address, as a cache does it.
fn hit(effort: &Effort, size: usize) -> Result<f64, CliError> {
    let entry = |n: usize| (n * size, (n * size + size, n as u32));
    let cache: BTreeMap<usize, (usize, u32)> = (0..1000).map(entry).collect();
    let mut at = 0;
    cost(effort, &mut || {
        at = (at + 7 * size + 1) % (999 * size);
        let found = cache.range(..=std::hint::black_box(at)).next_back();
        let is_inside = found.is_some_and(|(_, (end, _))| at < *end);
        std::hint::black_box(is_inside);
        Ok(())
    })
}

fn window(effort: &Effort, lab: &Lab, size: usize) -> Result<f64, CliError> {
    let [near, _far] = lab.pair()?;
    let what = "cannot bind a window";
    let rights = Access::LOCAL_WRITE | Access::MW_BIND | Access::REMOTE_WRITE;
    let mr = lab.near.pd.reg_owned(vec![0; size], rights).context(what)?;
    let mw = lab.near.pd.alloc_mw(MwType::Type2).context(what)?;
    let info = mr.bind_info(.., Access::REMOTE_WRITE);
    cost(effort, &mut || {
        let bound = mw.bind(1, &info);
        near.qp.post_send(&bound).context(what)?;
        let invalidate = SendWr::local_inv(2, mw.rkey()).signaled();
        near.qp.post_send(&invalidate).context(what)?;
        near.done().map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dearer_registration_is_found() {
        let effort = Effort { is_quick: true };
        let planted = Duration::from_millis(1);
        let found = measured(&effort, planted).expect("it runs");
        for row in &found.tables[0].rows {
            let Cell::Number(us, _) = row[2] else {
                panic!("no number: {row:?}");
            };
            assert!(us >= 1000.0, "{row:?}");
        }
        assert_eq!(found.pictures[0].series.len(), WAYS.len());
    }
}
