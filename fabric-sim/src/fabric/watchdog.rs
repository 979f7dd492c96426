//! The PFC watchdog: a queue that is paused for too long is emptied, or sent in spite of the
//! pause, so that one misbehaving host or a cycle of waiting switches does not stop everything.

use crate::fabric::{DropReason, Event, Fabric};
use crate::switch::WatchdogAction;
use crate::topology::{Node, PortId};

impl Fabric {
    /// Starts the watchdog on a queue that holds frames and may not send.
    #[inline]
    pub(crate) fn watch(&mut self, id: PortId, priority: u8) {
        let Some(watchdog) = self.config.switch.watchdog else {
            return;
        };
        let now = self.queue.now();
        let port = &mut self.ports[id.index()];
        let bit = 1 << priority;
        let waits =
            port.is_paused(priority) && port.classes[usize::from(priority)].queue.frames > 0;
        let is_new = (port.watched | port.stormed) & bit == 0;
        if waits && is_new && matches!(port.node, Node::Switch(_)) {
            port.watched |= bit;
            let since = &mut port.classes[usize::from(priority)].progress;
            *since = port.paused_since[usize::from(priority)].max(*since);
            let at = (*since + watchdog.detect).max(now);
            self.queue.push(at, Event::Watchdog(id, priority));
        }
    }

    /// Whether the queue has sent anything since.
    pub(crate) fn on_watchdog(&mut self, id: PortId, priority: u8) {
        let Some(watchdog) = self.config.switch.watchdog else {
            return;
        };
        let now = self.queue.now();
        let port = &mut self.ports[id.index()];
        let class = usize::from(priority);
        port.watched &= !(1 << priority);
        if !port.is_paused(priority) || port.classes[class].queue.frames == 0 {
            return;
        }
        let since = port.classes[class].progress.max(port.paused_since[class]);
        if now < since + watchdog.detect {
            port.watched |= 1 << priority;
            self.queue
                .push(since + watchdog.detect, Event::Watchdog(id, priority));
            return;
        }
        port.stormed |= 1 << priority;
        port.rare.storms += 1;
        self.queue
            .push(now + watchdog.restore, Event::Restore(id, priority));
        match watchdog.action {
            WatchdogAction::Forward => self.kick(id),
            WatchdogAction::Drop => self.drain(id, priority, DropReason::Watchdog),
        }
    }

    /// Drops what is in a queue of a switch.
    pub(crate) fn drain(&mut self, id: PortId, priority: u8, reason: DropReason) {
        let now = self.queue.now();
        let Node::Switch(switch) = self.ports[id.index()].node else {
            return;
        };
        while let Some(frame) = self.ports[id.index()].take_from(&self.frames, priority, now) {
            self.release(switch, frame);
            self.discard(id, frame, reason);
        }
        self.show_queue(id, priority);
    }

    /// The action has lasted its time: it ends, unless the pause is still told.
    pub(crate) fn on_restore(&mut self, id: PortId, priority: u8) {
        let Some(watchdog) = self.config.switch.watchdog else {
            return;
        };
        let now = self.queue.now();
        let port = &mut self.ports[id.index()];
        if port.is_paused(priority) {
            self.queue
                .push(now + watchdog.restore, Event::Restore(id, priority));
            return;
        }
        port.stormed &= !(1 << priority);
        self.kick(id);
    }

    /// True if frames for a stormed queue are dropped.
    #[inline]
    pub(crate) fn drops_in_storms(&self) -> bool {
        self.config
            .switch
            .watchdog
            .is_some_and(|w| w.action == WatchdogAction::Drop)
    }
}
