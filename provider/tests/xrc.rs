//! Extended reliable connections over real sockets. Both ends are in one process, with a
//! context each, as two processes would have.

use std::fs::File;
use std::os::fd::AsFd;

use crate::common::{self, ALL, End, bytes, connect, pattern, poll};
use urxe::{
    AsyncEvent, AttrMask, ConnectOptions, Context, Cq, CreateQpError, ErrorKind, Mr, PostError, Qp,
    QpAttr, QpInitAttr, QpState, QpType, Qpn, RecvWr, SendWr, Srq, SrqAttr, WcOpcode, WcStatus,
    Xrcd, XrcdOpen,
};

/// A queue of the server, with a CQ and memory of its own.
struct Queue {
    srq: Srq,
    cq: Cq,
    memory: Mr,
}

struct Served {
    client: End,
    initiator: Qp,
    server: Context,
    domain: Xrcd,
    target: Qp,
    queues: Vec<Queue>,
}

fn queue(server: &Context, domain: &Xrcd, receives: u64) -> Queue {
    let pd = server.alloc_pd().expect("a PD");
    let cq = server.create_cq(64).expect("a CQ");
    let srq = domain.create_srq(&pd, &cq, &SrqAttr::default());
    let srq = srq.expect("an SRQ");
    let memory = pd.reg_owned(vec![0; 32 << 10], ALL).expect("memory");
    for n in 0..receives {
        let at = n as usize * 4096;
        let sges = [memory.sge(at..at + 4096)];
        srq.post_recv(&RecvWr::new(n, &sges)).expect("room");
    }
    Queue { srq, cq, memory }
}

fn served(queues: usize) -> Served {
    let client = End::open();
    let initiator = client.pd.qp(&client.cq).xrc_send().signal_all().create();
    let initiator = initiator.expect("an initiator");
    let server = Context::open(common::address()).expect("opens");
    let domain = server.open_xrcd().expect("a domain");
    let target = domain.create_target().expect("a target");
    connect(&initiator, &target, &ConnectOptions::default());
    let queues = (0..queues).map(|_| queue(&server, &domain, 4)).collect();
    Served {
        client,
        initiator,
        server,
        domain,
        target,
        queues,
    }
}

impl Served {
    fn post(&self, wr: SendWr<'_>, to: usize) {
        let wr = wr.to_srq(self.queues[to].srq.srq_num());
        self.initiator.post_send(&wr).expect("room");
    }
}

#[test]
fn requests_find_their_queues() {
    let s = served(3);
    let text: Vec<Vec<u8>> = (0..3).map(|n| pattern(n, 4000)).collect();
    let from = s.client.memory(3 * 4000);
    for (n, text) in text.iter().enumerate() {
        from.write(n * 4000, text);
        let sges = [from.sge(n * 4000..(n + 1) * 4000)];
        s.post(SendWr::send_with_imm(n as u64, &sges, 50 + n as u32), n);
    }
    for (n, queue) in s.queues.iter().enumerate() {
        let wc = poll(&queue.cq);
        assert!(wc.is_success(), "{wc}");
        assert_eq!((wc.wr_id, wc.imm_data), (0, Some(50 + n as u32)));
        assert_eq!(wc.qp_num, s.target.qp_num());
        assert_eq!(wc.src_qp, s.initiator.qp_num());
        assert_eq!(bytes(&queue.memory, 4000), text[n]);
        assert!(s.client.succeed().is_success());
    }
}

/// One-sided operations reach the memory of the queue's protection domain, and no other.
#[test]
fn memory_belongs_to_the_queue() {
    let s = served(2);
    let theirs = &s.queues[1].memory;
    let (addr, rkey) = (theirs.addr() + 8192, theirs.rkey());
    let local = s.client.memory(64);
    local.write(0, b"one-sided");
    let sges = [local.sge(..9)];
    s.post(SendWr::rdma_write_with_imm(1, &sges, addr, rkey, 7), 1);
    let wc = poll(&s.queues[1].cq);
    assert_eq!(
        (wc.opcode, wc.imm_data),
        (WcOpcode::RecvRdmaWithImm, Some(7))
    );
    s.client.succeed();
    let back = [local.sge(32..41)];
    s.post(SendWr::rdma_read(2, &back, addr, rkey), 1);
    s.client.succeed();
    assert_eq!(&bytes(&local, 41)[32..], b"one-sided");
    let word = [local.sge(..8)];
    s.post(
        SendWr::atomic_fetch_add(3, &word, theirs.addr(), rkey, 5),
        1,
    );
    s.client.succeed();
    assert_eq!(theirs.load_u64(0), 5);

    s.post(SendWr::rdma_read(4, &back, addr, rkey), 0);
    let wc = s.client.complete();
    assert_eq!(wc.status, WcStatus::RemAccessErr, "{wc}");
}

#[test]
fn a_queue_that_is_gone_is_an_invalid_request() {
    let mut s = served(2);
    let gone = s.queues.pop().expect("two").srq;
    let number = gone.srq_num();
    gone.destroy().expect("no QP is tied to it");
    let wr = SendWr::send_inline(1, b"late").to_srq(number);
    s.initiator.post_send(&wr).expect("room");
    let wc = s.client.complete();
    assert_eq!(wc.status, WcStatus::RemInvReqErr, "{wc}");
    assert_eq!(s.target.state().expect("works"), QpState::Err);
    let event = s.server.wait_async_event(Some(common::PATIENCE));
    let expected = AsyncEvent::QpReqErr(s.target.qp_num());
    assert_eq!(event.expect("works"), Some(expected));
}

#[test]
fn a_queue_of_another_domain_is_not_reached() {
    let s = served(1);
    let other = s.server.open_xrcd().expect("another domain");
    let hidden = queue(&s.server, &other, 1);
    let wr = SendWr::send_inline(1, b"x").to_srq(hidden.srq.srq_num());
    s.initiator.post_send(&wr).expect("room");
    assert_eq!(s.client.complete().status, WcStatus::RemInvReqErr);
    let mut wcs = [urxe::Wc::default()];
    assert_eq!(hidden.cq.poll(&mut wcs).expect("polls"), 0);
}

#[test]
fn the_limit_of_a_queue_of_a_domain() {
    let s = served(2);
    let limited = &s.queues[1].srq;
    limited.arm_limit(4).expect("within the size");
    s.post(SendWr::send_inline(1, b"x"), 0);
    s.client.succeed();
    s.post(SendWr::send_inline(2, b"x"), 1);
    s.client.succeed();
    let event = s.server.wait_async_event(Some(common::PATIENCE));
    let expected = AsyncEvent::SrqLimitReached(limited.id());
    assert_eq!(event.expect("works"), Some(expected));
}

#[test]
fn a_target_lives_as_long_as_somebody_has_it_open() {
    let s = served(1);
    let number = s.target.qp_num();
    let again = s.domain.open_qp(number).expect("it is there");
    assert_eq!(again.qp_type(), QpType::XrcRecv);
    assert!(again.xrcd() == Some(&s.domain));
    drop(s.target);
    let text = b"still there";
    let wr = SendWr::send_inline(1, text).to_srq(s.queues[0].srq.srq_num());
    s.initiator.post_send(&wr).expect("room");
    assert_eq!(poll(&s.queues[0].cq).byte_len, text.len() as u32);
    s.client.succeed();
    drop(again);
    let error = s.domain.open_qp(number).expect_err("now it is gone");
    assert_eq!(error.errno(), libc::ENOENT);
    // A QP that is none of the domain's.
    let elsewhere = s.domain.open_qp(Qpn::new(2)).expect_err("never was");
    assert_eq!(elsewhere.kind(), &ErrorKind::NoTarget(Qpn::new(2)));
}

#[test]
fn domains_are_found_by_file() {
    let context = Context::open(common::address()).expect("opens");
    let path = |n| {
        let name = format!("xrcd-{}-{n}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let file = |n| File::create(path(n)).expect("a file");
    let open = |file: &File, how| context.open_xrcd_on(file.as_fd(), how);
    let (one, two) = (file(1), file(2));
    let none = open(&one, XrcdOpen::Existing).expect_err("none yet");
    assert_eq!(none.errno(), libc::ENOENT);
    let first = open(&one, XrcdOpen::CreateNew).expect("a new one");
    let second = open(&two, XrcdOpen::Create).expect("a new one");
    assert!(first != second);
    // Another descriptor of the same file.
    let same = File::open(path(1)).expect("it is there");
    assert!(open(&same, XrcdOpen::Existing).expect("there is one") == first);
    assert!(open(&same, XrcdOpen::Create).expect("there is one") == first);
    let exists = open(&same, XrcdOpen::CreateNew).expect_err("there is one");
    assert_eq!(exists.errno(), libc::EEXIST);
    assert!(context.open_xrcd().expect("a private one") != first);
    drop(first);
    let gone = open(&one, XrcdOpen::Existing).expect_err("its last handle is gone");
    assert_eq!(gone.kind(), &ErrorKind::Xrcd { is_there: false });
    for n in [1, 2] {
        std::fs::remove_file(path(n)).expect("it was there");
    }
}

fn reason(error: &urxe::Error) -> PostError {
    match error.kind() {
        ErrorKind::Post(reason) => *reason,
        _ => panic!("{error}"),
    }
}

#[test]
fn what_is_refused() {
    let s = served(1);
    let send = SendWr::send_inline(1, b"x");
    let nameless = s.initiator.post_send(&send).expect_err("no queue named");
    assert_eq!(reason(&nameless), PostError::NoSrqn);
    let to = send.to_srq(s.queues[0].srq.srq_num());
    let error = s.target.post_send(&to).expect_err("a target sends nothing");
    assert_eq!(reason(&error), PostError::NoQueue(QpType::XrcRecv));
    assert_eq!(error.errno(), libc::EINVAL);
    for (qp, qp_type) in [
        (&s.target, QpType::XrcRecv),
        (&s.initiator, QpType::XrcSend),
    ] {
        let error = qp.post_recv(&RecvWr::new(1, &[])).expect_err("no queue");
        assert_eq!(reason(&error), PostError::NoQueue(qp_type));
        assert_eq!(qp.cap().max_recv_wr, 0);
    }
    let word = SendWr::atomic_write(1, &[0; 8], 0, urxe::Rkey(0));
    let word = word.to_srq(s.queues[0].srq.srq_num());
    let error = s.initiator.post_send(&word).expect_err("not over XRC");
    assert!(matches!(reason(&error), PostError::NotCarried { .. }));

    // A target outside a domain; a reliable connection on a queue of a domain.
    let pd = s.server.alloc_pd().expect("a PD");
    let cq = &s.queues[0].cq;
    let mut init = QpInitAttr::new(cq, cq);
    init.qp_type = QpType::XrcRecv;
    let error = pd.create_qp(&init).expect_err("of no domain");
    assert_eq!(error.kind(), &ErrorKind::CreateQp(CreateQpError::Xrcd));
    let rc = pd.qp(cq).srq(&s.queues[0].srq).create();
    assert!(matches!(
        rc.expect_err("of type XRC").kind(),
        ErrorKind::CreateQp(CreateQpError::Srq(_))
    ));

    // Objects of two contexts do not mix.
    let srq = s.domain.create_srq(&s.client.pd, cq, &SrqAttr::default());
    assert!(matches!(
        srq.expect_err("the client's").kind(),
        ErrorKind::ForeignObject(_)
    ));
    let srq = s.domain.create_srq(&pd, &s.client.cq, &SrqAttr::default());
    assert!(srq.is_err());
}

/// `man ibv_modify_qp`: the attributes that a target needs are not those of an initiator.
#[test]
fn attributes_of_a_target() {
    let s = served(0);
    let target = s.domain.create_target().expect("a target");
    target.init(ALL).expect("to INIT");
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..s.target.query().expect("works")
    };
    // What takes an initiator from INIT to RTR.
    let initiators =
        AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    let rtr = QpAttr {
        qp_state: QpState::Rtr,
        ..attr
    };
    let error = target.modify(&rtr, initiators).expect_err("not enough");
    assert!(error.to_string().contains("MIN_RNR_TIMER"), "{error}");
    let rest = AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    target.modify(&rtr, initiators | rest).expect("to RTR");
    let too_much = AttrMask::STATE | AttrMask::SQ_PSN | AttrMask::TIMEOUT | AttrMask::RNR_RETRY;
    let error = target.modify(&attr, too_much).expect_err("no retries");
    assert!(error.to_string().contains("RNR_RETRY"), "{error}");
}
