//! Contexts that are open when the process ends. Many programs exit without closing them, so their captures have to
//! be completed, and the faults that they met told, on request.

use std::sync::{Arc, Mutex, Weak};

use crate::engine::Engine;
use crate::lock::lock;

/// A list of engines that does not keep them.
#[derive(Debug)]
pub(crate) struct OpenEngines(Mutex<Vec<Weak<Engine>>>);

impl OpenEngines {
    const fn new() -> OpenEngines {
        OpenEngines(Mutex::new(Vec::new()))
    }

    /// Adds one; those that are gone go.
    pub(crate) fn note(&self, engine: &Arc<Engine>) {
        let mut open = lock(&self.0);
        open.retain(|engine| engine.strong_count() > 0);
        open.push(Arc::downgrade(engine));
    }

    /// All that are open, once.
    fn take(&self) -> Vec<Arc<Engine>> {
        let open = std::mem::take(&mut *lock(&self.0));
        open.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Contexts that write captures (`URXE_PCAP`).
pub(crate) static CAPTURING: OpenEngines = OpenEngines::new();

/// Writes to their files what open contexts captured (`URXE_PCAP`), for programs that exit without closing them. A
/// context that is closed does so itself.
pub fn flush_open_captures() {
    for engine in CAPTURING.take() {
        engine.flush_capture();
    }
}

/// Contexts with faults that are open, to tell their counts when the process ends.
pub(crate) static FAULTY: OpenEngines = OpenEngines::new();

/// Prints to standard error which faults the contexts met that are still open; for
/// programs that exit without closing them. Those that are closed say so themselves, if
/// `URXE_VERBOSE` is in the environment.
pub fn report_open_faults() {
    for engine in FAULTY.take() {
        engine.report_faults();
    }
}

impl Engine {
    fn flush_capture(&self) {
        // What a parent gathered is the parent's to write.
        if self.generation.is_past() {
            return;
        }
        // A failed engine wrote what it had.
        if let Ok(mut state) = self.combiner.lock()
            && let Some(tap) = &mut state.tap
        {
            tap.flush();
        }
    }
}
