//! Losses, each way.

use urxe::WrOpcode;

use crate::lab::{CALM, Lab, PSNS, Requester};
use crate::matrix::Row;
use crate::outage::{self, Way, Which};
use crate::rc::{Dice, SLOT, batch, together};
use crate::side::{Path, Result};

pub(crate) const ROWS: &[Row] = &[
    row("request lost: each", |lab| each_lost(lab, true)),
    row("response lost: each", |lab| each_lost(lab, false)),
    row("many requests lost", |lab| many_lost(lab, true)),
    row("many responses lost", |lab| many_lost(lab, false)),
    row("random mix, losses", random_mix_lost),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "RC",
        operation,
        run,
    }
}

/// An ACK timeout of 134 ms: each loss of a last packet costs one. Eight of them (a second) without any answer end the
/// connection, so an emulated guest on a busy machine must not need as long.
const HASTY: Path = Path {
    timeout: 15,
    ..CALM
};

fn way(lab: &Lab, of_requests: bool) -> Way {
    if of_requests == (lab.requester == Requester::Urxe) {
        Way::ToRxe
    } else {
        Way::FromRxe
    }
}

/// False for rxe's own READs among other requests that lose responses: an old ACK that comes between the responses to
/// a READ makes rxe lose its place in them: it completes the READ without its data, or fails (the warning in its
/// completer, rxe_comp.c:827 of Linux 6.12). What is sent again draws such ACKs. READs alone lose responses all the same.
fn is_survived(lab: &Lab, of_requests: bool, opcode: WrOpcode) -> bool {
    of_requests || lab.requester == Requester::Urxe || opcode != WrOpcode::RdmaRead
}

/// A message of five packets with its first, second, ... packet lost; and so for its responses. A READ is retried in
/// the middle then.
fn each_lost(lab: &mut Lab, of_requests: bool) -> Result<()> {
    outage::prepare(lab)?;
    for opcode in [
        WrOpcode::Send,
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaWriteWithImm,
        WrOpcode::RdmaRead,
    ] {
        // A message has one response, or five; a READ has one request.
        let has_five = of_requests != (opcode == WrOpcode::RdmaRead);
        let link = lab.connect(&HASTY)?;
        // So that the PSN is not the first one.
        lab.message(&link, opcode, 10)?;
        for index in 0..if has_five { 5 } else { 1 } {
            let way = way(lab, of_requests);
            outage::lose(lab, way, Which::Only(index))?;
            let done = lab.message(&link, opcode, 5000);
            let lost = outage::heal(lab)?;
            done.map_err(|e| format!("{opcode:?}, packet {index} lost: {e}"))?;
            if lost != 1 {
                return Err(format!(
                    "{opcode:?}: {lost} packets were lost, not packet {index}"
                ));
            }
            // What follows is not harmed.
            lab.message(&link, opcode, 3000)?;
        }
    }
    Ok(())
}

/// Many requests of all kinds at once, some packets lost.
fn many_lost(lab: &mut Lab, of_requests: bool) -> Result<()> {
    outage::prepare(lab)?;
    let mixes: [&[WrOpcode]; 3] = [
        &[WrOpcode::Send, WrOpcode::RdmaWrite],
        &[WrOpcode::RdmaRead],
        &[
            WrOpcode::RdmaRead,
            WrOpcode::SendWithImm,
            WrOpcode::RdmaWrite,
        ],
    ];
    for mix in mixes {
        let mut mix = mix.to_vec();
        if mix.len() > 1 {
            mix.retain(|opcode| is_survived(lab, of_requests, *opcode));
        }
        let count = if lab.is_quick { 12 } else { 40 };
        let link = lab.connect_at(&HASTY, PSNS, count * SLOT)?;
        let way = way(lab, of_requests);
        outage::lose(lab, way, Which::Some)?;
        let done = batch(lab, &link, &mix, count);
        let lost = outage::heal(lab)?;
        done.map_err(|e| format!("{mix:?}: {e}"))?;
        if lost == 0 {
            return Err(format!("{mix:?}: nothing was lost"));
        }
    }
    Ok(())
}

/// Random operations of random lengths, with losses each way in turn.
fn random_mix_lost(lab: &mut Lab) -> Result<()> {
    outage::prepare(lab)?;
    let mut dice = Dice(lab.seed ^ 0x1055);
    for round in 0..if lab.is_quick { 2 } else { 4 } {
        let of_requests = round % 2 == 0;
        let mut plan = dice.plan(lab.is_quick);
        plan.retain(|(opcode, _)| is_survived(lab, of_requests, *opcode));
        let link = lab.connect_at(&HASTY, PSNS, plan.len() * SLOT)?;
        let way = way(lab, of_requests);
        outage::lose(lab, way, Which::Some)?;
        let done = together(lab, &link, &plan);
        let lost = outage::heal(lab)?;
        done.map_err(|e| format!("round {round}: {e}"))?;
        if lost == 0 {
            return Err(format!("round {round}: nothing was lost"));
        }
    }
    Ok(())
}
