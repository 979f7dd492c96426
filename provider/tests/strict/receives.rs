//! Messages without a receive, and shared receive queues.

use super::{assert_clean, context, facts, pair_of, report, reports};
use crate::common::{ALL, End, bytes, connect, pattern, poll, wait_until};
use urxe::{ConnectOptions, Mr, QpState, RecvWr, SendWr, StrictReport, StrictRule, WcStatus};

#[test]
fn a_message_without_a_receive_and_the_receive_that_comes_too_late() {
    let (a, b) = pair_of(24);
    let to = b.memory(8);
    a.qp.post_send(&SendWr::send_inline(1, b"early").signaled())
        .expect("room");
    wait_until("a refusal", || b.counter("send_rnr_err") > 0);
    let missing = report(&b);
    let qpn = b.qp.qp_num().get();
    let text = format!(
        "urxe strict: missing-receive\n  \
         what: a message arrived at QP {qpn:#x} and no receive was posted for it; the peer was told \
         to try again later.\n  \
         why:  A SEND, or a WRITE with immediate, needs a receive that was posted before it arrives. \
         A reliable connection makes the sender wait and try again, which is slow and fails after \
         rnr_retry times; unreliable services lose the message. Post receives before the peer may \
         send: before connecting, and again before answering.\n  \
         more: https://github.com/urxe/urxe/blob/main/docs/STRICT.md#missing-receive"
    );
    assert_eq!(
        StrictReport {
            count: 1,
            ..missing
        }
        .to_string(),
        text
    );
    b.recv(5, &to);
    b.succeed();
    a.succeed();
    let late = reports(&b);
    let late = late
        .iter()
        .find(|r| r.rule == StrictRule::ReceivePostedLate);
    let late = late.expect("the receive was late");
    assert_eq!(late.wr_id, Some(5));
    assert!(
        late.text
            .starts_with("this receive (wr_id 5) was posted after a message"),
        "{late}"
    );
    assert_clean([&a, &b]);
}

#[test]
fn an_unreliable_message_without_a_receive_is_lost() {
    let (a, b) = (End::on(context(54)), End::on(context(55)));
    let uc = |end: &End| {
        let init = urxe::QpInitAttr {
            qp_type: urxe::QpType::Uc,
            ..urxe::QpInitAttr::new(&end.cq, &end.cq)
        };
        end.pd.create_qp(&init).expect("a QP")
    };
    let (from, to) = (uc(&a), uc(&b));
    connect(&from, &to, &ConnectOptions::default());
    from.post_send(&SendWr::send_inline(1, b"lost").signaled())
        .expect("room");
    a.succeed();
    wait_until("it arrives", || b.counter("drop_no_receive") > 0);
    let qpn = to.qp_num().get();
    let text = format!(
        "urxe strict: missing-receive\n  \
         what: a message arrived at QP {qpn:#x} and no receive was posted for it; the message is \
         lost."
    );
    assert_eq!(facts(&report(&b)), text);
    assert_clean([&a, &b]);
}

/// Neither has a completion: without the report both sides wait.
#[test]
fn datagrams_that_are_dropped_are_named() {
    use urxe::{Qkey, QpType};
    let datagrams = |seed| End::with(context(seed), |qp| qp.qp_type(QpType::Ud));
    let (a, b) = (datagrams(56), datagrams(57));
    let qkey = Qkey(0x1234);
    for end in [&a, &b] {
        end.qp.start_datagrams(qkey).expect("starts");
    }
    let ah = a.pd.create_ah_to(b.context.address()).expect("a path");
    let to = b.memory(64);
    let qpn = b.qp.qp_num();
    let send = |text: &[u8], qkey| {
        let wr = SendWr::send_inline(1, text).ud_addr(&ah, qpn, qkey);
        a.qp.post_send(&wr.signaled()).expect("room");
        a.succeed();
    };
    // Room for the message, and not for the 40 bytes in front of it.
    b.qp.post_recv(&RecvWr::new(2, &[to.sge(..30)]))
        .expect("room");
    send(&[7; 30], qkey);
    wait_until("it is dropped", || b.counter("drop_receive_too_short") > 0);
    let found = report(&b);
    assert_eq!(
        (found.rule, found.qpn),
        (StrictRule::DatagramTooLong, Some(qpn))
    );
    send(b"lost", Qkey(0x4321));
    wait_until("it is dropped", || b.counter("drop_qkey") > 0);
    let text = format!(
        "urxe strict: wrong-qkey\n  what: a message for QP {:#x} has another Q_Key than the QP, and is lost.",
        qpn.get()
    );
    assert_eq!(facts(&report(&b)), text);
    assert_clean([&a, &b]);
}

#[test]
fn a_peer_without_receives_is_tried_for_ever() {
    let (a, b) = (End::on(context(26)), End::on(context(27)));
    let options = ConnectOptions {
        rnr_retry: 7,
        min_rnr_timer: 1,
        ..ConnectOptions::default()
    };
    connect(&a.qp, &b.qp, &options);
    a.qp.post_send(&SendWr::send_inline(8, b"x").signaled())
        .expect("room");
    let mut found = Vec::new();
    wait_until("the report", || {
        found.extend(reports(&a));
        !found.is_empty()
    });
    assert_eq!(found[0].rule, StrictRule::EndlessRnrRetry);
    assert_eq!((found[0].wr_id, found.len()), (Some(8), 1));
    assert!(
        found[0].text.contains("tried again for ever"),
        "{}",
        found[0]
    );
    let count: u64 = reports(&b).iter().map(|r| r.count).sum();
    assert!(count > 10, "every refusal is counted: {count}");
    a.qp.modify_state(QpState::Err).expect("can fail");
    assert_eq!(a.complete().status, WcStatus::WrFlushErr);
}

/// Receives that two QPs share, all under one wr_id, completing in another order than they
/// were taken in.
#[test]
fn a_shared_receive_queue_is_watched_too() {
    for seed in 60..64 {
        let (a, b) = (End::on(context(seed)), context(seed + 100));
        let pd = b.alloc_pd().expect("a PD");
        let cq = b.create_cq(64).expect("a CQ");
        let srq = pd.create_srq(&urxe::SrqAttr::default()).expect("an SRQ");
        let qp = || pd.qp(&cq).srq(&srq).create().expect("a QP");
        let peers = [qp(), qp()];
        let second = a.pd.qp(&a.cq).create().expect("a QP");
        let senders = [&a.qp, &second];
        for (sender, peer) in senders.iter().zip(&peers) {
            connect(sender, peer, &ConnectOptions::default());
        }
        let inbox = |_| pd.reg_owned(vec![0; 20_000], ALL).expect("memory");
        let inboxes: Vec<Mr> = (0..8).map(inbox).collect();
        for inbox in &inboxes {
            let sges = [inbox.sge(..)];
            srq.post_recv(&RecvWr::new(7, &sges)).expect("room");
            assert_eq!(inbox.load_u64(0).to_ne_bytes(), *b"<posted>");
        }
        let messages = [20_000, 1, 8000, 0, 64, 9000, 0, 4097];
        let memory: Vec<Mr> = messages.iter().map(|&len| a.memory(len.max(1))).collect();
        for (n, (&len, from)) in messages.iter().zip(&memory).enumerate() {
            from.write(0, &pattern(n as u64, len));
            let sges = [from.sge(..len)];
            let send = SendWr::send(n as u64, &sges).signaled();
            senders[n % 2].post_send(&send).expect("room");
        }
        let mut lengths = Vec::new();
        for _ in messages {
            let wc = poll(&cq);
            assert!(wc.is_success() && wc.wr_id == 7, "{wc}");
            lengths.push(wc.byte_len as usize);
            a.succeed();
        }
        lengths.sort_unstable();
        let mut expected = messages.to_vec();
        expected.sort_unstable();
        assert_eq!(lengths, expected);
        // Every message is in some buffer, and nowhere is poison left.
        for (n, &len) in messages.iter().enumerate() {
            let message = pattern(n as u64, len);
            let found = |inbox: &&Mr| bytes(inbox, len) == message;
            assert!(
                inboxes.iter().any(|inbox| found(&inbox)),
                "seed {seed}: message {n}"
            );
        }
        for inbox in &inboxes {
            assert_ne!(inbox.load_u64(19_992).to_ne_bytes(), *b"<posted>");
        }
        assert_eq!(b.take_strict_reports().expect("alive"), [], "seed {seed}");
        assert_clean([&a, &a]);
    }
}

#[test]
fn a_shared_receive_that_the_program_writes_into() {
    let (a, b) = (End::on(context(70)), context(71));
    let (pd, cq) = (b.alloc_pd().expect("a PD"), b.create_cq(64).expect("a CQ"));
    let srq = pd.create_srq(&urxe::SrqAttr::default()).expect("an SRQ");
    let qp = pd.qp(&cq).srq(&srq).create().expect("a QP");
    connect(&a.qp, &qp, &ConnectOptions::default());
    a.qp.post_send(&SendWr::send_inline(1, b"early").signaled())
        .expect("room");
    wait_until("a refusal", || {
        !b.take_strict_reports().expect("alive").is_empty()
    });
    let inbox = pd.reg_owned(vec![0; 8], ALL).expect("memory");
    srq.post_recv(&RecvWr::new(2, &[inbox.sge(..)]))
        .expect("room");
    inbox.store_u64(0, 0);
    assert_eq!(poll(&cq).byte_len, 5);
    let rules = b.take_strict_reports().expect("alive");
    let rules: Vec<_> = rules.iter().map(|r| (r.rule, r.wr_id)).collect();
    let late = (StrictRule::ReceivePostedLate, Some(2));
    assert!(rules.contains(&late), "{rules:?}");
    let written = (StrictRule::ReceiveBufferWritten, Some(2));
    assert!(rules.contains(&written), "{rules:?}");
}
