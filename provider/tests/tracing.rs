//! What a `tracing` subscriber hears: changes of state, NAKs, what is sent again, failures.

mod common;

use std::fmt::{self, Write as _};
use std::sync::Mutex;

use common::{End, nobody, pair_with};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use urxe::{ConnectOptions, Mtu, SendWr};

/// Everything that was told, a line each.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Ear;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes everything");
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "urxe"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        HEARD.lock().expect("nobody panics with it").push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The lines so far that hold all parts.
fn heard(parts: &[&str]) -> usize {
    let lines = HEARD.lock().expect("nobody panics with it");
    let fits = |line: &&String| parts.iter().all(|part| line.contains(part));
    lines.iter().filter(fits).count()
}

// One test: a process has one subscriber, and any thread may drive the engine.
#[test]
fn what_goes_wrong_is_told_and_what_goes_well_is_not() {
    tracing::subscriber::set_global_default(Ear).expect("the first");
    let hasty = ConnectOptions {
        timeout: 7,
        retry_cnt: 2,
        rnr_retry: 1,
        ..ConnectOptions::default()
    };
    let (a, b) = pair_with(&hasty);
    let qpn = format!("qpn={}", a.qp.qp_num().get());
    for (from, to) in [("RESET", "INIT"), ("INIT", "RTR"), ("RTR", "RTS")] {
        let (from, to) = (format!("from={from}"), format!("to={to}"));
        assert_eq!(heard(&["DEBUG", &qpn, &from, &to]), 1, "{from} {to}");
    }
    let to = b.memory(8);
    let before = HEARD.lock().expect("nobody panics with it").len();
    for n in 0..50 {
        b.recv(n, &to);
        a.qp.post_send(&SendWr::send_inline(n, b"x").signaled())
            .expect("room");
        a.succeed();
        b.succeed();
    }
    let lines = HEARD.lock().expect("nobody panics with it")[before..].to_vec();
    // A busy machine may let a timeout pass; packets are no news.
    let is_news = |line: &&String| !line.contains("sends again");
    assert_eq!(lines.iter().filter(is_news).count(), 0, "{lines:?}");

    a.qp.post_send(&SendWr::send_inline(1, b"x")).expect("room");
    assert!(!a.complete().is_success());
    assert!(heard(&["DEBUG", &qpn, "the peer has no receive"]) >= 2);
    let receiver = format!("qpn={}", b.qp.qp_num().get());
    assert!(heard(&["DEBUG", &receiver, "no receive is posted"]) >= 2);
    let failed = heard(&["ERROR", &qpn, "the QP fails", "a receive posted"]);
    assert_eq!(failed, 1);

    let c = End::open();
    c.qp.connect(&nobody(Mtu::Mtu1024), &hasty)
        .expect("connects");
    c.qp.post_send(&SendWr::send_inline(1, b"x")).expect("room");
    assert!(!c.complete().is_success());
    let qpn = format!("qpn={}", c.qp.qp_num().get());
    assert_eq!(heard(&["DEBUG", &qpn, "no answer in time: sends again"]), 2);
    assert_eq!(heard(&["ERROR", &qpn, "none, 3 times"]), 1);
}
