//! Samples and outcomes as tables of comma-separated values.

use core::fmt;
use std::io::{self, Write};

use crate::engine::{Rate, Span, Time};
use crate::observe::Observation;
use crate::topology::PortName;

/// Microseconds, to the picosecond.
struct Us(Span);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (us, ps) = (self.0.ps() / 1_000_000, self.0.ps() % 1_000_000);
        match ps {
            0 => write!(f, "{us}"),
            _ => f.write_str(format!("{us}.{ps:06}").trim_end_matches('0')),
        }
    }
}

/// A field that may be missing.
fn field(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Text as a field (RFC 4180): in quotes where it would be taken for something else.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Gigabits a second.
fn gbps(bytes: u64, span: Span) -> f64 {
    bytes as f64 * 8e-9 / span.as_secs_f64()
}

/// Writes what each class of each port did, a line a sample: those in which anything happened.
///
/// # Errors
/// What writing says.
pub fn write_ports(out: &mut impl Write, seen: &Observation) -> io::Result<()> {
    let Observation {
        topology, series, ..
    } = seen;
    writeln!(
        out,
        "time_us,port,class,queue_bytes,buffered_bytes,headroom_bytes,paused_us,rate_gbps"
    )?;
    let names: Vec<String> = topology
        .ports()
        .map(|port| quoted(&PortName(topology, port).to_string()))
        .collect();
    for sample in 0..series.len {
        let time = Us(series.start_of(sample).since(Time::ZERO));
        for (name, classes) in names.iter().zip(&series.ports) {
            for class in classes {
                let (queue, buffered) = (class.queue[sample], class.buffered[sample]);
                let (headroom, sent) = (class.headroom[sample], class.sent[sample]);
                let paused = class.paused[sample];
                if queue == 0 && buffered == 0 && headroom == 0 && paused == 0 && sent == 0 {
                    continue;
                }
                writeln!(
                    out,
                    "{time},{name},{},{queue},{buffered},{headroom},{},{:.6}",
                    class.priority,
                    Us(Span::from_ps(paused)),
                    gbps(sent, series.interval),
                )?;
            }
        }
    }
    Ok(())
}

/// Writes what arrived of each flow, a line a sample: those in which anything did.
///
/// # Errors
/// What writing says.
pub fn write_rates(out: &mut impl Write, seen: &Observation) -> io::Result<()> {
    let Observation { flows, series, .. } = seen;
    writeln!(out, "time_us,flow,from,to,bytes,goodput_gbps")?;
    for sample in 0..series.len {
        let time = Us(series.start_of(sample).since(Time::ZERO));
        for (number, (flow, bytes)) in flows.iter().zip(&series.flows).enumerate() {
            if bytes[sample] > 0 {
                let rate = gbps(bytes[sample], series.interval);
                let (from, to, bytes) = (quoted(&flow.from), quoted(&flow.to), bytes[sample]);
                writeln!(out, "{time},{number},{from},{to},{bytes},{rate:.6}")?;
            }
        }
    }
    Ok(())
}

/// Writes what became of each flow, a line a flow. Fields of flows that are not complete are empty.
///
/// # Errors
/// What writing says.
pub fn write_flows(out: &mut impl Write, seen: &Observation) -> io::Result<()> {
    writeln!(
        out,
        "flow,from,to,op,size_bytes,arrived_bytes,start_us,completion_us,goodput_gbps,ideal_us,slowdown,failure"
    )?;
    for (number, flow) in seen.flows.iter().enumerate() {
        let goodput = flow
            .goodput
            .map(|rate: Rate| format!("{:.6}", rate.as_gbps_f64()));
        let slowdown = flow.slowdown().map(|times| format!("{times:.4}"));
        writeln!(
            out,
            "{number},{},{},{},{},{},{},{},{},{},{},{}",
            quoted(&flow.from),
            quoted(&flow.to),
            flow.op,
            field(flow.size),
            flow.bytes,
            Us(flow.start.since(Time::ZERO)),
            field(flow.completion.map(Us)),
            field(goodput),
            field(flow.ideal.map(Us)),
            field(slowdown),
            field(flow.failure.as_deref().map(quoted)),
        )?;
    }
    Ok(())
}

/// Writes what became of each job, a line a job. Fields of jobs that are not complete are empty.
///
/// # Errors
/// What writing says.
pub fn write_jobs(out: &mut impl Write, seen: &Observation) -> io::Result<()> {
    writeln!(
        out,
        "job,name,start_us,completion_us,messages,bytes,bus_gbps,failure"
    )?;
    for (number, job) in seen.jobs.iter().enumerate() {
        let bus = job
            .bus_bandwidth
            .map(|rate| format!("{:.6}", rate.as_gbps_f64()));
        writeln!(
            out,
            "{number},{},{},{},{},{},{},{}",
            quoted(&job.name),
            Us(job.start.since(Time::ZERO)),
            field(job.completion.map(Us)),
            job.messages,
            job.bytes,
            field(bus),
            quoted(&field(job.failure.as_ref())),
        )?;
    }
    Ok(())
}

/// Writes the messages of jobs that keep them, a line a message, in the order in which they ended.
///
/// # Errors
/// What writing says.
pub fn write_messages(out: &mut impl Write, seen: &Observation) -> io::Result<()> {
    writeln!(
        out,
        "job,from,to,bytes,start_us,completion_us,ideal_us,slowdown"
    )?;
    for message in &seen.messages {
        writeln!(
            out,
            "{},{},{},{},{},{},{},{:.4}",
            message.job,
            quoted(&message.from),
            quoted(&message.to),
            message.bytes,
            Us(message.start.since(Time::ZERO)),
            Us(message.took),
            Us(message.ideal),
            message.slowdown(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_a_table_reads() {
        let us = |ps| Us(Span::from_ps(ps)).to_string();
        assert_eq!([us(0), us(12_000_000), us(1_500_000)], ["0", "12", "1.5"]);
        assert_eq!(us(1), "0.000001");
        assert_eq!(quoted("h0>s0"), "h0>s0");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
