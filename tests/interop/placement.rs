//! The memory placement extensions: ATOMIC WRITE and FLUSH.

use urxe::{Flush, Placement, Selectivity, SendFlags, WrOpcode};

use crate::lab::{CALM, Lab, Link, Requester, expect_done};
use crate::matrix::Row;
use crate::side::{Path, Result};
use crate::work::{Region, Work, access, status};

pub(crate) const ROWS: &[Row] = &[row("ATOMIC WRITE", atomic_write), row("FLUSH", flush)];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "RC",
        operation,
        run,
    }
}

const WORD: usize = 128;

fn atomic_write(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM)?;
    for word in [0x0123_4567_89ab_cdef_u64, 0, u64::MAX] {
        let (from, to) = (link.requester_mr, link.responder_mr);
        lab.requester().write(from, WORD, &word.to_ne_bytes())?;
        lab.responder().write(to, WORD - 8, &[0x5a; 24])?;
        let local = from.span(WORD, 8);
        let work = Work::new(lab.next_tag(), WrOpcode::AtomicWrite, local).to(to.at(WORD), to.rkey);
        lab.send(&link, &[work])?;
        expect_done(&lab.done()?, &work)?;
        let got = lab.responder().read(to, WORD - 8, 24)?;
        if got[8..16] != word.to_ne_bytes() || got[..8] != [0x5a; 8] || got[16..] != [0x5a; 8] {
            return Err(format!("{word:#x} arrived as {got:x?}"));
        }
        lab.cases += 1;
    }
    lab.settle()
}

/// Global visibility, for a range and for a whole region. rxe's library offers no FLUSH, so it only answers; and it
/// knows persistence only for persistent memory, which the guest has not.
fn flush(lab: &mut Lab) -> Result<()> {
    if lab.requester == Requester::Rxe {
        return Ok(());
    }
    let path = Path {
        access: access::ALL | access::FLUSH_GLOBAL,
        timeout: 15,
        retry_cnt: 3,
        ..CALM
    };
    let link = lab.connect(&path)?;
    let rights = access::LOCAL_WRITE | access::REMOTE_WRITE | access::FLUSH_GLOBAL;
    let to = lab.responder().mr(8192, rights)?;
    for selectivity in [Selectivity::Range, Selectivity::Region] {
        let tag = lab.next_tag();
        let from = link.requester_mr.span(64, 3000);
        lab.requester().fill(from, tag)?;
        let write = Work::new(tag, WrOpcode::RdmaWrite, from).to(to.at(100), to.rkey);
        let flush = flush_of(lab, &link, to, selectivity);
        lab.send(&link, &[unsignaled(write), flush])?;
        let wc = lab.done()?;
        if wc.status == status::RETRY_EXC_ERR && lab.cases == 0 {
            // rxe (6.12) has no place of the payload in its table for FLUSH, so it takes the ICRC over the headers
            // twice, and drops each FLUSH with a right ICRC. A kernel that answers is tested.
            return Ok(());
        }
        expect_done(&wc, &flush)?;
        if let Some(at) = lab.responder().check(to.span(100, 3000), tag)? {
            return Err(format!("{selectivity:?}: a wrong byte at {at}"));
        }
        lab.cases += 1;
    }
    lab.settle()?;

    // The other region does not allow it.
    let refused = flush_of(lab, &link, link.responder_mr, Selectivity::Range);
    lab.send(&link, &[refused])?;
    let wc = lab.done()?;
    if wc.status != status::REM_ACCESS_ERR {
        return Err(format!("a FLUSH without the right ended as {wc:?}"));
    }
    lab.cases += 1;
    Ok(())
}

/// A FLUSH of 3000 bytes of a region, or of all of it.
fn flush_of(lab: &mut Lab, link: &Link, region: Region, selectivity: Selectivity) -> Work {
    let nothing = link.requester_mr.span(0, 0);
    Work {
        flush: Some(Flush {
            placement: Placement::GLOBAL,
            selectivity,
            length: 3000,
        }),
        ..Work::new(lab.next_tag(), WrOpcode::Flush, nothing).to(region.at(100), region.rkey)
    }
}

fn unsignaled(work: Work) -> Work {
    Work {
        flags: SendFlags::NONE,
        ..work
    }
}
