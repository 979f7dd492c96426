//! Unreliable connections: no ACKs, so a message arrives whole or not at all.

use std::time::Duration;

use urxe::{SendFlags, WrOpcode};

use crate::lab::{CALM, Lab, Link, Requester, expect_done};
use crate::matrix::Row;
use crate::outage::{self, Way, Which};
use crate::rc::mtus;
use crate::side::{Path, Result, Service};

pub(crate) const ROWS: &[Row] = &[
    row("SEND", |lab| sizes(lab, WrOpcode::Send)),
    row("SEND with immediate", |lab| {
        sizes(lab, WrOpcode::SendWithImm)
    }),
    row("WRITE", |lab| sizes(lab, WrOpcode::RdmaWrite)),
    row("WRITE with immediate", |lab| {
        sizes(lab, WrOpcode::RdmaWriteWithImm)
    }),
    row("inline data", inline),
    row("PSN wrap", psn_wrap),
    row("packet lost: each", each_lost),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "UC",
        operation,
        run,
    }
}

const CALM_UC: Path = Path {
    service: Service::Uc,
    ..CALM
};

/// Nothing slows a sender down, so a message must fit the receiver's socket buffer.
fn sizes(lab: &mut Lab, opcode: WrOpcode) -> Result<()> {
    for &mtu in mtus(lab) {
        let link = lab.connect(&Path { mtu, ..CALM_UC })?;
        let mtu = mtu as usize;
        for size in [0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu, 32 << 10] {
            lab.message(&link, opcode, size)?;
        }
        lab.settle()?;
    }
    Ok(())
}

fn inline(lab: &mut Lab) -> Result<()> {
    let link = lab.connect(&CALM_UC)?;
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWrite] {
        for size in [0, 1, 37, 64] {
            let flags = SendFlags::SIGNALED | SendFlags::INLINE;
            lab.message_with(&link, opcode, size, flags)?;
        }
    }
    lab.settle()
}

fn psn_wrap(lab: &mut Lab) -> Result<()> {
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWriteWithImm] {
        let link = lab.connect_at(&CALM_UC, [0xff_fffd, 0xff_fffe], 8192)?;
        for size in [100, 5000, 5000] {
            lab.message(&link, opcode, size)?;
        }
        lab.settle()?;
    }
    Ok(())
}

/// A message of five packets without its first, second, ... : no completion comes of it, and the messages that follow
/// are whole. The receive that it began to fill is the next message's.
fn each_lost(lab: &mut Lab) -> Result<()> {
    outage::prepare(lab)?;
    let way = match lab.requester {
        Requester::Urxe => Way::ToRxe,
        Requester::Rxe => Way::FromRxe,
    };
    // rxe takes the first packet of the next message as the continuation of one with later packets missing, and so
    // drops all that follow, for ever.
    let last = match lab.requester {
        Requester::Urxe => 0,
        Requester::Rxe => 4,
    };
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWriteWithImm] {
        let link = lab.connect(&CALM_UC)?;
        lab.message(&link, opcode, 10)?;
        for index in 0..=last {
            lose_one(lab, &link, opcode, way, index)
                .map_err(|e| format!("{opcode:?}, packet {index} lost: {e}"))?;
        }
    }
    Ok(())
}

fn lose_one(lab: &mut Lab, link: &Link, opcode: WrOpcode, way: Way, index: u32) -> Result<()> {
    let message = lab.prepare(link, opcode, 5000)?;
    outage::lose(lab, way, Which::Only(index))?;
    lab.send(link, &[message.work])?;
    // It is done when it has left.
    let done = lab.done();
    let early = lab.responder().poll(1, Duration::from_millis(200));
    let lost = outage::heal(lab)?;
    expect_done(&done?, &message.work)?;
    if lost != 1 {
        return Err(format!("{lost} packets were lost"));
    }
    if let Some(wc) = early?.first() {
        return Err(format!("a message that was not whole completed: {wc:?}"));
    }
    // The same bytes again: they go into the receive that is left.
    lab.send(link, &[message.work])?;
    expect_done(&lab.done()?, &message.work)?;
    lab.arrived(&message)?;
    lab.cases += 1;
    lab.message(link, opcode, 3000)
}
