//! Shared receive queues at the responder.

use urxe::WrOpcode;

use crate::lab::{CALM, Lab, expect_done};
use crate::matrix::Row;
use crate::rc::{Dice, SLOT, together};
use crate::side::{Path, Result};

pub(crate) const ROWS: &[Row] = &[
    row("shared receive queue", shared),
    row("two QPs on one queue", two_qps),
    row("queue empty, then filled", empty),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "SRQ",
        operation,
        run,
    }
}

/// Random operations posted together.
fn shared(lab: &mut Lab) -> Result<()> {
    let mut dice = Dice(lab.seed ^ 0x5109);
    let plan = dice.plan(lab.is_quick);
    let link = lab.connect_srq(&CALM, plan.len() * SLOT)?;
    together(lab, &link, &plan)?;
    lab.settle()
}

/// Messages of two connections in turn: each takes the queue's next receive.
fn two_qps(lab: &mut Lab) -> Result<()> {
    let first = lab.connect_srq(&CALM, 128 << 10)?;
    let second = lab.connect_beside(&CALM, &first)?;
    for round in 0..10 {
        for link in [&first, &second] {
            let message = lab.prepare(link, WrOpcode::SendWithImm, 100 + 1000 * round)?;
            lab.send(link, &[message.work])?;
            let wc = lab.done()?;
            expect_done(&wc, &message.work)?;
            if wc.qpn != link.requester_qp {
                return Err(format!("the completion is of another QP: {wc:?}"));
            }
            lab.arrived(&message)?;
            lab.cases += 1;
        }
    }
    lab.settle()
}

/// The sender waits until a receive is posted to the queue.
fn empty(lab: &mut Lab) -> Result<()> {
    let path = Path {
        min_rnr_timer: 16,
        ..CALM
    };
    let link = lab.connect_srq(&path, 128 << 10)?;
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWriteWithImm] {
        crate::faults::late(lab, &link, opcode)?;
    }
    Ok(())
}
