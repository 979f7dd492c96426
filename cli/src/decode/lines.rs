//! The frames of a capture file as lines of text.

use std::io::{self, BufReader, Read, Write};

use serde::Serialize;

use super::capture::{CaptureError, CaptureReader, Captured};
use super::finding::{Finding, Icrc, Summary};

/// What ends a decoding before the end of the file.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Ended {
    Capture(#[from] CaptureError),
    Output(#[from] io::Error),
}

/// How packets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Not at all.
    None,
    Text,
    /// An object on a line of its own.
    Json,
}

/// A packet for programs.
#[derive(Debug, Serialize)]
struct Packet<'a> {
    number: u64,
    /// Since 1970.
    time_ns: Option<u128>,
    text: &'a str,
    /// `ok`, `bad`, `not checked`; None where there is none.
    icrc: Option<&'static str>,
}

/// Writes a line for each frame; where `open` finds frames in an envelope, for each of those.
pub(crate) fn decode(
    reader: impl Read,
    form: Form,
    mut open: impl FnMut(&Captured) -> Option<Vec<Captured>>,
    out: &mut impl Write,
    summary: &mut Summary,
) -> Result<(), Ended> {
    let mut reader = CaptureReader::new(BufReader::with_capacity(1 << 18, reader))?;
    let mut first_ns = None;
    while let Some(captured) = reader.next()? {
        let opened = open(&captured);
        let note = if opened.is_some() { "sealed: " } else { "" };
        for frame in opened.unwrap_or_else(|| vec![captured]) {
            let finding = Finding::of(&frame);
            summary.add(&finding);
            match form {
                Form::None => {}
                Form::Json => {
                    let packet = Packet {
                        number: summary.packets,
                        time_ns: frame.time_ns,
                        text: &finding.text(),
                        icrc: finding.icrc().map(Icrc::name),
                    };
                    let line = serde_json::to_string(&packet).expect("plain data");
                    writeln!(out, "{line}")?;
                }
                Form::Text => {
                    write!(out, "{:6} ", summary.packets)?;
                    write_time(out, &mut first_ns, frame.time_ns)?;
                    writeln!(out, "{note}{finding}")?;
                }
            }
        }
    }
    Ok(())
}

/// Seconds since the first packet: what a reader of a trace looks for are distances.
fn write_time(
    out: &mut impl Write,
    first_ns: &mut Option<u128>,
    time_ns: Option<u128>,
) -> io::Result<()> {
    let Some(time_ns) = time_ns else {
        return write!(out, "- ");
    };
    let first = *first_ns.get_or_insert(time_ns);
    let sign = if time_ns < first { "-" } else { "" };
    let distance = time_ns.abs_diff(first);
    let (seconds, nanos) = (distance / 1_000_000_000, distance % 1_000_000_000);
    write!(out, "{sign}{seconds}.{nanos:09} ")
}
