//! Buffers that are used while they belong to the adapter.

use super::{assert_clean, pair_of, report};
use crate::common::bytes;
use urxe::{RecvWr, SendWr, StrictRule};

/// Where the calls are that reports name.
const FILE: &str = file!();

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
         what: the buffer of a SEND (wr_id 7) was changed (at {FILE}:{changed}), \
         in the 64 bytes from offset 128 on, after it was posted and before its completion was \
         polled.\n  \
         call: {FILE}:{posted}\n  \
         why:  Until the completion is polled the adapter may read the buffer at any time, a second \
         time too when a packet was lost, so the peer may get new bytes, or a mixture. Poll the \
         completion of this request, or of a later one of the same send queue, before touching the \
         buffer; or post small messages inline.\n  \
         more: https://github.com/urxe/urxe/blob/main/docs/STRICT.md#send-buffer-changed"
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
             {FILE}:{posted}) before it polled the completion."
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
         call: {FILE}:{posted}\n  \
         why:  A posted buffer belongs to the adapter: whatever is written there may be overwritten, \
         or damage the message. Poll the completion first, then write.\n  \
         more: https://github.com/urxe/urxe/blob/main/docs/STRICT.md#receive-buffer-written"
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
