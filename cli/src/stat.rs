//! `urxe stat`: the counters and QPs of running urxe processes.

mod kinds;

use core::fmt;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};
use std::thread;

use serde::Serialize;
use urxe::stat_file::{self, ContextCounters};
use urxe::{PathStatus, QpStatus};

use self::kinds::Kind;
use crate::args::StatArgs;
use crate::error::{CliError, Context};
use crate::output::print_report;
use crate::table::{Align, Table};

#[derive(Debug, Serialize)]
struct Report {
    processes: Vec<Process>,
}

/// One opened device of a process.
#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    program: String,
    addresses: Vec<String>,
    counters: BTreeMap<String, u64>,
    /// None if the process does not answer.
    qps: Option<Vec<Qp>>,
}

/// One of its QPs.
#[derive(Debug, Serialize)]
struct Qp {
    qpn: u32,
    qp_type: String,
    state: String,
    peer: Option<String>,
    /// What packets to that peer leave through: `memory` or `sockets`.
    wire: Option<String>,
    sq: (u32, u32),
    rq: (u32, u32),
    /// The PSNs of the next packet, of the oldest that is not acknowledged, and of the one expected.
    psns: [u32; 3],
    /// None for services without ACKs, and before there is a peer.
    path: Option<RoadToPeer>,
    counters: BTreeMap<String, u64>,
    last_error: Option<String>,
}

/// What it knows of the path to its peer.
#[derive(Debug, Serialize)]
struct RoadToPeer {
    /// Of round trips, in nanoseconds; 0 while none was measured.
    srtt_ns: u64,
    min_rtt_ns: u64,
    /// Packets that may be under way, and packets that are.
    window: u32,
    under_way: u32,
    /// In bits per second, if there is one.
    rate_bps: Option<u64>,
    /// A model of the path decides on both.
    has_model: bool,
    /// Both sides send only what was lost again.
    is_selective: bool,
}

impl From<PathStatus> for RoadToPeer {
    fn from(path: PathStatus) -> RoadToPeer {
        RoadToPeer {
            srtt_ns: path.srtt_ns,
            min_rtt_ns: path.min_rtt_ns,
            window: path.window,
            under_way: path.under_way,
            rate_bps: path.rate_bps,
            has_model: path.has_model,
            is_selective: path.is_selective,
        }
    }
}

impl fmt::Display for RoadToPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoadToPeer {
            srtt_ns,
            window,
            under_way,
            ..
        } = self;
        if *srtt_ns > 0 {
            let us = *srtt_ns as f64 / 1e3;
            write!(f, "{us:.0} us, ")?;
        }
        write!(f, "{under_way}/{window}")?;
        if let Some(bps) = self.rate_bps {
            let mbps = bps as f64 / 1e6;
            write!(f, ", {mbps:.0} Mb/s")?;
        }
        if self.has_model {
            f.write_str(", model")?;
        }
        if self.is_selective {
            f.write_str(", selective")?;
        }
        Ok(())
    }
}

/// Prints what the processes of this user have counted so far, once or again and again.
pub(crate) fn run(args: &StatArgs) -> Result<(), CliError> {
    let mut before = None;
    for round in 1.. {
        let processes = wanted(args)?;
        let (is_first, is_gone) = (before.is_none(), processes.is_empty());
        if is_gone && !args.pid.is_empty() {
            return if is_first { Err(missing(args)) } else { Ok(()) };
        }
        let report = Report { processes };
        let is_page = args.watch.is_some() && !args.json;
        print_report(args.json, &report, || {
            let text = text_of(&report, before.as_ref(), args);
            // A terminal shows one after the other at the same place.
            match is_page && stdout().is_terminal() {
                true => format!("\x1b[H\x1b[2J{text}"),
                false if is_page && !is_first => format!("\n{text}"),
                false => text,
            }
        })?;
        before = Some(report);
        match args.watch {
            Some(interval) if args.count.is_none_or(|count| round < count) => {
                stdout().flush()?;
                thread::sleep(interval);
            }
            _ => break,
        }
    }
    Ok(())
}

/// The processes that were asked for.
fn wanted(args: &StatArgs) -> Result<Vec<Process>, CliError> {
    let contexts = stat_file::read_all().context("cannot read the counters")?;
    let is_wanted = |context: &ContextCounters| {
        let is_named = args
            .program
            .as_ref()
            .is_none_or(|name| *name == context.program);
        is_named && (args.pid.is_empty() || args.pid.contains(&context.pid))
    };
    let contexts = contexts.into_iter().filter(is_wanted);
    Ok(contexts.map(Process::from).collect())
}

fn missing(args: &StatArgs) -> CliError {
    let pids: Vec<String> = args.pid.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    CliError::Failed(format!(
        "no process {pids} of this user has a device of urxe open"
    ))
}

fn text_of(report: &Report, before: Option<&Report>, args: &StatArgs) -> String {
    let processes = &report.processes;
    if let ([], Some(name)) = (&processes[..], &args.program) {
        return format!("No program {name} of this user runs on urxe.\n");
    }
    if processes.is_empty() {
        return "No urxe process of this user runs.\n".to_owned();
    }
    let same = |now: &Process| {
        let before = before.iter().flat_map(|report| &report.processes);
        let mut before =
            before.filter(|process| (process.pid, &process.addresses) == (now.pid, &now.addresses));
        before.next()
    };
    let texts = processes.iter().map(|now| text(now, same(now), args));
    texts.collect::<Vec<_>>().join("\n")
}

impl From<ContextCounters> for Process {
    fn from(context: ContextCounters) -> Process {
        let qps = context.qps().ok();
        Process {
            qps: qps.map(|qps| qps.into_iter().map(Qp::from).collect()),
            pid: context.pid,
            program: context.program,
            addresses: context.addresses.iter().map(ToString::to_string).collect(),
            counters: context.counters.into_iter().collect(),
        }
    }
}

impl From<QpStatus> for Qp {
    fn from(qp: QpStatus) -> Qp {
        Qp {
            qpn: qp.qpn,
            qp_type: qp.qp_type,
            state: qp.state,
            peer: qp.peer,
            wire: qp.wire,
            sq: qp.sq,
            rq: qp.rq,
            psns: qp.psns,
            path: qp.path.map(RoadToPeer::from),
            counters: qp.counters.into_iter().collect(),
            last_error: qp.last_error,
        }
    }
}

/// QPs that are shown of a process that has more: a screen full. Those that failed come first.
const QPS_SHOWN: usize = 32;

/// The process, its counters that are not zero, those that tell of trouble first, and its QPs.
fn text(process: &Process, before: Option<&Process>, args: &StatArgs) -> String {
    let Process {
        pid,
        program,
        addresses,
        counters,
        qps,
    } = process;
    let head = format!("{program} (process {pid}) on {}", addresses.join(", "));
    let mut columns = vec![("counter", Align::Left), ("value", Align::Right)];
    columns.extend(before.map(|_| ("more", Align::Right)));
    let mut table = Table::new(&columns);
    let mut hidden = 0;
    let mut rows: Vec<_> = counters.iter().filter(|(_, value)| **value > 0).collect();
    rows.sort_by_key(|(name, _)| Kind::of(name));
    for (name, value) in rows {
        if Kind::of(name) == Kind::Engine && !args.engine {
            hidden += 1;
            continue;
        }
        let mut row = vec![name.clone(), value.to_string()];
        row.extend(before.map(|before| {
            let was = before.counters.get(name).copied().unwrap_or(0);
            match value.saturating_sub(was) {
                0 => String::new(),
                more => format!("+{more}"),
            }
        }));
        table.row(row);
    }
    let hidden = match hidden {
        0 => String::new(),
        count => format!("and {count} of the engine (--engine shows them)\n"),
    };
    let qps = match qps {
        Some(qps) => qps_text(qps, args.all),
        None => "its QPs: the process does not answer\n".to_owned(),
    };
    format!("{head}\n{table}{hidden}\n{qps}")
}

fn qps_text(qps: &[Qp], all: bool) -> String {
    let mut order: Vec<&Qp> = qps.iter().collect();
    order.sort_by_key(|qp| qp.last_error.is_none());
    let most = if all { usize::MAX } else { QPS_SHOWN };
    let shown = most.min(order.len());
    if shown == 0 {
        return String::new();
    }
    let columns =
        "QP|type|state|peer|wire|sq|rq|psn next/una/expected|round trip, under way/window|trouble"
            .split('|');
    let columns: Vec<_> = columns.map(|name| (name, Align::Left)).collect();
    let mut table = Table::new(&columns);
    let mut errors = String::new();
    for qp in &order[..shown] {
        let trouble = qp.counters.iter();
        let trouble = trouble.map(|(name, value)| format!("{name} {value}"));
        table.row(vec![
            format!("{:#x}", qp.qpn),
            qp.qp_type.clone(),
            qp.state.clone(),
            qp.peer.clone().unwrap_or_else(|| "-".into()),
            qp.wire.clone().unwrap_or_else(|| "-".into()),
            format!("{}/{}", qp.sq.0, qp.sq.1),
            format!("{}/{}", qp.rq.0, qp.rq.1),
            qp.psns.map(|psn| psn.to_string()).join("/"),
            qp.path
                .as_ref()
                .map_or_else(|| "-".into(), ToString::to_string),
            trouble.collect::<Vec<_>>().join(", "),
        ]);
        if let Some(error) = &qp.last_error {
            errors.push_str(&format!("QP {:#x} failed: {error}\n", qp.qpn));
        }
    }
    let more = match order.len() - shown {
        0 => String::new(),
        more => format!("and {more} more (--all shows them)\n"),
    };
    format!("{table}\n{more}{errors}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out_of_the_table_but_not_of_json() {
        let process = Process {
            pid: 7,
            program: "x".into(),
            addresses: vec!["127.0.0.1".into()],
            counters: [("sent_pkts".to_owned(), 3), ("rcvd_cnp".to_owned(), 0)].into(),
            qps: Some(Vec::new()),
        };
        let text = text(&process, None, &StatArgs::default());
        assert!(text.starts_with("x (process 7) on 127.0.0.1\n"), "{text}");
        assert!(
            text.contains("sent_pkts") && !text.contains("rcvd_cnp"),
            "{text}"
        );
        let json = serde_json::to_string(&process).expect("plain data");
        assert!(json.contains("\"rcvd_cnp\":0"), "{json}");
    }

    #[test]
    fn trouble_is_in_front_the_engine_hidden_and_what_is_new_shown() {
        let process = |sent| Process {
            pid: 7,
            program: "x".into(),
            addresses: vec!["127.0.0.1".into()],
            counters: [
                ("ack_sent", sent),
                ("progress_wakes", 5),
                ("retransmitted_pkts", 1),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            qps: Some(Vec::new()),
        };
        let mut args = StatArgs::default();
        let told = text(&process(9), Some(&process(4)), &args);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines[1..5],
            [
                "counter             value  more",
                "retransmitted_pkts      1",
                "ack_sent                9    +5",
                "and 1 of the engine (--engine shows them)"
            ],
            "{told}"
        );
        args.engine = true;
        let told = text(&process(9), None, &args);
        assert!(told.contains("progress_wakes          5\n"), "{told}");
    }

    #[test]
    fn of_many_qps_the_failed_ones_are_shown() {
        let qp = |qpn| Qp {
            qpn,
            qp_type: "Rc".into(),
            state: "RTS".into(),
            peer: None,
            wire: (qpn % 2 == 0).then(|| "memory".into()),
            sq: (1, 128),
            rq: (0, 128),
            psns: [1, 2, 3],
            path: (qpn == 50).then_some(RoadToPeer {
                srtt_ns: 40_321_000,
                min_rtt_ns: 40_000_000,
                window: 900,
                under_way: 850,
                rate_bps: Some(200_000_000),
                has_model: true,
                is_selective: true,
            }),
            counters: BTreeMap::new(),
            last_error: (qpn == 99).then(|| "it is old".into()),
        };
        let qps: Vec<Qp> = (2..100).map(qp).collect();
        let text = qps_text(&qps, false);
        assert!(text.contains("QP 0x63 failed: it is old"), "{text}");
        assert!(
            text.contains(" 1/2/3 ") && text.contains("1/128") && text.contains("memory"),
            "{text}"
        );
        assert!(text.contains("and 66 more"), "{text}");
        let text = qps_text(&qps, true);
        assert!(!text.contains("more") && text.contains("0x62 "), "{text}");
        let path = "40321 us, 850/900, 200 Mb/s, model, selective";
        assert!(text.contains(path), "{text}");
    }
}
