//! Which messages ask for an acknowledgement, and what becomes of those that do not.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::{lines, lose, post, receive, record, sge};
use crate::support::{IOVA, PD, Pair, SEND_CQ, Settings};
use urxe_core::AckMode;
use urxe_core::mr::{Access, BindMw, MrInit, MwType, inc_rkey};
use urxe_core::qp::attr::{AttrMask, QpAttr, QpCap};
use urxe_core::qp::state::QpState;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};

const NONE: SendFlags = SendFlags(0);
const MS: u64 = 1_000_000;

type Log = Rc<RefCell<Vec<(usize, String)>>>;

fn settings() -> Settings {
    Settings {
        neighbours: true,
        timeout: 14,
        ..Settings::default()
    }
}

/// Two neighbours with as many receives as fit, of which one has just asked.
fn neighbours(s: &Settings) -> (Pair, Log) {
    let mut p = Pair::new(s, 1);
    p.acks = AckMode::Now;
    for side in [0, 1] {
        for n in 0..u64::from(s.cap.max_recv_wr) {
            receive(&mut p, side, n);
        }
    }
    // Nothing was asked for so long that each side's first message does.
    p.now.0 += MS;
    send(&mut p, 0);
    send(&mut p, 1);
    let log = record(&mut p);
    (p, log)
}

/// A short SEND of one side arrives, and what is owed at once.
fn send(p: &mut Pair, side: usize) {
    let sges = [sge(p, side, 0x8000, 8)];
    let wr = SendWr::new(1, WrOpcode::Send, WrData::Sges(&sges));
    p.post_send(side, &SendWr { flags: NONE, ..wr });
    settle(p);
}

fn settle(p: &mut Pair) {
    let until = p.now + 5_000;
    p.run_until(until);
}

fn asked(lines: &[String]) -> Vec<bool> {
    let messages = lines.iter().filter(|line| !line.starts_with("Ack"));
    messages.map(|line| line.ends_with(" A")).collect()
}

fn acks(log: &Log, side: usize) -> usize {
    let sent = lines(log, side);
    sent.iter().filter(|line| line.starts_with("Ack")).count()
}

/// A ping-pong of messages that complete nothing: few of them ask, and nothing is sent again.
#[test]
fn a_ping_pong_of_unsignaled_messages_is_silent() {
    let (mut p, log) = neighbours(&settings());
    for n in 0..1000 {
        for side in [0, 1] {
            send(&mut p, side);
            receive(&mut p, 1 - side, n);
        }
    }
    for side in [0, 1] {
        let sent = asked(&lines(&log, side));
        let asking = sent.iter().filter(|&&asks| asks).count();
        // One in 200 us, which are 20 of these round trips.
        assert!((40..=60).contains(&asking), "{asking} of 1000 asked");
        assert_eq!(acks(&log, 1 - side), asking);
        let stats = p.nodes[side].shard.stats();
        assert_eq!(stats.retransmitted_pkts, 0);
    }
}

/// What was silent is acknowledged by itself, once, and long before anything is sent again.
#[test]
fn what_did_not_ask_is_acknowledged_after_a_while() {
    let (mut p, log) = neighbours(&settings());
    let start = p.now;
    for _ in 0..3 {
        send(&mut p, 0);
    }
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 3);
    p.run_until(start + MS);
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
    p.run();
    assert_eq!(
        lines(&log, 0),
        ["SEND Only 101", "SEND Only 102", "SEND Only 103"]
    );
    assert_eq!(lines(&log, 1), ["Acknowledge 103"]);
    assert!(p.nodes[0].take(SEND_CQ).is_empty());
}

/// A program that waits for an acknowledgement gets it.
#[test]
fn a_message_asks_if_its_acknowledgement_matters() {
    let cases: [(&str, Settings, WrOpcode, u32, SendFlags); 7] = [
        (
            "it completes",
            settings(),
            WrOpcode::Send,
            8,
            SendFlags::SIGNALED,
        ),
        (
            "all complete",
            Settings {
                sq_sig_all: true,
                ..settings()
            },
            WrOpcode::Send,
            8,
            NONE,
        ),
        (
            "the peer is on another host",
            Settings {
                neighbours: false,
                ..settings()
            },
            WrOpcode::Send,
            8,
            NONE,
        ),
        (
            "an answer is late soon",
            Settings {
                timeout: 10,
                ..settings()
            },
            WrOpcode::Send,
            8,
            NONE,
        ),
        (
            "something looks at what is under way",
            Settings {
                all_ask: true,
                ..settings()
            },
            WrOpcode::Send,
            8,
            NONE,
        ),
        ("it is long", settings(), WrOpcode::RdmaWrite, 257, NONE),
        (
            "none is far from the last",
            Settings {
                cap: QpCap {
                    max_send_wr: 1,
                    ..Settings::default().cap
                },
                ..settings()
            },
            WrOpcode::Send,
            8,
            NONE,
        ),
    ];
    for (why, s, opcode, len, flags) in cases {
        let (mut p, log) = neighbours(&s);
        post(&mut p, 7, opcode, len, flags);
        settle(&mut p);
        let sent = lines(&log, 0);
        assert!(sent.last().is_some_and(|l| l.ends_with(" A")), "{why}");
        assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0, "{why}");
    }
    let (mut p, log) = neighbours(&settings());
    post(&mut p, 7, WrOpcode::RdmaWrite, 256, NONE);
    settle(&mut p);
    assert_eq!(lines(&log, 0), ["RDMA WRITE Only 101"], "none of them");
}

/// Messages that are posted together are a stream: the window moves on as ever.
#[test]
fn messages_that_are_posted_together_ask() {
    let (mut p, log) = neighbours(&settings());
    for n in 0..10 {
        post(&mut p, n, WrOpcode::RdmaWrite, 8, NONE);
    }
    settle(&mut p);
    let sent = asked(&lines(&log, 0));
    assert_eq!(sent.len(), 10);
    assert!(sent[..9].iter().all(|&asks| asks), "{sent:?}");
    p.run();
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
}

/// Half of the queue, of the window and of the credits is left at least, whichever is the least.
#[test]
fn a_message_asks_before_anything_runs_out() {
    let with = |send: u32, recv: u32, window: u32| Settings {
        cap: QpCap {
            max_send_wr: send,
            max_recv_wr: recv,
            ..Settings::default().cap
        },
        window_bytes: window * 256,
        ..settings()
    };
    for (s, at_most) in [
        (with(8, 64, 256), 4),
        (with(64, 8, 256), 4),
        (with(64, 64, 10), 5),
        (with(64, 64, 256), 32),
    ] {
        let (mut p, log) = neighbours(&s);
        // All at one moment, but one after the other.
        let now = p.now;
        for n in 0..200 {
            send(&mut p, 0);
            receive(&mut p, 1, n);
            p.now = now;
        }
        let sent = asked(&lines(&log, 0));
        assert_eq!(sent.len(), 200);
        let longest = sent.split(|&asks| asks).map(<[bool]>::len).max();
        let longest = longest.expect("there are some");
        assert!(
            (1..=at_most).contains(&longest),
            "{longest} silent ones, {at_most}: {sent:?}"
        );
    }
}

/// Where messages are far between, an ACK with each answer is cheaper than one by itself later.
#[test]
fn a_message_that_comes_after_a_while_asks() {
    let (mut p, log) = neighbours(&settings());
    for n in 0..10 {
        p.now.0 += MS / 4;
        send(&mut p, 0);
        receive(&mut p, 1, n);
    }
    assert_eq!(asked(&lines(&log, 0)), [true; 10]);
    assert_eq!(acks(&log, 1), 10);
}

/// A silent message that is lost is sent again, and asks.
#[test]
fn a_silent_message_that_is_lost_arrives() {
    let (mut p, _) = neighbours(&settings());
    let log = lose(&mut p, 0, 0);
    send(&mut p, 0);
    p.run();
    let sent = lines(&log, 0);
    assert_eq!(sent[0], "SEND Only 101");
    assert_eq!(sent[1], "SEND Only 101 A");
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
    assert_eq!(p.nodes[1].shard.stats().rcvd_messages, 2);

    // One behind it tells at once.
    let (mut p, _) = neighbours(&settings());
    let log = lose(&mut p, 0, 0);
    send(&mut p, 0);
    send(&mut p, 0);
    settle(&mut p);
    assert_eq!(p.nodes[1].shard.stats().rcvd_messages, 3);
    let sent = lines(&log, 0);
    assert_eq!(sent[2..], ["SEND Only 101 A", "SEND Only 102 A"]);
}

/// If the ACK by itself is lost, the requester asks in the end.
#[test]
fn an_ack_by_itself_that_is_lost_is_asked_for() {
    let (mut p, _) = neighbours(&settings());
    let log = lose(&mut p, 1, 0);
    send(&mut p, 0);
    p.run();
    assert_eq!(lines(&log, 1), ["Acknowledge 101", "Acknowledge 101"]);
    assert_eq!(lines(&log, 0), ["SEND Only 101", "SEND Only 101 A"]);
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
}

/// A QP that goes says what it has, as it cannot be asked any more.
#[test]
fn a_qp_that_goes_acknowledges_what_did_not_ask() {
    let (mut p, log) = neighbours(&settings());
    send(&mut p, 0);
    assert_eq!(lines(&log, 1), [""; 0]);
    let qp = p.nodes[1].qp;
    p.nodes[1].shard.owe_unasked(qp);
    p.transmit();
    assert_eq!(lines(&log, 1), ["Acknowledge 101"]);
    // And nothing more, then.
    p.nodes[1].shard.owe_unasked(qp);
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    p.nodes[1].modify(&attr, AttrMask::STATE);
    p.run();
    assert_eq!(lines(&log, 1), ["Acknowledge 101"]);
    assert_eq!(p.nodes[0].shard.sq_len(p.nodes[0].qp), 0);
}

/// Where threads sleep, an ACK by itself would wake them: messages ask, and what does not is acknowledged as if it did.
#[test]
fn a_program_that_waits_for_events_asks_and_answers() {
    let (mut p, log) = neighbours(&settings());
    send(&mut p, 0);
    let now = p.now;
    p.nodes[0].shard.note_waiting(now);
    send(&mut p, 0);
    p.nodes[1].shard.note_waiting(now);
    p.run();
    assert_eq!(asked(&lines(&log, 0)), [false, true]);
    assert_eq!(lines(&log, 1), ["Acknowledge 102"]);

    let (mut p, log) = neighbours(&settings());
    let now = p.now;
    p.nodes[1].shard.note_waiting(now);
    send(&mut p, 0);
    assert_eq!(lines(&log, 0), ["SEND Only 101"]);
    assert_eq!(lines(&log, 1), ["Acknowledge 101"]);
    // Those that poll again are as before.
    p.now.0 += MS;
    send(&mut p, 0);
    send(&mut p, 0);
    assert_eq!(asked(&lines(&log, 0)), [false, true, false]);
    assert_eq!(acks(&log, 1), 2);
}

/// A request that is carried out here waits for the acknowledgement of all before it: after the first, none waits for long.
#[test]
fn before_local_requests_every_message_asks() {
    let (mut p, log) = neighbours(&settings());
    let host = MrInit {
        pd: PD,
        access: Access::LOCAL_WRITE | Access::MW_BIND,
        host_addr: 0,
        iova: 0,
        len: 0x1000,
        remote_invalidate: false,
    };
    let region = p.nodes[0].mrs.register(host).expect("registers");
    let window = p.nodes[0].mrs.alloc_mw(PD, MwType::Type1).expect("fits");
    let bind = BindMw {
        lkey: region.lkey,
        addr: 0,
        length: 8,
        access: Access::REMOTE_READ,
    };
    send(&mut p, 0);
    assert_eq!(asked(&lines(&log, 0)), [false]);
    p.post_send(0, &SendWr::bind_mw(9, inc_rkey(window), &bind));
    p.run();
    assert_eq!(p.nodes[0].state(), QpState::Rts);
    send(&mut p, 0);
    send(&mut p, 0);
    assert_eq!(asked(&lines(&log, 0))[1..], [true; 2]);
}

/// A requester has its system join packets before the responder's first pair leaves.
#[test]
fn both_sides_count_pairs_alike() {
    let s = settings();
    let (mut p, log) = neighbours(&s);
    p.acks = AckMode::Defer;
    let mut pairs = Vec::new();
    for n in 0..70 {
        let flags = if n == 40 { NONE } else { SendFlags::SIGNALED };
        post(&mut p, n, WrOpcode::Send, 8, flags);
        settle(&mut p);
        receive(&mut p, 1, n);
        log.borrow_mut().clear();
        // The answer is of the kind that may take an ACK along.
        let sges = [sge(&p, 1, 0x8000, 8)];
        let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
        (wr.remote_addr, wr.rkey) = (IOVA + 0x1000, p.nodes[0].keys.rkey);
        wr.flags = SendFlags::SIGNALED;
        p.post_send(1, &wr);
        p.transmit();
        let sent = lines(&log, 1);
        if sent.last().is_some_and(|line| line.starts_with("Ack")) {
            assert!(
                p.nodes[0].shard.expects_pairs(),
                "a pair comes before it is expected: {n}"
            );
            pairs.push(n);
        }
        settle(&mut p);
    }
    // The first message, of `neighbours`, asked too; one that does not begins the count anew.
    assert_eq!(pairs, (30..40).collect::<Vec<u64>>());
}
