//! Words for scripted tests: what travels, as lines of text; packets lost by number, or
//! made by hand.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

use std::cell::RefCell;
use std::rc::Rc;

use urxe_core::error::WcStatus;
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{
    Aeth, Bth, Msn, Opcode, Packet, PacketWriter, PathHeader, Psn, Syndrome, packet_len,
};

use crate::support::{IOVA, Pair, SEND_CQ, Verdict};

/// An entry for memory of a side.
pub fn sge(p: &Pair, side: usize, at: u64, length: u32) -> Sge {
    Sge {
        addr: IOVA + at,
        length,
        lkey: p.nodes[side].keys.lkey,
    }
}

/// Posts a request of side 0.
pub fn post(p: &mut Pair, wr_id: u64, opcode: WrOpcode, len: u32, flags: SendFlags) {
    let sges = [sge(p, 0, 0x8000, len)];
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1].keys.rkey;
    wr.flags = flags;
    p.post_send(0, &wr);
}

/// Posts a receive.
pub fn receive(p: &mut Pair, side: usize, wr_id: u64) {
    let sges = [sge(p, side, 0x40000, 0x8000)];
    p.post_recv(side, &RecvWr { wr_id, sges: &sges });
}

/// One packet as a line: opcode, PSN, and A for AckReq.
pub fn line(bytes: &[u8]) -> String {
    let p = Packet::parse(bytes).expect("a packet");
    let b = p.bth();
    let name = p.info().name.trim_start_matches("RC ");
    let ack = if b.ack_req { " A" } else { "" };
    format!("{name} {:x}{ack}", b.psn.get())
}

/// Records what each side sends.
pub fn record(p: &mut Pair) -> Rc<RefCell<Vec<(usize, String)>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        sink.borrow_mut().push((from, line(bytes)));
        Verdict::Pass
    }));
    log
}

pub fn lines(log: &Rc<RefCell<Vec<(usize, String)>>>, side: usize) -> Vec<String> {
    log.borrow()
        .iter()
        .filter(|(from, _)| *from == side)
        .map(|(_, l)| l.clone())
        .collect()
}

/// Loses the nth packet (counting from 0) that a side sends.
pub fn lose(p: &mut Pair, side: usize, nth: usize) -> Rc<RefCell<Vec<(usize, String)>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    let mut seen = 0;
    p.filter = Some(Box::new(move |from, bytes| {
        sink.borrow_mut().push((from, line(bytes)));
        if from == side {
            seen += 1;
            if seen == nth + 1 {
                return Verdict::Drop;
            }
        }
        Verdict::Pass
    }));
    log
}

/// A packet as node `from` would send it, but made here.
pub fn forge(
    p: &Pair,
    from: usize,
    bth: &Bth,
    write: impl FnOnce(&mut PacketWriter<'_>),
) -> Vec<u8> {
    forge_with(p, from, bth, &[], write)
}

/// A forged packet with a payload.
pub fn forge_with(
    p: &Pair,
    from: usize,
    bth: &Bth,
    payload: &[u8],
    write: impl FnOnce(&mut PacketWriter<'_>),
) -> Vec<u8> {
    let info = bth.opcode.info().expect("assigned");
    let mut bytes = vec![0; packet_len(info, payload.len())];
    let octets = |side: usize| match p.nodes[side].addr {
        std::net::IpAddr::V4(a) => a.octets(),
        std::net::IpAddr::V6(_) => unreachable!("nodes have IPv4 addresses"),
    };
    let path = PathHeader::V4 {
        src: octets(from),
        dst: octets(1 - from),
        sport: 4791,
        dport: 4791,
    };
    let mut writer = PacketWriter::new(&mut bytes, bth);
    write(&mut writer);
    writer.payload_mut(payload.len()).copy_from_slice(payload);
    writer.finish(&urxe_wire::IcrcSeed::new(&path), 0);
    bytes
}

pub fn forge_ack(p: &Pair, psn: u32, syndrome: Syndrome, msn: u32) -> Vec<u8> {
    let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, p.nodes[0].qpn, Psn::new(psn));
    forge(p, 1, &bth, |w| {
        w.aeth(&Aeth {
            syndrome,
            msn: Msn::new(msn),
        })
    })
}

/// Ids and statuses of the sends that completed.
pub fn statuses(p: &mut Pair, side: usize) -> Vec<(u64, WcStatus)> {
    p.nodes[side]
        .take(SEND_CQ)
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect()
}
