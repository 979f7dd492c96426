use super::*;
use urxe_core::cq::TmInfo;
use urxe_core::error::Fault;
use urxe_core::work::Sge;
use urxe_wire::{Bth, Lkey, Opcode, Operation, Position, Qpn};

const QPN: u32 = 0x42;
/// First PSN of the peer.
const FIRST: u32 = 0xff_fffe;
const MTU: u32 = 256;

fn model() -> Model {
    let mut model = Model::default();
    model.on_create(QpIndex(3), QPN);
    let (peer, psns) = ((HostId(1), 0x77), (Psn::new(7), Psn::new(FIRST)));
    model.on_connect(model.qpn_of(QpIndex(3)), peer, psns, MTU, 12);
    model
}

/// As with a transport that keeps what is ahead of a gap.
fn keeping() -> Model {
    Model {
        keeps: true,
        ..model()
    }
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

fn packet(opcode: Opcode, psn: u32) -> Vec<u8> {
    let info = opcode.info().expect("in the table");
    let payload = match info.position {
        _ if info.operation == Operation::FetchAdd => 0,
        Position::First | Position::Middle => MTU as usize,
        _ => 8,
    };
    let mut bytes = Bth::new(opcode, Qpn::new(QPN), Psn::new(psn))
        .emit()
        .to_vec();
    bytes.resize(BTH_LEN + usize::from(info.headers.len()) + payload + 4, 0);
    bytes
}

fn write(at: u64, len: u64) -> Write {
    Write {
        at,
        len,
        is_wrong: false,
        values: None,
    }
}

fn add() -> Write {
    Write {
        values: Some((1, 2)),
        ..write(0, 8)
    }
}

/// A packet is handled, upon which so many messages end and this is written.
fn handle(model: &mut Model, opcode: Opcode, psn: u32, messages: u64, writes: &[Write]) {
    model.on_packet(&Received {
        packet: &packet(opcode, psn),
        before: Seen::default(),
        after: Seen {
            messages,
            ..Seen::default()
        },
        writes,
    });
}

/// A request comes before its turn.
fn hold(model: &mut Model, opcode: Opcode, psn: u32) {
    model.on_packet(&Received {
        packet: &packet(opcode, psn),
        before: Seen::default(),
        after: Seen {
            ahead: 1,
            ..Seen::default()
        },
        writes: &[],
    });
}

/// A packet that writes, or adds.
fn execute(model: &mut Model, opcode: Opcode, psn: u32) {
    let is_request = opcode.info().is_some_and(|info| !info.is_response());
    let what = match opcode {
        Opcode::RC_FETCH_ADD => add(),
        _ => write(0, 8),
    };
    handle(model, opcode, psn, is_request.into(), &[what]);
}

const ONLY: Opcode = Opcode::RC_WRITE_ONLY;

#[test]
fn a_packet_is_executed_once_and_in_order() {
    let mut model = model();
    for psn in [0xff_fffe, 0xff_ffff, 0, 1] {
        execute(&mut model, ONLY, psn);
    }
    assert_eq!((found(&mut model), model.psn_wraps()), (vec![], 1));
    for psn in [1, 0, 2] {
        execute(&mut model, ONLY, psn);
    }
    let expected = [Check::Delivery, Check::Delivery, Check::Delivery];
    assert_eq!(
        found(&mut model),
        expected,
        "twice, too early, and one left out"
    );
    execute(&mut model, Opcode::RC_FETCH_ADD, 3);
    assert_eq!(found(&mut model), []);
    execute(&mut model, Opcode::RC_FETCH_ADD, 3);
    assert_eq!(found(&mut model), [Check::Atomics]);
}

/// What a transport does once the packet with the first PSN has come, behind which there are a WRITE's, an atomic, and
/// another WRITE.
fn after_gap(messages: u64, writes: &[Write]) -> (Vec<Check>, usize) {
    let mut model = keeping();
    hold(&mut model, ONLY, FIRST + 1);
    hold(&mut model, ONLY, 1);
    hold(&mut model, Opcode::RC_FETCH_ADD, 0);
    // Again, and from far away.
    hold(&mut model, ONLY, 1);
    hold(&mut model, ONLY, 0x7f_0000);
    assert_eq!(found(&mut model), []);
    handle(&mut model, ONLY, FIRST, messages, writes);
    (found(&mut model), model.finished.len())
}

#[test]
fn what_was_kept_is_executed_once_and_in_order() {
    let (w, delivery) = (write(0, 8), vec![Check::Delivery]);
    assert_eq!(after_gap(4, &[w, w, add(), w]), (vec![], 4));
    // Not all of it: what is left comes again.
    assert_eq!(after_gap(2, &[w, w]), (vec![], 2));
    assert_eq!(after_gap(3, &[w, w, add()]), (vec![], 3));
    // One twice, and one that never came.
    assert_eq!(after_gap(5, &[w, w, add(), w, w]).0, delivery);
    // The atomic before its turn.
    let (early, _) = after_gap(4, &[w, add(), w, w]);
    assert_eq!(early, delivery);
    // One left out: the next stands where it was to be.
    assert_eq!(after_gap(3, &[w, w, w]).0, [Check::Atomics]);
    // Wrong bytes, too few, and at another place.
    let wrong = Write {
        is_wrong: true,
        ..w
    };
    assert_eq!(after_gap(4, &[w, wrong, add(), w]).0, delivery);
    assert_eq!(after_gap(4, &[w, write(0, 4), add(), w]).0, delivery);
    // More messages than packets end one.
    assert_eq!(after_gap(5, &[w, w, add(), w]).0, delivery);
}

#[test]
fn a_packet_that_is_executed_though_one_before_it_never_came_is_found() {
    let mut model = keeping();
    hold(&mut model, ONLY, 0);
    handle(&mut model, ONLY, FIRST, 2, &[write(0, 8), write(0, 8)]);
    assert_eq!(found(&mut model), [Check::Delivery]);
}

#[test]
fn a_message_of_which_packets_were_kept_goes_on_where_it_was() {
    let (first, middle, last) = (
        Opcode::RC_WRITE_FIRST,
        Opcode::RC_WRITE_MIDDLE,
        Opcode::RC_WRITE_LAST,
    );
    let len = u64::from(MTU);
    for (at, expected) in [(2 * len, vec![]), (len, vec![Check::Delivery])] {
        let mut model = keeping();
        handle(&mut model, first, FIRST, 0, &[write(64, len)]);
        hold(&mut model, last, 0);
        let writes = [write(64 + len, len), write(64 + at, 8)];
        handle(&mut model, middle, FIRST + 1, 1, &writes);
        assert_eq!(found(&mut model), expected);
    }
}

#[test]
fn answers_that_were_kept_come_in_order_and_where_they_belong() {
    let (first, middle, last) = (
        Opcode::RC_READ_RESPONSE_FIRST,
        Opcode::RC_READ_RESPONSE_MIDDLE,
        Opcode::RC_READ_RESPONSE_LAST,
    );
    let len = u64::from(MTU);
    let good = [write(0, len), write(len, len), write(2 * len, 8)];
    let [a, b, c] = good;
    for (writes, expected) in [
        (vec![a, b, c], vec![]),
        (vec![a], vec![]),
        (vec![a, c], vec![Check::Delivery]),
        (vec![a, b, c, c], vec![Check::Delivery]),
        (vec![a, b, b], vec![Check::Delivery]),
        (vec![b, a, c], vec![Check::Delivery]),
    ] {
        let mut model = keeping();
        let sges = [Sge {
            addr: 0,
            length: 2 * MTU + 8,
            lkey: Lkey(1),
        }];
        // A WRITE before it takes a PSN.
        post(&mut model, 1, WrOpcode::RdmaWrite, SendFlags::NONE);
        let read = SendWr::new(2, WrOpcode::RdmaRead, WrData::Sges(&sges));
        model.on_post_send(QPN, &read);
        for (opcode, psn) in [(last, 10), (middle, 9)] {
            handle(&mut model, opcode, psn, 0, &[]);
        }
        handle(&mut model, first, 8, 0, &writes);
        assert_eq!(found(&mut model), expected, "{writes:?}");
    }
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
