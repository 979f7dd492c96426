//! Strict mode: each rule is broken once, and the report says so in words; a program
//! that breaks none gets no report.

mod buffers;
mod modes;
mod objects;
mod order;
mod receives;

use crate::common::{End, address, connect};
use urxe::{ConnectOptions, Context, StrictMode, StrictReport};

pub(crate) fn context(seed: u64) -> Context {
    let builder = Context::builder(address());
    let builder = builder.strict(StrictMode::Report).strict_seed(seed);
    let context = builder.open().expect("the address is free");
    // From here on reports are the test's, and are not printed.
    assert_eq!(context.take_strict_reports().expect("alive"), []);
    context
}

pub(crate) fn pair_of(seed: u64) -> (End, End) {
    let (a, b) = (End::on(context(seed)), End::on(context(seed + 1)));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    (a, b)
}

pub(crate) fn reports(end: &End) -> Vec<StrictReport> {
    end.context.take_strict_reports().expect("alive")
}

/// The only report.
#[track_caller]
pub(crate) fn report(end: &End) -> StrictReport {
    let mut reports = reports(end);
    assert_eq!(reports.len(), 1, "{reports:#?}");
    reports.remove(0)
}

#[track_caller]
pub(crate) fn assert_clean(ends: [&End; 2]) {
    for end in ends {
        let reports = reports(end);
        assert!(reports.is_empty(), "{}", reports[0]);
    }
}

/// Without the reasons and the reference, which are the same every time.
pub(crate) fn facts(report: &StrictReport) -> String {
    let text = report.to_string();
    let lines = text.lines().filter(|line| !line.starts_with("  why:"));
    let lines = lines.filter(|line| !line.starts_with("  more:"));
    lines.collect::<Vec<_>>().join("\n")
}
