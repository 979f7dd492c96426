//! A message is acknowledged before its answer, also to programs that poll: the sender finds the completion of its message no
//! later than the answer. Between neighbours a short answer and the ACK before it travel as a pair.

use std::thread;
use std::time::Instant;

use crate::capture::Capture;
use crate::common::{End, PATIENCE, address, connect};
use urxe::{ConnectOptions, Context, ContextBuilder, Mr, SendWr, Wc, WcOpcode};
use urxe_wire::{Frame, LinkType, Opcode};

const ROUNDS: u64 = 2_000;
const CAPTURED: u64 = 50;
const BUFFER: usize = 8 << 10;

/// Two ends. Without offload the second cannot be handed trains, and the ACK goes first as a packet of its own.
fn ends(offload: bool) -> (End, End) {
    connected(Context::builder(address()).offload(offload))
}

fn connected(b: ContextBuilder) -> (End, End) {
    let b = b.open().expect("the address is free");
    let (a, b) = (End::open(), End::on(b));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    (a, b)
}

/// What answers a message.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Send(usize),
    /// Data, and news of it.
    WriteAndSend(usize, usize),
    Read(usize),
}

impl Answer {
    fn post(self, n: u64, from: &End, own: &Mr, peers: &Mr) {
        let post = |wr: &SendWr<'_>| from.qp.post_send(wr).expect("room");
        let part = |len| [own.sge(..len)];
        match self {
            Answer::Send(len) => post(&SendWr::send(n, &part(len)).signaled()),
            Answer::WriteAndSend(data, news) => {
                post(&SendWr::rdma_write(
                    n,
                    &part(data),
                    peers.addr(),
                    peers.rkey(),
                ));
                post(&SendWr::send(n, &part(news)).signaled());
            }
            Answer::Read(len) => {
                post(&SendWr::rdma_read(n, &part(len), peers.addr(), peers.rkey()).signaled());
                post(&SendWr::send(n, &part(0)).signaled());
            }
        }
    }
}

/// `a` sends messages, which `b` answers from a thread of its own; both poll.
fn converse(a: &End, b: &End, rounds: u64, message: usize, answer: Answer) {
    let (at_a, at_b) = (a.memory(BUFFER), b.memory(BUFFER));
    b.recv(0, &at_b);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..rounds {
                while b.succeed().opcode != WcOpcode::Recv {}
                b.recv(n, &at_b);
                answer.post(n, b, &at_b, &at_a);
            }
        });
        for n in 0..rounds {
            a.recv(n, &at_a);
            let sge = [at_a.sge(..message)];
            let wr = SendWr::send(n, &sge).signaled();
            a.qp.post_send(&wr).expect("room");
            for expected in [WcOpcode::Send, WcOpcode::Recv] {
                let wc = a.succeed();
                let what = format!("round {n} of {message} bytes and {answer:?}");
                assert_eq!((wc.opcode, wc.wr_id), (expected, n), "{what}");
            }
        }
    });
    // Nothing of this conversation is found in the next.
    while b.succeed().wr_id != rounds - 1 {}
    while b.cq.poll(&mut [Wc::default(); 16]).expect("polls") > 0 {}
}

const ANSWERS: [Answer; 9] = [
    Answer::Send(0),
    Answer::Send(4),
    Answer::Send(5),
    Answer::Send(64),
    Answer::Send(4096),
    Answer::Send(5000),
    Answer::WriteAndSend(64, 64),
    Answer::WriteAndSend(5000, 8),
    Answer::Read(64),
];

#[test]
fn a_message_completes_before_its_answer_whatever_both_are() {
    for offload in [true, false] {
        for answer in ANSWERS {
            for message in [8, 5000] {
                let (a, b) = ends(offload);
                converse(&a, &b, ROUNDS, message, answer);
            }
        }
    }
}

/// WRITEs of one side and the other in turn, which each finds in its memory.
#[test]
fn a_write_completes_before_the_one_that_answers_it() {
    for offload in [true, false] {
        let (a, b) = ends(offload);
        let (at_a, at_b) = (a.memory(8), b.memory(8));
        let turn = |n: u64, from: &End, at: &Mr| {
            let bytes = n.to_ne_bytes();
            let write = SendWr::rdma_write_inline(n, &bytes, at.addr(), at.rkey()).signaled();
            from.qp.post_send(&write).expect("room");
        };
        // What is in memory was received in the same turn as what came before it, by whichever thread.
        let wait = |n: u64, end: &End, at: &Mr, wc: &mut [Wc]| {
            let (start, mut found) = (Instant::now(), 0);
            while at.load_u64(0) != n {
                found += end.cq.poll(&mut wc[found..]).expect("polls");
                assert!(start.elapsed() < PATIENCE, "message {n}");
            }
            found
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=ROUNDS {
                    let mut wc = [Wc::default(); 4];
                    wait(n, &b, &at_b, &mut wc);
                    b.cq.poll(&mut wc).expect("polls");
                    turn(n, &b, &at_a);
                }
            });
            for n in 1..=ROUNDS {
                let mut wc = [Wc::default(); 4];
                turn(n, &a, &at_b);
                let mut found = wait(n, &a, &at_a, &mut wc);
                found += a.cq.poll(&mut wc[found..]).expect("polls");
                assert_eq!((found, wc[0].wr_id), (1, n), "offload {offload}");
            }
        });
    }
}

#[test]
fn pairs_arrive_whole() {
    let (a, b) = ends(true);
    converse(&a, &b, ROUNDS, 8, Answer::Send(8));
    for end in [&a, &b] {
        assert_eq!(end.counter("split_pkts"), 0, "from the first on");
    }
    let acks = b.counter("ack_sent");
    assert!(acks >= ROUNDS, "{acks} ACKs in {ROUNDS} rounds");
}

/// What a capture shows of the answering side: the ACK of each message is before all that answers it, or is the end of a
/// pair with it.
#[test]
fn captures_show_the_ack_before_the_answer() {
    for offload in [true, false] {
        for answer in ANSWERS {
            for message in [8, 5000] {
                let what = format!("{message} bytes answered by {answer:?}, offload {offload}");
                let converse = || {
                    let capture = Capture::new(&format!("{offload}-{answer:?}-{message}"));
                    let b = Context::builder(address()).offload(offload);
                    let (a, b) = connected(b.pcap(&capture.0));
                    converse(&a, &b, CAPTURED, message, answer);
                    drop((a, b));
                    let (pairs, first) = orders(&capture, &what);
                    assert!(pairs + first >= CAPTURED, "{what}: {pairs} and {first}");
                    pairs
                };
                // The first that leaves is what counts.
                let is_short = matches!(
                    answer,
                    Answer::Send(5..=4096) | Answer::WriteAndSend(5..=4096, _)
                );
                let is_pair = offload && is_short;
                // No answer is soon enough where the machine is busy with others: then it is tried again.
                let tries = if is_pair { 20 } else { 1 };
                let pairs = (0..tries).map(|_| converse()).find(|&pairs| pairs > 0);
                let pairs = pairs.unwrap_or(0);
                assert_eq!(pairs > 0, is_pair, "{what}: {pairs} pairs");
            }
        }
    }
}

/// How many messages of the peer were acknowledged as the end of a pair, and before everything.
fn orders(capture: &Capture, what: &str) -> (u64, u64) {
    let (mut pairs, mut first, mut unanswered, mut last) = (0, 0, false, false);
    for (way, packet) in capture.packets() {
        let Ok(Frame::Roce(frame)) = Frame::parse(LinkType::RawIp, &packet) else {
            panic!("{what}: not a RoCEv2 packet");
        };
        let packet = frame.packet;
        let (is_ack, is_sent) = (packet.bth().opcode == Opcode::RC_ACKNOWLEDGE, way == 2);
        if !is_sent {
            unanswered |= packet.bth().ack_req;
        } else if unanswered && is_ack {
            (pairs, first) = (pairs + u64::from(last), first + u64::from(!last));
            (unanswered, last) = (false, false);
        } else if unanswered {
            assert!(!last, "{what}: a second packet before the ACK");
            last = true;
        }
    }
    assert!(!unanswered, "{what}: all are acknowledged");
    (pairs, first)
}
