//! Contexts that are open when the process ends. Many programs exit without closing them, so their captures have to
//! be completed on request.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::engine::Engine;

/// A list of engines that does not keep them.
#[derive(Debug)]
pub(crate) struct OpenEngines(Mutex<Vec<Weak<Engine>>>);

impl OpenEngines {
    pub(crate) const fn new() -> OpenEngines {
        OpenEngines(Mutex::new(Vec::new()))
    }

    /// Adds one; those that are gone go.
    pub(crate) fn note(&self, engine: &Arc<Engine>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|engine| engine.strong_count() > 0);
        open.push(Arc::downgrade(engine));
    }

    /// All that are open, once.
    pub(crate) fn take(&self) -> Vec<Arc<Engine>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = std::mem::take(&mut *open);
        open.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Contexts that write captures (`URXE_PCAP`).
static CAPTURING: OpenEngines = OpenEngines::new();

/// Notes a context that writes one.
pub(crate) fn note_capturing(engine: &Arc<Engine>) {
    CAPTURING.note(engine);
}

/// Writes to their files what open contexts captured (`URXE_PCAP`), for programs that exit without closing them. A
/// context that is closed does so itself.
pub fn flush_open_captures() {
    for engine in CAPTURING.take() {
        engine.flush_capture();
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
