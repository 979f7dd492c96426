//! The responder's checks, one packet at a time: which comes first, what is answered,
//! with which PSN and MSN. The packets are made by hand; node 1 answers.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::*;
use crate::support::*;
use urxe_core::Recovery;
use urxe_core::mr::Access;
use urxe_core::qp::state::QpState;
use urxe_core::work::{SendFlags, SendWr, WrData, WrOpcode};
use urxe_wire::{AtomicEth, Bth, NakCode, Opcode, Packet, Psn, Reth, Rkey, Syndrome, SyndromeKind};

/// Node 1 expects this PSN first.
const FIRST: u32 = 0x100;

/// A pair on a wire that delivers nothing by itself.
fn quiet(change: impl FnOnce(&mut Settings)) -> (Pair, Rc<RefCell<Vec<Vec<u8>>>>) {
    let mut settings = Settings::default();
    change(&mut settings);
    let mut p = Pair::new(&settings, 1);
    let said = Rc::new(RefCell::new(Vec::new()));
    let sink = said.clone();
    p.filter = Some(Box::new(move |from, bytes: &[u8]| {
        if from == 1 {
            sink.borrow_mut().push(bytes.to_vec());
        }
        Verdict::Drop
    }));
    (p, said)
}

/// An answer as text: opcode, PSN, syndrome and MSN.
fn text(bytes: &[u8]) -> String {
    let packet = Packet::parse(bytes).expect("a packet");
    let mut text = line(bytes);
    if let Some(aeth) = packet.aeth() {
        let kind = match aeth.syndrome.decode() {
            SyndromeKind::Ack(_) => "ack".to_owned(),
            SyndromeKind::RnrNak(_) => "rnr".to_owned(),
            SyndromeKind::Nak(code) => format!("{code:?}"),
            SyndromeKind::Reserved => "reserved".to_owned(),
        };
        text += &format!(", {kind}, msn {}", aeth.msn.get());
    }
    text
}

/// Delivers packets to node 1, all before it can answer; what it answers.
fn answers(p: &mut Pair, said: &Rc<RefCell<Vec<Vec<u8>>>>, packets: &[Vec<u8>]) -> Vec<String> {
    for packet in packets {
        p.deliver(1, 0, packet);
    }
    p.transmit();
    said.take().iter().map(|bytes| text(bytes)).collect()
}

fn request(p: &Pair, opcode: Opcode, psn: u32, payload: &[u8]) -> Vec<u8> {
    let mut bth = Bth::new(opcode, p.nodes[1].qpn, Psn::new(psn));
    bth.ack_req = true;
    forge_with(p, 0, &bth, payload, |_| ())
}

fn with_reth(p: &Pair, opcode: Opcode, psn: u32, reth: Reth, payload: &[u8]) -> Vec<u8> {
    let mut bth = Bth::new(opcode, p.nodes[1].qpn, Psn::new(psn));
    bth.ack_req = true;
    forge_with(p, 0, &bth, payload, |w| w.reth(&reth))
}

fn reth(p: &Pair, dma_len: u32) -> Reth {
    Reth {
        va: IOVA + 0x1000,
        rkey: p.nodes[1].keys.rkey,
        dma_len,
    }
}

fn add(p: &Pair, psn: u32) -> Vec<u8> {
    let bth = Bth::new(Opcode::RC_FETCH_ADD, p.nodes[1].qpn, Psn::new(psn));
    forge(p, 0, &bth, |w| {
        w.atomic_eth(&AtomicEth {
            va: IOVA + 0x1000,
            rkey: p.nodes[1].keys.rkey,
            swap_add: 1,
            compare: 0,
        });
    })
}

/// Two things are wrong with each packet; the answer is to the one that is checked first.
#[test]
fn the_first_check_that_fails_decides() {
    let bad = |p: &Pair, len| Reth {
        rkey: Rkey(1),
        ..reth(p, len)
    };
    let no_write = |s: &mut Settings| s.access = Access::LOCAL_WRITE;
    // Ahead of the expected PSN, and out of sequence: only the PSN counts.
    let (mut p, said) = quiet(|_| ());
    let packet = request(&p, Opcode::RC_SEND_LAST, FIRST + 1, &[1]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, PsnSequence, msn 0"]);
    assert_eq!(p.nodes[1].state(), QpState::Rts);
    // Out of sequence, and without a receive: no RNR NAK.
    let packet = request(&p, Opcode::RC_SEND_MIDDLE, FIRST, &[0; 256]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, InvalidRequest, msn 0"]);
    // Not enabled, and a bad key: not an access error.
    let (mut p, said) = quiet(no_write);
    let packet = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST, bad(&p, 8), &[0; 8]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, InvalidRequest, msn 0"]);
    // No receive, and longer than a packet may be: wait first.
    let (mut p, said) = quiet(|_| ());
    let packet = request(&p, Opcode::RC_SEND_ONLY, FIRST, &[0; 300]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, rnr, msn 0"]);
    receive(&mut p, 1, 1);
    let packet = request(&p, Opcode::RC_SEND_ONLY, FIRST, &[0; 300]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, InvalidRequest, msn 0"]);
    // A length that contradicts the opcode, and a bad key.
    let (mut p, said) = quiet(|_| ());
    let packet = with_reth(&p, Opcode::RC_WRITE_FIRST, FIRST, bad(&p, 8), &[0; 256]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, InvalidRequest, msn 0"]);
    // Only the key.
    let (mut p, said) = quiet(|_| ());
    let packet = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST, bad(&p, 8), &[0; 8]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, RemoteAccess, msn 0"]);
}

#[test]
fn one_nak_for_a_gap_and_silence_until_it_is_filled() {
    let (mut p, said) = quiet(|s| s.recovery[1] = Recovery::GoBackN);
    let ahead: Vec<_> = (1..6)
        .map(|n| with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + n, reth(&p, 0), &[]))
        .collect();
    let answer = answers(&mut p, &said, &ahead[..3]);
    assert_eq!(answer, ["Acknowledge 100, PsnSequence, msn 0"]);
    assert_eq!(answers(&mut p, &said, &ahead[3..]), [""; 0]);
    let missing = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST, reth(&p, 0), &[]);
    let answer = answers(&mut p, &said, &[missing]);
    assert_eq!(answer, ["Acknowledge 100, ack, msn 1"]);
    // The next gap is another one.
    let answer = answers(&mut p, &said, &ahead[1..2]);
    assert_eq!(answer, ["Acknowledge 101, PsnSequence, msn 1"]);
}

/// What was kept is executed when the gap is filled, the ACK jumps, and a second gap is told when more packets come.
#[test]
fn the_ack_jumps_over_what_was_kept() {
    let (mut p, said) = quiet(|_| ());
    let write = |p: &Pair, n| with_reth(p, Opcode::RC_WRITE_ONLY, FIRST + n, reth(p, 0), &[]);
    let ahead: Vec<_> = [1, 2, 4, 5].map(|n| write(&p, n)).into();
    let answer = answers(&mut p, &said, &ahead);
    assert_eq!(answer, ["Acknowledge 100, PsnSequence, msn 0"]);
    let packet = write(&p, 0);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 102, ack, msn 3"]);
    let packet = write(&p, 5);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 103, PsnSequence, msn 3"]);
    let packet = write(&p, 3);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 105, ack, msn 6"]);
    assert_eq!(p.nodes[1].shard.stats().rcvd_messages, 6);
}

#[test]
fn what_is_kept_finds_a_bad_key_when_its_turn_comes() {
    let (mut p, said) = quiet(|_| ());
    let bad = Reth {
        rkey: Rkey(1),
        ..reth(&p, 8)
    };
    let packet = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + 1, bad, &[0; 8]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 100, PsnSequence, msn 0"]);
    assert_eq!(p.nodes[1].state(), QpState::Rts);
    let packet = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST, reth(&p, 0), &[]);
    let answer = answers(&mut p, &said, &[packet]);
    assert_eq!(answer, ["Acknowledge 101, RemoteAccess, msn 1"]);
    assert_eq!(p.nodes[1].state(), QpState::Err);
}

/// Three SENDs to a QP without a receive: the first is refused.
fn refused_sends(p: &mut Pair, said: &Rc<RefCell<Vec<Vec<u8>>>>) -> Vec<Vec<u8>> {
    let sends: Vec<_> = (0..3)
        .map(|n| request(p, Opcode::RC_SEND_ONLY, FIRST + n, &[7]))
        .collect();
    let answer = answers(p, said, &sends);
    assert_eq!(answer, ["Acknowledge 100, rnr, msn 0"]);
    sends
}

#[test]
fn messages_kept_behind_an_rnr_nak_wait_for_their_own_receives() {
    let (mut p, said) = quiet(|_| ());
    let sends = refused_sends(&mut p, &said);
    receive(&mut p, 1, 1);
    said.take();
    // The second finds no receive; the third stays where it is.
    let answer = answers(&mut p, &said, &sends[..1]);
    assert_eq!(answer, ["Acknowledge 101, rnr, msn 1"]);
    receive(&mut p, 1, 1);
    receive(&mut p, 1, 1);
    said.take();
    let answer = answers(&mut p, &said, &sends[1..2]);
    assert_eq!(answer, ["Acknowledge 102, ack, msn 3"]);
}

#[test]
fn packets_behind_an_rnr_nak_are_dropped_silently() {
    let (mut p, said) = quiet(|s| s.recovery[1] = Recovery::GoBackN);
    let sends = refused_sends(&mut p, &said);
    receive(&mut p, 1, 1);
    said.take();
    assert_eq!(
        answers(&mut p, &said, &sends[1..]),
        [""; 0],
        "still waiting"
    );
    let answer = answers(&mut p, &said, &sends[..1]);
    assert_eq!(answer, ["Acknowledge 100, ack, msn 1"]);
}

#[test]
fn more_reads_than_places_are_an_invalid_request() {
    let (mut p, said) = quiet(|s| s.rd_atomic = 2);
    let reads: Vec<_> = (0..3)
        .map(|n| with_reth(&p, Opcode::RC_READ_REQUEST, FIRST + n, reth(&p, 8), &[]))
        .collect();
    let answer = answers(&mut p, &said, &reads);
    assert_eq!(
        answer,
        [
            "RDMA READ Response Only 100, ack, msn 2",
            "RDMA READ Response Only 101, ack, msn 2",
            "Acknowledge 102, InvalidRequest, msn 2"
        ],
        "what was accepted is answered first"
    );
    assert_eq!(p.nodes[1].state(), QpState::Err);
}

#[test]
fn a_write_must_bring_what_it_announced() {
    // More than it said, less than it said, and as much.
    for (last, text) in [
        (45, "Acknowledge 101, InvalidRequest, msn 0"),
        (43, "Acknowledge 101, InvalidRequest, msn 0"),
        (44, "Acknowledge 101, ack, msn 1"),
    ] {
        let (mut p, said) = quiet(|_| ());
        let first = with_reth(&p, Opcode::RC_WRITE_FIRST, FIRST, reth(&p, 300), &[1; 256]);
        let last = request(&p, Opcode::RC_WRITE_LAST, FIRST + 1, &vec![2; last]);
        assert_eq!(answers(&mut p, &said, &[first, last]), [text]);
    }
    // A LAST without bytes, and a LAST of a full message in between.
    for (opcode, payload) in [
        (Opcode::RC_WRITE_LAST, vec![]),
        (Opcode::RC_WRITE_MIDDLE, vec![0; 44]),
    ] {
        let (mut p, said) = quiet(|_| ());
        let first = with_reth(&p, Opcode::RC_WRITE_FIRST, FIRST, reth(&p, 300), &[1; 256]);
        let next = request(&p, opcode, FIRST + 1, &payload);
        let answer = answers(&mut p, &said, &[first, next]);
        assert_eq!(answer, ["Acknowledge 101, InvalidRequest, msn 0"]);
    }
}

#[test]
fn a_request_of_more_than_two_to_the_31_bytes_is_invalid() {
    for opcode in [Opcode::RC_WRITE_FIRST, Opcode::RC_READ_REQUEST] {
        let (mut p, said) = quiet(|_| ());
        let payload = vec![
            0;
            if opcode == Opcode::RC_WRITE_FIRST {
                256
            } else {
                0
            }
        ];
        let packet = with_reth(&p, opcode, FIRST, reth(&p, (1 << 31) + 1), &payload);
        let answer = answers(&mut p, &said, &[packet]);
        assert_eq!(answer, ["Acknowledge 100, InvalidRequest, msn 0"]);
    }
}

#[test]
fn the_msn_counts_messages_of_every_kind_at_their_end() {
    let (mut p, said) = quiet(|_| ());
    receive(&mut p, 1, 1);
    let packets = [
        request(&p, Opcode::RC_SEND_FIRST, FIRST, &[0; 256]),
        request(&p, Opcode::RC_SEND_LAST, FIRST + 1, &[0; 4]),
        with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + 2, reth(&p, 0), &[]),
        with_reth(&p, Opcode::RC_READ_REQUEST, FIRST + 3, reth(&p, 600), &[]),
        add(&p, FIRST + 6),
    ];
    let mut said_so_far = Vec::new();
    for packet in packets {
        said_so_far.extend(answers(&mut p, &said, &[packet]));
    }
    assert_eq!(
        said_so_far,
        [
            "Acknowledge 100, ack, msn 0",
            "Acknowledge 101, ack, msn 1",
            "Acknowledge 102, ack, msn 2",
            "RDMA READ Response First 103, ack, msn 3",
            "RDMA READ Response Middle 104",
            "RDMA READ Response Last 105, ack, msn 3",
            "ATOMIC Acknowledge 106, ack, msn 4",
        ]
    );
}

#[test]
fn an_ack_does_not_overtake_a_response_to_something_earlier() {
    let (mut p, said) = quiet(|_| ());
    let packets = [
        with_reth(&p, Opcode::RC_READ_REQUEST, FIRST, reth(&p, 300), &[]),
        with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + 2, reth(&p, 0), &[]),
        add(&p, FIRST + 3),
        with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + 4, reth(&p, 0), &[]),
    ];
    let psns: Vec<String> = answers(&mut p, &said, &packets)
        .iter()
        .map(|text| text.split(',').next().expect("an opcode").to_owned())
        .collect();
    assert_eq!(
        psns,
        [
            "RDMA READ Response First 100",
            "RDMA READ Response Last 101",
            "ATOMIC Acknowledge 103",
            "Acknowledge 104"
        ]
    );
}

#[test]
fn a_duplicate_is_acknowledged_and_not_executed() {
    let (mut p, said) = quiet(|_| ());
    receive(&mut p, 1, 1);
    receive(&mut p, 1, 2);
    let send = request(&p, Opcode::RC_SEND_ONLY, FIRST, b"once");
    let write = with_reth(&p, Opcode::RC_WRITE_ONLY, FIRST + 1, reth(&p, 4), b"once");
    answers(&mut p, &said, &[send.clone(), write.clone()]);
    p.nodes[1].memory.write(0x1000, b"mine");
    for duplicate in [send, write] {
        let answer = answers(&mut p, &said, &[duplicate]);
        assert_eq!(answer, ["Acknowledge 101, ack, msn 2"], "the newest PSN");
    }
    assert_eq!(p.nodes[1].memory.read(0x1000, 4), b"mine");
    assert_eq!(p.nodes[1].take(RECV_CQ).len(), 1);
}

#[test]
fn a_repeated_read_is_read_again_and_what_only_looks_like_one_is_dropped() {
    let (mut p, said) = quiet(|_| ());
    let read = |p: &Pair, psn, va, rkey, dma_len| {
        let reth = Reth { va, rkey, dma_len };
        with_reth(p, Opcode::RC_READ_REQUEST, psn, reth, &[])
    };
    let (va, rkey) = (IOVA + 0x1000, p.nodes[1].keys.rkey);
    let original = read(&p, FIRST, va, rkey, 600);
    answers(&mut p, &said, &[original]);
    for (psn, va, rkey, len, count) in [
        (FIRST, va, rkey, 600, 3),
        (FIRST + 1, va + 256, rkey, 344, 2),
        (FIRST + 2, va + 512, rkey, 88, 1),
        // Parts that end with a packet.
        (FIRST, va, rkey, 256, 1),
        (FIRST + 1, va + 256, rkey, 256, 1),
        // Not: another key, another end, another place.
        (FIRST, va, Rkey(rkey.0 ^ 0x100), 600, 0),
        (FIRST, va, rkey, 599, 0),
        (FIRST + 1, va + 255, rkey, 345, 0),
        (FIRST + 1, va, rkey, 600, 0),
        // Nothing is remembered of so long ago.
        (FIRST - 1, va, rkey, 8, 0),
    ] {
        let again = read(&p, psn, va, rkey, len);
        let answer = answers(&mut p, &said, &[again]);
        assert_eq!(answer.len(), count, "{psn:x} {len}: {answer:?}");
        assert_eq!(p.nodes[1].state(), QpState::Rts);
    }
}

#[test]
fn an_old_copy_of_a_read_whose_region_is_gone_fails_nobody() {
    let (mut p, said) = quiet(|_| ());
    let read = with_reth(&p, Opcode::RC_READ_REQUEST, FIRST, reth(&p, 8), &[]);
    answers(&mut p, &said, std::slice::from_ref(&read));
    let lkey = p.nodes[1].keys.lkey;
    assert!(p.nodes[1].mrs.deregister(lkey));
    let answer = answers(&mut p, &said, &[read]);
    // Only a peer that still waits for it takes notice.
    assert_eq!(answer, ["Acknowledge 100, RemoteAccess, msn 1"]);
    assert_eq!(p.nodes[1].state(), QpState::Rts);
}

#[test]
fn a_long_message_asks_for_acks_on_its_way() {
    let mut p = Pair::new(&Settings::default(), 1);
    let log = record(&mut p);
    post(
        &mut p,
        1,
        WrOpcode::RdmaWrite,
        256 * 50,
        SendFlags::SIGNALED,
    );
    p.run();
    let asked: Vec<usize> = (0..)
        .zip(lines(&log, 0))
        .filter(|(_, line)| line.ends_with('A'))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(asked, [15, 31, 47, 49]);
}

#[test]
fn a_read_response_acknowledges_the_writes_before_it() {
    let mut p = Pair::new(&Settings::default(), 1);
    // The WRITE's ACK is lost; nothing is sent again.
    p.filter = Some(Box::new(|_, bytes| match Packet::parse(bytes) {
        Ok(packet) if packet.opcode() == Opcode::RC_ACKNOWLEDGE => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    post(&mut p, 2, WrOpcode::RdmaRead, 8, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(&mut p, 0).len(), 2);
    assert_eq!(p.nodes[0].shard.stats().retransmitted_pkts, 0);
}

#[test]
fn nothing_is_sent_during_an_rnr_wait() {
    let mut p = Pair::new(
        &Settings {
            min_rnr_timer: 14,
            ..Settings::default()
        },
        1,
    );
    let log = record(&mut p);
    post(&mut p, 1, WrOpcode::Send, 8, SendFlags::SIGNALED);
    let soon = p.now + 100_000;
    p.run_until(soon);
    post(&mut p, 2, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    post(&mut p, 3, WrOpcode::RdmaRead, 8, SendFlags::SIGNALED);
    let before = p.now + 1_000_000;
    p.run_until(before);
    assert_eq!(lines(&log, 0), ["SEND Only 100 A"]);
    receive(&mut p, 1, 1);
    p.run();
    assert_eq!(statuses(&mut p, 0).len(), 3);
}

#[test]
fn a_read_response_that_says_no_is_a_bad_response() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    let sges = [sge(&p, 0, 0x8000, 8)];
    let mut wr = SendWr::new(1, WrOpcode::RdmaRead, WrData::Sges(&sges));
    wr.rkey = p.nodes[1].keys.rkey;
    p.post_send(0, &wr);
    p.transmit();
    let bth = Bth::new(
        Opcode::RC_READ_RESPONSE_ONLY,
        p.nodes[0].qpn,
        Psn::new(FIRST),
    );
    let packet = forge_with(&p, 1, &bth, &[0; 8], |w| {
        w.aeth(&urxe_wire::Aeth {
            syndrome: Syndrome::nak(NakCode::RemoteAccess),
            msn: urxe_wire::Msn::new(1),
        });
    });
    p.deliver(0, 0, &packet);
    let done = p.nodes[0].take(SEND_CQ);
    assert_eq!(done[0].status, urxe_core::error::WcStatus::BadRespErr);
}
