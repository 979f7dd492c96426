//! What a failed QP says about its failure: expected, found, and where to look.

use crate::support::*;
use urxe_core::ErrorDetail;
use urxe_core::error::Fault;
use urxe_core::mr::{Access, MrInit, PdId};
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Lkey, Rkey};

fn pair(change: impl FnOnce(&mut Settings)) -> Pair {
    let mut s = Settings::default();
    change(&mut s);
    Pair::new(&s, 1)
}

/// Node 0 posts one request of `len` bytes to node 1, changed by `change`.
fn request(
    p: &mut Pair,
    opcode: WrOpcode,
    len: u32,
    change: impl FnOnce(&mut SendWr<'_>, &mut Sge),
) {
    let mut sge = Sge {
        addr: IOVA + 0x8000,
        length: len,
        lkey: p.nodes[0].keys.lkey,
    };
    let mut wr = SendWr::new(77, opcode, WrData::Sges(&[]));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = p.nodes[1].keys.rkey;
    change(&mut wr, &mut sge);
    let sges = [sge];
    let wr = SendWr {
        data: WrData::Sges(&sges),
        ..wr
    };
    p.post_send(0, &wr);
}

fn receive(p: &mut Pair, len: u32, change: impl FnOnce(&mut Sge)) {
    let mut sge = Sge {
        addr: IOVA + 0x20000,
        length: len,
        lkey: p.nodes[1].keys.lkey,
    };
    change(&mut sge);
    p.post_recv(
        1,
        &RecvWr {
            wr_id: 88,
            sges: &[sge],
        },
    );
}

fn detail(p: &Pair, side: usize) -> ErrorDetail {
    let node = &p.nodes[side];
    let detail = node.shard.last_error(node.qp);
    detail.expect("the QP failed").clone()
}

#[track_caller]
fn says(detail: &ErrorDetail, fault: Fault, wr_id: Option<u64>, parts: &[&str]) {
    let text = detail.to_string();
    assert_eq!((detail.fault, detail.wr_id), (fault, wr_id), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn a_qp_that_did_not_fail_says_nothing() {
    let mut p = pair(|_| ());
    request(&mut p, WrOpcode::RdmaWrite, 8, |_, _| ());
    p.run();
    for node in &p.nodes {
        assert!(node.shard.last_error(node.qp).is_none());
    }
}

#[test]
fn a_refused_operation_names_the_right_that_is_missing() {
    for (opcode, right, name) in [
        (WrOpcode::RdmaWrite, Access::REMOTE_WRITE, "REMOTE_WRITE"),
        (WrOpcode::RdmaRead, Access::REMOTE_READ, "REMOTE_READ"),
        (
            WrOpcode::AtomicCmpAndSwp,
            Access::REMOTE_ATOMIC,
            "REMOTE_ATOMIC",
        ),
    ] {
        let mut p = pair(|s| s.access = Access(0xf & !right.0));
        request(&mut p, opcode, 8, |_, _| ());
        p.run();
        let local = detail(&p, 0);
        let va = format!("{:#x}", IOVA + 0x1000);
        says(
            &local,
            Fault::NakInvalidRequest,
            Some(77),
            &[name, "qp_access_flags", "8 bytes", &va],
        );
        let remote = detail(&p, 1);
        let needs = format!("needs {name}");
        says(&remote, Fault::ResponderInvalidRequest, None, &[&needs]);
    }
}

#[test]
fn a_refused_key_says_what_is_wrong_with_it() {
    const AT: u64 = IOVA + 0x1000;
    // Given: the rkey that would be right, that region's lkey, the rkey of a region that
    // may only be read, and of one in another protection domain.
    type Choose = fn([u32; 4]) -> (u32, u64);
    let cases: [(Choose, &[&str]); 5] = [
        (|[rkey, ..]| (rkey ^ 1, AT), &["which none has"]),
        (
            |[_, lkey, ..]| (lkey, AT),
            &["which is the lkey", "send peers the MR's rkey"],
        ),
        (
            |[rkey, ..]| (rkey, IOVA + (1 << 20) - 4),
            &["within the MR", "8 bytes at 0x7000000ffffc"],
        ),
        (
            |[_, _, read_only, _]| (read_only, AT),
            &["REMOTE_WRITE", "one with REMOTE_READ"],
        ),
        (
            |[.., foreign]| (foreign, AT),
            &["protection domain 1", "protection domain 9"],
        ),
    ];
    for (choose, parts) in cases {
        let mut p = pair(|_| ());
        let mut register = |pd, access| {
            let keys = p.nodes[1].mrs.register(MrInit {
                pd,
                access,
                host_addr: 0,
                iova: IOVA,
                len: 1 << 20,
                remote_invalidate: false,
            });
            keys.expect("registers").rkey.0
        };
        let read_only = register(PD, Access::REMOTE_READ);
        let foreign = register(PdId(9), Access(0xf));
        let keys = p.nodes[1].keys;
        let (rkey, addr) = choose([keys.rkey.0, keys.lkey.0, read_only, foreign]);
        request(&mut p, WrOpcode::RdmaWrite, 8, |wr, _| {
            (wr.remote_addr, wr.rkey) = (addr, Rkey(rkey));
        });
        p.run();
        says(&detail(&p, 1), Fault::ResponderAccess, None, parts);
        let key = format!("{rkey:#010x}");
        says(&detail(&p, 0), Fault::NakRemoteAccess, Some(77), &[&key]);
    }
}

#[test]
fn local_lists_are_named_by_entry() {
    let mut p = pair(|_| ());
    request(&mut p, WrOpcode::RdmaWrite, 8, |_, sge| sge.lkey = Lkey(5));
    p.run();
    says(
        &detail(&p, 0),
        Fault::LocalKey,
        Some(77),
        &["0x00000005, which none has (SGE 0)"],
    );
    let mut p = pair(|_| ());
    let rkey = p.nodes[0].keys.rkey;
    request(&mut p, WrOpcode::Send, 8, |_, sge| sge.lkey = Lkey(rkey.0));
    p.run();
    says(
        &detail(&p, 0),
        Fault::LocalKey,
        Some(77),
        &["which is the rkey of an MR"],
    );
    // The receiver's list: its QP knows, and the sender hears a NAK.
    let mut p = pair(|_| ());
    receive(&mut p, 8, |sge| sge.addr = IOVA - 8);
    request(&mut p, WrOpcode::Send, 8, |_, _| ());
    p.run();
    says(
        &detail(&p, 1),
        Fault::LocalBounds,
        Some(88),
        &["8 bytes at 0x6ffffffffff8"],
    );
    says(
        &detail(&p, 0),
        Fault::NakRemoteOperational,
        Some(77),
        &["Send of 8 bytes"],
    );
}

#[test]
fn lengths_are_told() {
    let mut p = pair(|_| ());
    receive(&mut p, 300, |_| ());
    request(&mut p, WrOpcode::Send, 400, |_, _| ());
    p.run();
    says(
        &detail(&p, 1),
        Fault::RecvTooShort,
        Some(88),
        &["at most 300 bytes", "one of 400 bytes or more"],
    );
    says(
        &detail(&p, 0),
        Fault::NakInvalidRequest,
        Some(77),
        &["receive"],
    );
    let mut p = pair(|_| ());
    request(&mut p, WrOpcode::AtomicFetchAndAdd, 4, |_, _| ());
    p.run();
    says(
        &detail(&p, 0),
        Fault::MessageTooLong,
        Some(77),
        &["8 bytes", "found 4 bytes"],
    );
}

#[test]
fn silence_and_missing_receives_are_counted() {
    let mut p = pair(|s| s.retry_cnt = 2);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    request(&mut p, WrOpcode::RdmaWrite, 8, |_, _| ());
    p.run();
    let qpn = format!("QP {:#x} at 10.0.0.2", p.nodes[1].qpn.get());
    says(
        &detail(&p, 0),
        Fault::AckTimeout,
        Some(77),
        &["PSN 256 ", &qpn, "none, 3 times"],
    );
    let mut p = pair(|s| s.rnr_retry = 1);
    request(&mut p, WrOpcode::Send, 8, |_, _| ());
    p.run();
    says(
        &detail(&p, 0),
        Fault::RnrExhausted,
        Some(77),
        &["a receive posted", "none, 2 times (rnr_retry 1)"],
    );
}

#[test]
fn a_misaligned_atomic_is_named() {
    let mut p = pair(|_| ());
    request(&mut p, WrOpcode::AtomicFetchAndAdd, 8, |wr, _| {
        wr.remote_addr += 4;
    });
    p.run();
    let va = format!("found {:#x}", IOVA + 0x1004);
    says(
        &detail(&p, 1),
        Fault::ResponderInvalidRequest,
        None,
        &["a multiple of 8", &va],
    );
    says(
        &detail(&p, 0),
        Fault::NakInvalidRequest,
        Some(77),
        &["multiple of 8"],
    );
}
