//! `urxe stat`: the counters of running urxe processes.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use urxe::stat_file::{self, ContextCounters};

use crate::args::StatArgs;
use crate::error::CliError;
use crate::table::{Align, Table};

/// `--json`: all processes.
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
}

/// Prints what the processes of this user have counted so far.
pub(crate) fn run(args: &StatArgs) -> Result<(), CliError> {
    let contexts = stat_file::read_all();
    let contexts =
        contexts.map_err(|error| CliError::context("cannot read the counters", error))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let processes = contexts.into_iter().map(Process::from).collect();
        let json = serde_json::to_string(&Report { processes });
        writeln!(out, "{}", json.expect("counters are plain data"))?;
        return Ok(());
    }
    if contexts.is_empty() {
        writeln!(out, "No urxe process of this user runs.")?;
    }
    for context in contexts {
        write!(out, "{}", text(&Process::from(context)))?;
    }
    Ok(())
}

impl From<ContextCounters> for Process {
    fn from(context: ContextCounters) -> Process {
        Process {
            pid: context.pid,
            program: context.program,
            addresses: context.addresses.iter().map(ToString::to_string).collect(),
            counters: context.counters.into_iter().collect(),
        }
    }
}

/// The process, and its counters that are not zero.
fn text(process: &Process) -> String {
    let Process {
        pid,
        program,
        addresses,
        counters,
    } = process;
    let head = format!("{program} (process {pid}) on {}", addresses.join(", "));
    let mut table = Table::new(&[("counter", Align::Left), ("value", Align::Right)]);
    for (name, value) in counters.iter().filter(|(_, value)| **value > 0) {
        table.row(vec![name.clone(), value.to_string()]);
    }
    format!("{head}\n{table}\n")
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
        };
        let text = text(&process);
        assert!(text.starts_with("x (process 7) on 127.0.0.1\n"), "{text}");
        assert!(
            text.contains("sent_pkts") && !text.contains("rcvd_cnp"),
            "{text}"
        );
        let json = serde_json::to_string(&process).expect("plain data");
        assert!(json.contains("\"rcvd_cnp\":0"), "{json}");
    }
}
