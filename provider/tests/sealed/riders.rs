//! A short answer and the ACK before it are in one envelope, and come out as the packets that they were, also where the kernel joins envelopes
//! of several QPs.

use std::thread;

use urxe::{ConnectOptions, Mr, Qp, RecvWr, Security, SendWr, Wc, WcOpcode};

use super::ends::{Key, open};
use crate::common::{End, address, connect};

const QPS: usize = 5;
const ROUNDS: usize = 400;
const SLOT: usize = 512;

/// Bytes of a message of a QP: some have room for a rider in their envelope, the last have not.
const LENS: [usize; QPS] = [5, 8, 24, 200, 400];

/// What a message is in a round.
fn content(index: usize, round: usize) -> Vec<u8> {
    let bytes = (0..LENS[index]).map(|at| (at * 7 + index * 31 + round) as u8);
    bytes.collect()
}

struct Side {
    end: End,
    qps: Vec<Qp>,
    /// A slot for what each QP receives, and one for what it sends.
    memory: Mr,
}

impl Side {
    fn new(key: &Key, security: Security) -> Side {
        let end = End::on(open(address(), security, key));
        let qps = (0..QPS).map(|_| end.pd.qp(&end.cq).create().expect("a QP"));
        let qps = qps.collect();
        let memory = end.memory(2 * QPS * SLOT);
        Side { end, qps, memory }
    }

    fn recv(&self, index: usize) {
        let place = [self.memory.sge(index * SLOT..(index + 1) * SLOT)];
        let recv = RecvWr::new(index as u64, &place);
        self.qps[index].post_recv(&recv).expect("room");
    }

    fn send(&self, index: usize, bytes: &[u8]) {
        // The message before it was answered, so it is acknowledged.
        let at = (QPS + index) * SLOT;
        self.memory.write(at, bytes);
        let from = [self.memory.sge(at..at + bytes.len())];
        let send = SendWr::send(index as u64, &from).signaled();
        self.qps[index].post_send(&send).expect("room");
    }

    /// The next message: which QP's, and its bytes.
    fn message(&self) -> (usize, Vec<u8>) {
        loop {
            let wc: Wc = self.end.succeed();
            if wc.opcode == WcOpcode::Recv {
                let index = wc.wr_id as usize;
                let mut bytes = vec![0; wc.byte_len as usize];
                self.memory.read(index * SLOT, &mut bytes);
                self.recv(index);
                return (index, bytes);
            }
        }
    }
}

/// Each QP has a message under way at a time, all at once. Returns what the two sides received, and how many envelopes.
fn converse(security: Security) -> (u64, u64) {
    let key = Key::new(0x3fa2, 7);
    let [a, b] = [0, 1].map(|_| Side::new(&key, security));
    for index in 0..QPS {
        connect(&a.qps[index], &b.qps[index], &ConnectOptions::default());
        a.recv(index);
        b.recv(index);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rounds = [0; QPS];
            for _ in 0..QPS * ROUNDS {
                let (index, bytes) = b.message();
                assert_eq!(bytes, content(index, rounds[index]), "QP {index}");
                rounds[index] += 1;
                b.send(index, &bytes);
            }
        });
        let mut rounds = [0; QPS];
        (0..QPS).for_each(|index| a.send(index, &content(index, 0)));
        for _ in 0..QPS * ROUNDS {
            let (index, bytes) = a.message();
            assert_eq!(bytes, content(index, rounds[index]), "QP {index}");
            rounds[index] += 1;
            if rounds[index] < ROUNDS {
                a.send(index, &content(index, rounds[index]));
            }
        }
    });
    let sum = |name: &str| a.end.counter(name) + b.end.counter(name);
    (sum("rcvd_pkts"), sum("seal_opened"))
}

#[test]
fn a_short_answer_and_its_ack_share_an_envelope() {
    for security in [Security::Auth, Security::Seal] {
        // No answer is soon enough where the machine is busy with others: then it is tried again.
        let shared = (0..20).any(|_| {
            let (packets, envelopes) = converse(security);
            packets > envelopes
        });
        assert!(shared, "{security:?}: each packet has an envelope");
    }
}
