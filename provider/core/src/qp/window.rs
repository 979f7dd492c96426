//! The send window: how many packets may be in flight. It keeps a sender from overrunning
//! the receiver's socket buffer; it halves when packets are lost, once a round trip, and grows
//! back as acknowledgements arrive. A path of which nothing is known yet it fills by doubling.

use urxe_wire::Psn;

/// Packets below which losses never narrow a window, unless it is set up otherwise: less could not keep ACKs flowing.
const FLOOR_PACKETS: u32 = 4;
/// Payload of a short packet, at most, and what one takes of the receiver's buffer: alone, some 768 bytes more than it has. While none
/// but short packets are under way, they count for that and not for a path MTU each.
pub(crate) const SHORT_BYTES: u32 = 256;
pub(crate) const SHORT_COST: u32 = 1024;
/// PSNs that may be outstanding, so that old and new can be told apart: 2^23 - 1.
const PSN_SPACE_HALF: u32 = (1 << 23) - 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    max: u32,
    /// Losses narrow it to this at most.
    floor: u32,
    current: u32,
    /// Below it the window doubles each round trip: nothing was lost there yet.
    untried: u32,
    /// Acknowledged packets that have not yet widened the window by one.
    grown: u32,
    /// Losses before this PSN were told of: they are of the round trip that the window was halved for.
    told: Option<Psn>,
    /// The limit of congestion control.
    limit: u32,
    /// Its part of what all QPs may have under way to its destination.
    part: u32,
    /// The narrowest of the three.
    effective: u32,
    /// The same in short packets: a full packet is worth so many.
    effective_short: u32,
    worth: u32,
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
            untried: max,
            grown: 0,
            told: None,
            limit: u32::MAX,
            part: u32::MAX,
            effective: max,
            effective_short: max,
            worth: 1,
        }
        .with_worth(packets_max, mtu)
    }

    fn with_worth(mut self, packets_max: u32, mtu: u32) -> Self {
        self.worth = (mtu / SHORT_COST).min(packets_max / self.max).max(1);
        self.narrow();
        self
    }

    /// This window, which losses narrow to no less than so many packets.
    pub(crate) fn with_floor(self, packets: u32) -> Self {
        SendWindow {
            floor: packets.clamp(FLOOR_PACKETS, self.max),
            ..self
        }
    }

    /// This window, which begins with so many packets.
    pub(crate) fn starting_at(mut self, packets: u32) -> Self {
        self.current = packets.clamp(self.floor, self.max);
        self.narrow();
        self
    }

    /// From here on congestion control alone says how wide it is.
    pub(crate) fn open(&mut self) {
        *self = SendWindow {
            max: PSN_SPACE_HALF,
            current: PSN_SPACE_HALF,
            part: u32::MAX,
            ..*self
        };
        self.narrow();
    }

    /// Packets that may be outstanding now.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.effective
    }

    /// Short packets that may be outstanding now, if there are no others.
    #[inline]
    pub(crate) fn short_packets(&self) -> u32 {
        self.effective_short
    }

    /// Congestion control allows so many packets.
    pub(crate) fn set_limit(&mut self, packets: u32) {
        self.limit = packets;
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
        let bytes = self.current.min(self.part);
        self.effective = bytes.min(self.limit);
        self.effective_short = bytes.saturating_mul(self.worth).min(self.limit);
    }

    /// Packets were acknowledged, and something was heard of those that left before `heard`.
    #[inline]
    pub(crate) fn on_ack(&mut self, packets: u32, heard: Psn) {
        if self.told.is_some() && self.is_news(heard) {
            self.told = None;
        }
        if self.current < self.max {
            // Twice as many after a round trip; or an eighth more, and three more of a wide window: shares of a road become even
            // only if wide windows grow more slowly, in proportion, than narrow ones.
            let step = if self.current < self.untried {
                1
            } else {
                (self.current / 3).max(8)
            };
            self.grown += packets;
            self.current = (self.current + self.grown / step).min(self.max);
            self.grown %= step;
            self.narrow();
        }
    }

    /// A packet was lost, and something was heard of those that left before `heard`; `sent_end` is the first that was never sent. All that
    /// is under way left before anything could be done: what of it is lost, too, is no news.
    pub(crate) fn on_loss(&mut self, heard: Psn, sent_end: Psn) {
        if self.is_news(heard) {
            self.on_silence(sent_end);
        }
    }

    /// A loss that is known now is of another round trip than the last one that was told of.
    pub(crate) fn is_news(&self, heard: Psn) -> bool {
        self.told.is_none_or(|told| !heard.is_before(told))
    }

    /// As [`SendWindow::on_loss`], for a window that stays as it is.
    pub(crate) fn tell(&mut self, heard: Psn, sent_end: Psn) {
        if self.is_news(heard) {
            self.told = Some(sent_end);
        }
    }

    /// Nothing was heard for a whole timeout.
    pub(crate) fn on_silence(&mut self, sent_end: Psn) {
        mark!(WindowShrunk if self.current > self.floor);
        mark!(WindowAtFloor if self.current == self.floor);
        self.current = (self.current / 2).max(self.floor);
        self.untried = self.current;
        self.grown = 0;
        self.told = Some(sent_end);
        self.narrow();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PSN: Psn = Psn::ZERO;

    #[test]
    fn no_window_is_wider_than_half_the_psns() {
        let w = SendWindow::new(u32::MAX, u32::MAX, 256);
        assert_eq!(w.packets(), (1 << 23) - 1);
    }

    #[test]
    fn short_packets_are_worth_less_than_full_ones() {
        let short = |packets_max, mtu| SendWindow::new(64 << 10, packets_max, mtu).short_packets();
        assert_eq!((short(1000, 4096), short(1000, 1024)), (64, 64));
        assert_eq!((short(40, 4096), short(1000, 256)), (32, 256));
        let mut w = SendWindow::new(64 << 10, 1000, 4096);
        w.set_part(4);
        assert_eq!((w.packets(), w.short_packets()), (4, 16));
        w.set_limit(3);
        assert_eq!((w.packets(), w.short_packets()), (3, 3));
    }

    #[test]
    fn congestion_control_narrows_it_below_the_floor() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024);
        w.set_limit(1);
        assert_eq!(w.packets(), 1);
        w.on_silence(PSN);
        w.on_ack(1000, PSN);
        assert_eq!(w.packets(), 1);
        w.set_limit(0);
        assert_eq!((w.packets(), w.short_packets()), (0, 0));
        w.set_limit(u32::MAX);
        assert_eq!(w.packets(), 64);
    }

    #[test]
    fn a_floor_holds_it_open_against_losses() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024).with_floor(20);
        w.on_silence(PSN);
        assert_eq!(w.packets(), 32);
        w.on_silence(PSN);
        assert_eq!(w.packets(), 20);
        w = w.with_floor(u32::MAX);
        w.on_ack(1000, PSN);
        w.on_silence(PSN);
        assert_eq!(w.packets(), 64);
        assert_eq!(w.with_floor(0).floor, FLOOR_PACKETS);
    }

    #[test]
    fn shrinks_on_loss_and_recovers() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024);
        assert_eq!(w.packets(), 64);
        for _ in 0..10 {
            w.on_silence(PSN);
        }
        assert_eq!(w.packets(), FLOOR_PACKETS);
        for _ in 0..8 * 20 {
            w.on_ack(1, PSN);
        }
        assert_eq!(w.packets(), 24);
        for _ in 0..22 * 40 {
            w.on_ack(1, PSN);
        }
        assert_eq!(w.packets(), 64);
        w.on_ack(1000, PSN);
        assert_eq!(w.packets(), 64);
    }

    #[test]
    fn losses_of_one_round_trip_are_one_loss() {
        let mut w = SendWindow::new(64 << 10, 1 << 20, 1024);
        let at = |n: u32| Psn::new(n);
        w.on_loss(at(10), at(74));
        assert_eq!(w.packets(), 32);
        for una in 11..74 {
            w.on_loss(at(una), at(100));
        }
        assert_eq!(w.packets(), 32);
        w.on_loss(at(74), at(106));
        assert_eq!(w.packets(), 16);
        // What was told once does not count for ever: PSNs come again.
        w.on_ack(8, at(106));
        w.on_loss(at(50), at(90));
        assert_eq!(w.packets(), 8);
    }

    #[test]
    fn an_unknown_path_is_filled_by_doubling_until_a_loss() {
        let mut w = SendWindow::new(1 << 20, 1 << 20, 1024).starting_at(32);
        assert_eq!(w.packets(), 32);
        w.on_ack(32, PSN);
        w.on_ack(64, PSN);
        assert_eq!(w.packets(), 128);
        w.on_silence(PSN);
        w.on_ack(64, PSN);
        assert_eq!(w.packets(), 67);
        assert_eq!(w.starting_at(1).packets(), FLOOR_PACKETS);
    }

    #[test]
    fn a_narrow_window_gains_on_a_wide_one() {
        let mut windows = [400, 24].map(|packets| {
            let mut w = SendWindow::new(packets << 10, 1 << 20, 1024);
            w.on_silence(PSN);
            w
        });
        for w in &mut windows {
            let round_trip = w.packets();
            w.on_ack(round_trip, PSN);
        }
        assert_eq!(windows.map(|w| w.packets()), [203, 13]);
    }
}
