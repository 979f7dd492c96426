//! Datagrams: the address handle, the 40 bytes before the payload, the Q_Key, and multicast.

use std::net::IpAddr;
use std::time::Duration;

use urxe::{WcOpcode, WrOpcode};

use crate::lab::{Lab, Requester, expect_done};
use crate::matrix::Row;
use crate::side::{Queue, Result, Service};
use crate::work::{Region, Work, access, status};

pub(crate) const ROWS: &[Row] = &[
    row("SEND", |lab| sizes(lab, WrOpcode::Send)),
    row("SEND with immediate", |lab| {
        sizes(lab, WrOpcode::SendWithImm)
    }),
    row("many outstanding", outstanding),
    row("wrong Q_Key", wrong_qkey),
    row("multicast", multicast),
];

const fn row(operation: &'static str, run: fn(&mut Lab) -> Result<()>) -> Row {
    Row {
        service: "UD",
        operation,
        run,
    }
}

const QKEY: u32 = 0x1122_3344;
/// What every receive begins with.
const GRH: usize = 40;
/// The largest datagram: the MTU of the link.
const LARGEST: usize = 4096;
/// Bytes of a receive and its guards.
const SLOT: usize = 5000;
/// The number that datagrams to a group are sent to.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// A sender and a receiver.
struct Pair {
    sender: u32,
    receiver: u32,
    from: Region,
    to: Region,
    /// The sender's handle of the receiver's address.
    ah: u32,
    source: IpAddr,
    destination: IpAddr,
}

fn pair(lab: &mut Lab) -> Result<Pair> {
    lab.open()?;
    let (urxe, rxe) = lab.hosts;
    let (source, destination) = match lab.requester {
        Requester::Urxe => (urxe, rxe),
        Requester::Rxe => (rxe, urxe),
    };
    let receiver = lab.responder().qp(Service::Ud, None)?;
    lab.responder().ready(receiver, QKEY, 0x300)?;
    let to = lab.responder().mr(64 * SLOT, access::LOCAL_WRITE)?;
    let side = lab.requester();
    let sender = side.qp(Service::Ud, None)?;
    side.ready(sender, QKEY, 0xff_ffff)?;
    let (from, ah) = (
        side.mr(64 * SLOT, access::LOCAL_WRITE)?,
        side.ah(destination)?,
    );
    Ok(Pair {
        sender,
        receiver,
        from,
        to,
        ah,
        source,
        destination,
    })
}

impl Pair {
    /// Fills the bytes of a datagram; the request that sends it.
    fn prepare(&self, lab: &mut Lab, opcode: WrOpcode, slot: usize, length: usize) -> Result<Work> {
        let tag = lab.next_tag();
        let span = self.from.span(slot * SLOT, length);
        lab.requester().fill(span, tag)?;
        Ok(Work {
            imm: 0xda7a_0000 | tag as u32,
            datagram: Some((self.ah, self.receiver, QKEY)),
            ..Work::new(tag, opcode, span)
        })
    }

    fn recv(&self, lab: &mut Lab, slot: usize, length: usize) -> Result<()> {
        let span = self.to.span(slot * SLOT, GRH + length);
        lab.responder()
            .fill_byte(self.to.span(slot * SLOT, SLOT), 0xee)?;
        lab.responder()
            .post_recv(Queue::Qp(self.receiver), slot as u64, span)
    }

    /// The next receive must hold this datagram, and say where it came from.
    fn arrived(&self, lab: &mut Lab, work: &Work, slot: usize) -> Result<()> {
        let (wc, length) = (lab.received()?, work.local.length);
        let imm = (work.opcode == WrOpcode::SendWithImm).then_some(work.imm);
        let is_right = wc.status == status::SUCCESS
            && wc.opcode == WcOpcode::Recv as u32
            && wc.wr_id == slot as u64
            && wc.byte_len as usize == GRH + length
            && wc.src_qp == self.sender
            && wc.imm == imm;
        if !is_right {
            return Err(format!("{work:?} arrived as {wc:?}"));
        }
        let at = slot * SLOT;
        let payload = self.to.span(at + GRH, length);
        if let Some(place) = lab.responder().check(payload, work.wr_id)? {
            return Err(format!("a wrong byte at {place} of {length}"));
        }
        let after = self.to.span(at + GRH + length, 64);
        if lab.responder().check_byte(after, 0xee)?.is_some() {
            return Err("bytes after the datagram were overwritten".to_owned());
        }
        let grh = lab.responder().read(self.to, at, GRH)?;
        self.check_grh(&grh, work)
            .map_err(|e| format!("{e} in the 40 bytes {grh:02x?}"))?;
        lab.cases += 1;
        Ok(())
    }

    /// The packet's IP header: over IPv4 in the second half.
    fn check_grh(&self, grh: &[u8], work: &Work) -> Result<()> {
        let imm = if work.opcode == WrOpcode::SendWithImm {
            4
        } else {
            0
        };
        // UDP, BTH, DETH, padded payload, ICRC.
        let udp = 8 + 12 + 8 + imm + work.local.length.next_multiple_of(4) + 4;
        let number = |at: usize| usize::from(u16::from_be_bytes([grh[at], grh[at + 1]]));
        let (version, length, protocol, addresses) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (
                grh[20] == 0x45,
                number(22) == 20 + udp,
                grh[29] == 17,
                grh[32..36] == source.octets() && grh[36..40] == destination.octets(),
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => (
                grh[0] >> 4 == 6,
                number(4) == udp,
                grh[6] == 17,
                grh[8..24] == source.octets() && grh[24..40] == destination.octets(),
            ),
            _ => return Err("addresses of two kinds".to_owned()),
        };
        match (version, length, protocol, addresses) {
            (true, true, true, true) => Ok(()),
            (false, ..) => Err("a wrong version".to_owned()),
            (_, false, ..) => Err(format!("a wrong length (not {udp} from UDP on)")),
            (_, _, false, _) => Err("a wrong protocol".to_owned()),
            (.., false) => Err("wrong addresses".to_owned()),
        }
    }
}

fn sizes(lab: &mut Lab, opcode: WrOpcode) -> Result<()> {
    let pair = pair(lab)?;
    for length in [0, 1, 2, 3, 255, 256, 257, 1000, LARGEST - 1, LARGEST] {
        pair.recv(lab, 0, length)?;
        let work = pair.prepare(lab, opcode, 0, length)?;
        lab.requester().post_send(pair.sender, &[work])?;
        expect_done(&lab.done()?, &work)?;
        pair.arrived(lab, &work, 0)
            .map_err(|e| format!("{length} bytes: {e}"))?;
    }
    lab.settle()
}

/// They arrive in the order in which they were sent.
fn outstanding(lab: &mut Lab) -> Result<()> {
    let pair = pair(lab)?;
    let mut works = Vec::new();
    for slot in 0..60 {
        let length = [1, 40, 1500, LARGEST][slot % 4];
        pair.recv(lab, slot, length)?;
        works.push(pair.prepare(lab, WrOpcode::SendWithImm, slot, length)?);
    }
    lab.requester().post_send(pair.sender, &works)?;
    for (slot, work) in works.iter().enumerate() {
        expect_done(&lab.done()?, work)?;
        pair.arrived(lab, work, slot)?;
    }
    lab.settle()
}

/// A datagram with another Q_Key than the receiver's is dropped; its sender does not learn of it.
fn wrong_qkey(lab: &mut Lab) -> Result<()> {
    let pair = pair(lab)?;
    pair.recv(lab, 0, 100)?;
    let right = pair.prepare(lab, WrOpcode::Send, 0, 100)?;
    let wrong = Work {
        datagram: Some((pair.ah, pair.receiver, QKEY + 1)),
        ..right
    };
    lab.requester().post_send(pair.sender, &[wrong])?;
    expect_done(&lab.done()?, &wrong)?;
    if let Some(wc) = lab.responder().poll(1, Duration::from_millis(200))?.first() {
        return Err(format!("a datagram with a wrong Q_Key arrived: {wc:?}"));
    }
    lab.requester().post_send(pair.sender, &[right])?;
    expect_done(&lab.done()?, &right)?;
    pair.arrived(lab, &right, 0)
}

/// To a group that the receiver is attached to; after that, to one that it is not.
fn multicast(lab: &mut Lab) -> Result<()> {
    let pair = pair(lab)?;
    let [group, other] = match pair.source {
        IpAddr::V4(_) => ["239.77.0.5", "239.77.0.6"],
        IpAddr::V6(_) => ["ff0e::77:5", "ff0e::77:6"],
    }
    .map(|group| group.parse::<IpAddr>().expect("a literal"));
    lab.responder().attach(pair.receiver, group)?;
    let handles = [lab.requester().ah(other)?, lab.requester().ah(group)?];
    let pair = Pair {
        destination: group,
        ..pair
    };
    for length in [0, 100, LARGEST] {
        pair.recv(lab, 0, length)?;
        let work = pair.prepare(lab, WrOpcode::SendWithImm, 0, length)?;
        for (ah, is_there) in handles.into_iter().zip([false, true]) {
            let work = Work {
                datagram: Some((ah, MULTICAST_QPN, QKEY)),
                ..work
            };
            lab.requester().post_send(pair.sender, &[work])?;
            expect_done(&lab.done()?, &work)?;
            if is_there {
                pair.arrived(lab, &work, 0)
                    .map_err(|e| format!("{length} bytes: {e}"))?;
            } else if let Some(wc) = lab.responder().poll(1, Duration::from_millis(100))?.first() {
                return Err(format!("a datagram to another group arrived: {wc:?}"));
            }
        }
    }
    Ok(())
}
