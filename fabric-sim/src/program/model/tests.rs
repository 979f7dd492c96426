//! A network that does what it should, and what it should not.

use super::*;
use urxe::{AddressVector, Sge};
use urxe_wire::{Bth, Lkey, Psn, Qpn};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const QPN: u32 = 0x42;
const ADDR: u64 = 2 << 40;

fn model() -> Model {
    let mut model = Model::default();
    for (host, peer) in [(A, B), (B, A)] {
        let created = Act::Created {
            qpn: QPN,
            kind: QpType::Rc,
            signals_all: false,
            shares_receives: false,
        };
        tell(&mut model, host, &created);
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            dest_qp_num: Qpn::new(QPN),
            ah_attr: Some(AddressVector {
                local: crate::host::address_of(host),
                remote: crate::host::address_of(peer),
                traffic_class: 0,
                hop_limit: 64,
            }),
            ..QpAttr::default()
        };
        let modified = Act::Modified {
            qpn: QPN,
            attr: &attr,
        };
        tell(&mut model, host, &modified);
    }
    model
}

fn tell(model: &mut Model, host: HostId, act: &Act<'_>) {
    model.note(Time::ZERO, host, act, &[]);
}

fn post(model: &mut Model, wr_id: u64, opcode: WrOpcode, bytes: &[u8]) {
    let sges = [Sge {
        addr: 1 << 40,
        length: bytes.len() as u32,
        lkey: Lkey(1),
    }];
    let mut wr = SendWrFields::new(wr_id, opcode, WrData::Sges(&sges));
    (wr.flags, wr.remote_addr, wr.compare_add) = (SendFlags::SIGNALED, ADDR, 5);
    let act = Act::Send {
        qpn: QPN,
        wr: &wr,
        bytes,
    };
    tell(model, A, &act);
}

/// A packet for a host's QP.
fn arrive(model: &mut Model, host: HostId, opcode: Opcode) {
    let packet = Bth::new(opcode, Qpn::new(QPN), Psn::new(1)).emit();
    tell(model, host, &Act::Arrived(&packet));
}

fn place(model: &mut Model, bytes: &[u8], offset: u64) {
    arrive(model, B, Opcode::RC_WRITE_ONLY);
    let act = Act::Placed { at: 0, bytes };
    model.note(Time::ZERO, B, &act, &[ADDR + offset]);
}

fn add(model: &mut Model, old: u64) {
    arrive(model, B, Opcode::RC_FETCH_ADD);
    let operation = AtomicOp::FetchAdd(5);
    tell(
        model,
        B,
        &Act::Atomic {
            at: 0,
            old,
            operation,
        },
    );
}

fn complete(model: &mut Model, host: HostId, wr_id: u64, opcode: WcOpcode, byte_len: u32) {
    let wc = Wc {
        wr_id,
        opcode,
        byte_len,
        qp_num: Qpn::new(QPN),
        ..Wc::default()
    };
    tell(model, host, &Act::Completed(&wc));
}

fn found(model: &mut Model) -> Vec<Check> {
    let found = model.take_findings();
    found.iter().map(|finding| finding.check).collect()
}

#[test]
fn a_message_is_executed_once_in_order_with_its_bytes_at_its_place() {
    let start = || {
        let mut model = model();
        post(&mut model, 1, WrOpcode::RdmaWrite, b"first");
        post(&mut model, 2, WrOpcode::RdmaWrite, b"other");
        model
    };
    let mut model = start();
    place(&mut model, b"fir", 0);
    place(&mut model, b"st", 3);
    place(&mut model, b"other", 0);
    assert_eq!(found(&mut model), []);
    place(&mut model, b"other", 0);
    assert_eq!(found(&mut model), [Check::Delivery], "twice");
    for (bytes, offset) in [(b"other", 0), (b"fi-st", 0), (b"first", 8)] {
        let mut model = start();
        place(&mut model, bytes, offset);
        assert_eq!(found(&mut model), [Check::Delivery], "{bytes:?} {offset}");
    }
}

#[test]
fn bytes_that_the_program_changed_are_not_judged() {
    let mut model = model();
    post(&mut model, 1, WrOpcode::RdmaWrite, b"first");
    let change = Act::Written { at: 0, len: 1 };
    model.note(Time::ZERO, A, &change, &[(1 << 40) + 4]);
    place(&mut model, b"firsT", 0);
    assert_eq!(found(&mut model), []);
}

#[test]
fn a_request_completes_once_and_in_order_after_its_execution() {
    let mut model = model();
    for wr_id in 1..=3 {
        post(&mut model, wr_id, WrOpcode::RdmaWrite, b"word");
    }
    place(&mut model, b"word", 0);
    complete(&mut model, A, 1, WcOpcode::RdmaWrite, 4);
    assert_eq!(found(&mut model), []);
    complete(&mut model, A, 1, WcOpcode::RdmaWrite, 4);
    assert_eq!(found(&mut model), [Check::Completions], "twice");
    complete(&mut model, A, 3, WcOpcode::RdmaWrite, 4);
    assert_eq!(found(&mut model), [Check::Completions], "too early");
}

#[test]
fn receives_are_filled_in_order_with_whole_messages() {
    let start = || {
        let mut model = model();
        for wr_id in [7, 8] {
            let qpn = Some(QPN);
            tell(&mut model, B, &Act::Recv { qpn, wr_id });
        }
        post(&mut model, 1, WrOpcode::Send, b"first");
        model
    };
    let mut model = start();
    place(&mut model, b"first", 0);
    complete(&mut model, B, 7, WcOpcode::Recv, 5);
    assert_eq!(found(&mut model), []);
    complete(&mut model, B, 8, WcOpcode::Recv, 5);
    assert_eq!(found(&mut model), [Check::Delivery], "twice");
    let mut model = start();
    place(&mut model, b"fir", 0);
    complete(&mut model, B, 8, WcOpcode::Recv, 3);
    let both = [Check::Delivery, Check::Completions];
    assert_eq!(found(&mut model), both, "a part, in another receive");
}

#[test]
fn an_atomic_is_executed_once_and_returns_what_was_there() {
    let mut model = model();
    for wr_id in 1..=2 {
        post(&mut model, wr_id, WrOpcode::AtomicFetchAndAdd, &[]);
    }
    add(&mut model, 10);
    for (old, expected) in [(10_u64, vec![]), (11, vec![Check::Atomics])] {
        arrive(&mut model, A, Opcode::RC_ATOMIC_ACKNOWLEDGE);
        let bytes = &old.to_ne_bytes();
        tell(&mut model, A, &Act::Placed { at: 0, bytes });
        assert_eq!(found(&mut model), expected);
        add(&mut model, 15);
    }
    assert_eq!(found(&mut model), [Check::Atomics], "a third time");
}
