//! The frames of a capture file as lines of text.

use std::io::{self, BufReader, Read, Write};

use super::capture::{CaptureError, CaptureReader};
use super::finding::{Finding, Summary};

/// What ends a decoding before the end of the file.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Ended {
    Capture(#[from] CaptureError),
    Output(#[from] io::Error),
}

pub(crate) fn decode(
    reader: impl Read,
    is_quiet: bool,
    out: &mut impl Write,
    summary: &mut Summary,
) -> Result<(), Ended> {
    let mut reader = CaptureReader::new(BufReader::with_capacity(1 << 18, reader))?;
    let mut first_ns = None;
    while let Some(captured) = reader.next()? {
        let finding = Finding::of(&captured);
        summary.add(&finding);
        if is_quiet {
            continue;
        }
        write!(out, "{:6} ", summary.packets)?;
        match captured.time_ns {
            Some(time_ns) => {
                // Seconds since the first packet: what one looks for in a trace are distances.
                let first = *first_ns.get_or_insert(time_ns);
                let sign = if time_ns < first { "-" } else { "" };
                let distance = time_ns.abs_diff(first);
                let (seconds, nanos) = (distance / 1_000_000_000, distance % 1_000_000_000);
                write!(out, "{sign}{seconds}.{nanos:09} ")?;
            }
            None => write!(out, "- ")?,
        }
        writeln!(out, "{finding}")?;
    }
    Ok(())
}
