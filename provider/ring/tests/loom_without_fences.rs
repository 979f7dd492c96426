//! That a consumer which sleeps is woken rests on the two fences: without them loom finds how a wake-up is lost. So the
//! tests in `loom_ring.rs` look at the right thing.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files have more than is needed here, for other crates"
)]

mod sync {
    pub(crate) use loom::sync::atomic::Ordering;

    pub(crate) fn fence(_ordering: Ordering) {}
}

#[path = "loom/cases.rs"]
mod cases;
#[path = "../src/consumer.rs"]
mod consumer;
#[path = "../src/layout.rs"]
mod layout;
#[path = "loom/memory.rs"]
mod memory;
#[path = "../src/producer.rs"]
mod producer;
#[path = "../src/window.rs"]
mod window;

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_is_lost() {
    cases::sleepers_are_woken(3, 3);
}
