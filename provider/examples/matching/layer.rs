//! Messages that are matched by sender, tag and context, over SEND and receive: what an MPI library does on RDMA.
//!
//! - **Eager**: a short message travels with its header into any free slot of the receiver, and is copied from there into the
//!   receive that takes it. If none does yet, a copy waits, and the slot is free again.
//! - **Rendezvous**: of a long message only the header travels. The receiver READs the bytes from the sender's memory straight
//!   into the receive that takes it, and says FIN; until then the sender must leave its buffer alone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use urxe::{
    Access, ConnectOptions, Context, Cq, Error, Mr, Pd, Qp, Qpn, RecvWr, RemoteMr, SendWr, Srq,
    SrqAttr, Wc, WcOpcode,
};

use crate::header::{HEADER, Header, Kind};
use crate::queues::{Envelope, Pattern, Queues};

/// Slots for messages that come, and work requests under way.
const SLOTS: usize = 64;

/// Why a layer cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum MatchError {
    /// A call of the verbs failed, or a work request.
    #[error(transparent)]
    Verbs(#[from] Error),
    /// A peer sent what no layer of this kind sends.
    #[error("rank {peer} sent {what}")]
    Protocol { peer: u16, what: String },
    /// No such rank was added.
    #[error("rank {0} is not connected")]
    NoPeer(u16),
}

/// Bytes of a region, to send from or receive into. Regions for long messages need REMOTE_READ at the sender.
#[derive(Clone, Debug)]
pub struct Buffer {
    mr: Arc<Mr>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// # Panics
    /// If the range is not inside of the region, as with slices.
    pub fn new(mr: &Arc<Mr>, range: Range<usize>) -> Buffer {
        assert!(
            range.start <= range.end && range.end <= mr.len(),
            "{range:?} of {} bytes",
            mr.len()
        );
        Buffer {
            mr: Arc::clone(mr),
            start: range.start,
            end: range.end,
        }
    }

    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// An operation that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The buffer of this send may be used again.
    Sent(u64),
    /// A receive has its message: of `sent` bytes the first `len` are in it, which is fewer if the buffer was shorter.
    Received {
        recv: u64,
        envelope: Envelope,
        len: usize,
        sent: usize,
    },
}

struct Peer {
    rank: u16,
    qp: Qp,
}

struct Recv {
    id: u64,
    buffer: Buffer,
}

/// A message without a receive.
enum Unexpected {
    Eager(Vec<u8>),
    Rendezvous {
        peer: usize,
        send: u64,
        at: RemoteMr,
    },
}

/// A work request that is to be posted, or is under way.
enum Work {
    Message(Header, Option<(u64, Buffer)>),
    Read {
        recv: Recv,
        send: u64,
        envelope: Envelope,
        at: RemoteMr,
    },
}

/// One rank: its queues, and a QP for each peer.
pub struct Layer {
    rank: u16,
    eager_max: usize,
    pd: Pd,
    cq: Cq,
    srq: Srq,
    inbox: Mr,
    outbox: Mr,
    peers: Vec<Peer>,
    by_qpn: BTreeMap<Qpn, usize>,
    queues: Queues<Recv, Unexpected>,
    waiting: VecDeque<(usize, Work)>,
    flying: Vec<Option<(usize, Work)>>,
    free: Vec<usize>,
    /// Long messages that no FIN came for; their buffers stay registered.
    offered: BTreeMap<u64, Buffer>,
    done: VecDeque<Done>,
    next_id: u64,
    arrived: u64,
    scratch: Vec<u8>,
}

impl Layer {
    /// Messages of up to `eager_max` bytes travel eagerly: the same for all ranks.
    pub fn open(context: &Context, rank: u16, eager_max: usize) -> Result<Layer, MatchError> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4 * SLOTS)?);
        let srq = pd.create_srq(&SrqAttr {
            max_wr: SLOTS as u32,
            max_sge: 1,
            srq_limit: 0,
        })?;
        let inbox = pd.reg_owned(vec![0; SLOTS * (HEADER + eager_max)], Access::LOCAL_WRITE)?;
        let outbox = pd.reg_owned(vec![0; SLOTS * HEADER], Access::NONE)?;
        let layer = Layer {
            rank,
            eager_max,
            pd,
            cq,
            srq,
            inbox,
            outbox,
            peers: Vec::new(),
            by_qpn: BTreeMap::new(),
            queues: Queues::new(),
            waiting: VecDeque::new(),
            flying: (0..SLOTS).map(|_| None).collect(),
            free: (0..SLOTS).collect(),
            offered: BTreeMap::new(),
            done: VecDeque::new(),
            next_id: 0,
            arrived: 0,
            scratch: Vec::new(),
        };
        (0..SLOTS).try_for_each(|slot| layer.post_slot(slot))?;
        Ok(layer)
    }

    /// Registers memory for sending and receiving.
    pub fn memory(&self, len: usize) -> Result<Arc<Mr>, MatchError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        Ok(Arc::new(self.pd.reg_owned(vec![0; len], access)?))
    }

    /// A QP for a peer, to be connected and added.
    pub fn qp(&self) -> Result<Qp, MatchError> {
        let qp = self.pd.qp(&self.cq).srq(&self.srq).max_sge(2);
        Ok(qp.max_send_wr(SLOTS as u32).signal_all().create()?)
    }

    /// From here on messages go to and come from this rank through this QP.
    pub fn add_peer(&mut self, rank: u16, qp: Qp) {
        self.by_qpn.insert(qp.qp_num(), self.peers.len());
        self.peers.push(Peer { rank, qp });
    }

    /// Connects two layers of one process.
    pub fn join(a: &mut Layer, b: &mut Layer) -> Result<(), MatchError> {
        let (from, to) = (a.qp()?, b.qp()?);
        from.connect(&to.endpoint(), &ConnectOptions::default())?;
        to.connect(&from.endpoint(), &ConnectOptions::default())?;
        a.add_peer(b.rank, from);
        b.add_peer(a.rank, to);
        Ok(())
    }

    /// Sends; [`Done::Sent`] with this number follows.
    pub fn send(
        &mut self,
        to: u16,
        context: u16,
        tag: u32,
        buffer: Buffer,
    ) -> Result<u64, MatchError> {
        let peer = self.peers.iter().position(|peer| peer.rank == to);
        let peer = peer.ok_or(MatchError::NoPeer(to))?;
        let id = self.new_id();
        let envelope = Envelope {
            context,
            sender: self.rank,
            tag,
        };
        let at = buffer.mr.remote(buffer.start..buffer.end);
        let (kind, payload) = if buffer.len() <= self.eager_max {
            (Kind::Eager, Some((id, buffer)))
        } else {
            self.offered.insert(id, buffer);
            (Kind::Rendezvous, None)
        };
        let header = Header {
            kind,
            envelope,
            send: id,
            at,
        };
        self.waiting
            .push_back((peer, Work::Message(header, payload)));
        self.post_waiting()?;
        Ok(id)
    }

    /// Receives; [`Done::Received`] with this number follows.
    pub fn recv(&mut self, pattern: Pattern, buffer: Buffer) -> Result<u64, MatchError> {
        let id = self.new_id();
        match self.queues.post(pattern, Recv { id, buffer }) {
            Some((recv, envelope, Unexpected::Eager(bytes))) => {
                self.deliver(&recv, envelope, &bytes)
            }
            Some((recv, envelope, Unexpected::Rendezvous { peer, send, at })) => {
                self.read(peer, recv, send, envelope, at)?;
            }
            None => {}
        }
        Ok(id)
    }

    /// Takes a receive back; false if it has a message already.
    pub fn cancel(&mut self, id: u64) -> bool {
        self.queues.cancel(|recv| recv.id == id).is_some()
    }

    /// The message that such a receive would get now, and its length.
    pub fn probe(&self, pattern: Pattern) -> Option<(Envelope, usize)> {
        let (envelope, message) = self.queues.probe(pattern)?;
        let len = match message {
            Unexpected::Eager(bytes) => bytes.len(),
            Unexpected::Rendezvous { at, .. } => at.len as usize,
        };
        Some((*envelope, len))
    }

    /// Handles what has come, and takes the oldest operation that is over.
    pub fn poll(&mut self) -> Result<Option<Done>, MatchError> {
        let mut wcs = [Wc::default(); 16];
        let count = self.cq.poll(&mut wcs)?;
        for wc in &wcs[..count] {
            wc.ok()?;
            let slot = wc.wr_id as usize;
            if wc.opcode == WcOpcode::Recv {
                let peer = self.by_qpn[&wc.qp_num];
                let handled = self.on_message(peer, slot, wc.byte_len as usize);
                self.post_slot(slot)?;
                handled?;
            } else {
                self.on_sent(slot);
            }
        }
        self.post_waiting()?;
        Ok(self.done.pop_front())
    }

    /// Messages that have come so far.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Receives and messages that wait.
    pub fn lens(&self) -> (usize, usize) {
        self.queues.lens()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn slot(&self, slot: usize) -> Range<usize> {
        let size = HEADER + self.eager_max;
        slot * size..(slot + 1) * size
    }

    fn post_slot(&self, slot: usize) -> Result<(), MatchError> {
        let sges = [self.inbox.sge(self.slot(slot))];
        Ok(self.srq.post_recv(&RecvWr::new(slot as u64, &sges))?)
    }

    /// A message is in this slot.
    fn on_message(&mut self, peer: usize, slot: usize, len: usize) -> Result<(), MatchError> {
        let rank = self.peers[peer].rank;
        let refuse = |what: String| MatchError::Protocol { peer: rank, what };
        let start = self.slot(slot).start;
        let mut bytes = [0; HEADER];
        self.inbox.read(start, &mut bytes[..len.min(HEADER)]);
        let header = Header::parse(&bytes, len).map_err(refuse)?;
        if header.kind == Kind::Fin {
            if self.offered.remove(&header.send).is_none() {
                return Err(refuse(format!(
                    "FIN for send {}, which waits for none",
                    header.send
                )));
            }
            self.done.push_back(Done::Sent(header.send));
            return Ok(());
        }
        if header.envelope.sender != rank {
            return Err(refuse(format!(
                "a message of rank {}",
                header.envelope.sender
            )));
        }
        self.arrived += 1;
        let taken = self.queues.arrive(header.envelope);
        if header.kind == Kind::Rendezvous {
            let (send, at) = (header.send, header.at);
            match taken {
                Some(recv) => self.read(peer, recv, send, header.envelope, at)?,
                None => {
                    let message = Unexpected::Rendezvous { peer, send, at };
                    self.queues.keep(header.envelope, message);
                }
            }
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.scratch);
        payload.resize(len - HEADER, 0);
        self.inbox.read(start + HEADER, &mut payload);
        match taken {
            Some(recv) => {
                self.deliver(&recv, header.envelope, &payload);
                self.scratch = payload;
            }
            None => self
                .queues
                .keep(header.envelope, Unexpected::Eager(payload)),
        }
        Ok(())
    }

    fn on_sent(&mut self, slot: usize) {
        let flown = self.flying[slot].take();
        self.free.push(slot);
        match flown.expect("completions are of work under way") {
            (_, Work::Message(_, Some((id, _)))) => self.done.push_back(Done::Sent(id)),
            (_, Work::Message(_, None)) => {}
            (
                peer,
                Work::Read {
                    recv,
                    send,
                    envelope,
                    at,
                },
            ) => self.finish(peer, &recv, send, envelope, at),
        }
    }

    fn deliver(&mut self, recv: &Recv, envelope: Envelope, bytes: &[u8]) {
        let len = bytes.len().min(recv.buffer.len());
        recv.buffer.mr.write(recv.buffer.start, &bytes[..len]);
        self.done.push_back(Done::Received {
            recv: recv.id,
            envelope,
            len,
            sent: bytes.len(),
        });
    }

    /// Fetches a long message, as much of it as there is room for.
    fn read(
        &mut self,
        peer: usize,
        recv: Recv,
        send: u64,
        envelope: Envelope,
        at: RemoteMr,
    ) -> Result<(), MatchError> {
        if recv.buffer.len() == 0 {
            self.finish(peer, &recv, send, envelope, at);
        } else {
            let work = Work::Read {
                recv,
                send,
                envelope,
                at,
            };
            self.waiting.push_back((peer, work));
        }
        self.post_waiting()
    }

    /// A long message is here: the sender may have its buffer back.
    fn finish(&mut self, peer: usize, recv: &Recv, send: u64, envelope: Envelope, at: RemoteMr) {
        let sent = at.len as usize;
        self.done.push_back(Done::Received {
            recv: recv.id,
            envelope,
            len: sent.min(recv.buffer.len()),
            sent,
        });
        let header = Header {
            kind: Kind::Fin,
            envelope,
            send,
            at,
        };
        self.waiting.push_back((peer, Work::Message(header, None)));
    }

    /// Posts what waits, in order, as far as there are slots.
    fn post_waiting(&mut self) -> Result<(), MatchError> {
        while let Some(&slot) = self.free.last() {
            let Some((peer, work)) = self.waiting.pop_front() else {
                break;
            };
            let id = slot as u64;
            let qp = &self.peers[peer].qp;
            match &work {
                Work::Message(header, payload) => {
                    self.outbox.write(slot * HEADER, &header.to_bytes());
                    let header = self.outbox.sge(slot * HEADER..(slot + 1) * HEADER);
                    match payload {
                        Some((_, part)) if part.len() > 0 => {
                            let sges = [header, part.mr.sge(part.start..part.end)];
                            qp.post_send(&SendWr::send(id, &sges))?;
                        }
                        _ => qp.post_send(&SendWr::send(id, &[header]))?,
                    }
                }
                Work::Read { recv, at, .. } => {
                    let len = recv.buffer.len().min(at.len as usize);
                    let sges = [recv
                        .buffer
                        .mr
                        .sge(recv.buffer.start..recv.buffer.start + len)];
                    qp.post_send(&SendWr::read_from(id, &sges, at.part(..len)))?;
                }
            }
            self.free.pop();
            self.flying[slot] = Some((peer, work));
        }
        Ok(())
    }
}
