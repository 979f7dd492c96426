//! The send window: how many packets may be in flight. It keeps a sender from overrunning
//! the receiver's socket buffer; it halves when packets are lost and grows back as
//! acknowledgements arrive.

/// Packets below which losses never narrow a window, unless it is set up otherwise: less could not keep ACKs flowing.
const FLOOR_PACKETS: u32 = 4;
/// PSNs that may be outstanding, so that old and new can be told apart: 2^23 - 1.
const PSN_SPACE_HALF: u32 = (1 << 23) - 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    max: u32,
    /// Losses narrow it to this at most.
    floor: u32,
    current: u32,
    /// Acknowledged packets that have not yet widened the window by one.
    grown: u32,
    /// The limit of congestion control.
    limit: u32,
    /// Its part of what all QPs may have under way to its destination.
    part: u32,
    /// The narrowest of the three.
    effective: u32,
}

impl SendWindow {
    /// A window of about `bytes` for packets of `mtu` bytes, but no more packets
    /// than `packets_max`.
    pub(crate) fn new(bytes: u32, packets_max: u32, mtu: u32) -> Self {
        let max = (bytes / mtu).clamp(
            FLOOR_PACKETS,
            packets_max.clamp(FLOOR_PACKETS, PSN_SPACE_HALF),
        );
        SendWindow {
            max,
            floor: FLOOR_PACKETS,
            current: max,
            grown: 0,
            limit: u32::MAX,
            part: u32::MAX,
            effective: max,
        }
    }

    /// This window, which losses narrow to no less than so many packets.
    pub(crate) fn with_floor(self, packets: u32) -> Self {
        SendWindow {
            floor: packets.clamp(FLOOR_PACKETS, self.max),
            ..self
        }
    }

    /// Packets that may be outstanding now.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.effective
    }

    /// Congestion control allows so many packets, at least one.
    pub(crate) fn set_limit(&mut self, packets: u32) {
        self.limit = packets.max(1);
        self.narrow();
    }

    /// Of all packets to its destination it may have so many under way, but always one: what others have under way must
    /// not stop it.
    pub(crate) fn set_part(&mut self, packets: u32) {
        self.part = packets.max(1);
        self.narrow();
    }

    #[inline]
    fn narrow(&mut self) {
        self.effective = self.current.min(self.limit).min(self.part);
    }

    /// Packets were acknowledged.
    #[inline]
    pub(crate) fn on_ack(&mut self, packets: u32) {
        if self.current < self.max {
            // One more packet for every eight that arrived.
            self.grown += packets;
            self.current = (self.current + self.grown / 8).min(self.max);
            self.grown %= 8;
            self.narrow();
        }
    }

    /// Packets were lost.
    pub(crate) fn on_loss(&mut self) {
        mark!(WindowShrunk if self.current > self.floor);
        mark!(WindowAtFloor if self.current == self.floor);
        self.current = (self.current / 2).max(self.floor);
        self.grown = 0;
        self.narrow();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_wider_than_half_the_psns() {
        let w = SendWindow::new(u32::MAX, u32::MAX, 256);
        assert_eq!(w.packets(), (1 << 23) - 1);
    }

    #[test]
    fn congestion_control_narrows_it_below_the_floor() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024);
        w.set_limit(1);
        assert_eq!(w.packets(), 1);
        w.on_loss();
        w.on_ack(1000);
        assert_eq!(w.packets(), 1);
        w.set_limit(0);
        assert_eq!(w.packets(), 1);
        w.set_limit(u32::MAX);
        assert_eq!(w.packets(), 64);
    }

    #[test]
    fn a_floor_holds_it_open_against_losses() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024).with_floor(20);
        w.on_loss();
        assert_eq!(w.packets(), 32);
        w.on_loss();
        assert_eq!(w.packets(), 20);
        w = w.with_floor(u32::MAX);
        w.on_ack(1000);
        w.on_loss();
        assert_eq!(w.packets(), 64);
        assert_eq!(w.with_floor(0).floor, FLOOR_PACKETS);
    }

    #[test]
    fn shrinks_on_loss_and_recovers() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024);
        assert_eq!(w.packets(), 64);
        for _ in 0..10 {
            w.on_loss();
        }
        assert_eq!(w.packets(), FLOOR_PACKETS);
        for _ in 0..8 * 60 {
            w.on_ack(1);
        }
        assert_eq!(w.packets(), 64);
        w.on_ack(1000);
        assert_eq!(w.packets(), 64);
    }
}
