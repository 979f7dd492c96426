//! A road that loses 1 % of what carries the data, toward a peer that was told nothing of urxe's recovery: every byte arrives, and
//! what the kernel is sent are packets of the standard and no others. How much of the same transfer without losses is left is printed.

use std::time::{Duration, Instant};

use urxe::WrOpcode;

use crate::lab::{CALM, Lab, Link, PSNS, Requester, expect_done};
use crate::matrix::Row;
use crate::outage::{self, Way, Which};
use crate::side::{Path, Result};
use crate::work::Work;

pub(crate) const ROWS: &[Row] = &[
    row("1 % lost: READ", |lab| transfer(lab, WrOpcode::RdmaRead)),
    row("1 % lost: WRITE", |lab| transfer(lab, WrOpcode::RdmaWrite)),
    row("1 % lost: SEND", |lab| transfer(lab, WrOpcode::Send)),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "RC",
        operation,
        run,
    }
}

const PATH: Path = Path {
    mtu: 4096,
    timeout: 15,
    ..CALM
};

/// Of a message, and the room that it has with its guards.
const LENGTH: usize = 64 << 10;
const ROOM: usize = LENGTH + 1024;

fn transfer(lab: &mut Lab, opcode: WrOpcode) -> Result<()> {
    // Some forty packets or more are lost, and the last one's timeout is a small part of the time. No more than a send queue holds.
    let count = 250;
    outage::prepare(lab)?;
    let link = lab.connect_at(&PATH, PSNS, count * ROOM)?;
    let calm = timed(lab, &link, opcode, count)?;
    let data_leaves_requester = opcode != WrOpcode::RdmaRead;
    let way = if data_leaves_requester == (lab.requester == Requester::Urxe) {
        Way::ToRxe
    } else {
        Way::FromRxe
    };
    outage::lose(lab, way, Which::OnePercent)?;
    outage::watch(lab)?;
    let lossy = timed(lab, &link, opcode, count);
    let unknown = outage::unknown(lab)?;
    let lost = outage::heal(lab)?;
    let lossy = lossy?;
    if unknown != 0 {
        return Err(format!(
            "rxe was sent {unknown} packets that are not of the standard"
        ));
    }
    if lost == 0 {
        return Err("nothing was lost".to_owned());
    }
    lab.remarks.push(format!(
        "{lost} packets lost: {:.2} of the {:.1} MB/s without",
        calm.as_secs_f64() / lossy.as_secs_f64(),
        (count * LENGTH) as f64 * 1e-6 / calm.as_secs_f64(),
    ));
    Ok(())
}

/// Posts all messages together; how long until the last is done. Every byte of each must be there then.
fn timed(lab: &mut Lab, link: &Link, opcode: WrOpcode, count: usize) -> Result<Duration> {
    let mut messages = Vec::new();
    for index in 0..count {
        lab.next_tag();
        let (from, to) = (256 + index * ROOM, link.half + 256 + index * ROOM);
        messages.push(lab.prepare_at(link, opcode, LENGTH, from, to)?);
    }
    let works: Vec<Work> = messages.iter().map(|message| message.work).collect();
    let start = Instant::now();
    lab.send(link, &works)?;
    for work in &works {
        expect_done(&lab.done()?, work)?;
    }
    let took = start.elapsed();
    for message in &messages {
        lab.arrived(message)?;
        lab.cases += 1;
    }
    Ok(took)
}
