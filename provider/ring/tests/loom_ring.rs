//! Every interleaving of small cases of `producer.rs` and `consumer.rs`: records arrive whole, and no wake-up is lost. The
//! files themselves are under test, on loom's primitives.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files have more than is needed here, for other crates"
)]

mod sync {
    pub(crate) use loom::sync::atomic::{Ordering, fence};
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
fn records_arrive_whole_and_in_order() {
    cases::records_arrive(5, 2);
}

#[test]
fn records_made_in_a_window_arrive_as_others_do() {
    cases::records_in_windows_arrive(4, 2);
}

#[test]
fn a_consumer_that_sleeps_is_woken() {
    cases::sleepers_are_woken(3, 3);
}

#[test]
fn a_producer_hears_that_its_consumer_is_gone() {
    cases::a_consumer_goes(3);
}
