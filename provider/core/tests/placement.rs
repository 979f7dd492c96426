//! ATOMIC WRITE and FLUSH on the virtual wire: rule by rule, and random programs with
//! faults against a simple model.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::*;
use urxe_core::Time;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{Fault, WcStatus};
use urxe_core::flush::{Flush, Placement, Selectivity};
use urxe_core::mr::{Access, MrInit};
use urxe_core::qp::state::QpState;
use urxe_core::work::{PostError, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{
    Bth, Feth, Opcode, Operation, Packet, PacketWriter, PathHeader, Psn, Reth, Rkey, packet_len,
};

const ALL: Access = Access(0x30f);
const BOTH: Placement = Placement(3);

fn settings() -> Settings {
    Settings {
        access: ALL,
        memory: 64 << 10,
        ..Settings::default()
    }
}

/// A pair in which the second side has memory that survives.
fn pair(settings: &Settings) -> Pair {
    let pair = Pair::new(settings, 1);
    pair.nodes[1].memory.volatile_from.set(u64::MAX);
    pair
}

fn range(placement: Placement, length: u32) -> Flush {
    Flush {
        placement,
        selectivity: Selectivity::Range,
        length,
    }
}

fn flush(p: &Pair, wr_id: u64, at: u64, flush: Flush) -> SendWr<'static> {
    SendWr::flush(wr_id, IOVA + at, p.nodes[1].keys.rkey, flush)
}

fn atomic_write<'a>(p: &Pair, wr_id: u64, at: u64, data: WrData<'a>) -> SendWr<'a> {
    let mut wr = SendWr::new(wr_id, WrOpcode::AtomicWrite, data);
    (wr.remote_addr, wr.rkey) = (IOVA + at, p.nodes[1].keys.rkey);
    wr
}

fn write_inline<'a>(p: &Pair, wr_id: u64, at: u64, bytes: &'a [u8]) -> SendWr<'a> {
    let mut wr = SendWr::new(wr_id, WrOpcode::RdmaWrite, WrData::Inline(bytes));
    (wr.remote_addr, wr.rkey) = (IOVA + at, p.nodes[1].keys.rkey);
    wr
}

fn done(p: &mut Pair) -> Vec<Cqe> {
    p.nodes[0].take(SEND_CQ)
}

fn persisted(p: &Pair) -> Vec<(u64, Vec<u8>)> {
    p.nodes[1].memory.persisted.borrow().clone()
}

/// Opcodes that each side sends.
fn record(p: &mut Pair) -> Rc<RefCell<Vec<(usize, Opcode)>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        sink.borrow_mut().push((from, packet.opcode()));
        Verdict::Pass
    }));
    log
}

/// A request that urxe itself would not send, with the expected PSN.
fn inject(p: &mut Pair, opcode: Opcode, feth: Option<Feth>, reth: &Reth, payload: &[u8]) {
    let psn = Psn::new(Settings::default().psn[0]);
    let bth = Bth::new(opcode, p.nodes[1].qpn, psn);
    let info = opcode.info().expect("assigned");
    let mut bytes = vec![0; packet_len(info, payload.len())];
    let mut writer = PacketWriter::new(&mut bytes, &bth);
    if let Some(feth) = feth {
        writer.feth(&feth);
    }
    writer.reth(reth);
    writer.payload_mut(payload.len()).copy_from_slice(payload);
    let path = PathHeader::V4 {
        src: [10, 0, 0, 1],
        dst: [10, 0, 0, 2],
        sport: 4791,
        dport: 4791,
    };
    writer.finish(&urxe_wire::IcrcSeed::new(&path), 0);
    p.deliver(1, 0, &bytes);
}

#[test]
fn an_atomic_write_stores_8_bytes_from_memory_or_inline() {
    let mut p = pair(&settings());
    p.nodes[0].memory.write(64, b"8 bytes!");
    let sges = [3, 5].map(|length| Sge {
        addr: IOVA + if length == 3 { 64 } else { 67 },
        length,
        lkey: p.nodes[0].keys.lkey,
    });
    p.post_send(0, &atomic_write(&p, 1, 0x100, WrData::Sges(&sges)));
    p.post_send(0, &atomic_write(&p, 2, 0x108, WrData::Inline(b"and more")));
    let log = record(&mut p);
    p.run();
    assert_eq!(p.nodes[1].memory.read(0x100, 16), b"8 bytes!and more");
    let done = done(&mut p);
    let expected = [1, 2].map(|id| (id, WcStatus::Success, WcOpcode::AtomicWrite));
    let got: Vec<_> = done.iter().map(|c| (c.wr_id, c.status, c.opcode)).collect();
    assert_eq!(got, expected);
    // Answered by empty READ responses, as Linux's rdma_rxe does.
    let answers: Vec<Opcode> = log
        .borrow()
        .iter()
        .filter(|e| e.0 == 1)
        .map(|e| e.1)
        .collect();
    assert_eq!(answers, [Opcode::RC_READ_RESPONSE_ONLY; 2]);
}

#[test]
fn an_atomic_write_of_other_than_8_bytes_fails_locally() {
    for len in [0, 7, 9] {
        let mut p = pair(&settings());
        let bytes = vec![1; len];
        p.post_send(0, &atomic_write(&p, 1, 0x100, WrData::Inline(&bytes)));
        let log = record(&mut p);
        p.run();
        assert_eq!(done(&mut p)[0].status, WcStatus::LocLenErr, "{len}");
        assert!(log.borrow().is_empty(), "nothing was sent");
    }
}

#[test]
fn an_atomic_write_that_is_refused() {
    let no_write = Settings {
        access: Access(ALL.0 & !Access::REMOTE_WRITE.0),
        ..settings()
    };
    // The QP lacks the right, the address is askew, the key is wrong, the range ends
    // beyond the region.
    for (settings, at, wrong_key, status) in [
        (no_write, 0x100, false, WcStatus::RemInvReqErr),
        (settings(), 0x104, false, WcStatus::RemInvReqErr),
        (settings(), 0x100, true, WcStatus::RemAccessErr),
        (settings(), 64 << 10, false, WcStatus::RemAccessErr),
    ] {
        let mut p = pair(&settings);
        let mut wr = atomic_write(&p, 1, at, WrData::Inline(b"12345678"));
        if wrong_key {
            wr.rkey = Rkey(wr.rkey.0 ^ 1);
        }
        p.post_send(0, &wr);
        p.run();
        assert_eq!(done(&mut p)[0].status, status, "{at:#x} {wrong_key}");
        assert_eq!(p.nodes[1].state(), QpState::Err);
        let memory = p.nodes[1].memory.read(0, settings.memory);
        assert!(memory.iter().all(|&b| b == 0), "nothing was stored");
    }
}

#[test]
fn an_atomic_write_needs_the_regions_right_and_its_alignment() {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    for (access, host_addr, status) in [
        (rights, 0, WcStatus::Success),
        (Access::LOCAL_WRITE, 0, WcStatus::RemAccessErr),
        // Aligned by its address on the wire, but not in memory.
        (rights, 4, WcStatus::RemAccessErr),
    ] {
        let mut p = pair(&settings());
        let keys = p.nodes[1].mrs.register(MrInit {
            pd: PD,
            access,
            host_addr,
            iova: IOVA,
            len: 64,
            remote_invalidate: false,
        });
        let mut wr = atomic_write(&p, 1, 8, WrData::Inline(b"12345678"));
        wr.rkey = keys.expect("registers").rkey;
        p.post_send(0, &wr);
        p.run();
        assert_eq!(done(&mut p)[0].status, status);
    }
}

#[test]
fn a_peers_atomic_write_must_say_8_bytes() {
    let mut p = pair(&settings());
    let reth = Reth {
        va: IOVA,
        rkey: p.nodes[1].keys.rkey,
        dma_len: 16,
    };
    inject(&mut p, Opcode::RC_ATOMIC_WRITE, None, &reth, b"12345678");
    assert_eq!(p.nodes[1].state(), QpState::Err);
    assert_eq!(p.nodes[1].memory.read(0, 8), [0; 8]);
}

#[test]
fn a_flush_makes_what_was_written_before_it_survive() {
    let mut p = pair(&settings());
    p.post_send(0, &write_inline(&p, 1, 0x200, b"first"));
    p.post_send(0, &flush(&p, 2, 0x200, range(BOTH, 5)));
    p.post_send(0, &write_inline(&p, 3, 0x200, b"other"));
    p.post_send(0, &flush(&p, 4, 0x203, range(Placement::PERSISTENT, 2)));
    p.run();
    let expected = [(0x200, b"first".to_vec()), (0x203, b"er".to_vec())];
    assert_eq!(persisted(&p), expected);
    let got = done(&mut p);
    let kinds: Vec<_> = got.iter().map(|c| (c.wr_id, c.opcode)).collect();
    let (write, flush) = (WcOpcode::RdmaWrite, WcOpcode::Flush);
    assert_eq!(kinds, [(1, write), (2, flush), (3, write), (4, flush)]);
    assert!(got.iter().all(|c| c.status == WcStatus::Success));
}

#[test]
fn a_flush_of_a_region_means_all_of_it_whatever_the_address() {
    let mut p = pair(&settings());
    let keys = p.nodes[1].mrs.register(MrInit {
        pd: PD,
        access: Access::FLUSH_PERSISTENT,
        host_addr: 0x1000,
        iova: IOVA,
        len: 0x300,
        remote_invalidate: false,
    });
    let whole = Flush {
        selectivity: Selectivity::Region,
        ..range(Placement::PERSISTENT, 0)
    };
    let rkey = keys.expect("registers").rkey;
    p.post_send(0, &SendWr::flush(1, 0xdead_beef, rkey, whole));
    p.run();
    assert_eq!(done(&mut p)[0].status, WcStatus::Success);
    assert_eq!(persisted(&p), [(0x1000, vec![0; 0x300])]);
}

#[test]
fn global_visibility_needs_no_persistent_memory() {
    let mut p = Pair::new(&settings(), 1);
    p.post_send(0, &flush(&p, 1, 0, range(Placement::GLOBAL, 64)));
    p.run();
    assert_eq!(done(&mut p)[0].status, WcStatus::Success);
    assert_eq!(persisted(&p), []);
    p.post_send(0, &flush(&p, 2, 0, range(BOTH, 64)));
    p.run();
    let refused = done(&mut p)[0];
    assert_eq!(refused.fault, Fault::NakRemoteAccess);
}

#[test]
fn a_flush_needs_the_right_of_the_qp_and_of_the_region() {
    let (global, persistent) = (Access::FLUSH_GLOBAL, Access::FLUSH_PERSISTENT);
    let both = global | persistent;
    for (qp, mr, status) in [
        (both, both, WcStatus::Success),
        (global, both, WcStatus::RemInvReqErr),
        (persistent, both, WcStatus::RemInvReqErr),
        (both, global, WcStatus::RemAccessErr),
        (both, persistent, WcStatus::RemAccessErr),
        // Rights to write are not rights to flush.
        (both, Access(0xf), WcStatus::RemAccessErr),
    ] {
        let mut p = pair(&Settings {
            access: qp,
            ..settings()
        });
        let keys = p.nodes[1].mrs.register(MrInit {
            pd: PD,
            access: mr,
            host_addr: 0,
            iova: IOVA,
            len: 64,
            remote_invalidate: false,
        });
        let rkey = keys.expect("registers").rkey;
        p.post_send(0, &SendWr::flush(1, IOVA, rkey, range(BOTH, 64)));
        p.run();
        assert_eq!(done(&mut p)[0].status, status, "{qp:?} {mr:?}");
    }
}

/// What a failed QP tells names the right that is missing.
#[test]
fn the_missing_right_is_named() {
    let mut p = pair(&Settings {
        access: Access::FLUSH_GLOBAL,
        ..settings()
    });
    p.post_send(0, &flush(&p, 1, 0, range(BOTH, 8)));
    p.run();
    let detail = |p: &Pair, side: usize| {
        let node = &p.nodes[side];
        node.shard.last_error(node.qp).expect("it failed").clone()
    };
    let found = detail(&p, 1).found;
    assert!(found.contains("FLUSH_GLOBAL|FLUSH_PERSISTENT"), "{found}");
    let hint = detail(&p, 0).hint.expect("there is one");
    assert!(hint.contains("FLUSH_PERSISTENT"), "{hint}");
}

#[test]
fn a_flush_beyond_the_region_is_refused() {
    for (at, length) in [
        (0, (64 << 10) + 1),
        ((64 << 10) - 1, 2),
        (u64::MAX - IOVA, 8),
    ] {
        let mut p = pair(&settings());
        let wr = flush(&p, 1, 0, range(BOTH, length));
        let wr = SendWr {
            remote_addr: IOVA.wrapping_add(at),
            ..wr
        };
        p.post_send(0, &wr);
        p.run();
        assert_eq!(done(&mut p)[0].status, WcStatus::RemAccessErr, "{at:#x}");
        assert_eq!(persisted(&p), []);
    }
}

#[test]
fn a_flush_of_nothing_or_with_data_is_not_taken() {
    let mut p = pair(&settings());
    let qp = p.nodes[0].qp;
    let mut post = |wr: &SendWr<'_>| p.nodes[0].with_env(p.now, |s, env| s.post_send(qp, wr, env));
    for undefined in [0, 4, 7] {
        let wr = SendWr::flush(1, IOVA, Rkey(1), range(Placement(undefined), 8));
        assert_eq!(post(&wr), Err(PostError::FlushOfNothing));
    }
    let sges = [Sge {
        addr: 0,
        length: 0,
        lkey: urxe_wire::Lkey(0),
    }];
    for data in [WrData::Sges(&sges), WrData::Inline(b"")] {
        let good = SendWr::flush(1, IOVA, Rkey(1), range(BOTH, 8));
        let wr = SendWr { data, ..good };
        assert_eq!(post(&wr), Err(PostError::FlushData));
    }
}

#[test]
fn a_peers_flush_must_be_defined() {
    for (placement, selectivity) in [(0, 0), (4, 0), (9, 1), (1, 2), (3, 3)] {
        let mut p = pair(&settings());
        let reth = Reth {
            va: IOVA,
            rkey: p.nodes[1].keys.rkey,
            dma_len: 8,
        };
        let feth = Feth {
            placement,
            selectivity,
            reserved: 0,
        };
        inject(&mut p, Opcode::RC_FLUSH, Some(feth), &reth, b"");
        assert_eq!(
            p.nodes[1].state(),
            QpState::Err,
            "{placement} {selectivity}"
        );
        assert_eq!(persisted(&p), []);
    }
}

/// The answer is lost: it is repeated, and nothing is done again.
#[test]
fn a_repeated_request_is_answered_and_not_executed_again() {
    let mut p = pair(&settings());
    p.post_send(0, &atomic_write(&p, 1, 0x100, WrData::Inline(b"old word")));
    p.post_send(0, &flush(&p, 2, 0x100, range(BOTH, 8)));
    let lost = Rc::new(RefCell::new(0));
    let count = lost.clone();
    p.filter = Some(Box::new(move |from, _| {
        let mut count = count.borrow_mut();
        let lose = from == 1 && *count < 2;
        *count += u32::from(lose);
        if lose { Verdict::Drop } else { Verdict::Pass }
    }));
    // Both were executed; then the word changes, and only then the requests come again.
    p.run_until(Time(100_000));
    assert_eq!((*lost.borrow(), persisted(&p).len()), (2, 1));
    p.nodes[1].memory.write(0x100, b"new word");
    p.run();
    let statuses: Vec<_> = done(&mut p).iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::Success; 2]);
    assert_eq!(p.nodes[1].memory.read(0x100, 8), b"new word");
    assert_eq!(persisted(&p).len(), 1);
    assert!(p.nodes[1].shard.stats().duplicate_request >= 2);
}

#[test]
fn as_many_as_max_rd_atomic_are_under_way() {
    let mut p = pair(&Settings {
        rd_atomic: 2,
        ..settings()
    });
    for id in 0..6 {
        p.post_send(
            0,
            &atomic_write(&p, id, 8 * id, WrData::Inline(b"12345678")),
        );
        p.post_send(0, &flush(&p, id, 8 * id, range(BOTH, 8)));
    }
    let under_way = Rc::new(RefCell::new((0i32, 0)));
    let sink = under_way.clone();
    p.filter = Some(Box::new(move |from, _| {
        let mut count = sink.borrow_mut();
        count.0 += if from == 0 { 1 } else { -1 };
        count.1 = count.1.max(count.0);
        Verdict::Pass
    }));
    p.run();
    assert_eq!(done(&mut p).len(), 12);
    assert_eq!(*under_way.borrow(), (0, 2));
}

#[test]
fn a_fenced_request_waits_for_the_flush() {
    let mut p = pair(&settings());
    p.post_send(0, &flush(&p, 1, 0, range(BOTH, 8)));
    let mut fenced = write_inline(&p, 2, 0, b"after");
    fenced.flags = SendFlags::FENCE | SendFlags::SIGNALED;
    p.post_send(0, &fenced);
    let log = record(&mut p);
    p.run();
    let order: Vec<Opcode> = log.borrow().iter().map(|e| e.1).collect();
    let expected = [
        Opcode::RC_FLUSH,
        Opcode::RC_READ_RESPONSE_ONLY,
        Opcode::RC_WRITE_ONLY,
        Opcode::RC_ACKNOWLEDGE,
    ];
    assert_eq!(order, expected);
}

/// A response that does not answer the request.
#[test]
fn an_answer_with_data_is_a_bad_response() {
    let mut p = pair(&settings());
    p.post_send(0, &flush(&p, 1, 0, range(BOTH, 8)));
    p.filter = Some(Box::new(|from, _| match from {
        1 => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    p.run_until(Time(10_000));
    let opcode = Opcode::RC_READ_RESPONSE_ONLY;
    let info = opcode.info().expect("assigned");
    assert_eq!(info.operation, Operation::ReadResponse);
    let mut bytes = vec![0; packet_len(info, 4)];
    let psn = Psn::new(Settings::default().psn[0]);
    let mut writer = PacketWriter::new(&mut bytes, &Bth::new(opcode, p.nodes[0].qpn, psn));
    writer.aeth(&urxe_wire::Aeth {
        syndrome: urxe_wire::Syndrome::ack(urxe_wire::CreditCode::UNLIMITED),
        msn: urxe_wire::Msn::new(1),
    });
    writer.payload_mut(4).copy_from_slice(b"data");
    let path = PathHeader::V4 {
        src: [10, 0, 0, 2],
        dst: [10, 0, 0, 1],
        sport: 4791,
        dport: 4791,
    };
    writer.finish(&urxe_wire::IcrcSeed::new(&path), 0);
    p.deliver(0, 0, &bytes);
    assert_eq!(done(&mut p)[0].status, WcStatus::BadRespErr);
}

/// Random WRITEs, ATOMIC WRITEs, FLUSHes, READs and FETCH-AND-ADDs on a few words, with
/// faults. The model executes them in order: all words, and what every flush saw, agree.
pub(crate) fn random_program(seed: u64) -> (u64, Time) {
    const WORDS: u64 = 6;
    let mut rng = Rng(seed);
    let settings = Settings {
        rd_atomic: 1 + rng.below(4) as u8,
        psn: [
            rng.next() as u32 & 0xff_ffff,
            0xff_fff0 + rng.below(16) as u32,
        ],
        secret: rng.next(),
        ..settings()
    };
    let mut p = Pair::new(&settings, rng.next());
    p.nodes[1].memory.volatile_from.set(u64::MAX);
    p.faults = Faults {
        lose: rng.below(100),
        duplicate: rng.below(100),
        corrupt: rng.below(20),
        reorder: rng.below(200),
        delay_ns: 1000,
        batch_ns: rng.pick(&[0, 20_000]),
        ..Faults::default()
    };
    let mut words = [0u64; WORDS as usize];
    let mut flushed = Vec::new();
    let count = 40;
    for id in 0..count {
        let n = rng.below(WORDS);
        let (at, value) = (8 * n, rng.next());
        let bytes = value.to_ne_bytes();
        let word = &mut words[n as usize];
        let local = [Sge {
            addr: IOVA + 0x8000 + 8 * id,
            length: 8,
            lkey: p.nodes[0].keys.lkey,
        }];
        let wr = match rng.below(5) {
            0 => {
                *word = value;
                write_inline(&p, id, at, &bytes)
            }
            1 | 2 => {
                *word = value;
                atomic_write(&p, id, at, WrData::Inline(&bytes))
            }
            3 => {
                let length = 8 * (1 + rng.below(WORDS - n));
                let end = ((at + length) / 8) as usize;
                let seen: Vec<u8> = words[n as usize..end]
                    .iter()
                    .flat_map(|w| w.to_ne_bytes())
                    .collect();
                flushed.push((at, seen));
                flush(&p, id, at, range(BOTH, length as u32))
            }
            _ => {
                *word = word.wrapping_add(value);
                let mut wr = SendWr::new(id, WrOpcode::AtomicFetchAndAdd, WrData::Sges(&local));
                (wr.remote_addr, wr.rkey) = (IOVA + at, p.nodes[1].keys.rkey);
                wr.compare_add = value;
                wr
            }
        };
        p.post_send(0, &wr);
        p.run_until(p.now + rng.below(20_000));
    }
    p.run();
    let done = done(&mut p);
    assert_eq!(done.len() as u64, count, "seed {seed}");
    for (id, cqe) in done.iter().enumerate() {
        let got = (cqe.wr_id, cqe.status);
        assert_eq!(got, (id as u64, WcStatus::Success), "seed {seed}: {cqe:?}");
    }
    let memory = p.nodes[1].memory.read(0, 8 * WORDS as usize);
    let expected: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    assert!(memory == expected, "seed {seed}: the words differ");
    assert!(
        persisted(&p) == flushed,
        "seed {seed}: a flush saw something else"
    );
    (count, p.now)
}

#[test]
fn random_programs_agree_with_the_model() {
    for seed in 0..500 {
        random_program(seed);
    }
}
