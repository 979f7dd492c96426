//! Reliable connections: every operation, at every MTU, around every packet boundary.

use std::time::Duration;

use urxe::{SendFlags, WrOpcode};

use crate::lab::{CALM, Lab, Link, PATIENCE, PSNS, expect_done};
use crate::matrix::Row;
use crate::side::{Path, Result};
use crate::work::{Work, status};

pub(crate) const ROWS: &[Row] = &[
    row("SEND", |lab| sizes(lab, WrOpcode::Send)),
    row("SEND with immediate", |lab| {
        sizes(lab, WrOpcode::SendWithImm)
    }),
    row("WRITE", |lab| sizes(lab, WrOpcode::RdmaWrite)),
    row("WRITE with immediate", |lab| {
        sizes(lab, WrOpcode::RdmaWriteWithImm)
    }),
    row("READ", |lab| sizes(lab, WrOpcode::RdmaRead)),
    row("compare and swap", compare_and_swap),
    row("fetch and add", fetch_and_add),
    row("inline data", inline),
    row("events", events),
    row("SEND with invalidate", invalidate),
    row("many outstanding", outstanding),
    row("PSN wrap", psn_wrap),
    row("random mix", random_mix),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "RC",
        operation,
        run,
    }
}

pub(crate) fn mtus(lab: &Lab) -> &'static [u32] {
    if lab.is_quick {
        &[256, 1024, 4096]
    } else {
        &[256, 512, 1024, 2048, 4096]
    }
}

fn sizes(lab: &mut Lab, opcode: WrOpcode) -> Result<()> {
    for &mtu in mtus(lab) {
        // An emulated guest takes a millisecond for each packet.
        let has_longest = !lab.is_quick && (!lab.is_slow || mtu == 1024 || mtu == 4096);
        let longest = if has_longest { 8 << 20 } else { 1 << 20 };
        let link = lab.connect_at(&Path { mtu, ..CALM }, PSNS, longest)?;
        let mtu = mtu as usize;
        for size in [0, 1, mtu - 1, mtu, mtu + 1, 64 << 10] {
            lab.message(&link, opcode, size)?;
        }
        if !lab.is_quick || mtu == 4096 {
            lab.message(&link, opcode, 1 << 20)?;
        }
        if has_longest {
            lab.message(&link, opcode, longest)?;
        }
        lab.settle()?;
    }
    Ok(())
}

const WORD: usize = 64;

fn compare_and_swap(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    let before = 0x1122_3344_5566_7788;
    // The one that compares equal swaps; the other leaves the word.
    atomic(
        lab,
        &link,
        WrOpcode::AtomicCmpAndSwp,
        before,
        (before, 42),
        42,
    )?;
    atomic(
        lab,
        &link,
        WrOpcode::AtomicCmpAndSwp,
        before,
        (41, 42),
        before,
    )?;
    lab.settle()
}

fn fetch_and_add(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    let add = WrOpcode::AtomicFetchAndAdd;
    atomic(lab, &link, add, 5, (7, 0), 12)?;
    atomic(lab, &link, add, u64::MAX, (2, 0), 1)?;
    lab.settle()
}

/// The word is `before`; the operation must return that and leave `after`.
fn atomic(
    lab: &mut Lab,
    link: &Link,
    opcode: WrOpcode,
    before: u64,
    (compare_add, swap): (u64, u64),
    after: u64,
) -> Result<()> {
    let (here, there) = (link.requester_mr, link.responder_mr);
    lab.responder().write(there, WORD, &before.to_ne_bytes())?;
    lab.requester().write(here, WORD, &[0; 8])?;
    let work = Work::new(lab.next_tag(), opcode, here.span(WORD, 8)).to(there.at(WORD), there.rkey);
    let work = Work {
        compare_add,
        swap,
        ..work
    };
    lab.send(link, &[work])?;
    expect_done(&lab.done()?, &work)?;
    let returned = lab.requester().read(here, WORD, 8)?;
    let left = lab.responder().read(there, WORD, 8)?;
    if returned != before.to_ne_bytes() || left != after.to_ne_bytes() {
        return Err(format!(
            "{opcode:?} on {before:#x} returned {returned:x?} and left {left:x?}"
        ));
    }
    lab.cases += 1;
    Ok(())
}

fn inline(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWrite] {
        for size in [0, 1, 37, 64] {
            let flags = SendFlags::SIGNALED | SendFlags::INLINE;
            lab.message_with(&link, opcode, size, flags)?;
        }
    }
    lab.settle()
}

/// The receiver sleeps until an event comes: for any message, or only for a solicited one.
fn events(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWriteWithImm] {
        for (solicited_only, is_solicited) in [(false, false), (true, true), (true, false)] {
            lab.responder().arm(solicited_only)?;
            let message = lab.prepare(&link, opcode, 100)?;
            let solicited = if is_solicited {
                SendFlags::SOLICITED
            } else {
                SendFlags::NONE
            };
            lab.send(&link, &[message.work.flag(solicited)])?;
            let must_come = is_solicited || !solicited_only;
            let patience = if must_come {
                PATIENCE
            } else {
                Duration::from_millis(200)
            };
            expect_done(&lab.done()?, &message.work)?;
            if lab.responder().wait_event(patience)? != must_come {
                return Err(format!(
                    "{opcode:?}, solicited {is_solicited}, armed for solicited only {solicited_only}: wrong event"
                ));
            }
            lab.arrived(&message)?;
            if !must_come {
                // It is still armed: let the next message take the event.
                let message = lab.prepare(&link, opcode, 1)?;
                lab.send(&link, &[message.work.flag(SendFlags::SOLICITED)])?;
                expect_done(&lab.done()?, &message.work)?;
                if !lab.responder().wait_event(PATIENCE)? {
                    return Err(format!("{opcode:?}, solicited: no event"));
                }
                lab.arrived(&message)?;
            }
            lab.cases += 1;
        }
    }
    lab.settle()
}

/// The peer takes an rkey back, and then it can no longer be used.
fn invalidate(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    let lent = lab.responder().lend(link.responder_qp, 4096)?;
    let write = |lab: &mut Lab| {
        let local = link.requester_mr.span(0, 300);
        Work::new(lab.next_tag(), WrOpcode::RdmaWrite, local).to(lent.at(0), lent.rkey)
    };
    let work = write(lab);
    lab.send(&link, &[work])?;
    expect_done(&lab.done()?, &work)?;

    let message = lab.prepare(&link, WrOpcode::SendWithInv, 500)?;
    let message = crate::lab::Message {
        work: Work {
            rkey: lent.rkey,
            ..message.work
        },
        ..message
    };
    lab.send(&link, &[message.work])?;
    expect_done(&lab.done()?, &message.work)?;
    lab.arrived(&message)?;
    lab.settle()?;
    lab.cases += 1;

    let work = write(lab);
    lab.send(&link, &[work])?;
    let wc = lab.done()?;
    if wc.status != status::REM_ACCESS_ERR {
        return Err(format!(
            "a WRITE by an rkey that was taken back ended as {wc:?}"
        ));
    }
    lab.cases += 1;
    Ok(())
}

/// Requests of all kinds posted at once: they complete in order, and each carries its own bytes.
fn outstanding(lab: &mut Lab) -> Result<()> {
    let kinds = [
        WrOpcode::Send,
        WrOpcode::RdmaRead,
        WrOpcode::RdmaWrite,
        WrOpcode::SendWithImm,
        WrOpcode::RdmaRead,
        WrOpcode::RdmaWriteWithImm,
    ];
    let rounds = if lab.is_quick { 24 } else { 96 };
    for &mtu in mtus(lab) {
        let link = lab.connect_at(&Path { mtu, ..CALM }, PSNS, rounds * SLOT)?;
        batch(lab, &link, &kinds, rounds)?;
        lab.settle()?;
    }
    Ok(())
}

/// `count` messages posted together, of the given kinds in turn.
pub(crate) fn batch(lab: &mut Lab, link: &Link, kinds: &[WrOpcode], count: usize) -> Result<()> {
    let lengths = [1, 300, 5000, 20_000];
    let kinds = kinds.iter().copied().cycle();
    let plan: Vec<_> = kinds.zip(lengths.into_iter().cycle()).take(count).collect();
    together(lab, link, &plan)
}

/// Room for one of the messages of [`together`], and its guards.
pub(crate) const SLOT: usize = 33_000;

/// Messages of at most 32 KB, posted together.
pub(crate) fn together(lab: &mut Lab, link: &Link, plan: &[(WrOpcode, usize)]) -> Result<()> {
    let mut messages = Vec::new();
    for (index, &(opcode, length)) in plan.iter().enumerate() {
        lab.next_tag();
        let (from, to) = (64 + index * SLOT, link.half + 64 + index * SLOT);
        messages.push(lab.prepare_at(link, opcode, length, from, to)?);
    }
    let works: Vec<Work> = messages.iter().map(|message| message.work).collect();
    lab.send(link, &works)?;
    for work in &works {
        expect_done(&lab.done()?, work)?;
    }
    for message in &messages {
        lab.arrived(message)?;
        lab.cases += 1;
    }
    Ok(())
}

/// Random operations of random lengths, posted together, at a random MTU and from a random PSN.
fn random_mix(lab: &mut Lab) -> Result<()> {
    let mut dice = Dice(lab.seed);
    for _ in 0..if lab.is_quick { 3 } else { 12 } {
        let mtu = 256 << dice.below(5);
        let psns = [dice.below(1 << 24), dice.below(1 << 24)];
        let plan = dice.plan(lab.is_quick);
        let link = lab.connect_at(&Path { mtu, ..CALM }, psns, plan.len() * SLOT)?;
        together(lab, &link, &plan).map_err(|e| format!("MTU {mtu}, PSNs {psns:x?}: {e}"))?;
        lab.settle()?;
    }
    Ok(())
}

/// A small generator (Knuth's MMIX): what it decides is the same in every run with one seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 32) % u64::from(bound)) as u32
    }

    /// Operations and lengths, for [`together`].
    pub(crate) fn plan(&mut self, is_quick: bool) -> Vec<(WrOpcode, usize)> {
        let kinds = [
            WrOpcode::Send,
            WrOpcode::SendWithImm,
            WrOpcode::RdmaWrite,
            WrOpcode::RdmaWriteWithImm,
            WrOpcode::RdmaRead,
        ];
        let count = if is_quick { 20 } else { 100 };
        (0..count)
            .map(|_| {
                // Half of them short.
                let bound = if self.below(2) == 0 { 600 } else { 32_000 };
                (kinds[self.below(5) as usize], self.below(bound) as usize)
            })
            .collect()
    }
}

/// Both directions pass from PSN 0xffffff to 0, in the middle of messages of each kind.
fn psn_wrap(lab: &mut Lab) -> Result<()> {
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWrite, WrOpcode::RdmaRead] {
        let link = lab.connect_at(&CALM, [0xff_fffd, 0xff_fffe], 8192)?;
        for size in [100, 5000, 5000] {
            lab.message(&link, opcode, size)?;
        }
        lab.settle()?;
    }
    Ok(())
}
