use super::*;
use urxe_core::cq::TmInfo;
use urxe_core::error::Fault;
use urxe_core::work::Sge;
use urxe_wire::{Bth, Lkey, Qpn};

const QPN: u32 = 0x42;

fn model() -> Model {
    let mut model = Model::default();
    model.on_create(QpIndex(3), QPN);
    model.on_connect(model.qpn_of(QpIndex(3)), (HostId(1), 0x77), 12);
    model
}

fn post(model: &mut Model, wr_id: u64, opcode: WrOpcode, flags: SendFlags) {
    let sges = [Sge {
        addr: 0,
        length: 8,
        lkey: Lkey(1),
    }];
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
    wr.flags = flags;
    model.on_post_send(QPN, &wr);
}

fn complete(model: &mut Model, wr_id: u64, fault: Fault, opcode: WcOpcode) {
    model.on_cqe(&Cqe {
        wr_id,
        status: fault.status(),
        fault,
        opcode,
        byte_len: 8,
        imm: None,
        invalidated: None,
        qpn: Qpn::new(QPN),
        src_qp: Qpn::new(0x77),
        grh: false,
        ipv4: false,
        solicited: false,
        tm: TmInfo::default(),
    });
}

fn found(model: &mut Model) -> Vec<Check> {
    let found = core::mem::take(&mut model.violations);
    found
        .into_iter()
        .map(|(check, qpn, _)| {
            assert_eq!(qpn, QPN);
            check
        })
        .collect()
}

/// A packet that writes, or adds.
fn execute(model: &mut Model, opcode: Opcode, psn: u32) {
    let is_atomic = opcode == Opcode::RC_FETCH_ADD;
    let packet = Bth::new(opcode, Qpn::new(QPN), Psn::new(psn)).emit();
    let after = Seen {
        writes: 1,
        bytes: 8,
        atomics: is_atomic.into(),
        messages: 1,
        ..Seen::default()
    };
    model.on_packet(&Received {
        packet: &packet,
        before: Seen::default(),
        after,
        wrote_at: 0,
        values: (1, 2),
    });
}

#[test]
fn a_packet_is_executed_once_and_in_order() {
    let mut model = model();
    for psn in [0xff_fffe, 0xff_ffff, 0, 5] {
        execute(&mut model, Opcode::RC_WRITE_ONLY, psn);
    }
    assert_eq!((found(&mut model), model.psn_wraps), (vec![], 1));
    execute(&mut model, Opcode::RC_WRITE_ONLY, 5);
    execute(&mut model, Opcode::RC_WRITE_ONLY, 4);
    assert_eq!(found(&mut model), [Check::Delivery, Check::Delivery]);
    execute(&mut model, Opcode::RC_FETCH_ADD, 6);
    assert_eq!(found(&mut model), []);
    execute(&mut model, Opcode::RC_FETCH_ADD, 6);
    assert_eq!(found(&mut model), [Check::Atomics]);
}

#[test]
fn requests_complete_in_order_and_once() {
    let (ok, signaled) = (Fault::None, SendFlags::SIGNALED);
    let mut model = model();
    for wr_id in 1..=4 {
        let flags = if wr_id == 2 {
            SendFlags::NONE
        } else {
            signaled
        };
        post(&mut model, wr_id, WrOpcode::RdmaWrite, flags);
    }
    complete(&mut model, 1, ok, WcOpcode::RdmaWrite);
    // 2 is not signaled: done with 3.
    complete(&mut model, 3, ok, WcOpcode::RdmaWrite);
    assert_eq!(found(&mut model), []);
    complete(&mut model, 3, ok, WcOpcode::RdmaWrite);
    assert_eq!(found(&mut model), [Check::Completions]);
    complete(&mut model, 9, ok, WcOpcode::RdmaWrite);
    assert_eq!(found(&mut model), [Check::Completions]);
    model.on_post_recv(QPN, 20);
    complete(&mut model, 21, ok, WcOpcode::Recv);
    assert_eq!(found(&mut model), [Check::Completions]);
    assert_eq!(model.unfinished().count(), 0);
}

#[test]
fn in_an_error_every_request_has_a_completion() {
    let mut model = model();
    for wr_id in 1..=3 {
        post(&mut model, wr_id, WrOpcode::RdmaWrite, SendFlags::NONE);
    }
    assert_eq!(model.unfinished().count(), 0, "nobody waits for these");
    for wr_id in 1..=3 {
        complete(&mut model, wr_id, Fault::Flushed, WcOpcode::RdmaWrite);
    }
    assert_eq!(found(&mut model), []);
    post(&mut model, 4, WrOpcode::RdmaWrite, SendFlags::SIGNALED);
    assert_eq!(model.unfinished().collect::<Vec<_>>(), [(QPN, 1)]);
    model.take_post_back(QPN);
    assert_eq!(model.unfinished().count(), 0);
}

#[test]
fn a_read_does_not_complete_before_its_data() {
    let mut model = model();
    for wr_id in 1..=2 {
        post(&mut model, wr_id, WrOpcode::RdmaRead, SendFlags::SIGNALED);
    }
    execute(&mut model, Opcode::RC_READ_RESPONSE_ONLY, 7);
    for (wr_id, expected) in [(1, vec![]), (2, vec![Check::Completions])] {
        complete(&mut model, wr_id, Fault::None, WcOpcode::RdmaRead);
        let completed = model.completed.pop().expect("one more");
        assert_eq!(model.on_completed(&completed), None);
        assert_eq!(found(&mut model), expected, "{wr_id}");
    }
}
