//! What the engine does for threads that found its lock taken, and before it lets the lock go.

use urxe_core::Driver;

use super::doorbell::Combined;
use super::shard_state::ShardState;
use crate::async_event::AsyncEvent;

impl Combined for ShardState {
    fn serve(&mut self, index: u32) {
        // The holder may have been scheduled out since its turn began, and what it serves is of now.
        self.start_turn();
        if self.serve_srq(index) {
            return;
        }
        if let Some(Some(slot)) = self.inlets.qps.get(index as usize) {
            let qp = slot.shared.clone();
            qp.serve(self);
        }
    }

    fn served(&mut self) {
        self.nothing_new = false;
        self.transmit(Driver::Poster);
    }

    #[inline]
    fn leave(&mut self, hand_over: bool) {
        if std::thread::panicking() {
            // The last holder of the lock: it is poisoned from here on.
            self.events.push(AsyncEvent::DeviceFatal);
        }
        if std::mem::take(&mut self.nothing_new) && !hand_over {
            return;
        }
        self.publish_events();
        if hand_over {
            self.progress.kick_to_serve();
        } else if self.progress.may_oversleep(self.now)
            && let Some(due) = self.due()
        {
            self.progress.wake_by(due);
        }
    }
}
