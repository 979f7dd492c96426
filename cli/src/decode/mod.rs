//! `urxe decode`: one line a packet of a capture, each ICRC checked, a summary at the end.

mod capture;
mod finding;
mod lines;
mod sealed;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use self::capture::CaptureError;
use self::finding::Summary;
use self::lines::{Ended, Form, decode};
use self::sealed::Sealed;
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
    let key = args.key_file.as_deref().map(urxe::read_key_file);
    let key = key.transpose();
    let key = key.map_err(|error| CliError::Failed(error.to_string()))?;
    let mut sealed = key.as_ref().map(Sealed::new);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut summary = Summary::default();
    let form = match (args.quiet, args.json) {
        (true, _) => Form::None,
        (false, true) => Form::Json,
        (false, false) => Form::Text,
    };
    let ended = decode(
        reader,
        form,
        |captured| sealed.as_mut()?.open(captured),
        &mut out,
        &mut summary,
    );
    if !matches!(ended, Err(Ended::Capture(CaptureError::NotACapture))) {
        if args.json {
            let summary = serde_json::to_string(&summary).expect("plain data");
            writeln!(out, "{summary}")?;
        } else {
            writeln!(out, "{summary}")?;
            if let Some(sealed) = &sealed {
                let Sealed {
                    opened, refused, ..
                } = sealed;
                writeln!(out, "{opened} sealed packets opened, {refused} not")?;
            }
        }
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
