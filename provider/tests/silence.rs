//! Messages that complete nothing do not ask a neighbour for ACKs; the neighbour acknowledges them all the same, whatever its program does.

use crate::common::{End, address, connect, wait_until};
use urxe::{ConnectOptions, Context, SendWr, Wire};

const DEPTH: u32 = 8;

/// Places in a send queue are free again when what was in them is acknowledged.
fn has_room_for_all(end: &End) -> bool {
    let wrs = [(); DEPTH as usize].map(|()| SendWr::send_inline(9, b"all"));
    end.qp.post_send_all(wrs).is_ok()
}

#[test]
fn silent_messages_are_acknowledged_while_neither_side_does_anything() {
    for wire in [Wire::Auto, Wire::Sockets] {
        let open = || {
            let context = Context::builder(address()).wire(wire).open();
            let context = context.expect("the address is free");
            End::with(context, |qp| qp.max_send_wr(DEPTH))
        };
        let (a, b) = (open(), open());
        // Longer than the test has patience: nothing is sent again because of the time alone.
        let options = ConnectOptions {
            timeout: 23,
            ..ConnectOptions::default()
        };
        connect(&a.qp, &b.qp, &options);
        let to = b.memory(16);
        for n in 0..64 {
            b.recv(n, &to);
        }
        for _ in 0..3 {
            // It asks, and those behind it may be silent then.
            let first = SendWr::send_inline(1, b"first").signaled();
            a.qp.post_send(&first).expect("room");
            a.succeed();
            b.succeed();
            for n in 2..4 {
                let next = SendWr::send_inline(n, b"next");
                a.qp.post_send(&next).expect("room");
                b.succeed();
            }
            wait_until("room for all", || has_room_for_all(&a));
            for _ in 0..DEPTH {
                b.succeed();
            }
            wait_until("room for another one", || {
                a.qp.post_send(&SendWr::send_inline(5, b"more")).is_ok()
            });
            b.succeed();
        }
    }
}
