//! What must fail, and how both sides say so.

use std::time::{Duration, Instant};

use urxe::WrOpcode;

use crate::lab::{CALM, Lab, Link, PATIENCE, Requester};
use crate::matrix::Row;
use crate::side::{Path, Result};
use crate::work::{Work, access, status};

pub(crate) const ROWS: &[Row] = &[
    row("receive posted late", late_receive),
    row("RNR retries exhausted", rnr_exhausted),
    row("wrong rkey", wrong_rkey),
    row("outside the region", out_of_bounds),
    row("region without the right", missing_right),
    row("QP without the right", qp_without_right),
    row("receive too short", too_long),
    row("peer gone", peer_gone),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "RC",
        operation,
        run,
    }
}

const ERR: u32 = 6;

/// The sender finds no receive, waits as long as it is told, and tries again, for ever (`rnr_retry` 7).
fn late_receive(lab: &mut Lab) -> Result<()> {
    // 16: 2.56 ms.
    let path = Path {
        min_rnr_timer: 16,
        ..CALM
    };
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWriteWithImm] {
        let link = lab.connect(&path)?;
        late(lab, &link, opcode)?;
    }
    Ok(())
}

/// One message with a receive that is posted only after it was refused twice.
pub(crate) fn late(lab: &mut Lab, link: &Link, opcode: WrOpcode) -> Result<()> {
    // A plain WRITE takes no receive, so none is posted here.
    let work = lab.prepare(link, WrOpcode::RdmaWrite, 3000)?.work;
    let work = Work { opcode, ..work };
    lab.send(link, &[work])?;
    wait_for_rnr(lab)?;
    let offset = (work.remote_addr - link.responder_mr.addr) as usize;
    let destination = link.responder_mr.span(offset, 3000);
    lab.recv(link, 77, destination)?;
    let (sent, got) = (lab.done()?, lab.received()?);
    if sent.status != 0 || got.status != 0 || got.wr_id != 77 || got.byte_len != 3000 {
        return Err(format!("{opcode:?}: {sent:?}, {got:?}"));
    }
    if let Some(at) = lab.responder().check(destination, work.wr_id)? {
        return Err(format!("{opcode:?}: a wrong byte at {at}"));
    }
    lab.cases += 1;
    Ok(())
}

/// Until the responder has sent an RNR NAK at least twice.
fn wait_for_rnr(lab: &mut Lab) -> Result<()> {
    let start = Instant::now();
    let count = |lab: &mut Lab| -> Result<u64> {
        let counters = lab.responder().counters()?;
        Ok(counters.get("send_rnr_err").copied().unwrap_or(0))
    };
    let before = count(lab)?;
    while count(lab)? < before + 2 {
        if start.elapsed() > PATIENCE {
            return Err("no RNR NAK was sent again".to_owned());
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn rnr_exhausted(lab: &mut Lab) -> Result<()> {
    for rnr_retry in [0, 2] {
        let path = Path {
            rnr_retry,
            min_rnr_timer: 14,
            ..CALM
        };
        let link = lab.connect(&path)?;
        let message = lab.prepare(&link, WrOpcode::RdmaWrite, 100)?;
        let send = Work {
            opcode: WrOpcode::Send,
            ..message.work
        };
        // The second request is flushed: the QP is in error.
        lab.send(&link, &[send, send])?;
        expect_statuses(lab, &[status::RNR_RETRY_EXC_ERR], "SEND without a receive")?;
        expect_state(lab, true, &link)?;
        lab.cases += 1;
    }
    Ok(())
}

const ONE_SIDED: [WrOpcode; 3] = [
    WrOpcode::RdmaWrite,
    WrOpcode::RdmaRead,
    WrOpcode::AtomicFetchAndAdd,
];

fn wrong_rkey(lab: &mut Lab) -> Result<()> {
    for opcode in ONE_SIDED {
        refused(lab, &CALM, opcode, REFUSED_KEY, |link, work| {
            work.to(link.responder_mr.at(0), link.responder_mr.rkey ^ 0x5500)
        })?;
    }
    Ok(())
}

fn out_of_bounds(lab: &mut Lab) -> Result<()> {
    for opcode in ONE_SIDED {
        refused(lab, &CALM, opcode, REFUSED_KEY, |link, work| {
            // It begins inside.
            let end = 2 * link.half;
            let inside = if opcode == WrOpcode::AtomicFetchAndAdd {
                0
            } else {
                100
            };
            work.to(link.responder_mr.at(end - inside), link.responder_mr.rkey)
        })?;
        refused(lab, &CALM, opcode, REFUSED_KEY, |link, work| {
            let before = link.responder_mr.addr - 8;
            work.to(before, link.responder_mr.rkey)
        })?;
    }
    Ok(())
}

/// The region has another right than the one that is needed.
fn missing_right(lab: &mut Lab) -> Result<()> {
    for (opcode, right) in ONE_SIDED.into_iter().zip([
        access::REMOTE_READ,
        access::REMOTE_WRITE | access::LOCAL_WRITE,
        access::REMOTE_READ,
    ]) {
        let link = lab.connect(&CALM)?;
        let poor = lab.responder().mr(4096, right)?;
        let work = attempt(lab, &link, opcode).to(poor.at(0), poor.rkey);
        expect_refused(lab, &link, work, REFUSED_KEY)?;
    }
    Ok(())
}

/// The region would allow it, the QP does not.
fn qp_without_right(lab: &mut Lab) -> Result<()> {
    for opcode in ONE_SIDED {
        let path = Path {
            access: access::LOCAL_WRITE,
            ..CALM
        };
        refused(lab, &path, opcode, REFUSED_REQUEST, |link, work| {
            work.to(link.responder_mr.at(0), link.responder_mr.rkey)
        })?;
    }
    Ok(())
}

const REFUSED_KEY: &[u32] = &[status::REM_ACCESS_ERR];
/// IBTA table 56: NAK invalid request.
const REFUSED_REQUEST: &[u32] = &[status::REM_INV_REQ_ERR];

/// Connects, and has a request made by `aim` refused.
fn refused(
    lab: &mut Lab,
    path: &Path,
    opcode: WrOpcode,
    want: &[u32],
    aim: impl Fn(&Link, Work) -> Work,
) -> Result<()> {
    let link = lab.connect(path)?;
    let work = attempt(lab, &link, opcode);
    let work = aim(&link, work);
    expect_refused(lab, &link, work, want)
}

/// A request of 300 bytes (8 for an atomic), not aimed yet.
fn attempt(lab: &mut Lab, link: &Link, opcode: WrOpcode) -> Work {
    let length = if opcode == WrOpcode::AtomicFetchAndAdd {
        8
    } else {
        300
    };
    Work::new(lab.next_tag(), opcode, link.requester_mr.span(64, length))
}

/// The request fails with one of the statuses, the one after it is flushed, and both QPs are in error.
fn expect_refused(lab: &mut Lab, link: &Link, work: Work, want: &[u32]) -> Result<()> {
    let what = format!("{:?}", work.opcode);
    lab.send(link, &[work, work])?;
    expect_statuses(lab, want, &what)?;
    expect_state(lab, true, link).map_err(|e| format!("{what}: {e}"))?;
    expect_state(lab, false, link).map_err(|e| format!("{what}: {e}"))?;
    lab.cases += 1;
    Ok(())
}

/// The requester's next two completions: one of `want`, then flushed.
fn expect_statuses(lab: &mut Lab, want: &[u32], what: &str) -> Result<()> {
    let first = lab.done()?;
    let second = lab.done()?;
    if !want.contains(&first.status) || second.status != status::WR_FLUSH_ERR {
        return Err(format!(
            "{what}: completions {first:?} and {second:?}, not status {want:?} and a flush"
        ));
    }
    Ok(())
}

/// The QP of the requester or of the responder is in error.
fn expect_state(lab: &mut Lab, of_requester: bool, link: &Link) -> Result<()> {
    let (side, qp) = if of_requester {
        (lab.requester(), link.requester_qp)
    } else {
        (lab.responder(), link.responder_qp)
    };
    let (name, start) = (side.name(), Instant::now());
    // The NAK leaves a moment before.
    loop {
        let state = side.state(qp)?;
        if state == ERR {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(5) {
            return Err(format!("{name}'s QP is in state {state}, not in error"));
        }
        std::thread::yield_now();
    }
}

/// A SEND that is longer than the receive: an error on both sides. IBTA 9.7.4.1.9 says NAK invalid request and a local
/// length error; rxe sends NAK remote operational error and completes with a local QP operation error.
fn too_long(lab: &mut Lab) -> Result<()> {
    let (want, local): (&[u32], &[u32]) = match lab.requester {
        Requester::Urxe => (
            &[status::REM_OP_ERR, status::REM_INV_REQ_ERR],
            &[status::LOC_LEN_ERR, status::LOC_QP_OP_ERR],
        ),
        Requester::Rxe => (&[status::REM_INV_REQ_ERR], &[status::LOC_LEN_ERR]),
    };
    for length in [600, 5000] {
        let link = lab.connect(&CALM)?;
        lab.recv(&link, 9, link.responder_mr.span(0, 100))?;
        let tag = lab.next_tag();
        let send = Work::new(tag, WrOpcode::Send, link.requester_mr.span(0, length));
        lab.send(&link, &[send, send])?;
        expect_statuses(lab, want, "SEND that is too long")?;
        let wc = lab.received()?;
        if !local.contains(&wc.status) || wc.wr_id != 9 {
            return Err(format!("the receive that was too short ended as {wc:?}"));
        }
        expect_state(lab, false, &link)?;
        lab.cases += 1;
    }
    Ok(())
}

/// The peer does not answer: the requester gives up.
fn peer_gone(lab: &mut Lab) -> Result<()> {
    let path = Path {
        timeout: 12,
        retry_cnt: 3,
        ..CALM
    };
    let link = lab.connect(&path)?;
    lab.responder().close()?;
    let work = Work::new(1, WrOpcode::RdmaWrite, link.requester_mr.span(0, 10))
        .to(link.responder_mr.at(0), link.responder_mr.rkey);
    lab.send(&link, &[work, work])?;
    expect_statuses(lab, &[status::RETRY_EXC_ERR], "WRITE to nobody")?;
    lab.cases += 1;
    Ok(())
}
