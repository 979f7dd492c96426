//! Link-level credits: a port sends what its neighbour has promised room for, so nothing need be
//! stopped and no headroom is needed. As in InfiniBand, what is told is a running total, so an
//! update that is lost is made good by the next.

use crate::engine::mix64;
use crate::fabric::Fabric;
use crate::frame::{FrameId, Payload};
use crate::qos::{FlowControl, PRIORITIES};
use crate::topology::{Node, PortId, SwitchId};

/// Both directions of one port.
#[derive(Clone, Debug)]
pub(crate) struct CreditState {
    /// As sender: bytes that may have been sent in all.
    limit: [u64; PRIORITIES],
    /// As sender: bytes that were.
    sent: [u64; PRIORITIES],
    /// As receiver: bytes that have left their room.
    freed: [u64; PRIORITIES],
    /// As receiver: bytes that came.
    came: [u64; PRIORITIES],
    /// As receiver: the limit that was told last.
    told: [u64; PRIORITIES],
    /// Bit n: class n has credits.
    classes: u8,
}

impl CreditState {
    /// Both ends know each other's buffers from the start.
    pub(crate) fn new(buffer: u32, classes: u8) -> CreditState {
        let buffer = [u64::from(buffer); PRIORITIES];
        let none = [0; PRIORITIES];
        CreditState {
            limit: buffer,
            sent: none,
            freed: none,
            came: none,
            told: buffer,
            classes,
        }
    }

    #[inline]
    pub(crate) fn allows(&self, priority: u8, len: u32) -> bool {
        let class = usize::from(priority);
        self.classes & (1 << priority) == 0
            || self.sent[class] + u64::from(len) <= self.limit[class]
    }

    #[inline]
    pub(crate) fn spend(&mut self, priority: u8, len: u32) {
        self.sent[usize::from(priority)] += u64::from(len);
    }
}

impl Fabric {
    /// Room for a frame that came through `port` is free again.
    pub(crate) fn give_credit(&mut self, id: PortId, frame: FrameId) {
        let FlowControl::Credits { buffer, update } = self.qos.flow_control else {
            return;
        };
        let f = self.frames.get(frame);
        let (priority, class) = (f.priority, usize::from(f.priority));
        let credit = self.ports[id.index()].credit.as_mut();
        let Some(credit) = credit.filter(|c| c.classes & (1 << priority) != 0) else {
            return;
        };
        credit.freed[class] += u64::from(f.len);
        let limit = credit.freed[class] + u64::from(buffer);
        if limit - credit.told[class] < u64::from(update).max(1) {
            return;
        }
        credit.told[class] = limit;
        self.ports[id.index()].rare.credits_sent += 1;
        let digest = mix64(3 << 40 ^ limit << 3 ^ u64::from(priority));
        self.send_control(id, digest, Payload::Credit { priority, limit });
    }

    /// A frame came that room was promised for.
    #[inline]
    pub(crate) fn count_credit(&mut self, id: PortId, priority: u8, len: u32) {
        if let Some(credit) = &mut self.ports[id.index()].credit
            && credit.classes & (1 << priority) != 0
        {
            let class = usize::from(priority);
            credit.came[class] += u64::from(len);
            let held = credit.came[class] - credit.freed[class];
            if let FlowControl::Credits { buffer, .. } = self.qos.flow_control
                && held > u64::from(buffer)
                && self.first_credit_overrun.is_none()
            {
                self.first_credit_overrun = Some((self.queue.place(), id, held));
            }
        }
    }

    /// A frame was lost on its way to `port`: room was promised for it, and is not needed. (InfiniBand
    /// senders tell what they sent, and receivers make up the difference.)
    #[cold]
    pub(crate) fn refund_credit(&mut self, port: PortId, frame: FrameId) {
        let f = self.frames.get(frame);
        if self.has_credits() && !f.payload.is_control() {
            let (priority, len) = (f.priority, f.len);
            self.count_credit(port, priority, len);
            self.give_credit(port, frame);
        }
    }

    /// The neighbour told a new limit. Limits only grow: an old one that comes late changes nothing.
    pub(crate) fn on_credit(&mut self, id: PortId, priority: u8, limit: u64) {
        if let Some(credit) = &mut self.ports[id.index()].credit {
            let known = &mut credit.limit[usize::from(priority)];
            *known = limit.max(*known);
        }
        self.kick(id);
    }

    /// Bytes that the credits of a switch's ports account for.
    pub(crate) fn credited_bytes(&self, switch: SwitchId) -> u64 {
        let ports = self.ports.iter().filter(|p| p.node == Node::Switch(switch));
        let credits = ports.filter_map(|p| p.credit.as_ref());
        credits
            .map(|c| (0..PRIORITIES).map(|p| c.came[p] - c.freed[p]).sum::<u64>())
            .sum()
    }

    /// Most bytes that lie in a buffer beyond what was promised room for; not one, ever.
    pub fn credit_overrun(&self) -> u64 {
        let FlowControl::Credits { buffer, .. } = self.qos.flow_control else {
            return 0;
        };
        let credits = self.ports.iter().filter_map(|p| p.credit.as_ref());
        credits
            .flat_map(|c| (0..PRIORITIES).map(|p| c.came[p] - c.freed[p]))
            .map(|held| held.saturating_sub(u64::from(buffer)))
            .max()
            .unwrap_or(0)
    }
}
