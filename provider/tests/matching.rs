//! The matching layer of `examples/matching`: random programs give what a plain model says, and what is not a message of the
//! layer is refused.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{PATIENCE, address};
use crate::curve::{self, Long};
use crate::header;
use crate::layer::{Buffer, Done, Layer, MatchError};
use crate::queues::{Envelope, Pattern};
use urxe::{ConnectOptions, Context, Mr, SendWr};

const EAGER_MAX: usize = 256;
const LEN_MAX: usize = 2000;
const PROGRAMS: u64 = 10_000;
const STEPS: usize = 24;
const CONTEXTS: [u16; 3] = [0, 1, u16::MAX];
const TAGS: [u32; 4] = [0, 1, 2, u32::MAX];
const SENDERS: [u16; 2] = [1, 2];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % limit
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len() as u64) as usize]
    }

    /// Around the limits more often than elsewhere.
    fn len(&mut self) -> usize {
        let any = self.below(LEN_MAX as u64 + 1) as usize;
        self.of(&[
            0,
            1,
            40,
            EAGER_MAX - 1,
            EAGER_MAX,
            EAGER_MAX + 1,
            LEN_MAX,
            any,
        ])
    }
}

/// A receive of the model: what it takes, and its room.
#[derive(Clone, Copy)]
struct Wanted {
    id: u64,
    context: u16,
    sender: Option<u16>,
    tag: Option<u32>,
    place: usize,
    room: usize,
}

impl Wanted {
    fn takes(&self, sent: &Sent) -> bool {
        self.context == sent.envelope.context
            && self
                .sender
                .is_none_or(|sender| sender == sent.envelope.sender)
            && self.tag.is_none_or(|tag| tag == sent.envelope.tag)
    }

    fn pattern(&self) -> Pattern {
        Pattern::new(self.context, self.sender, self.tag)
    }
}

/// A message of the model.
#[derive(Clone)]
struct Sent {
    envelope: Envelope,
    bytes: Vec<u8>,
}

/// The plain model: two lists, searched from the front.
#[derive(Default)]
struct Model {
    posted: Vec<Wanted>,
    unexpected: Vec<Sent>,
    matched: BTreeMap<u64, (Wanted, Sent)>,
}

impl Model {
    fn send(&mut self, sent: Sent) {
        match self.posted.iter().position(|recv| recv.takes(&sent)) {
            Some(at) => {
                let recv = self.posted.remove(at);
                self.matched.insert(recv.id, (recv, sent));
            }
            None => self.unexpected.push(sent),
        }
    }

    fn recv(&mut self, recv: Wanted) {
        match self.unexpected.iter().position(|sent| recv.takes(sent)) {
            Some(at) => {
                let sent = self.unexpected.remove(at);
                self.matched.insert(recv.id, (recv, sent));
            }
            None => self.posted.push(recv),
        }
    }
}

/// A receiver of rank 0 and senders of ranks 1 and 2.
struct Ranks {
    layers: [Layer; 3],
    memory: [Arc<Mr>; 3],
    sent: u64,
}

impl Ranks {
    fn open() -> Ranks {
        let open = |rank: usize| {
            let context = Context::open(address()).expect("the address is free");
            Layer::open(&context, rank as u16, EAGER_MAX).expect("a layer")
        };
        let mut layers = [open(0), open(1), open(2)];
        let [receiver, first, second] = &mut layers;
        Layer::join(receiver, first).expect("they connect");
        Layer::join(receiver, second).expect("they connect");
        // A place for each step, and for what is received at the end.
        let memory = [0, 1, 2].map(|rank| {
            let layer: &Layer = &layers[rank];
            layer.memory(2 * STEPS * LEN_MAX).expect("memory")
        });
        Ranks {
            layers,
            memory,
            sent: 0,
        }
    }

    /// Polls all ranks until this holds.
    fn until(
        &mut self,
        program: &mut Program,
        what: &str,
        holds: impl Fn(&Ranks, &Program) -> bool,
    ) -> Result<(), String> {
        let start = Instant::now();
        while !holds(self, program) {
            for rank in 0..3 {
                while let Some(done) = self.layers[rank]
                    .poll()
                    .map_err(|error| error.to_string())?
                {
                    program.on_done(rank, done)?;
                }
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("waited too long for {what}"));
            }
        }
        Ok(())
    }
}

/// A program as it runs, on the layers and in the model.
struct Program {
    random: Random,
    model: Model,
    /// Sends that are not complete: rank and number.
    sending: Vec<(usize, u64)>,
    received: BTreeMap<u64, Done>,
    last_sender: Option<u16>,
}

impl Program {
    fn on_done(&mut self, rank: usize, done: Done) -> Result<(), String> {
        match done {
            Done::Sent(id) => {
                let place = self.sending.iter().position(|send| *send == (rank, id));
                let place =
                    place.ok_or(format!("rank {rank}: send {id} completes once too often"))?;
                self.sending.remove(place);
            }
            Done::Received { recv, .. } => {
                if rank != 0 || self.received.insert(recv, done).is_some() {
                    return Err(format!(
                        "rank {rank}: receive {recv} completes once too often"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Messages of one sender come in order; those of two come in the order of the program only if it waits between them.
    fn settle(&mut self, ranks: &mut Ranks) -> Result<(), String> {
        self.last_sender = None;
        ranks.until(self, "arrivals", |ranks, _| {
            ranks.layers[0].arrived() == ranks.sent
        })
    }

    fn send(&mut self, ranks: &mut Ranks, step: usize) -> Result<(), String> {
        let envelope = Envelope {
            context: self.random.of(&CONTEXTS),
            sender: self.random.of(&SENDERS),
            tag: self.random.of(&TAGS),
        };
        if self.last_sender.is_some_and(|last| last != envelope.sender) {
            self.settle(ranks)?;
        }
        let len = self.random.len();
        let first = self.random.below(251) as usize;
        let bytes: Vec<u8> = (0..len).map(|n| ((first + n) % 251) as u8).collect();
        let rank = usize::from(envelope.sender);
        let start = step * LEN_MAX;
        ranks.memory[rank].write(start, &bytes);
        let buffer = Buffer::new(&ranks.memory[rank], start..start + len);
        let id = ranks.layers[rank].send(0, envelope.context, envelope.tag, buffer);
        self.sending
            .push((rank, id.map_err(|error| error.to_string())?));
        self.model.send(Sent { envelope, bytes });
        ranks.sent += 1;
        self.last_sender = Some(envelope.sender);
        Ok(())
    }

    fn wanted(&mut self, step: usize) -> Wanted {
        let (sender, tag) = (self.random.of(&SENDERS), self.random.of(&TAGS));
        Wanted {
            id: 0,
            context: self.random.of(&CONTEXTS),
            sender: (self.random.below(3) > 0).then_some(sender),
            tag: (self.random.below(3) > 0).then_some(tag),
            place: step * LEN_MAX,
            room: self.random.len(),
        }
    }

    fn recv(&mut self, ranks: &mut Ranks, mut wanted: Wanted) -> Result<(), String> {
        self.settle(ranks)?;
        let end = wanted.place + wanted.room;
        ranks.memory[0].write(wanted.place, &[255; LEN_MAX]);
        let buffer = Buffer::new(&ranks.memory[0], wanted.place..end);
        let id = ranks.layers[0].recv(wanted.pattern(), buffer);
        wanted.id = id.map_err(|error| error.to_string())?;
        self.model.recv(wanted);
        Ok(())
    }

    fn cancel(&mut self, ranks: &mut Ranks, id: u64) -> Result<(), String> {
        self.settle(ranks)?;
        let place = self.model.posted.iter().position(|recv| recv.id == id);
        if ranks.layers[0].cancel(id) != place.is_some() {
            return Err(format!("cancel of receive {id}: the model says {place:?}"));
        }
        place.map(|at| self.model.posted.remove(at));
        Ok(())
    }

    fn probe(&mut self, ranks: &mut Ranks, step: usize) -> Result<(), String> {
        self.settle(ranks)?;
        let wanted = self.wanted(step);
        let expected = self.model.unexpected.iter().find(|sent| wanted.takes(sent));
        let expected = expected.map(|sent| (sent.envelope, sent.bytes.len()));
        let found = ranks.layers[0].probe(wanted.pattern());
        if found != expected {
            return Err(format!(
                "a probe finds {found:?}, in the model {expected:?}"
            ));
        }
        Ok(())
    }

    /// Receives what was not received, takes back what got nothing, and compares all.
    fn end(mut self, ranks: &mut Ranks) -> Result<[usize; 3], String> {
        self.settle(ranks)?;
        let early = self.model.matched.len();
        for id in self
            .model
            .posted
            .iter()
            .map(|recv| recv.id)
            .collect::<Vec<_>>()
        {
            self.cancel(ranks, id)?;
        }
        for step in STEPS..STEPS + self.model.unexpected.len() {
            let context = self.model.unexpected[0].envelope.context;
            let wanted = Wanted {
                id: 0,
                context,
                sender: None,
                tag: None,
                place: step * LEN_MAX,
                room: LEN_MAX,
            };
            self.recv(ranks, wanted)?;
        }
        ranks.until(&mut self, "completions", |_, program| {
            program.sending.is_empty() && program.received.len() >= program.model.matched.len()
        })?;
        if ranks.layers[0].lens() != (0, 0) {
            return Err(format!(
                "{:?} are left in the queues",
                ranks.layers[0].lens()
            ));
        }
        let mut cut = 0;
        for (id, (recv, sent)) in &self.model.matched {
            let len = sent.bytes.len().min(recv.room);
            cut += usize::from(len < sent.bytes.len());
            let expected = Done::Received {
                recv: *id,
                envelope: sent.envelope,
                len,
                sent: sent.bytes.len(),
            };
            let found = self.received.remove(id);
            if found.as_ref() != Some(&expected) {
                return Err(format!("{found:?}, but the model says {expected:?}"));
            }
            let mut bytes = [0; LEN_MAX];
            ranks.memory[0].read(recv.place, &mut bytes);
            if bytes[..len] != sent.bytes[..len] || bytes[len..].iter().any(|byte| *byte != 255) {
                return Err(format!(
                    "receive {id} has other bytes than were sent, or too many"
                ));
            }
        }
        match self.received.is_empty() {
            true => Ok([early, self.model.matched.len(), cut]),
            false => Err(format!(
                "{:?}, of which the model knows nothing",
                self.received
            )),
        }
    }
}

fn run(ranks: &mut Ranks, seed: u64) -> Result<[usize; 3], String> {
    let mut program = Program {
        random: Random(seed),
        model: Model::default(),
        sending: Vec::new(),
        received: BTreeMap::new(),
        last_sender: None,
    };
    for step in 0..STEPS {
        match program.random.below(10) {
            0..5 => program.send(ranks, step)?,
            5..8 => {
                let wanted = program.wanted(step);
                program.recv(ranks, wanted)?;
            }
            8 => program.probe(ranks, step)?,
            _ => {
                let known = &program.model;
                let ids = known.posted.iter().map(|recv| recv.id);
                let ids: Vec<u64> = ids.chain(known.matched.keys().copied()).collect();
                if !ids.is_empty() {
                    let id = program.random.of(&ids);
                    program.cancel(ranks, id)?;
                }
            }
        }
    }
    program.end(ranks)
}

/// `URXE_SEED=n` runs the program of one seed alone, `URXE_PROGRAMS=n` as many as that.
#[test]
fn random_programs_match_as_the_model_says() {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let one = number("URXE_SEED");
    let all = 0..number("URXE_PROGRAMS").unwrap_or(PROGRAMS);
    let seeds = one.map_or(all, |seed| seed..seed + 1);
    let many = seeds.end - seeds.start > 100;
    let mut ranks = Ranks::open();
    let mut seen = [0; 3];
    for seed in seeds {
        match run(&mut ranks, seed) {
            Ok(counts) => (0..3).for_each(|n| seen[n] += counts[n]),
            Err(what) => panic!(
                "{what}\nagain: URXE_SEED={seed} cargo test -p urxe --test api -- matching::random_programs"
            ),
        }
    }
    let [early, all, cut] = seen;
    println!(
        "{all} messages: {early} were received in the programs, {cut} were longer than their receive"
    );
    assert!(
        !many || (early > 0 && all > early && cut > 0),
        "programs that test little"
    );
}

#[test]
fn what_is_no_message_of_the_layer_is_refused_in_words() {
    let no_header = [0; 12];
    let mut unknown_kind = [0; header::HEADER];
    unknown_kind[0] = 9;
    let mut fin_of_nothing = [0; header::HEADER];
    fin_of_nothing[0] = 3;
    let mut other_rank = [0; header::HEADER];
    other_rank[0] = 1;
    other_rank[11] = 2;
    let mut long_fin = [0; header::HEADER + 1];
    long_fin[0] = 3;
    let cases: [(&[u8], &str); 5] = [
        (&no_header, "12 bytes, which is less than a header"),
        (&unknown_kind, "a message of kind 9"),
        (&fin_of_nothing, "FIN for send 0, which waits for none"),
        (&other_rank, "a message of rank 2"),
        (&long_fin, "45 bytes as Fin, which has 44"),
    ];
    for (bytes, words) in cases {
        let open = |rank| Layer::open(&Context::open(address()).expect("free"), rank, EAGER_MAX);
        let (mut layer, stranger) = (open(0).expect("a layer"), open(1).expect("a layer"));
        let (to, from) = (layer.qp().expect("a QP"), stranger.qp().expect("a QP"));
        let options = ConnectOptions::default();
        to.connect(&from.endpoint(), &options).expect("it connects");
        from.connect(&to.endpoint(), &options).expect("it connects");
        layer.add_peer(1, to);
        let memory = stranger.memory(100).expect("memory");
        memory.write(0, bytes);
        let sges = [memory.sge(..bytes.len())];
        from.post_send(&SendWr::send(1, &sges))
            .expect("it is posted");
        let start = Instant::now();
        let error = loop {
            match layer.poll() {
                Err(error) => break error,
                Ok(None) => assert!(start.elapsed() < PATIENCE, "nothing came for {words}"),
                Ok(Some(done)) => panic!("{done:?} of {words}"),
            }
        };
        assert_eq!(error.to_string(), format!("rank 1 sent {words}"));
        assert!(matches!(error, MatchError::Protocol { peer: 1, .. }));
        // The layer goes on.
        assert!(matches!(layer.poll(), Ok(None)));
    }
}

#[test]
fn a_send_to_a_rank_that_is_not_connected_is_refused() {
    let context = Context::open(address()).expect("free");
    let mut layer = Layer::open(&context, 0, EAGER_MAX).expect("a layer");
    let memory = layer.memory(10).expect("memory");
    let error = layer
        .send(5, 0, 0, Buffer::new(&memory, 0..10))
        .expect_err("no such rank");
    assert_eq!(error.to_string(), "rank 5 is not connected");
}

/// What the curve measures is the search: a list of which each element is looked at.
#[test]
fn a_message_that_has_to_pass_a_long_queue_takes_longer() {
    let latency = |long, len| {
        let open = |rank| Layer::open(&Context::open(address()).expect("free"), rank, EAGER_MAX);
        let mut layers = [open(0).expect("a layer"), open(1).expect("a layer")];
        let [receiver, sender] = &mut layers;
        Layer::join(receiver, sender).expect("they connect");
        curve::latency(&mut layers, long, len, 101).expect("messages go")
    };
    for long in [Long::Posted, Long::PostedWild, Long::Unexpected] {
        let (short, passed) = (latency(long, 0), latency(long, 100_000));
        assert!(
            passed > 2 * short,
            "{long:?}: {short:?} alone, {passed:?} behind 100,000"
        );
    }
}
