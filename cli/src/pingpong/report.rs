//! The result of a ping-pong: a table for people, JSON for programs.

use clap::ValueEnum;
use serde::Serialize;

use super::protocol::Variant;
use crate::table::{Align, Table};

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) variant: Variant,
    pub(crate) iters: u64,
    pub(crate) rtt_us_p50: f64,
    pub(crate) rtt_us_p99: f64,
    pub(crate) client_cpu_user: f64,
    pub(crate) client_cpu_sys: f64,
    pub(crate) server_cpu_user: f64,
    pub(crate) server_cpu_sys: f64,
    /// Every byte of every message was as sent, and every completion a success.
    pub(crate) verified: bool,
}

/// All rows, as `--json` prints them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

impl Row {
    /// The row of a variant that went wrong before it had numbers.
    pub(crate) fn failed(variant: Variant) -> Row {
        Row {
            variant,
            ..Row::default()
        }
    }
}

/// What the slide deck that introduced these four programs measured on QDR InfiniBand adapters through a
/// switch: round trip in microseconds, CPU in percent of the client (user/system) and of the server in all.
fn published(variant: Variant) -> (&'static str, &'static str, &'static str) {
    match variant {
        Variant::SendRecvPoll => ("15.7", "100/0", "100"),
        Variant::SendRecvNotify => ("21.1", "9.0/9.1", "21"),
        Variant::WriteReadNotify => ("14.3", "26.4/3.0", "0"),
        Variant::WriteReadUnsignaled => ("8.3", "28.0/2.8", "0"),
    }
}

/// The table for people, a line at a time: the first result is there after a second, and not with the last one.
pub(crate) struct Lines {
    table: Table,
    adapters: Table,
}

impl Lines {
    /// `iters` is how many rounds a variant has, if that is known.
    pub(crate) fn new(iters: Option<u64>) -> Lines {
        let names = Variant::value_variants().iter().map(Variant::to_string);
        let widest = names.map(|name| name.len()).max().unwrap_or(0);
        let rounds = iters.unwrap_or(0).to_string().len();
        let table = Table::new(&[
            (&format!("{:widest$}", "variant"), Align::Left),
            (&format!("{:>rounds$}", "rounds"), Align::Right),
            ("p50 us", Align::Right),
            ("p99 us", Align::Right),
            ("client %", Align::Right),
            ("server %", Align::Right),
            ("right", Align::Left),
        ]);
        let adapters = Table::new(&[
            ("on QDR InfiniBand adapters", Align::Left),
            ("us", Align::Right),
            ("client %", Align::Right),
            ("server %", Align::Right),
        ]);
        Lines { table, adapters }
    }

    pub(crate) fn heading(&self, size: u64) -> String {
        format!(
            "{size}-byte messages and round trips; a WRITE/READ round is one of each. CPU is in\n\
             percent of the wall clock, user/system, of all threads of the process.\n\n{}\n",
            self.table.heading()
        )
    }

    pub(crate) fn row(&mut self, row: &Row) -> String {
        let share = |user: f64, sys: f64| format!("{user:.0}/{sys:.0}");
        self.table.row(vec![
            row.variant.to_string(),
            row.iters.to_string(),
            format!("{:.1}", row.rtt_us_p50),
            format!("{:.1}", row.rtt_us_p99),
            share(row.client_cpu_user, row.client_cpu_sys),
            share(row.server_cpu_user, row.server_cpu_sys),
            if row.verified { "yes" } else { "NO" }.to_owned(),
        ]);
        let (rtt, client, server) = published(row.variant);
        let cells = [row.variant.to_string().as_str(), rtt, client, server].map(str::to_owned);
        self.adapters.row(cells.to_vec());
        self.table.last() + "\n"
    }

    /// What was published, of the variants that there are rows of.
    pub(crate) fn comparison(&self) -> String {
        format!(
            "\n{}\n\
             The second table is from the slide deck that these programs come from, through\n\
             a switch. There the adapter moves the data, here the CPU: the server's share in\n\
             the WRITE/READ rows is urxe's engine, while the server's own thread sleeps.\n",
            self.adapters
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_promised_names() {
        let report = Report {
            rows: vec![Row::failed(Variant::WriteReadUnsignaled)],
        };
        assert_eq!(
            serde_json::to_string(&report).expect("plain data"),
            "{\"rows\":[{\"variant\":\"write-read-unsignaled\",\"iters\":0,\"rtt_us_p50\":0.0,\
             \"rtt_us_p99\":0.0,\"client_cpu_user\":0.0,\"client_cpu_sys\":0.0,\"server_cpu_user\":0.0,\
             \"server_cpu_sys\":0.0,\"verified\":false}]}"
        );
    }

    #[test]
    fn the_table_shows_a_failed_verification() {
        let mut lines = Lines::new(None);
        let mut text = lines.heading(64);
        for &variant in Variant::value_variants() {
            text += &lines.row(&Row::failed(variant));
        }
        text += &lines.comparison();
        assert_eq!(
            text.lines()
                .filter(|line| line.trim_end().ends_with("  NO"))
                .count(),
            4,
            "{text}"
        );
        assert!(text.contains("15.7"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
