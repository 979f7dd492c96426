//! Keys, and objects that go, or are too small, while they are needed.

use super::{assert_clean, context, facts, pair_of, report};
use crate::common::{ALL, End, connect};
use urxe::{ConnectOptions, Mr, RecvWr, SendWr, StrictRule, WcStatus};

/// Where the calls are that reports name.
const FILE: &str = file!();

#[test]
fn an_lkey_of_ones_own_in_place_of_an_rkey() {
    let (a, b) = pair_of(20);
    let local = a.memory(8);
    let posted = line!() + 3;
    let (sges, wrong) = ([local.sge(..)], urxe::Rkey(local.lkey().0));
    let write = SendWr::rdma_write(1, &sges, local.addr(), wrong).signaled();
    a.qp.post_send(&write).expect("taken");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
    let (key, addr) = (local.lkey().0, local.addr());
    let text = format!(
        "urxe strict: lkey-as-rkey\n  \
         what: a RDMA WRITE (wr_id 1) carries the rkey {key:#x}, which is the lkey of this program's \
         own region of 8 bytes at {addr:#x}.\n  \
         call: {FILE}:{posted}\n  \
         why:  A region has two keys: the lkey for its owner's own work requests, the rkey for peers. \
         Some adapters make them equal, others do not. Give peers Mr::rkey (mr->rkey).\n  \
         more: https://github.com/urxe/urxe/blob/main/docs/STRICT.md#lkey-as-rkey"
    );
    assert_eq!(report(&a).to_string(), text);
    assert_clean([&a, &b]);
}

#[test]
fn a_peer_that_was_told_the_lkey() {
    let (a, b) = pair_of(22);
    let (local, remote) = (a.memory(8), b.memory(8));
    let (sges, told) = ([local.sge(..)], urxe::Rkey(remote.lkey().0));
    let read = SendWr::rdma_read(1, &sges, remote.addr(), told).signaled();
    a.qp.post_send(&read).expect("taken");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
    let found = report(&b);
    let (qpn, key, addr) = (b.qp.qp_num().get(), remote.lkey().0, remote.addr());
    let text = format!(
        "urxe strict: lkey-as-rkey\n  \
         what: the peer of QP {qpn:#x} used the rkey {key:#x}, which is the lkey of this program's \
         region of 8 bytes at {addr:#x}: this program told it the wrong key, and the request was \
         refused."
    );
    assert_eq!(facts(&found), text);
}

#[test]
fn memory_and_qps_that_go_while_they_are_needed() {
    let (a, b) = pair_of(34);
    let from = a.memory(100);
    // The peer has no receive: the request stays.
    a.qp.post_send(&SendWr::send(4, &[from.sge(..)]).signaled())
        .expect("room");
    drop(from);
    let found = report(&a);
    assert_eq!((found.rule, found.wr_id), (StrictRule::MrInUse, Some(4)));
    assert_eq!(
        found.text,
        "memory of a SEND (wr_id 4) was deregistered before the request was complete."
    );
    let (context, qpn) = (a.context.clone(), a.qp.qp_num());
    drop(a);
    let found = context.take_strict_reports().expect("alive");
    assert_eq!(found.len(), 1, "{found:#?}");
    let report = &found[0];
    assert_eq!((report.rule, report.qpn), (StrictRule::QpInUse, Some(qpn)));
    assert!(report.text.contains("1 of its requests"), "{report}");
    drop(b);
}

/// A program that ends with the last answer is right, whether its requests completed or not.
#[test]
fn what_was_answered_is_under_way_no_more() {
    let (a, b) = pair_of(92);
    let (to_a, to_b) = (a.memory(8), b.memory(8));
    let ended = (a.context.clone(), a.qp.qp_num());
    for n in 0..8 {
        a.recv(n, &to_a);
        b.recv(n, &to_b);
    }
    for n in 0..4 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let wr = SendWr::send_inline(n, b"answered");
            from.qp.post_send(&wr).expect("room");
            assert_eq!(to.complete().status, WcStatus::Success);
        }
    }
    drop(a);
    let found = ended.0.take_strict_reports().expect("alive");
    let in_use = found.iter().find(|it| it.rule == StrictRule::QpInUse);
    assert!(in_use.is_none(), "QP {}: {in_use:?}", ended.1);
}

#[test]
fn a_receive_whose_memory_is_gone_when_the_message_comes() {
    let (a, b) = pair_of(36);
    let to = b.memory(8);
    b.recv(2, &to);
    drop(to);
    assert_clean([&a, &b]);
    a.qp.post_send(&SendWr::send_inline(1, b"x").signaled())
        .expect("room");
    assert_eq!(b.complete().status, WcStatus::LocProtErr);
    let found = report(&b);
    assert_eq!((found.rule, found.wr_id), (StrictRule::MrInUse, Some(2)));
}

#[test]
fn completions_need_room_and_somebody_who_looks() {
    let context = context(38);
    let pd = context.alloc_pd().expect("a PD");
    let small = context.create_cq(2).expect("a CQ");
    let qp = pd.qp(&small).create().expect("a QP");
    qp.init(ALL).expect("INIT");
    for n in 0..3 {
        qp.post_recv(&RecvWr::new(n, &[])).expect("room");
    }
    let found = context.take_strict_reports().expect("alive");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, StrictRule::CqTooSmall);
    assert_eq!(
        found[0].text,
        "with this receive, 3 completions may come that the program has not polled, and the \
         completion queue takes 2."
    );
    drop((qp, small));

    let (a, b) = pair_of(40);
    let to = b.memory(8);
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send_inline(1, b"x").signaled())
        .expect("room");
    a.succeed();
    let (context, qpn) = (b.context.clone(), b.qp.qp_num());
    drop(b);
    let found = context.take_strict_reports().expect("alive");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, StrictRule::CompletionsNotPolled);
    assert_eq!(found[0].qpn, Some(qpn));
    let words = "with it 1 completions that the program never polled";
    assert!(found[0].text.contains(words), "{}", found[0]);
}

/// A QP with four places, and a peer with receives enough.
fn short_queue(seed: u64) -> (End, End, Mr) {
    let a = End::with(context(seed), |qp| qp.max_send_wr(4));
    let b = End::on(context(seed + 1));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(8);
    for n in 0..8 {
        b.recv(n, &to);
    }
    (a, b, to)
}

#[test]
fn a_send_queue_that_nobody_polls() {
    let (a, b, _to) = short_queue(42);
    for n in 0..5 {
        a.qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
        b.succeed();
    }
    let found = report(&a);
    assert_eq!(
        (found.rule, found.wr_id),
        (StrictRule::NeverSignaled, Some(4))
    );
    assert_eq!(
        found.text,
        "this SEND is number 5 in a send queue of 4 places, behind requests of which none makes a \
         completion."
    );
    let (a, b, _to) = short_queue(44);
    for n in 0..5 {
        let send = SendWr::send_inline(n, b"x").signaled();
        a.qp.post_send(&send).expect("room");
        b.succeed();
    }
    let found = report(&a);
    let (rule, wr_id) = (found.rule, found.wr_id);
    assert_eq!((rule, wr_id), (StrictRule::SendQueueNotPolled, Some(4)));
}

#[test]
fn memory_of_another_protection_domain() {
    let (a, b) = pair_of(46);
    let other = a.context.alloc_pd().expect("a PD");
    let foreign = other.reg_owned(vec![0; 8], ALL).expect("memory");
    a.qp.post_send(&SendWr::send(1, &[foreign.sge(..)]).signaled())
        .expect("taken");
    assert_eq!(a.complete().status, WcStatus::LocProtErr);
    let found = report(&a);
    assert_eq!((found.rule, found.wr_id), (StrictRule::PdMismatch, Some(1)));
    assert!(found.text.contains("another protection domain"), "{found}");
    assert_clean([&a, &b]);
}
