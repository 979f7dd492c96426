//! Data that is copied when the request is posted.

use urxe::{PostError, Rkey, SendFlags, WrData, WrOpcode};
use urxe_core::work::SendWr;

use crate::verbs::{Verbs, on_all, on_lossless};

fn inline<'a>(wr_id: u64, opcode: WrOpcode, bytes: &'a [u8]) -> SendWr<'a> {
    let mut wr = SendWr::new(wr_id, opcode, WrData::Inline(bytes));
    wr.flags = SendFlags::SIGNALED;
    wr
}

fn refused(v: &mut Verbs, wr: &SendWr<'_>) -> PostError {
    v.arm.post_send(0, wr).expect_err("it is refused")
}

#[test]
fn the_bytes_are_those_at_the_time_of_the_post() {
    on_all(|v| {
        let to = v.memory(1, 128);
        v.recv(1, 1, &[to.whole()]);
        let mut text = *b"as it was when posted";
        v.send(0, &inline(1, WrOpcode::Send, &text));
        text.fill(b'x');
        assert_eq!(v.received_ok(1, 1).byte_len as usize, text.len());
        v.sent_ok(0, 1);
        assert_eq!(&v.bytes(&to)[..text.len()], b"as it was when posted");
    });
}

#[test]
fn every_inline_length_by_send_and_by_write() {
    on_all(|v| {
        let to = v.memory(1, 128);
        let data = crate::common::pattern(1, 128);
        for len in [0, 1, 3, 4, 63, 64, 127, 128] {
            v.arm.write(&to, 0, &[0; 128]);
            let mut wr = inline(len as u64, WrOpcode::RdmaWrite, &data[..len]);
            (wr.remote_addr, wr.rkey) = (to.addr, to.rkey);
            v.send(0, &wr);
            v.sent_ok(0, len as u64);
            assert_eq!(v.bytes(&to)[..len], data[..len]);
        }
    });
}

#[test]
fn more_than_the_qp_was_made_for_is_refused_at_the_post() {
    on_lossless(|v| {
        let max = v.setup.cap.max_inline_data as usize;
        let bytes = vec![1; max + 1];
        let error = refused(v, &inline(1, WrOpcode::Send, &bytes));
        assert_eq!(
            error,
            PostError::InlineTooLong {
                given: max + 1,
                max
            }
        );
        v.nothing_more();
    });
}

#[test]
fn reads_and_atomics_take_no_inline_data() {
    on_lossless(|v| {
        for opcode in [
            WrOpcode::RdmaRead,
            WrOpcode::AtomicCmpAndSwp,
            WrOpcode::AtomicFetchAndAdd,
        ] {
            let mut wr = inline(1, opcode, &[0; 8]);
            wr.rkey = Rkey(1);
            assert_eq!(refused(v, &wr), PostError::InlineNotAllowed);
        }
        v.nothing_more();
    });
}
