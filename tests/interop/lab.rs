//! Two ends, a connection between them, and the steps that most tests consist of.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use urxe::{SendFlags, WcOpcode, WrOpcode};

use crate::accounts::Accounts;
use crate::args::Args;
use crate::rxe_side::RxeSide;
use crate::side::{Endpoint, Path, Queue, Result, Service, Side};
use crate::urxe_side::UrxeSide;
use crate::work::{Completion, Region, Span, Work, access, status};

/// Longer than anything takes in an emulated guest on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What lies beside a message and must stay.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xee;

/// First PSNs of requester and responder, where nothing else is asked for.
pub(crate) const PSNS: [u32; 2] = [0x100, 0x200];

/// Room for messages in a region, where nothing else is asked for.
const ROOM: usize = 128 << 10;

/// The side that posts the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requester {
    Urxe,
    Rxe,
}

pub(crate) struct Lab {
    urxe: UrxeSide,
    rxe: RxeSide,
    pub(crate) requester: Requester,
    /// Addresses of urxe and of rxe.
    pub(crate) hosts: (IpAddr, IpAddr),
    /// The same over IPv4, whatever is tested: where programs find each other.
    pub(crate) meeting: (IpAddr, IpAddr),
    pub(crate) is_quick: bool,
    /// The guest is emulated.
    pub(crate) is_slow: bool,
    /// Where whatever is random begins.
    pub(crate) seed: u64,
    /// What the present connection has counted when it began.
    accounts: Accounts,
    /// Differs from message to message.
    tag: u64,
    /// Cases that went well, in this cell of the matrix.
    pub(crate) cases: u32,
    /// Said below the line of the matrix.
    pub(crate) remarks: Vec<String>,
}

/// A connection between the requester and the responder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) requester_qp: u32,
    pub(crate) responder_qp: u32,
    /// Where its receives are posted.
    pub(crate) recvs: Queue,
    /// A region of each end, with all rights.
    pub(crate) requester_mr: Region,
    pub(crate) responder_mr: Region,
    /// Bytes in each half of a region: messages leave from the first half and arrive in the second.
    pub(crate) half: usize,
    pub(crate) mtu: u32,
    /// The requester's completion says that the message has arrived.
    pub(crate) is_reliable: bool,
}

/// A path with no surprises: timeouts so long that a slow guest draws no retries.
pub(crate) const CALM: Path = Path {
    service: Service::Rc,
    mtu: 1024,
    access: access::ALL,
    timeout: 18,
    retry_cnt: 7,
    rnr_retry: 7,
    min_rnr_timer: 12,
    rd_atomic: 16,
};

impl Lab {
    pub(crate) fn new(rxe: RxeSide, args: &Args) -> Lab {
        let hosts = args.hosts[0];
        Lab {
            urxe: UrxeSide::default(),
            rxe,
            requester: Requester::Urxe,
            hosts,
            meeting: hosts,
            is_quick: args.is_quick,
            is_slow: args.is_slow,
            seed: args.seed,
            accounts: Accounts::default(),
            tag: 0,
            cases: 0,
            remarks: Vec::new(),
        }
    }

    pub(crate) fn requester(&mut self) -> &mut dyn Side {
        match self.requester {
            Requester::Urxe => &mut self.urxe,
            Requester::Rxe => &mut self.rxe,
        }
    }

    pub(crate) fn responder(&mut self) -> &mut dyn Side {
        match self.requester {
            Requester::Urxe => &mut self.rxe,
            Requester::Rxe => &mut self.urxe,
        }
    }

    /// Runs a command line in the guest; its output.
    pub(crate) fn guest(&mut self, command: &str) -> Result<String> {
        self.rxe.shell(command)
    }

    /// Begins again on both sides.
    pub(crate) fn open(&mut self) -> Result<()> {
        self.check_drops()?;
        self.urxe.open(self.hosts.0)?;
        self.rxe.open(self.hosts.1)?;
        self.accounts = Accounts::open(&mut self.rxe)?;
        Ok(())
    }

    /// Drops everything on both sides.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.check_drops()?;
        self.urxe.close()?;
        self.rxe.close()
    }

    /// Every packet that left one side must have been taken by the other, or dropped by a queue that says so.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.accounts.settle(&mut self.urxe, &mut self.rxe)
    }

    /// No packet of rxe's may have looked wrong to urxe, losses or not.
    pub(crate) fn check_drops(&mut self) -> Result<()> {
        if !self.urxe.is_open() {
            return Ok(());
        }
        let counters = self.urxe.counters()?;
        for name in ["drop_icrc", "drop_malformed", "drop_service", "drop_pkey"] {
            let count = counters.get(name);
            if count != Some(&0) {
                // What is tested next begins anew.
                self.urxe.close()?;
                return Err(format!("{name} is {count:?} at urxe"));
            }
        }
        Ok(())
    }

    /// Begins again, with a connection.
    pub(crate) fn connect(&mut self, path: &Path) -> Result<Link> {
        self.connect_at(path, PSNS, ROOM)
    }

    /// Connects, with a shared receive queue at the responder.
    pub(crate) fn connect_srq(&mut self, path: &Path, room: usize) -> Result<Link> {
        self.open()?;
        let regions = self.regions(room)?;
        let srq = self.responder().srq()?;
        self.join(path, PSNS, regions, Some(srq))
    }

    /// One more connection, with the regions and receives of another.
    pub(crate) fn connect_beside(&mut self, path: &Path, link: &Link) -> Result<Link> {
        let Queue::Srq(srq) = link.recvs else {
            return Err("there is no shared receive queue".to_owned());
        };
        let regions = (link.requester_mr, link.responder_mr, link.half);
        self.join(path, PSNS, regions, Some(srq))
    }

    /// The same with the given first PSNs, the requester's first, and room for messages of so many bytes together.
    pub(crate) fn connect_at(&mut self, path: &Path, psns: [u32; 2], room: usize) -> Result<Link> {
        self.open()?;
        let regions = self.regions(room)?;
        self.join(path, psns, regions, None)
    }

    /// A region of each end, with a half for messages that leave and one for those that arrive; and a half's size.
    fn regions(&mut self, room: usize) -> Result<(Region, Region, usize)> {
        let half = room + 4096;
        Ok((
            self.requester().mr(2 * half, access::ALL)?,
            self.responder().mr(2 * half, access::ALL)?,
            half,
        ))
    }

    fn join(
        &mut self,
        path: &Path,
        psns: [u32; 2],
        (requester_mr, responder_mr, half): (Region, Region, usize),
        srq: Option<u32>,
    ) -> Result<Link> {
        let responder_qp = self.responder().qp(path.service, srq)?;
        let link = Link {
            requester_qp: self.requester().qp(path.service, None)?,
            responder_qp,
            recvs: srq.map_or(Queue::Qp(responder_qp), Queue::Srq),
            requester_mr,
            responder_mr,
            half,
            mtu: path.mtu,
            is_reliable: path.service == Service::Rc,
        };
        let (urxe, rxe) = self.hosts;
        let addrs = match self.requester {
            Requester::Urxe => [urxe, rxe],
            Requester::Rxe => [rxe, urxe],
        };
        let end = |at: usize, qpn| Endpoint {
            addr: addrs[at],
            qpn,
            psn: psns[at],
        };
        let (here, there) = (end(0, link.requester_qp), end(1, link.responder_qp));
        self.responder()
            .connect(link.responder_qp, there, here, path)?;
        self.requester()
            .connect(link.requester_qp, here, there, path)?;
        Ok(link)
    }

    /// The next completion at the requester.
    pub(crate) fn done(&mut self) -> Result<Completion> {
        one(self.requester())
    }

    /// The next completion at the responder.
    pub(crate) fn received(&mut self) -> Result<Completion> {
        one(self.responder())
    }

    pub(crate) fn send(&mut self, link: &Link, works: &[Work]) -> Result<()> {
        self.requester().post_send(link.requester_qp, works)
    }

    pub(crate) fn recv(&mut self, link: &Link, wr_id: u64, span: Span) -> Result<()> {
        self.responder().post_recv(link.recvs, wr_id, span)
    }

    /// One message of an operation, from a filled place to another, and all that both sides say of it.
    pub(crate) fn message(&mut self, link: &Link, opcode: WrOpcode, length: usize) -> Result<()> {
        self.message_with(link, opcode, length, SendFlags::SIGNALED)
            .map_err(|e| format!("{length} bytes at MTU {}: {e}", link.mtu))
    }

    pub(crate) fn message_with(
        &mut self,
        link: &Link,
        opcode: WrOpcode,
        length: usize,
        flags: SendFlags,
    ) -> Result<()> {
        let message = self.prepare(link, opcode, length)?;
        self.send(link, &[message.work.flag(flags)])?;
        let wc = self.done()?;
        expect_done(&wc, &message.work)?;
        self.arrived(&message)?;
        self.cases += 1;
        Ok(())
    }

    /// Fills the source, clears the destination, and posts the receive if it takes one.
    pub(crate) fn prepare(
        &mut self,
        link: &Link,
        opcode: WrOpcode,
        length: usize,
    ) -> Result<Message> {
        self.tag += 1;
        // Odd addresses, another at every message.
        let spread = (self.tag % 61) as usize;
        let (from, to) = (GUARD + spread, link.half + 2 * GUARD - spread);
        self.prepare_at(link, opcode, length, from, to)
    }

    pub(crate) fn prepare_at(
        &mut self,
        link: &Link,
        opcode: WrOpcode,
        length: usize,
        from: usize,
        to: usize,
    ) -> Result<Message> {
        let (tag, is_read) = (self.tag, opcode == WrOpcode::RdmaRead);
        let (source, destination) = if is_read {
            (link.responder_mr, link.requester_mr)
        } else {
            (link.requester_mr, link.responder_mr)
        };
        let (source, destination) = (source.span(from, length), destination.span(to, length));
        self.end(is_read).fill(source, tag)?;
        let around = destination
            .mr
            .span(destination.offset - GUARD, length + 2 * GUARD);
        self.end(!is_read).fill_byte(around, GUARD_BYTE)?;
        let takes_recv = match opcode {
            WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => Some(destination),
            WrOpcode::RdmaWriteWithImm => Some(destination.mr.span(0, 0)),
            _ => None,
        };
        if let Some(span) = takes_recv {
            self.recv(link, tag + RECV, span)?;
        }
        let (local, remote) = if is_read {
            (destination, source)
        } else {
            (source, destination)
        };
        let work = Work::new(tag, opcode, local).to(remote.mr.at(remote.offset), remote.mr.rkey);
        Ok(Message {
            work: Work {
                imm: 0xfeed_0000 | tag as u32,
                ..work
            },
            destination,
            is_reliable: link.is_reliable,
        })
    }

    /// What must be so once the requester's completion was there.
    pub(crate) fn arrived(&mut self, message: &Message) -> Result<()> {
        let (work, tag) = (&message.work, message.work.wr_id);
        let opcode = match work.opcode {
            WrOpcode::RdmaWriteWithImm => Some(WcOpcode::RecvRdmaWithImm),
            WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => Some(WcOpcode::Recv),
            _ => None,
        };
        if let Some(opcode) = opcode {
            let wc = self.received()?;
            expect_received(&wc, message, opcode)?;
        }
        let span = message.destination;
        let end = self.end(work.opcode != WrOpcode::RdmaRead);
        let (name, start) = (end.name(), Instant::now());
        while let Some(at) = end.check(span, tag)? {
            // A WRITE that is not acknowledged may be on its way still.
            if message.is_reliable || start.elapsed() > Duration::from_secs(10) {
                let there = end.read(span.mr, span.offset + at, 1)?;
                return Err(format!(
                    "{:?} of {} bytes: {name} got a wrong byte at {at}: {there:02x?}",
                    work.opcode, span.length
                ));
            }
        }
        for guard in [span.offset - GUARD, span.offset + span.length] {
            if end
                .check_byte(span.mr.span(guard, GUARD), GUARD_BYTE)?
                .is_some()
            {
                return Err(format!(
                    "bytes beside the message were overwritten at {name}"
                ));
            }
        }
        Ok(())
    }

    fn end(&mut self, is_responder: bool) -> &mut dyn Side {
        if is_responder {
            self.responder()
        } else {
            self.requester()
        }
    }

    /// A new tag for a message that a test builds by itself.
    pub(crate) fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }
}

/// Added to a message's tag to name its receive.
pub(crate) const RECV: u64 = 1 << 32;

/// A message that is ready to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) work: Work,
    pub(crate) destination: Span,
    pub(crate) is_reliable: bool,
}

pub(crate) fn one(side: &mut dyn Side) -> Result<Completion> {
    let found = side.poll(1, PATIENCE)?;
    let name = side.name();
    found
        .first()
        .copied()
        .ok_or_else(|| format!("no completion at {name} within {} s", PATIENCE.as_secs()))
}

/// A success of this work request.
pub(crate) fn expect_done(wc: &Completion, work: &Work) -> Result<()> {
    let opcode = match work.opcode {
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => WcOpcode::Send,
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => WcOpcode::RdmaWrite,
        WrOpcode::RdmaRead => WcOpcode::RdmaRead,
        WrOpcode::AtomicCmpAndSwp => WcOpcode::CompSwap,
        WrOpcode::AtomicFetchAndAdd => WcOpcode::FetchAdd,
        WrOpcode::AtomicWrite => WcOpcode::AtomicWrite,
        WrOpcode::Flush => WcOpcode::Flush,
        other => return Err(format!("no completion opcode is known for {other:?}")),
    } as u32;
    if wc.status != status::SUCCESS || wc.wr_id != work.wr_id || wc.opcode != opcode {
        return Err(format!("the requester's completion is {wc:?}"));
    }
    if work.opcode == WrOpcode::RdmaRead && wc.byte_len as usize != work.local.length {
        return Err(format!("the READ's completion is {wc:?}"));
    }
    Ok(())
}

fn expect_received(wc: &Completion, message: &Message, opcode: WcOpcode) -> Result<()> {
    let work = &message.work;
    let has_imm = matches!(
        work.opcode,
        WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm
    );
    let want = Completion {
        wr_id: work.wr_id + RECV,
        status: status::SUCCESS,
        opcode: opcode as u32,
        byte_len: message.destination.length as u32,
        imm: has_imm.then_some(work.imm),
        invalidated: (work.opcode == WrOpcode::SendWithInv).then_some(work.rkey),
        // Which QPs: the one that it was asked of.
        qpn: wc.qpn,
        src_qp: wc.src_qp,
    };
    if *wc != want {
        return Err(format!("the receive's completion is {wc:?}, not {want:?}"));
    }
    Ok(())
}
