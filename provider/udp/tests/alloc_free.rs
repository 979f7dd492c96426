//! Sending and receiving allocate nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{dest, eager, loopback, pattern};
use urxe_udp::{RecvBatch, SendBatch, SendOutcome, Transmit, wait};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn sending_and_receiving_allocate_nothing() {
    for ipv6 in [false, true] {
        let (a, b) = (loopback(ipv6, &eager()), loopback(ipv6, &eager()));
        let bytes = pattern(20_000);
        let mut batch = RecvBatch::new(RecvBatch::DEFAULT_SLOTS);
        let run = if a.caps().gso() { 1000 } else { 0 };
        let transmits = [
            Transmit::single(0..1000, dest(&b)),
            Transmit::run(1000..9000, run, dest(&b)).with_tos(2),
            Transmit::single(9000..20_000, dest(&b)),
            // Errors are part of it.
            Transmit::run(0..10, 5, dest(&b)).with_src_ip("203.0.113.1".parse().expect("literal")),
        ];
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            let outcome = a.send(SendBatch {
                bytes: &bytes,
                transmits: &transmits,
            });
            assert!(
                matches!(
                    outcome,
                    SendOutcome::Failed { sent: 3, .. } | SendOutcome::GsoRefused { sent: 3 }
                ),
                "{outcome:?}"
            );
            let outcome = a.send(SendBatch {
                bytes: &bytes,
                transmits: &transmits[..1],
            });
            assert!(
                matches!(outcome, SendOutcome::All { sent: 1 }),
                "{outcome:?}"
            );
            let mut received = 0;
            while received < 21_000 {
                assert!(
                    !wait(&[b.as_fd()], Some(common::PATIENCE))
                        .expect("wait")
                        .is_timeout()
                );
                b.recv(&mut batch).expect("recv");
                received += batch
                    .iter()
                    .flat_map(|d| d.segments())
                    .map(|(_, p)| p.len())
                    .sum::<usize>();
            }
        }
        assert_eq!(ALLOCATIONS.get() - before, 0);
        // And the counter counts.
        drop(std::hint::black_box(Box::new(0u8)));
        assert!(ALLOCATIONS.get() > before);
    }
}
