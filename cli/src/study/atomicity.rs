//! What is atomic against what, and in which order bytes appear: shown by programs that would see it fail.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use urxe::{Mr, SendWr};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::lab::{Lab, Port, join, joined, memory};
use crate::error::{CliError, Context as _};

pub(super) const STUDY: Study = Study {
    name: "atomicity",
    question: "What is atomic against what, and what does a program see of a message that is half there?",
    claims: &[
        Claim {
            document: Document::Answers,
            says: "atomics have levels: none, within one adapter, global. Within an adapter they are atomic among its queue pairs, and not against \
                   the CPU or a second adapter.",
        },
        Claim {
            document: Document::Answers,
            says: "a READ beside stores of the CPU sees coherent memory, and is a race unless both synchronise.",
        },
    ],
    measure,
};

/// Bytes that a reader compares: a line of the cache, and more than a packet.
const LINE: usize = 64;
const MESSAGE: usize = 8192;

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let rounds = effort.pick(200, 50_000);
    let lab = Lab::open()?;
    let cap = lab.near.context.query_device().atomic_cap;
    let among_qps = among_qps(&lab, rounds)?;
    let lost = beside_cpu(&lab, rounds, false)?;
    let torn = reads(&lab, rounds)?;
    let [one, two] = [order(&lab, rounds, 1)?, order(&lab, rounds, 2)?];
    let mut grid = Grid::new(
        format!("Of {rounds} tries each; the device reports the level {cap:?}"),
        &["what", "documents", "broken"],
    );
    let rows = [
        (
            "fetch-and-adds of two queue pairs: updates lost",
            "0",
            among_qps,
        ),
        (
            "fetch-and-adds beside load, add, store of the CPU: updates lost",
            "some",
            lost,
        ),
        (
            "READ beside aligned stores of 8 bytes: words of two values",
            "0",
            torn[0],
        ),
        (
            "the same: lines of 64 bytes with words of two rounds",
            "some",
            torn[1],
        ),
        (
            "WRITE of 8 KiB, the last word polled: earlier words that were missing",
            "0",
            one,
        ),
        (
            "data by one queue pair, the flag by another: words that were missing",
            "some",
            two,
        ),
    ];
    for (what, says, broken) in rows {
        grid.row(vec![
            Cell::text(what),
            Cell::text(says),
            Cell::Number(broken as f64, 0),
        ]);
    }
    let broken = rows.map(|row| 1e3 * row.2 as f64 / rounds as f64);
    Ok(Findings {
        tables: vec![grid],
        pictures: vec![picture(&broken)],
        follows: follows(rounds, lost, torn[1], two),
        lacks: vec![
            "two devices on one memory: memory of the Rust API without unsafe belongs to one device; a C program that registers it twice can show it".to_owned(),
        ],
    })
}

fn picture(broken: &[f64]) -> Picture {
    let names = [
        "two QPs",
        "QP and CPU",
        "words",
        "lines",
        "one QP's order",
        "two QPs' order",
    ];
    Picture {
        name: "atomicity".to_owned(),
        title: "What was broken".to_owned(),
        x: String::new(),
        y: "in a thousand tries".to_owned(),
        kind: Kind::Bars(names.map(str::to_owned).to_vec()),
        series: vec![Series::bars("urxe", broken)],
    }
}

fn follows(rounds: u64, lost: u64, lines: u64, two: u64) -> Vec<String> {
    vec![
            format!(
                "Atomics are atomic among queue pairs. A CPU that loads, adds and stores loses updates beside them ({lost} here), whatever the level: a word that \
                 peers add to is for the CPU to read, or to change by an atomic of its own."
            ),
            format!(
                "A READ never saw half of an aligned word of 8 bytes ({} tries), and did see lines of two rounds ({}): a structure of more than a word needs a version \
                 or a lock, here as there.",
                rounds, lines
            ),
            "The last word of a WRITE is stored last, so a program may poll on it. The standard promises that of no adapter; urxe does it, and MPIs lean on it \
             (docs/VERBS.md)."
                .to_owned(),
            format!(
                "Between two queue pairs nothing is promised. That {two} were out of order here is luck of this machine, and no rule: both are served by one thread of \
                 the receiver. A flag goes by the queue pair of its data."
            ),
        ]
}

/// Adds to a word of the far side, so often.
fn add(port: &Port, to: &Mr, scratch: &Mr, count: u64) -> Result<(), CliError> {
    let sges = [scratch.sge(..8)];
    for n in 0..count {
        let wr = SendWr::atomic_fetch_add(n, &sges, to.addr(), to.rkey(), 1);
        port.qp.post_send(&wr.signaled()).context("cannot post")?;
        port.done()?;
    }
    Ok(())
}

/// Two queue pairs add to one word; the adds that are missing in the end.
fn among_qps(lab: &Lab, rounds: u64) -> Result<u64, CliError> {
    let word = memory(&lab.far, 8)?;
    let pairs = [lab.pair()?, lab.pair()?];
    let scratch = [memory(&lab.near, 8)?, memory(&lab.near, 8)?];
    thread::scope(|scope| {
        let threads = pairs.iter().zip(&scratch).map(|([near, _], scratch)| {
            let word = &word;
            scope.spawn(move || add(near, word, scratch, rounds / 2))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(joined)
    })?;
    Ok(2 * (rounds / 2) - word.load_u64(0))
}

/// A queue pair adds to a word and so does the CPU, by a load and a store. With `waits` the CPU waits in between until the other has
/// added. The adds that are missing in the end.
fn beside_cpu(lab: &Lab, rounds: u64, waits: bool) -> Result<u64, CliError> {
    let (word, scratch) = (memory(&lab.far, 8)?, memory(&lab.near, 8)?);
    let [near, _far] = lab.pair()?;
    let is_over = AtomicBool::new(false);
    let own = AtomicU64::new(0);
    // The CPU has loaded before anything is added, however busy the machine is.
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        let cpu = scope.spawn(|| {
            let mut before = word.load_u64(0);
            begin.wait();
            loop {
                while waits && word.load_u64(0) == before && !is_over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                // A program does something with what it has loaded.
                (0..20).for_each(|_| std::hint::spin_loop());
                word.store_u64(0, before + 1);
                own.fetch_add(1, Ordering::Relaxed);
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                before = word.load_u64(0);
            }
        });
        begin.wait();
        let added = add(&near, &word, &scratch, rounds);
        is_over.store(true, Ordering::Release);
        let ended = cpu.join();
        ended.map_err(|_| CliError::Failed("a thread panicked".to_owned()))?;
        added
    })?;
    Ok((rounds + own.into_inner()).saturating_sub(word.load_u64(0)))
}

/// READs of a line that the CPU writes word by word, each word with the round's number in both of its halves: words with two
/// numbers, and lines with two.
fn reads(lab: &Lab, rounds: u64) -> Result<[u64; 2], CliError> {
    let (line, copy) = (memory(&lab.far, LINE)?, memory(&lab.near, LINE)?);
    let [near, _far] = lab.pair()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u64;
            while !is_over.load(Ordering::Acquire) {
                round = (round + 1) & 0xffff_ffff;
                (0..LINE / 8).for_each(|word| line.store_u64(8 * word, round << 32 | round));
            }
        });
        let looked = (0..rounds).try_fold([0, 0], |[words, lines], n| {
            let sges = [copy.sge(..)];
            let wr = SendWr::rdma_read(n, &sges, line.addr(), line.rkey()).signaled();
            near.qp.post_send(&wr).context("cannot post")?;
            near.done()?;
            let found: Vec<u64> = (0..LINE / 8).map(|word| copy.load_u64(8 * word)).collect();
            let torn = found
                .iter()
                .filter(|&&word| word >> 32 != word & 0xffff_ffff);
            let is_mixed = found.iter().any(|&word| word != found[0]);
            Ok([words + torn.count() as u64, lines + u64::from(is_mixed)])
        });
        is_over.store(true, Ordering::Release);
        looked
    })
}

/// Data is written, and a flag behind it by the same queue pair (in the same message) or by a second one; the far CPU polls on the
/// flag. Rounds in which data was not there when the flag was.
fn order(lab: &Lab, rounds: u64, qps: usize) -> Result<u64, CliError> {
    let (inbox, outbox) = (
        memory(&lab.far, MESSAGE + 8)?,
        memory(&lab.near, MESSAGE + 8)?,
    );
    let [near, _far] = lab.pair()?;
    let [second, other] = [
        Port::new(&lab.near, |qp| qp)?,
        Port::new(&lab.far, |qp| qp)?,
    ];
    join(&second.qp, &other.qp)?;
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut broken = 0;
            for round in 1..=rounds {
                while inbox.load_u64(MESSAGE) < round {
                    if seen.load(Ordering::Acquire) == u64::MAX {
                        return broken;
                    }
                    std::hint::spin_loop();
                }
                let is_early = (0..MESSAGE / 8).any(|word| inbox.load_u64(8 * word) < round);
                broken += u64::from(is_early);
                seen.store(round, Ordering::Release);
            }
            broken
        });
        let write = || {
            for round in 1..=rounds {
                (0..=MESSAGE / 8).for_each(|word| outbox.store_u64(8 * word, round));
                let ends = if qps == 1 { MESSAGE + 8 } else { MESSAGE };
                let data = [outbox.sge(..ends)];
                let wr = SendWr::rdma_write(round, &data, inbox.addr(), inbox.rkey());
                near.qp.post_send(&wr.signaled()).context("cannot post")?;
                if qps > 1 {
                    let flag = [outbox.sge(MESSAGE..)];
                    let to = inbox.addr() + MESSAGE as u64;
                    let wr = SendWr::rdma_write(round, &flag, to, inbox.rkey()).signaled();
                    second.qp.post_send(&wr).context("cannot post")?;
                    second.done()?;
                }
                near.done()?;
                while seen.load(Ordering::Acquire) < round {
                    thread::yield_now();
                }
            }
            Ok(())
        };
        let written: Result<(), CliError> = write();
        if written.is_err() {
            seen.store(u64::MAX, Ordering::Release);
        }
        let broken = reader.join();
        written?;
        broken.map_err(|_| CliError::Failed("a thread panicked".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_that_is_planted_loses_updates_and_queue_pairs_lose_none() {
        let lab = Lab::open().expect("opens");
        assert_eq!(among_qps(&lab, 200).expect("runs"), 0);
        let lost = beside_cpu(&lab, 200, true).expect("runs");
        assert!(lost > 0, "the CPU stored over an add");
    }
}
