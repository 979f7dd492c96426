//! Says which faults there were.

use crate::engine::Engine;
use crate::engine::drive::shard_state::ShardState;
use crate::faults::Summary;
use crate::host::environment;

impl Engine {
    /// Says to standard error which faults there were.
    pub(crate) fn report_faults(&self) {
        if let Ok(state) = self.combiner.lock() {
            report(&state);
        }
    }

    /// Reports the faults, when the engine has no other user any more.
    pub(in crate::engine) fn report_faults_in_the_end(&mut self) {
        if environment::is_on(environment::VERBOSE) {
            self.combiner.get_mut(|state| report(state));
        }
    }
}

fn report(state: &ShardState) {
    if let Some(path) = state.faults() {
        let (spec, counts) = (&path.spec, path.counts);
        eprintln!("urxe: {}", Summary { spec, counts });
    }
}
