//! Strict mode: each rule is broken once, and the report says so in words; a program
//! that breaks none gets no report.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{ALL, End, address, bytes, connect, pattern, poll, wait_until};
use urxe::{
    ConnectOptions, Context, Mr, QpState, RecvWr, SendWr, StrictMode, StrictReport, StrictRule, Wc,
    WcStatus,
};

fn context(seed: u64) -> Context {
    let builder = Context::builder(address());
    let builder = builder.strict(StrictMode::Report).strict_seed(seed);
    let context = builder.open().expect("the address is free");
    // From here on reports are the test's, and are not printed.
    assert_eq!(context.take_strict_reports().expect("alive"), []);
    context
}

fn pair_of(seed: u64) -> (End, End) {
    let (a, b) = (End::on(context(seed)), End::on(context(seed + 1)));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    (a, b)
}

fn reports(end: &End) -> Vec<StrictReport> {
    end.context.take_strict_reports().expect("alive")
}

/// The only report.
#[track_caller]
fn report(end: &End) -> StrictReport {
    let mut reports = reports(end);
    assert_eq!(reports.len(), 1, "{reports:#?}");
    reports.remove(0)
}

#[track_caller]
fn assert_clean(ends: [&End; 2]) {
    for end in ends {
        let reports = reports(end);
        assert!(reports.is_empty(), "{}", reports[0]);
    }
}

/// Without the reasons and the reference, which are the same every time.
fn facts(report: &StrictReport) -> String {
    let text = report.to_string();
    let lines = text.lines().filter(|line| !line.starts_with("  why:"));
    let lines = lines.filter(|line| !line.starts_with("  more:"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_send_buffer_that_is_used_again_too_early() {
    let (a, b) = pair_of(10);
    let (from, to) = (a.memory(200), b.memory(200));
    b.recv(1, &to);
    from.write(0, &[1; 200]);
    let (posted, sges) = (line!() + 1, [from.sge(..)]);
    a.qp.post_send(&SendWr::send(7, &sges).signaled())
        .expect("room");
    let changed = line!() + 1;
    from.write(130, b"next");
    assert_eq!(a.succeed().wr_id, 7);
    let report = report(&a);
    let (qpn, wr_id) = (report.qpn, report.wr_id);
    assert_eq!((qpn, wr_id), (Some(a.qp.qp_num()), Some(7)));
    let text = format!(
        "urxe strict: send-buffer-changed\n  \
         what: the buffer of a SEND (wr_id 7) was changed (at provider/tests/strict.rs:{changed}), \
         in the 64 bytes from offset 128 on, after it was posted and before its completion was \
         polled.\n  \
         call: provider/tests/strict.rs:{posted}\n  \
         why:  Until the completion is polled the adapter may read the buffer at any time, a second \
         time too when a packet was lost, so the peer may get new bytes, or a mixture. Poll the \
         completion of this request, or of a later one of the same send queue, before touching the \
         buffer; or post small messages inline.\n  \
         more: docs/STRICT.md#send-buffer-changed"
    );
    assert_eq!(report.to_string(), text);
    b.succeed();
    assert_clean([&a, &b]);
}

#[test]
fn inline_bytes_and_polled_sends_are_the_programs_own() {
    let (a, b) = pair_of(12);
    let (from, to) = (a.memory(64), b.memory(64));
    for n in 0..4 {
        b.recv(n, &to);
    }
    let mut inline = *b"inline";
    let send = SendWr::send_inline(0, &inline).signaled();
    a.qp.post_send(&send).expect("room");
    inline.fill(0);
    // Of requests without a completion a later one speaks.
    let sges = [from.sge(..)];
    let wrs = [SendWr::send(1, &sges), SendWr::send(2, &sges).signaled()];
    a.qp.post_send_list(&wrs).expect("room");
    a.succeed();
    a.succeed();
    from.write(0, b"again");
    a.qp.post_send(&SendWr::send(3, &[]).signaled())
        .expect("room");
    a.succeed();
    for _ in 0..4 {
        b.succeed();
    }
    assert_eq!(inline, [0; 6]);
    assert_clean([&a, &b]);
}

#[test]
fn a_receive_buffer_is_poison_until_its_completion_is_polled() {
    let (a, b) = pair_of(14);
    let (from, to) = (a.memory(24), b.memory(24));
    from.write(0, &[7; 24]);
    to.write(0, &[1; 24]);
    let posted = line!() + 1;
    b.qp.post_recv(&RecvWr::new(3, &[to.sge(..)]))
        .expect("room");
    assert_eq!(to.load_u64(8).to_ne_bytes(), *b"<posted>");
    a.qp.post_send(&SendWr::send(1, &[from.sge(..16)]).signaled())
        .expect("room");
    a.succeed();
    // The message is there, and the program cannot know.
    assert_eq!(to.load_u64(8).to_ne_bytes(), *b"<posted>");
    assert_eq!(bytes(&to, 8), b"<posted>");
    let early = report(&b);
    assert_eq!(early.rule, StrictRule::ReceiveBufferRead);
    assert_eq!(
        early.text,
        format!(
            "the program reads the buffer of a receive (wr_id 3, posted at \
             provider/tests/strict.rs:{posted}) before it polled the completion."
        )
    );
    assert_eq!(b.succeed().byte_len, 16);
    let mut expected = vec![7; 16];
    expected.extend([1; 8]);
    assert_eq!(
        bytes(&to, 24),
        expected,
        "beyond the message nothing changes"
    );
    assert_clean([&a, &b]);
}

#[test]
fn a_receive_buffer_that_the_program_writes_into() {
    let (a, b) = pair_of(16);
    let (from, to) = (a.memory(24), b.memory(24));
    let posted = line!() + 1;
    b.qp.post_recv(&RecvWr::new(3, &[to.sge(..)]))
        .expect("room");
    to.store_u64(16, 0);
    a.qp.post_send(&SendWr::send(1, &[from.sge(..)]))
        .expect("room");
    b.succeed();
    let report = report(&b);
    let text = format!(
        "urxe strict: receive-buffer-written\n  \
         what: the program wrote into the 24 bytes of a receive (wr_id 3), first at offset 16, after \
         it was posted and before its completion was polled.\n  \
         call: provider/tests/strict.rs:{posted}\n  \
         why:  A posted buffer belongs to the adapter: whatever is written there may be overwritten, \
         or damage the message. Poll the completion first, then write.\n  \
         more: docs/STRICT.md#receive-buffer-written"
    );
    assert_eq!(report.to_string(), text);
    assert_eq!(bytes(&to, 24), [0; 24]);
}

#[test]
fn the_target_of_a_read_belongs_to_the_adapter_too() {
    let (a, b) = pair_of(18);
    let (local, remote) = (a.memory(64), b.memory(64));
    remote.write(0, &[9; 64]);
    let read = |wr_id| {
        let sges = [local.sge(..)];
        let wr = SendWr::rdma_read(wr_id, &sges, remote.addr(), remote.rkey()).signaled();
        a.qp.post_send(&wr).expect("room");
    };
    read(1);
    assert_eq!(local.load_u64(0).to_ne_bytes(), *b"<posted>");
    local.write(5, b"x");
    a.succeed();
    assert_eq!(bytes(&local, 64), [9; 64]);
    let found = report(&a);
    assert_eq!(found.rule, StrictRule::ReceiveBufferWritten);
    assert!(found.text.contains("a RDMA READ (wr_id 1)"), "{found}");
    read(2);
    a.succeed();
    assert_clean([&a, &b]);
}

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
         call: provider/tests/strict.rs:{posted}\n  \
         why:  A region has two keys: the lkey for its owner's own work requests, the rkey for peers. \
         Some adapters make them equal, others do not. Give peers Mr::rkey (mr->rkey).\n  \
         more: docs/STRICT.md#lkey-as-rkey"
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
         more: docs/STRICT.md#missing-receive"
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

/// Polls on the last byte of what a peer WRITEs, which is never allowed to work, and says
/// whether the rest was there too.
fn write_and_poll_on_last_byte(a: &End, b: &End, len: usize) -> bool {
    let (from, to) = (a.memory(len), b.memory(len));
    from.write(0, &vec![7; len]);
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(1, &sges, to.addr(), to.rkey()).signaled();
    a.qp.post_send(&write).expect("room");
    wait_until("the last byte", || to.load_u8(len - 1) == 7);
    let seen = bytes(&to, len);
    a.succeed();
    assert_eq!(bytes(&to, len), vec![7; len], "a completed WRITE is there");
    seen == vec![7; len]
}

#[test]
fn relying_on_the_last_byte_of_a_write_fails() {
    let (a, b) = pair_of(28);
    for len in [64, 4096, 20_000] {
        // A thread that loses the processor between its two looks may see all of it.
        let lucky = (0..20).all(|_| write_and_poll_on_last_byte(&a, &b, len));
        assert!(!lucky, "{len} bytes came in order every time");
    }
    assert_clean([&a, &b]);
}

#[test]
fn relying_on_the_order_of_two_writes_fails() {
    let (a, b) = pair_of(30);
    let lucky = (0..20).all(|_| {
        let (from, data, flag) = (a.memory(1000), b.memory(1000), b.memory(8));
        from.write(0, &[7; 1000]);
        let (all, word) = ([from.sge(..)], [from.sge(..8)]);
        let wrs = [
            SendWr::rdma_write(1, &all, data.addr(), data.rkey()),
            SendWr::rdma_write(2, &word, flag.addr(), flag.rkey()).signaled(),
        ];
        a.qp.post_send_list(&wrs).expect("room");
        wait_until("the flag", || flag.load_u64(0) != 0);
        let seen = bytes(&data, 1000);
        a.succeed();
        seen == [7; 1000]
    });
    assert!(!lucky, "the flag never overtook the data");
    assert_clean([&a, &b]);
}

#[test]
fn whoever_is_told_of_a_write_sees_all_of_it() {
    let (a, b) = pair_of(32);
    let (from, to, back) = (a.memory(9000), b.memory(9000), a.memory(9000));
    for round in 0..10 {
        let data = pattern(round, 9000);
        from.write(0, &data);
        b.qp.post_recv(&RecvWr::new(round, &[])).expect("room");
        let (all, result) = ([from.sge(..)], [back.sge(..)]);
        let write = SendWr::rdma_write(1, &all, to.addr(), to.rkey());
        let tell = match round % 3 {
            0 => SendWr::send(2, &[]),
            1 => SendWr::rdma_write_with_imm(2, &[], 0, urxe::Rkey(0), 5),
            _ => SendWr::rdma_read(2, &result, to.addr(), to.rkey()),
        };
        a.qp.post_send_list(&[write, tell.signaled()])
            .expect("room");
        if round % 3 == 2 {
            a.succeed();
            assert!(bytes(&back, 9000) == data, "the READ came before the WRITE");
            a.qp.post_send(&SendWr::send(3, &[]).signaled())
                .expect("room");
        }
        assert_eq!(b.succeed().wr_id, round);
        assert!(bytes(&to, 9000) == data, "round {round}");
        a.succeed();
    }
    assert_clean([&a, &b]);
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
    let context = b.context.clone();
    drop(b);
    let found = context.take_strict_reports().expect("alive");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, StrictRule::CompletionsNotPolled);
    assert!(
        found[0].text.contains("with 1 completions in it"),
        "{}",
        found[0]
    );
}

/// A QP with four places, whose peer has receives enough.
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

#[test]
fn one_buffer_for_sending_and_receiving() {
    let (a, b) = pair_of(48);
    let (both, to) = (a.memory(8), b.memory(8));
    b.recv(1, &to);
    a.recv(2, &both);
    a.qp.post_send(&SendWr::send(3, &[both.sge(..)]).signaled())
        .expect("room");
    let found = report(&a);
    let (rule, wr_id) = (found.rule, found.wr_id);
    assert_eq!((rule, wr_id), (StrictRule::SendFromReceiveBuffer, Some(3)));
    a.succeed();
    b.succeed();
    assert_eq!(
        bytes(&to, 8),
        b"<posted>",
        "what is in a posted buffer is anybody's guess"
    );
}

/// With a fence a send may pass on what a READ before it brings; without, it is luck.
#[test]
fn a_fenced_send_passes_on_the_result_of_a_read() {
    let (a, b) = pair_of(52);
    let (local, remote, to) = (a.memory(64), b.memory(64), b.memory(64));
    remote.write(0, &[5; 64]);
    for fenced in [true, false] {
        b.recv(1, &to);
        let sges = [local.sge(..)];
        let read = SendWr::rdma_read(1, &sges, remote.addr(), remote.rkey());
        let send = SendWr::send(2, &sges).signaled();
        let send = if fenced { send.fence() } else { send };
        a.qp.post_send_list(&[read, send]).expect("room");
        b.succeed();
        a.succeed();
        if fenced {
            assert_eq!(bytes(&to, 64), [5; 64]);
            assert_clean([&a, &b]);
        }
    }
    assert_eq!(report(&a).rule, StrictRule::SendFromReceiveBuffer);
    assert_eq!(bytes(&local, 64), [5; 64]);
}

/// Everything at once, as it should be done: whatever the seed decides, no report, and
/// every byte and completion as it must be.
#[test]
fn a_correct_program_gets_no_report() {
    for seed in 100..108 {
        let (a, b) = pair_of(seed);
        let (from, word) = (a.memory(10_000), a.memory(8));
        let (window, counter) = (b.memory(10_000), b.memory(8));
        let inboxes: Vec<Mr> = (0..4).map(|_| b.memory(10_000)).collect();
        for (n, inbox) in inboxes.iter().enumerate() {
            b.recv(n as u64, inbox);
        }
        for round in 0..20u64 {
            let len = [0, 1, 64, 4096, 4097, 10_000][round as usize % 6];
            let data = pattern(seed ^ round, len);
            from.write(0, &data);
            let (part, eight) = ([from.sge(..len)], [word.sge(..)]);
            let (addr, rkey) = (window.addr(), window.rkey());
            let wrs = [
                SendWr::rdma_write(1, &part, addr, rkey),
                SendWr::atomic_fetch_add(2, &eight, counter.addr(), counter.rkey(), 1).signaled(),
                SendWr::send_with_imm(3, &part, round as u32).signaled(),
            ];
            a.qp.post_send_list(&wrs).expect("room");
            let wc = b.succeed();
            assert_eq!((wc.wr_id, wc.imm_data), (round % 4, Some(round as u32)));
            let inbox = &inboxes[round as usize % 4];
            assert!(
                bytes(inbox, len) == data,
                "seed {seed}: SEND of {len} bytes"
            );
            assert!(
                bytes(&window, len) == data,
                "seed {seed}: WRITE of {len} bytes"
            );
            b.recv(round % 4, inbox);
            assert_eq!(
                [a.succeed().wr_id, a.succeed().wr_id],
                [2, 3],
                "seed {seed}"
            );
            assert_eq!(word.load_u64(0), round);
        }
        let reports = reports(&a).into_iter().chain(reports(&b));
        let reports: Vec<String> = reports.map(|report| report.to_string()).collect();
        assert!(reports.is_empty(), "seed {seed}: {}", reports[0]);
    }
}

/// Completions of two QPs in one queue come mixed, those of each in order, and never
/// without an event for a program that waits for one.
#[test]
fn completions_of_two_qps_are_mixed_and_each_in_order() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 200..208 {
        let (a, b) = pair_of(seed);
        let (second, other) = (
            a.pd.qp(&a.cq).create().expect("a QP"),
            b.pd.qp(&b.cq).create().expect("a QP"),
        );
        connect(&second, &other, &ConnectOptions::default());
        for n in 0..8 {
            b.qp.post_recv(&RecvWr::new(n, &[])).expect("room");
            other.post_recv(&RecvWr::new(n, &[])).expect("room");
        }
        let wrs: Vec<_> = (0..8).map(|n| SendWr::send(n, &[]).signaled()).collect();
        a.qp.post_send_list(&wrs).expect("room");
        second.post_send_list(&wrs).expect("room");
        let (mut next, mut order) = ([0, 0], Vec::new());
        while order.len() < 16 {
            a.cq.req_notify(false).expect("has a channel");
            let mut wcs = [Wc::default(); 16];
            let count = a.cq.poll(&mut wcs).expect("polls");
            if count == 0 {
                a.channel.wait().expect("an event");
            }
            for wc in &wcs[..count] {
                let which = usize::from(wc.qp_num == second.qp_num());
                assert_eq!(wc.wr_id, next[which], "seed {seed}");
                next[which] += 1;
                order.push(which);
            }
        }
        for _ in 0..16 {
            b.succeed();
        }
        orders.insert(order);
        assert_clean([&a, &b]);
    }
    assert!(orders.len() > 1, "the order is always the same: {orders:?}");
}

#[test]
fn without_strict_mode_nothing_is_looked_at() {
    let builder = Context::builder(address()).strict(StrictMode::Off);
    let end = End::on(builder.open().expect("free"));
    end.qp.init(ALL).expect("INIT");
    let to = end.memory(8);
    end.recv(1, &to);
    assert_eq!(bytes(&to, 8), [0; 8], "no poison");
    assert_clean([&end, &end]);
}

/// Aborts the process that it is called in.
fn misuse_under_abort() {
    let builder = Context::builder(address()).strict(StrictMode::Abort);
    let end = End::on(builder.open().expect("free"));
    end.qp.init(ALL).expect("INIT");
    let to = end.memory(8);
    end.recv(1, &to);
    bytes(&to, 8);
}

#[test]
fn abort_ends_the_process_at_the_first_report() {
    const CHILD: &str = "URXE_TEST_ABORTS";
    if std::env::var_os(CHILD).is_some() {
        return misuse_under_abort();
    }
    let output = Command::new(std::env::current_exe().expect("known"))
        .args([
            "--exact",
            "abort_ends_the_process_at_the_first_report",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .env("URXE_SEED", "0x2a")
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    for text in [
        "URXE_SEED=42",
        "urxe strict: receive-buffer-read",
        "aborting",
    ] {
        assert!(stderr.contains(text), "no {text:?} in {stderr}");
    }
}

/// A WRITE that nobody is told about arrives all the same, and soon.
#[test]
fn what_is_held_back_comes_by_itself() {
    let (a, b) = pair_of(50);
    let (from, to) = (a.memory(100), b.memory(100));
    from.write(0, &[3; 100]);
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(1, &sges, to.addr(), to.rkey());
    a.qp.post_send(&write).expect("room");
    let start = Instant::now();
    wait_until("all of it", || bytes(&to, 100) == [3; 100]);
    assert!(start.elapsed() < Duration::from_secs(10));
    // A later completion speaks for it.
    a.qp.post_send(&SendWr::rdma_write(2, &[], to.addr(), to.rkey()).signaled())
        .expect("room");
    assert_eq!(poll(&a.cq).wr_id, 2);
    assert_clean([&a, &b]);
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

/// An ATOMIC WRITE reads its buffer, as a WRITE does; nothing is stored there.
#[test]
fn the_source_of_an_atomic_write_is_a_source() {
    let (a, b) = pair_of(70);
    let to = b.memory(8);
    let from = a.pd.reg_owned(vec![1; 8], urxe::Access::NONE);
    let from = from.expect("memory that nothing is stored in");
    let sges = [from.sge(..)];
    let wr = SendWr::atomic_write_sges(1, &sges, to.addr(), to.rkey()).signaled();
    a.qp.post_send(&wr).expect("room");
    a.succeed();
    assert_eq!(bytes(&from, 8), [1; 8], "no poison");
    assert_clean([&a, &b]);
    a.qp.post_send(&wr).expect("room");
    from.write(0, b"too soon");
    a.succeed();
    assert_eq!(report(&a).rule, StrictRule::SendBufferChanged);
}

/// The receives of an XRC target complete to the CQs of its queues, which are held back
/// apart.
#[test]
fn completions_over_xrc_reach_their_own_queues() {
    for seed in 300..304 {
        let (client, server) = (End::on(context(seed)), context(seed + 50));
        let (pd, domain) = (server.alloc_pd(), server.open_xrcd());
        let (pd, domain) = (pd.expect("a PD"), domain.expect("a domain"));
        let memory = pd.reg_owned(vec![0; 64], ALL).expect("memory");
        let queues: Vec<_> = (0..3)
            .map(|n| {
                let cq = server.create_cq(16).expect("a CQ");
                let srq = domain.create_srq(&pd, &cq, &urxe::SrqAttr::default());
                let srq = srq.expect("an SRQ");
                for id in 0..4 {
                    let sges = [memory.sge(..)];
                    srq.post_recv(&RecvWr::new(10 * n + id, &sges))
                        .expect("room");
                }
                (srq, cq)
            })
            .collect();
        let initiator = client.pd.qp(&client.cq).xrc_send().create();
        let initiator = initiator.expect("a QP");
        let target = domain.create_target().expect("a QP");
        connect(&initiator, &target, &ConnectOptions::default());
        for round in 0..12 {
            let to = queues[round % 3].0.srq_num();
            let wr = SendWr::send_inline(0, b"x").to_srq(to).signaled();
            initiator.post_send(&wr).expect("room");
        }
        for (n, (_, cq)) in queues.iter().enumerate() {
            for id in 0..4 {
                assert_eq!(poll(cq).wr_id, 10 * n as u64 + id, "seed {seed}");
            }
        }
        for _ in 0..12 {
            client.succeed();
        }
    }
}
