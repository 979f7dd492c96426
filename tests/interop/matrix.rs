//! The table: what is tested, run in both roles over both IP versions, and printed.

use std::time::Instant;

use crate::args::Args;
use crate::lab::{Lab, Requester};
use crate::rxe_side::RxeSide;
use crate::side::Result;
use crate::{addresses, faults, losses, one_percent, placement, programs, rc, srq, uc, ud};

/// One line of the matrix.
pub(crate) struct Row {
    pub(crate) service: &'static str,
    pub(crate) operation: &'static str,
    /// Runs all cases, in the role and IP version that the lab is set to; the lab counts them.
    pub(crate) run: fn(&mut Lab) -> Result<()>,
}

/// All lines: another service is another list.
fn rows() -> impl Iterator<Item = &'static Row> {
    [
        rc::ROWS,
        placement::ROWS,
        srq::ROWS,
        uc::ROWS,
        ud::ROWS,
        faults::ROWS,
        losses::ROWS,
        one_percent::ROWS,
        programs::ROWS,
        addresses::ROWS,
    ]
    .into_iter()
    .flatten()
}

const COLUMNS: [(Requester, usize, &str); 4] = [
    (Requester::Urxe, 0, "urxe>rxe IPv4"),
    (Requester::Rxe, 0, "rxe>urxe IPv4"),
    (Requester::Urxe, 1, "urxe>rxe IPv6"),
    (Requester::Rxe, 1, "rxe>urxe IPv6"),
];

/// Runs the matrix, printing line by line; whether all went well.
///
/// # Errors
/// If the guest cannot be reached, or no line has the name that was asked for.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut lab = Lab::new(RxeSide::connect(args.agent)?, args);
    let is_wanted = |row: &&Row| {
        let name = format!("{} {}", row.service, row.operation);
        args.filters.is_empty() || args.filters.iter().any(|word| name.contains(word))
    };
    let rows: Vec<&Row> = rows().filter(is_wanted).collect();
    if rows.is_empty() {
        return Err(format!(
            "no line of the matrix is called {:?}",
            args.filters
        ));
    }
    let (start, mut failures) = (Instant::now(), Vec::new());
    let heads = COLUMNS.map(|(_, _, head)| format!("{head:15}")).concat();
    println!("{:4} {:28}{heads} seconds", "", "operation");
    for row in &rows {
        failures.extend(run_row(&mut lab, row, args));
    }
    lab.close()?;
    for failure in &failures {
        println!("FAILED {failure}");
    }
    println!(
        "{} lines, {} cells failed, {:.0} s (seed {})",
        rows.len(),
        failures.len(),
        start.elapsed().as_secs_f64(),
        args.seed
    );
    Ok(failures.is_empty())
}

/// Runs a line and prints it; what failed.
fn run_row(lab: &mut Lab, row: &Row, args: &Args) -> Vec<String> {
    let (start, mut failures) = (Instant::now(), Vec::new());
    let (mut cells, mut remarks) = (String::new(), Vec::new());
    for (requester, version, head) in COLUMNS {
        if !head.contains(&args.columns) {
            cells += &format!("{:15}", "-");
            continue;
        }
        lab.requester = requester;
        lab.hosts = args.hosts[version];
        lab.cases = 0;
        let cell = match (row.run)(lab).and_then(|()| lab.check_drops()) {
            // What one of the two cannot do at all.
            Ok(()) if lab.cases == 0 => "n/a".to_owned(),
            Ok(()) => format!("ok {}", lab.cases),
            Err(error) => {
                failures.push(format!(
                    "{} {}, {head}: {error}",
                    row.service, row.operation
                ));
                "FAILED".to_owned()
            }
        };
        cells += &format!("{cell:15}");
        remarks.extend((lab.remarks.drain(..)).map(|remark| format!("{head}: {remark}")));
    }
    println!(
        "{:4} {:28}{cells} {:7.1}",
        row.service,
        row.operation,
        start.elapsed().as_secs_f64()
    );
    for line in remarks.iter().chain(&failures) {
        println!("     {line}");
    }
    failures
}
