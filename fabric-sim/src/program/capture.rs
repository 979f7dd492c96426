//! The capture of a run of programs.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::host::Sim;
use crate::observe::Capture;
use crate::program::report::Cause;

/// A capture that goes on.
pub(crate) struct Capturing {
    path: PathBuf,
    capture: Rc<RefCell<Capture<BufWriter<File>>>>,
}

impl Capturing {
    /// Writes everything that happens in the network to a file.
    pub(crate) fn begin(sim: &mut Sim, path: &Path, seed: u64) -> Result<Capturing, Cause> {
        let begin = || {
            let file = BufWriter::new(File::create(path)?);
            Capture::new(sim.fabric(), file, &format!("programs, seed {seed}"))
        };
        let capture = begin().map_err(|error| cannot(path, &error))?;
        let capture = Rc::new(RefCell::new(capture));
        sim.fabric_mut().add_tap(Box::new(Rc::clone(&capture)));
        Ok(Capturing {
            path: path.to_owned(),
            capture,
        })
    }

    /// The run is over.
    pub(crate) fn finish(self, sim: &mut Sim) -> Result<(), Cause> {
        drop(sim.fabric_mut().take_tap());
        let capture = Rc::into_inner(self.capture).expect("the tap is gone");
        let written = capture.into_inner().finish();
        written
            .map(drop)
            .map_err(|error| cannot(&self.path, &error))
    }
}

fn cannot(path: &Path, error: &io::Error) -> Cause {
    Cause::Setup(format!("the capture {}: {error}", path.display()))
}
