//! A run as one HTML page, which needs nothing but a browser.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::engine::{Rate, Span, Time};
use crate::observe::{ClassSeries, FlowOutcome, Observation, Series};
use crate::scenario::Report;
use crate::topology::{Node, PortName, SwitchId, Topology};

/// What the page is about.
#[derive(Clone, Copy, Debug)]
pub struct Title<'a> {
    /// The scenario's name.
    pub scenario: &'a str,
    /// What it is about, in a sentence or two; may be empty.
    pub about: &'a str,
    /// The seed.
    pub seed: u64,
    /// The line that repeats the run.
    pub again: &'a str,
}

/// Writes the page.
///
/// ```
/// use fabric_sim::host::StreamSpec;
/// use fabric_sim::observe::{Sampling, html, observed};
/// use fabric_sim::scenario::Report;
/// use fabric_sim::{FabricConfig, HostId, Link, Rate, Sim, Time, Topology};
///
/// let topology = Topology::single_switch(3, Link::new(Rate::gbps(100)));
/// let mut sim = Sim::new(topology, FabricConfig::default())?;
/// sim.add_stream(StreamSpec::write(HostId(0), HostId(2), 100_000))?;
/// let seen = observed(&mut sim, Time::NEVER, Sampling::AtMost(512));
/// let title = html::Title { scenario: "one writes", about: "", seed: 1, again: "cargo run" };
/// let mut page = Vec::new();
/// html::write(&mut page, &title, &Report::of(&sim), &seen)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What writing says.
pub fn write(
    out: &mut impl Write,
    title: &Title<'_>,
    report: &Report,
    seen: &Observation,
) -> io::Result<()> {
    // Nothing in the data may end the element that it is in.
    let data = page(title, report, seen)
        .to_string()
        .replace('<', "\\u003c");
    let name = format!("{}, seed {}", title.scenario, title.seed);
    let parts = [
        ("{title}", escaped(&name)),
        ("{about}", escaped(title.about)),
        ("{style}", include_str!("page/page.css").to_owned()),
        ("{script}", include_str!("page/page.js").to_owned()),
        ("{data}", data),
    ];
    let mut rest = include_str!("page/page.html");
    // What is put in is not looked at again, whatever it holds.
    while let Some((at, (mark, text))) = parts
        .iter()
        .filter_map(|part| rest.find(part.0).map(|at| (at, part)))
        .min_by_key(|(at, _)| *at)
    {
        out.write_all(&rest.as_bytes()[..at])?;
        out.write_all(text.as_bytes())?;
        rest = &rest[at + mark.len()..];
    }
    out.write_all(rest.as_bytes())
}

/// Everything that the page draws; page.js reads it. Columns are as [`packed`] has them.
fn page(title: &Title<'_>, report: &Report, seen: &Observation) -> Value {
    let Observation {
        topology, series, ..
    } = seen;
    let place = |node: Node| match node {
        Node::Host(host) => host.index(),
        Node::Switch(switch) => topology.host_count() + switch.index(),
    };
    // The port at `a` is the first of the two.
    let links = topology.cables().iter().map(|cable| {
        let gbps = [cable.link, cable.back].map(|link| link.rate.as_gbps_f64());
        json!({
            "a": place(cable.a),
            "b": place(cable.b),
            "gbps": gbps,
        })
    });
    let marks = report.marks.seen();
    let flows = seen.flows.iter().zip(&series.flows);
    json!({
        "seed": title.seed.to_string(),
        "again": title.again,
        "trace": report.trace.to_string(),
        "events": report.events,
        "end_us": us(report.end.since(Time::ZERO)),
        "drops": report.drops,
        "deadlock": report.deadlock,
        "failures": report.failures,
        "marks": marks.map(|(mark, count)| (mark.name(), count)).collect::<Vec<_>>(),
        "expectations": "All checks and expectations hold",
        "interval_us": us(series.interval),
        "samples": series.len,
        "nodes": nodes(topology),
        "links": links.collect::<Vec<_>>(),
        "ports": ports(seen),
        "flows": flows.map(|(flow, arrived)| flow_data(flow, arrived)).collect::<Vec<_>>(),
    })
}

/// Hosts, then switches.
fn nodes(topology: &Topology) -> Vec<Value> {
    let hosts = topology.hosts().map(|host| (topology.name(host), false));
    let switches = (0..topology.switch_count() as u32).map(SwitchId);
    let switches = switches.map(|switch| (topology.name(switch), true));
    let all = hosts.chain(switches);
    all.map(|(name, is_switch)| json!({ "name": name, "is_switch": is_switch }))
        .collect()
}

/// Each port, all its classes together.
fn ports(seen: &Observation) -> Vec<Value> {
    let Observation {
        topology,
        series,
        ports,
        ..
    } = seen;
    let all = topology.ports().zip(ports).zip(&series.ports);
    let data = all.map(|((port, stats), classes)| {
        let rate = topology.link_at(port).rate;
        let full = rate.bytes_in(series.interval).max(1);
        let interval = series.interval.ps();
        let all = |of: fn(&ClassSeries) -> &[u64]| column(series, classes, of, u64::wrapping_add);
        let paused = column(series, classes, |class| &class.paused, u64::max);
        let paused_us = paused.iter().sum::<u64>() as f64 * 1e-6;
        let parts = |values: Vec<u64>, whole: u64| {
            packed(
                values
                    .into_iter()
                    .map(|value| part_of(value, whole))
                    .collect(),
            )
        };
        json!({
            "name": PortName(topology, port).to_string(),
            // Bytes.
            "queue": packed(all(|class| &class.queue)),
            "headroom": packed(all(|class| &class.headroom)),
            // Thousandths of a sample, of the class that was paused longest.
            "paused": parts(paused, interval),
            // Thousandths of the link.
            "rate": parts(all(|class| &class.sent), full),
            // Over the whole run; the pause frames are those that stop the neighbour.
            "paused_us": paused_us,
            "stops": stats.pauses_sent,
        })
    });
    data.collect()
}

/// A column of all classes together.
fn column(
    series: &Series,
    classes: &[ClassSeries],
    of: fn(&ClassSeries) -> &[u64],
    together: fn(u64, u64) -> u64,
) -> Vec<u64> {
    let mut all = vec![0; series.len];
    for class in classes {
        for (sum, &value) in all.iter_mut().zip(of(class)) {
            *sum = together(*sum, value);
        }
    }
    all
}

/// Thousandths, and at least one of what is not nothing.
fn part_of(value: u64, whole: u64) -> u64 {
    let part = u128::from(value) * 1000 / u128::from(whole.max(1));
    (part as u64).max(u64::from(value > 0))
}

/// Numbers in order, with `-n` for n zeros.
fn packed(values: Vec<u64>) -> Vec<i64> {
    let mut packed = Vec::new();
    for value in values {
        match (value, packed.last_mut()) {
            (0, Some(zeros)) if *zeros < 0 => *zeros -= 1,
            (0, _) => packed.push(-1),
            (value, _) => packed.push(value.min(i64::MAX as u64) as i64),
        }
    }
    packed
}

fn flow_data(flow: &FlowOutcome, arrived: &[u64]) -> Value {
    json!({
        "from": flow.from,
        "to": flow.to,
        "op": flow.op,
        "size": flow.size,
        "bytes": flow.bytes,
        "start_us": us(flow.start.since(Time::ZERO)),
        "completion_us": flow.completion.map(us),
        "goodput_gbps": flow.goodput.map(Rate::as_gbps_f64),
        "ideal_us": flow.ideal.map(us),
        "slowdown": flow.slowdown(),
        "failure": flow.failure,
        "qps": flow.qps,
        "messages": flow.messages,
        "sent_again": flow.sent_again,
        // Bytes in each sample.
        "arrived": packed(arrived.to_vec()),
    })
}

fn us(span: Span) -> f64 {
    span.ps() as f64 * 1e-6
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_packed() {
        assert_eq!(packed(vec![0, 0, 7, 0, 1, 0, 0, 0]), [-2, 7, -1, 1, -3]);
        assert_eq!(packed(Vec::new()), [0i64; 0]);
        assert_eq!(
            [part_of(0, 5), part_of(1, 5000), part_of(5, 5)],
            [0, 1, 1000]
        );
        assert_eq!(escaped("<a&b>"), "&lt;a&amp;b&gt;");
    }
}
