//! Tag matching over real sockets.

use crate::common::{End, bytes, connect, pattern, poll};
use urxe::{
    ConnectOptions, ErrorKind, Fault, Mr, PostError, Qp, QpState, QpType, RecvWr, SendWr, Srq,
    SrqAttr, SrqError, TagHandle, TagRecv, TagWr, TmCap, TmFlags, Tmh, TmhOp, Wc, WcOpcode,
    WcStatus,
};

/// Ordinary receives, of so many bytes each.
const RECEIVES: usize = 16;
const ROOM: usize = 1024;
const MATCHED: TmFlags = TmFlags(TmFlags::MATCH.0 | TmFlags::DATA_VALID.0);
const ALL: u64 = u64::MAX;

/// A receiver with a queue of tags, and senders, each of its own context, with two QPs each.
struct Matching {
    receiver: End,
    srq: Srq,
    inbox: Mr,
    senders: Vec<End>,
    /// Sending and receiving QP of each connection.
    qps: Vec<(Qp, Qp)>,
}

impl Matching {
    fn open(senders: usize) -> Matching {
        Matching::with(senders, &TmCap::default())
    }

    fn with(senders: usize, cap: &TmCap) -> Matching {
        let receiver = End::open();
        let attr = SrqAttr {
            max_sge: 1,
            ..SrqAttr::default()
        };
        let srq = receiver.pd.create_tm_srq(&receiver.cq, &attr, cap);
        let srq = srq.expect("a queue with tags");
        let inbox = receiver.memory(RECEIVES * ROOM);
        for n in 0..RECEIVES {
            let sges = [inbox.sge(n * ROOM..(n + 1) * ROOM)];
            let wr = RecvWr::new(1000 + n as u64, &sges);
            srq.post_recv(&wr).expect("room");
        }
        let senders: Vec<End> = (0..senders).map(|_| End::open()).collect();
        let connection = |n: usize| {
            let end = &senders[n / 2];
            let from = end.pd.qp(&end.cq).max_send_wr(256).create().expect("a QP");
            // What is received completes to the queue's CQ; so this one gets nothing.
            let to = receiver.pd.qp(&receiver.qp_cq()).srq(&srq).create();
            let to = to.expect("a QP");
            connect(&from, &to, &ConnectOptions::default());
            (from, to)
        };
        let qps = (0..2 * senders.len()).map(connection).collect();
        Matching {
            receiver,
            srq,
            inbox,
            senders,
            qps,
        }
    }

    fn add(&self, id: u64, tag: u64, mask: u64, memory: &Mr) -> TagHandle {
        let sges = [memory.sge(..)];
        let recv = TagRecv {
            recv_wr_id: id,
            tag,
            mask,
            sges: &sges,
        };
        self.srq.add_tag(&recv).expect("room")
    }

    fn send(&self, qp: usize, message: &[u8]) {
        let wr = SendWr::send_inline(0, message);
        self.qps[qp].0.post_send(&wr).expect("room");
    }

    fn got(&self) -> (u64, WcOpcode, TmFlags) {
        let wc = self.receiver.succeed();
        (wc.wr_id, wc.opcode, wc.tm.flags)
    }
}

trait OtherCq {
    fn qp_cq(&self) -> urxe::Cq;
}

impl OtherCq for End {
    fn qp_cq(&self) -> urxe::Cq {
        self.context.create_cq(16).expect("a CQ")
    }
}

fn header(op: TmhOp, tag: u64) -> [u8; Tmh::LEN] {
    let header = Tmh {
        opcode: op as u8,
        app_ctx: 77,
        tag,
        ..Tmh::default()
    };
    header.emit()
}

fn eager(tag: u64, text: &[u8]) -> Vec<u8> {
    [&header(TmhOp::Eager, tag)[..], text].concat()
}

/// The tags are given out before anything is sent: each message has its own, wherever it comes from.
#[test]
fn messages_of_several_hosts_and_qps_find_their_tags() {
    const EACH: usize = 40;
    const LEN: usize = 5000;
    let m = Matching::open(3);
    let total = m.qps.len() * EACH;
    let memory: Vec<Mr> = (0..total).map(|_| m.receiver.memory(LEN)).collect();
    for n in (0..total as u64).rev() {
        m.add(n, n << 8, !0xff, &memory[n as usize]);
    }
    let len = |n: usize| if n.is_multiple_of(3) { LEN } else { n % 100 };
    let mut sources = Vec::new();
    for n in 0..total {
        let end = &m.senders[n % m.qps.len() / 2];
        let message = eager((n as u64) << 8 | 5, &pattern(n as u64, len(n)));
        let source = end.memory(message.len());
        source.write(0, &message);
        let sges = [source.sge(..)];
        let wr = SendWr::send_with_imm(0, &sges, n as u32);
        m.qps[n % m.qps.len()].0.post_send(&wr).expect("room");
        sources.push(source);
    }
    let (mut matched, mut valid) = (vec![0; total], vec![0; total]);
    while valid.contains(&0) {
        let wc = m.receiver.succeed();
        let n = wc.wr_id as usize;
        assert_eq!(wc.opcode, WcOpcode::TmRecv);
        assert_eq!(wc.qp_num, m.qps[n % m.qps.len()].1.qp_num());
        if wc.tm.flags.contains(TmFlags::MATCH) {
            assert_eq!((wc.tm.tag, wc.tm.app_ctx), ((n as u64) << 8 | 5, 77));
            matched[n] += 1;
            assert_eq!(valid[n], 0, "first the match");
        }
        if wc.tm.flags.contains(TmFlags::DATA_VALID) {
            valid[n] += 1;
            assert_eq!(
                (wc.byte_len as usize, wc.imm_data),
                (len(n), Some(n as u32))
            );
            let text = bytes(&memory[n], LEN);
            assert_eq!(text[..len(n)], pattern(n as u64, len(n)));
            assert!(text[len(n)..].iter().all(|byte| *byte == 0));
        }
    }
    assert!(matched.iter().chain(&valid).all(|count| *count == 1));
}

#[test]
fn bad_headers_are_the_programs_and_harm_nothing() {
    let m = Matching::open(1);
    let memory = m.receiver.memory(64);
    m.add(1, 0, 0, &memory);
    let rendezvous = [&header(TmhOp::Rndv, 5)[..], &[0; 15]].concat();
    let cases: [&[u8]; 6] = [
        b"",
        &eager(5, b"")[..15],
        &[9; 60],
        &rendezvous,
        &header(TmhOp::Fin, 5),
        &header(TmhOp::NoTag, 5),
    ];
    for (n, message) in cases.iter().enumerate() {
        m.send(0, message);
        let expected = (1000 + n as u64, WcOpcode::TmNoTag, TmFlags::NONE);
        assert_eq!(m.got(), expected, "{message:?}");
        let mut text = vec![0; message.len()];
        m.inbox.read(n * ROOM, &mut text);
        assert_eq!(text, *message);
    }
    m.send(0, &eager(5, b"good"));
    assert_eq!(m.got(), (1, WcOpcode::TmRecv, MATCHED));
}

#[test]
fn unexpected_messages_keep_new_tags_waiting_until_they_are_handled() {
    let m = Matching::open(1);
    let memory = m.receiver.memory(64);
    m.send(0, &eager(5, b"early"));
    assert_eq!(m.got(), (1000, WcOpcode::TmRecv, TmFlags::NONE));
    let sges = [memory.sge(..)];
    let recv = TagRecv {
        recv_wr_id: 1,
        tag: 5,
        mask: ALL,
        sges: &sges,
    };
    let add = TagWr::add(recv).handled(0).signaled(7);
    m.srq.post_op(&add).expect("room");
    assert_eq!(m.got(), (7, WcOpcode::TmAdd, TmFlags::SYNC_REQ));
    m.send(0, &eager(5, b"late"));
    assert_eq!(m.got(), (1001, WcOpcode::TmRecv, TmFlags::SYNC_REQ));
    m.srq.post_op(&TagWr::sync(2).signaled(8)).expect("posts");
    assert_eq!(m.got(), (8, WcOpcode::TmSync, TmFlags::NONE));
    m.send(0, &eager(5, b"third"));
    assert_eq!(m.got(), (1, WcOpcode::TmRecv, MATCHED));
    assert_eq!(bytes(&memory, 5), b"third");
}

#[test]
fn a_full_list_and_other_limits() {
    let cap = TmCap {
        max_num_tags: 2,
        ..TmCap::default()
    };
    let m = Matching::with(1, &cap);
    assert_eq!(m.srq.tm_cap(), Some(&cap));
    let memory = m.receiver.memory(64);
    let first = m.add(1, 1, ALL, &memory);
    m.add(2, 2, ALL, &memory);
    let third = TagRecv {
        recv_wr_id: 3,
        tag: 3,
        mask: ALL,
        sges: &[],
    };
    let full = m.srq.add_tag(&third).expect_err("it is full");
    assert_eq!(*full.kind(), ErrorKind::Post(PostError::TagListFull(2)));
    assert_eq!(full.errno(), libc::ENOMEM);
    m.srq.del_tag(9, first).expect("posts");
    m.srq.add_tag(&third).expect("room again");
    m.send(0, &eager(1, b"removed"));
    assert_eq!(m.got(), (1000, WcOpcode::TmRecv, TmFlags::NONE));
    m.send(0, &eager(2, b"x"));
    assert_eq!(m.got().0, 2);
    m.srq.del_tag(9, first).expect("posts");
    let wc = m.receiver.complete();
    assert_eq!((wc.wr_id, wc.opcode), (9, WcOpcode::TmDel));
    assert_eq!((wc.status, wc.fault()), (WcStatus::TmErr, Fault::TagGone));

    let many = [memory.sge(..1); 5];
    let wide = TagRecv {
        sges: &many,
        ..third
    };
    let error = m.srq.add_tag(&wide).expect_err("five entries");
    assert_eq!(error.errno(), libc::EINVAL);
    let none = m.srq.del_tag(9, TagHandle(77)).expect_err("no such tag");
    assert_eq!(*none.kind(), ErrorKind::Post(PostError::NoTag(77)));
    let plain = m.receiver.pd.create_srq(&SrqAttr::default());
    let plain = plain.expect("an SRQ");
    let error = plain.sync_tags(0).expect_err("no tags");
    assert_eq!(*error.kind(), ErrorKind::Post(PostError::NoTags));
    assert!(plain.tm_cap().is_none() && plain.cq().is_none());

    for max_num_tags in [0, TmCap::NUM_TAGS_MAX + 1] {
        let cap = TmCap {
            max_num_tags,
            ..cap
        };
        let (pd, cq) = (&m.receiver.pd, &m.receiver.cq);
        let made = pd.create_tm_srq(cq, &SrqAttr::default(), &cap);
        let error = made.expect_err("out of range");
        assert!(matches!(
            error.kind(),
            ErrorKind::Srq(SrqError::Value { .. })
        ));
    }
    let made = m
        .receiver
        .pd
        .create_tm_srq(&m.senders[0].cq, &SrqAttr::default(), &cap);
    let error = made.expect_err("another context's CQ");
    assert!(matches!(error.kind(), ErrorKind::ForeignObject(_)));
    let uc = m
        .receiver
        .pd
        .qp(&m.receiver.cq)
        .srq(&m.srq)
        .qp_type(QpType::Uc)
        .create();
    assert!(matches!(
        uc.expect_err("RC only").kind(),
        ErrorKind::CreateQp(_)
    ));
}

/// The QP's own messages fail; the list and the other QPs are as before.
#[test]
fn a_qp_in_error_leaves_the_tags_to_the_others() {
    let m = Matching::open(1);
    let (memory, short) = (m.receiver.memory(64), m.receiver.memory(2));
    m.add(1, 1, ALL, &short);
    m.add(2, 2, ALL, &memory);
    m.send(0, &eager(1, b"too long"));
    let wc = m.receiver.complete();
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::LocLenErr));
    let wc = poll(&m.senders[0].cq);
    assert_eq!(wc.status, WcStatus::RemInvReqErr, "{wc}");
    assert_eq!(m.qps[0].1.state().expect("it lives"), QpState::Err);
    m.send(1, &eager(2, b"fine"));
    assert_eq!(m.got(), (2, WcOpcode::TmRecv, MATCHED));
    m.send(1, &eager(1, b"nothing left"));
    assert_eq!(m.got(), (1000, WcOpcode::TmRecv, TmFlags::NONE));
}

#[test]
fn a_queue_lives_as_long_as_its_qps_and_takes_its_tags_along() {
    let Matching {
        receiver,
        srq,
        inbox,
        senders,
        qps,
    } = Matching::open(1);
    let memory = receiver.memory(64);
    let sges = [memory.sge(..)];
    srq.add_tag(&TagRecv {
        recv_wr_id: 1,
        tag: 1,
        mask: ALL,
        sges: &sges,
    })
    .expect("room");
    let busy = srq.clone().destroy().expect_err("in use");
    assert_eq!(busy.errno(), libc::EBUSY);
    drop(srq);
    let message = eager(1, b"still");
    let wr = SendWr::send_inline(0, &message).signaled();
    qps[0].0.post_send(&wr).expect("room");
    assert_eq!(receiver.succeed().wr_id, 1);
    assert!(poll(&senders[0].cq).is_success());
    drop(qps);
    let mut wcs = [Wc::default(); 4];
    assert_eq!(receiver.cq.poll(&mut wcs).expect("polls"), 0);
    drop(inbox);
}
