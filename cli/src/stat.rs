//! `urxe stat`: the counters and QPs of running urxe processes.

use core::fmt;
use std::collections::BTreeMap;

use serde::Serialize;
use urxe::stat_file::{self, ContextCounters};
use urxe::{PathStatus, QpStatus};

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

/// Prints what the processes of this user have counted so far.
pub(crate) fn run(args: &StatArgs) -> Result<(), CliError> {
    let contexts = stat_file::read_all().context("cannot read the counters")?;
    let processes = contexts.into_iter().map(Process::from).collect();
    let report = Report { processes };
    print_report(args.json, &report, || {
        if report.processes.is_empty() {
            return "No urxe process of this user runs.\n".to_owned();
        }
        let texts = report.processes.iter();
        texts.map(|process| text(process, args.all)).collect()
    })
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

/// The process, its counters that are not zero, and its QPs.
fn text(process: &Process, all: bool) -> String {
    let Process {
        pid,
        program,
        addresses,
        counters,
        qps,
    } = process;
    let head = format!("{program} (process {pid}) on {}", addresses.join(", "));
    let mut table = Table::new(&[("counter", Align::Left), ("value", Align::Right)]);
    for (name, value) in counters.iter().filter(|(_, value)| **value > 0) {
        table.row(vec![name.clone(), value.to_string()]);
    }
    let qps = match qps {
        Some(qps) => qps_text(qps, all),
        None => "its QPs: the process does not answer\n".to_owned(),
    };
    format!("{head}\n{table}\n{qps}")
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
            qp.psns.map(|psn| format!("{psn:#x}")).join("/"),
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
        let text = text(&process, false);
        assert!(text.starts_with("x (process 7) on 127.0.0.1\n"), "{text}");
        assert!(
            text.contains("sent_pkts") && !text.contains("rcvd_cnp"),
            "{text}"
        );
        let json = serde_json::to_string(&process).expect("plain data");
        assert!(json.contains("\"rcvd_cnp\":0"), "{json}");
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
            text.contains("0x1/0x2/0x3") && text.contains("1/128") && text.contains("memory"),
            "{text}"
        );
        assert!(text.contains("and 66 more"), "{text}");
        let text = qps_text(&qps, true);
        assert!(!text.contains("more") && text.contains("0x62 "), "{text}");
        let path = "40321 us, 850/900, 200 Mb/s, model, selective";
        assert!(text.contains(path), "{text}");
    }
}
