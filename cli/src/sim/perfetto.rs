//! A run as a trace in the JSON format of Chrome, which Perfetto and `chrome://tracing` open.

use std::collections::BTreeMap;
use std::io::{self, Write};

use fabric_sim::observe::Bar;
use serde::Serialize;

/// An event of the format; times are in microseconds.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    /// `X`: a bar; `i`: a moment; `M`: a name.
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: usize,
    tid: usize,
    /// Of a moment: it concerns its track alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<BTreeMap<&'static str, &'a str>>,
}

/// Writes bars: a process for each group, a thread for each track.
pub(super) fn write(out: &mut impl Write, bars: &[Bar]) -> io::Result<()> {
    let mut events = Vec::new();
    let mut groups: Vec<&str> = Vec::new();
    let mut tracks = BTreeMap::new();
    for bar in bars {
        let known = groups.iter().position(|&group| group == bar.group);
        let pid = known.unwrap_or(groups.len()) + 1;
        if known.is_none() {
            groups.push(bar.group);
            events.push(named("process_name", bar.group, (pid, 0)));
        }
        let next = tracks.len() + 1;
        let tid = *tracks.entry((pid, &bar.track)).or_insert(next);
        if tid == next {
            events.push(named("thread_name", &bar.track, (pid, tid)));
        }
        let us = |ps: u64| ps as f64 / 1e6;
        events.push(Event {
            name: &bar.name,
            ph: if bar.lasts.is_some() { "X" } else { "i" },
            ts: Some(us(bar.start.ps())),
            dur: bar.lasts.map(|span| us(span.ps())),
            pid,
            tid,
            s: bar.lasts.is_none().then_some("t"),
            args: None,
        });
    }
    let trace = BTreeMap::from([("traceEvents", events)]);
    serde_json::to_writer(&mut *out, &trace)?;
    writeln!(out)
}

fn named<'a>(what: &'static str, name: &'a str, (pid, tid): (usize, usize)) -> Event<'a> {
    Event {
        name: what,
        ph: "M",
        ts: None,
        dur: None,
        pid,
        tid,
        s: None,
        args: Some(BTreeMap::from([("name", name)])),
    }
}
