//! `urxe decode`: one line a packet of a capture, each ICRC checked, a summary at the end.

mod capture;
mod finding;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use self::capture::{CaptureError, CaptureReader};
use self::finding::{Finding, Summary};
use crate::args::DecodeArgs;
use crate::error::CliError;

/// Prints the packets of a capture; an error when one of them, or the file itself, is at fault.
pub(crate) fn run(args: &DecodeArgs) -> Result<(), CliError> {
    let name = args.file.display().to_string();
    let fail = |error: &dyn fmt::Display| CliError::context(&name, error);
    let reader: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(|error| fail(&error))?)
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut summary = Summary::default();
    let ended = decode(reader, args.quiet, &mut out, &mut summary);
    if !matches!(ended, Err(Ended::Capture(CaptureError::NotACapture))) {
        writeln!(out, "{summary}")?;
    }
    out.flush()?;
    match ended {
        Err(Ended::Capture(error)) => Err(fail(&error)),
        Err(Ended::Output(error)) => Err(error.into()),
        Ok(()) if summary.faults() > 0 => Err(CliError::Fault(format!(
            "{name}: faulty packets: {}",
            summary.faults()
        ))),
        Ok(()) => Ok(()),
    }
}

/// What ends a decoding before the end of the file.
enum Ended {
    Capture(CaptureError),
    Output(io::Error),
}

impl From<CaptureError> for Ended {
    fn from(error: CaptureError) -> Ended {
        Ended::Capture(error)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Output(error)
    }
}

fn decode(
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
