//! The turn of a QP under congestion control, and the input of its controller.

use crate::congestion::{CongestionControl, Controller, FRAME_OVERHEAD_IPV4, FRAME_OVERHEAD_IPV6};
use crate::context::{Cx, Host};
use crate::qp::requester::{Requester, SendStep};
use crate::qp::respond::RespondStep;
use crate::qp::{Qp, Turn};
use crate::time::Time;
use crate::transmit::{TxBatch, TxDest};
use crate::turns::Budget;

/// The ECN bits that say: may be marked (RFC 3168, ECT(0)), as RoCE adapters send them.
const ECN_CAPABLE: u8 = 0b10;
const ECN_BITS: u8 = 0b11;
/// A CNP travels in a class of its own (DSCP 48), and is not marked itself.
const CNP_TOS: u8 = 48 << 2;

impl Requester {
    /// Packets were acknowledged.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, packets: u32, now: Time) {
        self.window.on_ack(packets);
        if let Some(congestion) = &mut self.congestion {
            congestion.on_ack(self.una, packets, now);
            self.window.set_limit(congestion.window());
        }
    }

    /// While a rate keeps everything from leaving (again), the peer cannot answer: the clock for
    /// that starts with the next packet.
    #[inline]
    pub(crate) fn rest_if_paced(&mut self) {
        if self.congestion.is_some() && self.outstanding() == 0 {
            self.retry.await_send();
        }
    }

    /// Packets were lost.
    pub(crate) fn on_loss(&mut self, now: Time) {
        self.window.on_loss();
        if let Some(congestion) = &mut self.congestion {
            congestion.on_loss(now);
            self.window.set_limit(congestion.window());
        }
    }

    /// The packet at `next_psn` leaves for the first time: its round trip is measured if
    /// the peer is to answer it at once.
    pub(crate) fn time_if_asked(&mut self, now: Time) {
        let wqe = self.sq.wqe(self.cursor);
        let at = self.next_psn.distance_from(wqe.first_psn);
        let asks =
            wqe.opcode.is_read_or_atomic() || self.asks_for_ack(at, self.next_psn == wqe.last_psn);
        if asks && let Some(congestion) = &mut self.congestion {
            // Of a READ, the first response ends the round trip.
            congestion.on_asked(self.next_psn, now);
        }
    }
}

impl Qp {
    /// Starts, changes or ends congestion control.
    pub(crate) fn set_congestion(&mut self, control: CongestionControl, burst: u32, now: Time) {
        let old = self.req.congestion.take();
        let is_held = old.is_some_and(|old| old.is_held);
        self.req.congestion = Controller::new(control, burst, now).map(|mut new| {
            // It may still be in the list of those that are held back.
            new.is_held = is_held;
            Box::new(new)
        });
        self.restart_congestion(now);
        self.limit_window();
        self.mark_capable();
    }

    /// The congestion control in use.
    pub(crate) fn congestion(&self) -> CongestionControl {
        let controller = self.req.congestion.as_ref();
        controller.map_or(CongestionControl::None, |c| c.control())
    }

    /// A connection begins.
    pub(crate) fn restart_congestion(&mut self, now: Time) {
        if let Some(congestion) = &mut self.req.congestion {
            congestion.restart(self.link.mtu, now);
        }
    }

    /// The window is never wider than congestion control allows.
    pub(crate) fn limit_window(&mut self) {
        let controller = self.req.congestion.as_ref();
        let limit = controller.map_or(u32::MAX, |c| c.window());
        self.req.window.set_limit(limit);
    }

    /// Packets say that switches may mark them, if marks are of use; a traffic class that
    /// says something about it already stays as it is.
    pub(crate) fn mark_capable(&mut self) {
        let Some(asked) = self.attr.ah_attr.map(|path| path.traffic_class) else {
            return;
        };
        let marks = asked & ECN_BITS == 0 && self.congestion().uses_ecn();
        self.link.dest.tos = if marks { asked | ECN_CAPABLE } else { asked };
    }

    /// The peer says that a switch marked a packet of this QP.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        if let Some(congestion) = &mut self.req.congestion {
            mark!(CnpSlowedDown);
            congestion.on_cnp(now);
        }
    }

    /// As [`Qp::take_turn`], packet by packet as congestion control allows. ACKs and NAKs are
    /// not held back: the peer measures by them.
    pub(crate) fn take_controlled_turn<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Turn {
        let mut turn = Turn::Again;
        while !budget.is_used_up(batch) {
            match self.controlled_step(budget, cx, batch) {
                Ok(()) => {}
                Err(Turn::BatchFull) => return Turn::BatchFull,
                Err(end) => {
                    turn = end;
                    break;
                }
            }
        }
        // While a response is due, the ACK must not overtake it.
        if let RespondStep::BatchFull = self.resp.poll_ack(&self.link, cx, batch) {
            return Turn::BatchFull;
        }
        turn
    }

    /// Sends one packet, or says why not.
    fn controlled_step<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<(), Turn> {
        let response_is_due = self.resp.replay.is_due();
        // A NAK never waits: until it arrives the peer sends in vain.
        let waits = if self.resp.owes_response() {
            response_is_due && self.paces_responses()
        } else {
            self.can_send()
        };
        let controller = self.req.congestion.as_ref();
        let may_send_at = controller.map_or(Time::ZERO, |c| c.may_send_at());
        if waits && may_send_at > cx.now() {
            mark!(PacedByCongestionControl);
            return Err(Turn::Paced(may_send_at));
        }
        let before = batch.bytes().len();
        if self.resp.owes_response() {
            match self.respond(cx, batch) {
                RespondStep::Sent => {
                    if response_is_due && self.paces_responses() {
                        self.charge(batch.bytes().len() - before, cx.now());
                    }
                }
                RespondStep::BatchFull => return Err(Turn::BatchFull),
                RespondStep::Nothing => {}
            }
            return Ok(());
        }
        let may_start = self.may_start().ok_or(Turn::Idle)?;
        match self.req.poll_packet(&self.link, may_start, cx, batch) {
            SendStep::Sent => {
                self.charge(batch.bytes().len() - before, cx.now());
                Ok(())
            }
            SendStep::Local => {
                budget.local += 1;
                Ok(())
            }
            SendStep::BatchFull => Err(Turn::BatchFull),
            SendStep::Blocked => {
                self.on_blocked(cx);
                Err(Turn::Idle)
            }
        }
    }

    fn paces_responses(&self) -> bool {
        let controller = self.req.congestion.as_ref();
        controller.is_some_and(|c| c.paces_responses())
    }

    fn charge(&mut self, bytes: usize, now: Time) {
        let overhead = if self.link.dest.remote.is_ipv4() {
            FRAME_OVERHEAD_IPV4
        } else {
            FRAME_OVERHEAD_IPV6
        };
        if let Some(congestion) = &mut self.req.congestion {
            congestion.on_sent(bytes as u32 + overhead, now);
        }
    }

    /// Puts the CNP that is owed into the batch. Returns false if it has no room.
    pub(crate) fn send_notification<H: Host>(
        &mut self,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> bool {
        if !self.notification.is_owed() {
            return true;
        }
        if self.state().takes_requests() {
            let dest = TxDest {
                tos: CNP_TOS,
                ..self.link.dest
            };
            let Some(slot) = batch.reserve(&dest, urxe_wire::CNP_LEN) else {
                return false;
            };
            let cnp = urxe_wire::cnp(self.link.dest_qpn, &self.link.seed, slot.ident);
            slot.bytes.copy_from_slice(&cnp);
            mark!(CnpSent);
            cx.common.stats.sent_pkts += 1;
            cx.common.stats.sent_cnp += 1;
        }
        self.notification.settle();
        true
    }
}
