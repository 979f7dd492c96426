//! Random programs on the matching layer of `examples/matching`, and on a shared receive queue that matches tags: each
//! receive gets the same message.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{End, PATIENCE, address, connect};
use crate::layer::{Buffer, Done, Layer};
use crate::queues::{Envelope, Pattern};
use urxe::{
    ConnectOptions, Context, Mr, Qp, RecvWr, Rkey, Rvh, SendWr, Srq, SrqAttr, TagHandle, TagRecv,
    TagWr, TmCap, TmFlags, Tmh, TmhOp, Wc, WcOpcode, WcStatus,
};
use urxe_core::mix::SplitMix64;

const EAGER_MAX: usize = 256;
const LEN_MAX: usize = 2000;
const PROGRAMS: u64 = 10_000;
const STEPS: usize = 24;
const CONTEXTS: [u16; 3] = [0, 1, u16::MAX];
const TAGS: [u32; 4] = [0, 1, 2, u32::MAX];
const LENS: [usize; 7] = [0, 1, 255, EAGER_MAX, EAGER_MAX + 1, 1100, LEN_MAX];
/// Slots for messages that no tag matches.
const SLOTS: usize = 64;
const SLOT: usize = Tmh::LEN + EAGER_MAX;

/// A step, the same for both.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send {
        envelope: Envelope,
        len: usize,
    },
    Recv(Pattern),
    /// Of the receive that the step with this number posted.
    Cancel(usize),
}

fn program(seed: u64) -> Vec<Step> {
    let mut random = SplitMix64::new(seed);
    let mut of = move |limit: usize| random.below(limit as u64) as usize;
    let mut recvs = Vec::new();
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let (context, sender, tag) = (CONTEXTS[of(3)], 1 + of(2) as u16, TAGS[of(4)]);
        steps.push(match of(10) {
            0..5 => Step::Send {
                envelope: Envelope {
                    context,
                    sender,
                    tag,
                },
                len: LENS[of(7)],
            },
            9 if !recvs.is_empty() => Step::Cancel(recvs[of(recvs.len())]),
            _ => {
                recvs.push(step);
                let sender = (of(3) > 0).then_some(sender);
                let tag = (of(3) > 0).then_some(tag);
                Step::Recv(Pattern::new(context, sender, tag))
            }
        });
    }
    steps
}

/// What each receive got, and whether each cancel took its receive back.
#[derive(Default, PartialEq, Eq, Debug)]
struct Outcome {
    received: BTreeMap<usize, (u64, Vec<u8>)>,
    cancelled: BTreeMap<usize, bool>,
}

fn text(step: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((step * 7 + n) % 251) as u8).collect()
}

/// A receiver of rank 0 and senders of ranks 1 and 2.
trait Ranks {
    fn send(&mut self, step: usize, envelope: Envelope, bytes: &[u8]);
    fn recv(&mut self, step: usize, pattern: Pattern);
    fn cancel(&mut self, step: usize) -> bool;
    /// All that was sent has arrived.
    fn settle(&mut self);
    /// What has been received since the last call.
    fn received(&mut self) -> BTreeMap<usize, (u64, Vec<u8>)>;
    /// Nothing is under way.
    fn finish(&mut self);
}

fn run(ranks: &mut impl Ranks, steps: &[Step]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut last = None;
    let mut open = Vec::new();
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Step::Send { envelope, len } => {
                // Messages of two senders have an order only if it is waited between them.
                if last.is_some_and(|last| last != envelope.sender) {
                    ranks.settle();
                }
                last = Some(envelope.sender);
                ranks.send(number, envelope, &text(number, len));
            }
            Step::Recv(pattern) => {
                ranks.settle();
                open.push(number);
                ranks.recv(number, pattern);
            }
            Step::Cancel(of) => {
                ranks.settle();
                outcome.cancelled.insert(number, ranks.cancel(of));
            }
        }
    }
    ranks.settle();
    // What waits is taken by receives of everything.
    for number in open {
        let is_back = ranks.cancel(number);
        outcome.cancelled.insert(STEPS + number, is_back);
    }
    let sent = steps.iter().filter_map(|step| match step {
        Step::Send { envelope, .. } => Some(envelope.context),
        _ => None,
    });
    let last: Vec<(usize, u16)> = (STEPS..).zip(sent).collect();
    for &(number, context) in &last {
        ranks.recv(number, Pattern::new(context, None, None));
    }
    ranks.finish();
    for (number, _) in last {
        ranks.cancel(number);
    }
    outcome.received = ranks.received();
    outcome
}

/// The layer of the example.
struct Explicit {
    layers: [Layer; 3],
    memory: [Arc<Mr>; 3],
    /// Numbers of receives.
    ids: BTreeMap<u64, usize>,
    sent: u64,
    unsent: u64,
    received: BTreeMap<usize, (u64, Vec<u8>)>,
}

impl Explicit {
    fn open() -> Explicit {
        let open = |rank| Layer::open(&Context::open(address()).expect("free"), rank, EAGER_MAX);
        let mut layers = [0, 1, 2].map(|rank| open(rank).expect("a layer"));
        let [receiver, first, second] = &mut layers;
        Layer::join(receiver, first).expect("they connect");
        Layer::join(receiver, second).expect("they connect");
        let memory =
            [0, 1, 2].map(|rank| layers[rank].memory(2 * STEPS * LEN_MAX).expect("memory"));
        Explicit {
            layers,
            memory,
            ids: BTreeMap::new(),
            sent: 0,
            unsent: 0,
            received: BTreeMap::new(),
        }
    }

    fn poll(&mut self) {
        for rank in 0..3 {
            while let Some(done) = self.layers[rank].poll().expect("it works") {
                match done {
                    Done::Sent(_) => self.unsent -= 1,
                    Done::Received {
                        recv,
                        envelope,
                        len,
                        ..
                    } => {
                        let step = self.ids[&recv];
                        let mut bytes = vec![0; len];
                        self.memory[0].read(step * LEN_MAX, &mut bytes);
                        self.received.insert(step, (envelope.bits(), bytes));
                    }
                }
            }
        }
    }

    fn until(&mut self, holds: impl Fn(&Explicit) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.poll();
            assert!(start.elapsed() < PATIENCE, "the layer waits");
        }
    }
}

impl Ranks for Explicit {
    fn send(&mut self, step: usize, envelope: Envelope, bytes: &[u8]) {
        let rank = usize::from(envelope.sender);
        self.memory[rank].write(step * LEN_MAX, bytes);
        let at = step * LEN_MAX;
        let buffer = Buffer::new(&self.memory[rank], at..at + bytes.len());
        let sent = self.layers[rank].send(0, envelope.context, envelope.tag, buffer);
        sent.expect("it is sent");
        self.sent += 1;
        self.unsent += 1;
    }

    fn recv(&mut self, step: usize, pattern: Pattern) {
        let at = step * LEN_MAX;
        let buffer = Buffer::new(&self.memory[0], at..at + LEN_MAX);
        let id = self.layers[0].recv(pattern, buffer).expect("it is posted");
        self.ids.insert(id, step);
    }

    fn cancel(&mut self, step: usize) -> bool {
        let id = self.ids.iter().find(|(_, of)| **of == step);
        let id = *id.expect("it was posted").0;
        self.layers[0].cancel(id)
    }

    fn settle(&mut self) {
        self.until(|ranks| ranks.layers[0].arrived() == ranks.sent);
    }

    fn finish(&mut self) {
        self.until(|ranks| ranks.unsent == 0);
        self.poll();
    }

    fn received(&mut self) -> BTreeMap<usize, (u64, Vec<u8>)> {
        self.ids.clear();
        std::mem::take(&mut self.received)
    }
}

/// A message that no tag matched.
enum Waiting {
    Eager(Vec<u8>),
    Rendezvous(usize, Tmh, Rvh),
}

/// The same by a queue that matches tags.
struct Tagged {
    receiver: End,
    srq: Srq,
    inbox: Mr,
    memory: Mr,
    /// QP of the receiver, of the sender, and its end.
    peers: Vec<(Qp, Qp, End)>,
    sources: Vec<Mr>,
    fins: Vec<Mr>,
    waiting: VecDeque<(u64, Waiting)>,
    posted: BTreeMap<usize, TagHandle>,
    handled: u32,
    sent: u64,
    arrived: u64,
    fetching: u64,
    cancelled: Option<bool>,
    matched: BTreeMap<usize, u64>,
    received: BTreeMap<usize, (u64, Vec<u8>)>,
    rkeys: Vec<Rkey>,
}

/// Ids of work requests: receives of tags are the steps themselves.
const SLOT_ID: u64 = 1 << 32;
const OP_ID: u64 = 2 << 32;
const READ_ID: u64 = 3 << 32;
const FIN_ID: u64 = 4 << 32;

impl Tagged {
    fn open() -> Tagged {
        let receiver = End::open();
        let attr = SrqAttr {
            max_sge: 1,
            ..SrqAttr::default()
        };
        let srq = receiver
            .pd
            .create_tm_srq(&receiver.cq, &attr, &TmCap::default());
        let srq = srq.expect("a queue");
        let inbox = receiver.memory(SLOTS * SLOT);
        let senders = [End::open(), End::open()];
        let peers: Vec<_> = senders
            .into_iter()
            .map(|end| {
                let to = receiver
                    .pd
                    .qp(&receiver.cq)
                    .srq(&srq)
                    .create()
                    .expect("a QP");
                let from = end
                    .pd
                    .qp(&end.cq)
                    .max_send_wr(128)
                    .max_recv_wr(128)
                    .create();
                let from = from.expect("a QP");
                connect(&to, &from, &ConnectOptions::default());
                (to, from, end)
            })
            .collect();
        let sources: Vec<Mr> = peers
            .iter()
            .map(|(_, _, end)| end.memory(STEPS * (LEN_MAX + 64)))
            .collect();
        let fins: Vec<Mr> = peers.iter().map(|(_, _, end)| end.memory(64)).collect();
        let made = Tagged {
            memory: receiver.memory(2 * STEPS * LEN_MAX),
            rkeys: sources.iter().map(Mr::rkey).collect(),
            receiver,
            srq,
            inbox,
            peers,
            sources,
            fins,
            waiting: VecDeque::new(),
            posted: BTreeMap::new(),
            handled: 0,
            sent: 0,
            arrived: 0,
            fetching: 0,
            cancelled: None,
            matched: BTreeMap::new(),
            received: BTreeMap::new(),
        };
        (0..SLOTS).for_each(|slot| made.post_slot(slot));
        for (n, (_, from, _)) in made.peers.iter().enumerate() {
            for _ in 0..100 {
                let sges = [made.fins[n].sge(..)];
                from.post_recv(&RecvWr::new(0, &sges)).expect("room");
            }
        }
        made
    }

    fn post_slot(&self, slot: usize) {
        let sges = [self.inbox.sge(slot * SLOT..(slot + 1) * SLOT)];
        let wr = RecvWr::new(SLOT_ID + slot as u64, &sges);
        self.srq.post_recv(&wr).expect("room");
    }

    fn poll(&mut self) {
        let mut wcs = [Wc::default(); 16];
        let count = self.receiver.cq.poll(&mut wcs).expect("polls");
        wcs[..count].iter().for_each(|wc| self.on_completion(wc));
        for n in 0..self.peers.len() {
            let count = self.peers[n].2.cq.poll(&mut wcs).expect("polls");
            for wc in &wcs[..count] {
                assert!(wc.is_success(), "{wc}");
                if wc.opcode == WcOpcode::Recv {
                    // FIN.
                    self.fetching -= 1;
                    let sges = [self.fins[n].sge(..)];
                    self.peers[n]
                        .1
                        .post_recv(&RecvWr::new(0, &sges))
                        .expect("room");
                }
            }
        }
    }

    fn on_completion(&mut self, wc: &Wc) {
        let flags = wc.tm.flags;
        match wc.opcode {
            WcOpcode::TmDel => {
                let is_gone = wc.status == WcStatus::TmErr;
                assert!(is_gone || wc.is_success(), "{wc}");
                self.cancelled = Some(!is_gone);
            }
            WcOpcode::TmAdd => {
                assert!(wc.is_success() && flags == TmFlags::NONE, "in step: {wc}");
            }
            WcOpcode::TmRecv if wc.wr_id < SLOT_ID => {
                assert!(wc.is_success(), "{wc}");
                let step = wc.wr_id as usize;
                if flags.contains(TmFlags::MATCH) {
                    self.arrived += 1;
                    self.posted.remove(&step);
                    self.matched.insert(step, wc.tm.tag);
                }
                if flags.contains(TmFlags::DATA_VALID) {
                    let tag = self.matched.remove(&step).expect("matched before");
                    self.take(step, tag, wc.byte_len as usize);
                }
            }
            WcOpcode::TmRecv => self.on_unexpected(wc),
            WcOpcode::RdmaRead | WcOpcode::Send => assert!(wc.is_success(), "{wc}"),
            _ => panic!("{wc}"),
        }
        if wc.opcode == WcOpcode::RdmaRead {
            let step = (wc.wr_id - READ_ID) as usize;
            let tag = self.matched.remove(&step).expect("it is fetched");
            self.take(step, tag, wc.byte_len as usize);
        }
    }

    fn on_unexpected(&mut self, wc: &Wc) {
        assert!(wc.is_success(), "{wc}");
        let slot = (wc.wr_id - SLOT_ID) as usize;
        let mut bytes = vec![0; wc.byte_len as usize];
        self.inbox.read(slot * SLOT, &mut bytes);
        let tmh = Tmh::parse(bytes.first_chunk().expect("a header"));
        let message = match TmhOp::from_number(tmh.opcode) {
            Some(TmhOp::Rndv) => {
                let peer = self
                    .peers
                    .iter()
                    .position(|(to, ..)| to.qp_num() == wc.qp_num);
                let rvh = Rvh::parse(bytes[Tmh::LEN..].first_chunk().expect("two"));
                Waiting::Rendezvous(peer.expect("known"), tmh, rvh)
            }
            _ => Waiting::Eager(bytes.split_off(Tmh::LEN)),
        };
        self.waiting.push_back((tmh.tag, message));
        self.post_slot(slot);
        self.handled = self.handled.wrapping_add(1);
        self.arrived += 1;
    }

    fn take(&mut self, step: usize, tag: u64, len: usize) {
        let mut bytes = vec![0; len];
        self.memory.read(step * LEN_MAX, &mut bytes);
        self.received.insert(step, (tag, bytes));
    }

    fn until(&mut self, holds: impl Fn(&Tagged) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.poll();
            assert!(start.elapsed() < PATIENCE, "the queue waits");
        }
    }

    fn fetch(&mut self, step: usize, peer: usize, tmh: Tmh, rvh: Rvh) {
        let at = step * LEN_MAX;
        let sges = [self.memory.sge(at..at + rvh.len as usize)];
        let read = SendWr::rdma_read(READ_ID + step as u64, &sges, rvh.va, rvh.rkey);
        let qp = &self.peers[peer].0;
        qp.post_send(&read.signaled()).expect("room");
        self.matched.insert(step, tmh.tag);
        self.until(|ranks| !ranks.matched.contains_key(&step));
        let fin = Tmh {
            opcode: TmhOp::Fin as u8,
            ..tmh
        };
        let message = [&fin.emit()[..], &rvh.emit()].concat();
        let wr = SendWr::send_inline(FIN_ID, &message);
        self.peers[peer].0.post_send(&wr.signaled()).expect("room");
    }
}

impl Ranks for Tagged {
    fn send(&mut self, step: usize, envelope: Envelope, bytes: &[u8]) {
        let n = usize::from(envelope.sender) - 1;
        let (source, at) = (&self.sources[n], step * (LEN_MAX + 64));
        let is_eager = bytes.len() <= EAGER_MAX;
        let tmh = Tmh {
            opcode: if is_eager { TmhOp::Eager } else { TmhOp::Rndv } as u8,
            tag: envelope.bits(),
            ..Tmh::default()
        };
        source.write(at, &tmh.emit());
        let len = if is_eager {
            source.write(at + Tmh::LEN, bytes);
            Tmh::LEN + bytes.len()
        } else {
            let rvh = Rvh {
                va: source.addr() + at as u64 + 64,
                rkey: self.rkeys[n],
                len: bytes.len() as u32,
            };
            source.write(at + Tmh::LEN, &rvh.emit());
            source.write(at + 64, bytes);
            self.fetching += 1;
            Tmh::LEN + Rvh::LEN
        };
        let sges = [source.sge(at..at + len)];
        self.peers[n]
            .1
            .post_send(&SendWr::send(0, &sges))
            .expect("room");
        self.sent += 1;
    }

    fn recv(&mut self, step: usize, pattern: Pattern) {
        let takes = |&(tag, _): &(u64, Waiting)| pattern.takes(Envelope::from_bits(tag));
        let at = step * LEN_MAX;
        if let Some(place) = self.waiting.iter().position(takes) {
            let (tag, message) = self.waiting.remove(place).expect("just found");
            match message {
                Waiting::Eager(bytes) => {
                    self.memory.write(at, &bytes);
                    self.take(step, tag, bytes.len());
                }
                Waiting::Rendezvous(peer, tmh, rvh) => self.fetch(step, peer, tmh, rvh),
            }
            return;
        }
        let sges = [self.memory.sge(at..at + LEN_MAX)];
        let recv = TagRecv {
            recv_wr_id: step as u64,
            tag: pattern.bits,
            mask: pattern.mask,
            sges: &sges,
        };
        let add = TagWr::add(recv).handled(self.handled).signaled(OP_ID);
        let handle = self.srq.post_op(&add).expect("room");
        self.posted.insert(step, handle.expect("a tag was added"));
    }

    fn cancel(&mut self, step: usize) -> bool {
        let Some(handle) = self.posted.remove(&step) else {
            return false;
        };
        let del = TagWr::del(handle).handled(self.handled).signaled(OP_ID);
        self.srq.post_op(&del).expect("posts");
        self.until(|ranks| ranks.cancelled.is_some());
        self.cancelled.take().expect("it was waited for")
    }

    fn settle(&mut self) {
        self.until(|ranks| ranks.arrived == ranks.sent);
    }

    fn finish(&mut self) {
        self.until(|ranks| ranks.fetching == 0 && ranks.matched.is_empty());
        self.poll();
    }

    fn received(&mut self) -> BTreeMap<usize, (u64, Vec<u8>)> {
        assert!(self.waiting.is_empty() && self.posted.is_empty());
        std::mem::take(&mut self.received)
    }
}

/// Tells the seed of a program that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "again: URXE_SEED={} cargo test -p urxe --test api -- tags_model",
                self.0
            );
        }
    }
}

/// `URXE_SEED=n` runs the program of one seed alone, `URXE_PROGRAMS=n` as many as that.
#[test]
fn random_programs_get_the_same_from_the_layer_and_from_the_queue() {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let one = number("URXE_SEED");
    let all = 0..number("URXE_PROGRAMS").unwrap_or(PROGRAMS);
    let (mut explicit, mut tagged) = (Explicit::open(), Tagged::open());
    let (mut received, mut taken_back) = (0, 0);
    for seed in one.map_or(all, |seed| seed..seed + 1) {
        let (_seed, steps) = (Seed(seed), program(seed));
        let (layer, queue) = (run(&mut explicit, &steps), run(&mut tagged, &steps));
        received += layer.received.len();
        taken_back += layer.cancelled.values().filter(|is_back| **is_back).count();
        assert_eq!(layer, queue, "{steps:?}");
    }
    println!("{received} messages were received, {taken_back} receives were taken back");
    assert!(
        received > 0 && (one.is_some() || taken_back > 0),
        "programs that test little"
    );
}
