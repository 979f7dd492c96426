//! What unreliable connections and datagrams have in common: nothing is acknowledged,
//! so a request is complete when its last packet is in the batch, and a fault of a send
//! stops the send queue alone (SQE).

use urxe_wire::{Packet, Service};

use crate::context::{Cx, Host};
use crate::error::{DropReason, Fault};
use crate::path::RxPath;
use crate::qp::Qp;
use crate::qp::requester::SendStep;
use crate::qp::responder::{Incoming, Refusal};
use crate::qp::state::QpState;
use crate::transmit::TxBatch;
use crate::turns::{Budget, Turn};

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) path: &'a RxPath,
    /// The IPv4 Identification that its ICRC fits with.
    pub(crate) ident: u16,
    /// The one that it was expected to have: its place in the received train.
    pub(crate) ident_hint: u16,
    /// The Identification is more than the QP knows, if the packet is executed (UC).
    pub(crate) is_news: bool,
    /// The Identification was judged already (UD).
    pub(crate) is_believed: bool,
}

/// Why an unreliable request was not carried out.
pub(crate) enum Loss {
    /// The packet is dropped, and the QP goes on.
    Dropped(DropReason),
    /// The receive that is its turn is unusable: the QP fails, as no later message
    /// could be received either.
    Failed(Fault),
}

impl Qp {
    /// True if its requests are never acknowledged.
    #[inline]
    pub(crate) fn is_unreliable(&self) -> bool {
        matches!(self.service, Service::Uc | Service::Ud)
    }

    /// True if packets may come from anywhere: datagrams do, if they were sent to one of
    /// this host's own addresses. (Groups have their own way in.)
    pub(crate) fn hears_anyone(&self, path: &RxPath) -> bool {
        self.service == Service::Ud && !path.local.is_multicast()
    }

    /// Takes one packet that passed every check of identity.
    pub(crate) fn handle_unreliable<H: Host>(
        &mut self,
        arrival: Arrival<'_>,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) {
        let result = if self.service == Service::Ud {
            self.handle_datagram(arrival, packet, cx)
        } else {
            self.note_established(cx);
            self.resp.handle_uc_request(&self.link, packet, cx)
        };
        match result {
            Ok(()) if arrival.is_news => {
                let seen = (arrival.ident, arrival.ident_hint);
                cx.common.learn(self, arrival.path.source, seen, cx.env.now);
            }
            Ok(()) => {}
            Err(Loss::Dropped(reason)) => cx.common.stats.drop_packet(reason),
            Err(Loss::Failed(fault)) => {
                cx.common.stats.responder_err += 1;
                self.resp.incoming = Incoming::Send { received: 0 };
                self.fail_recv(Refusal::Local(fault), Some(packet), cx);
            }
        }
        self.after(cx);
    }

    /// True if a turn would send something.
    pub(crate) fn can_send_unreliable(&self) -> bool {
        match self.state() {
            QpState::Rts => !self.req.sq.is_empty(),
            // What was started is finished.
            QpState::Sqd => !self.req.is_drained(),
            _ => false,
        }
    }

    /// Sends what is due, and completes it.
    pub(crate) fn take_unreliable_turn<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Turn {
        let mut turn = Turn::Again;
        while !budget.is_used_up(batch) {
            if !self.can_send_unreliable() {
                turn = Turn::Idle;
                break;
            }
            let step = if self.service == Service::Ud {
                self.req
                    .poll_datagram(&self.link, self.attr.qkey, cx, batch)
            } else {
                self.req.poll_uc(&self.link, cx, batch)
            };
            match step {
                Ok(SendStep::BatchFull) => {
                    turn = Turn::BatchFull;
                    break;
                }
                Ok(_) if cx.overrun => break,
                Ok(SendStep::Local) => budget.local += 1,
                Ok(_) => {}
                Err(fault) => self.fail_send(fault, None, cx),
            }
        }
        self.after(cx);
        turn
    }

    /// A send failed: the send queue stops and is flushed, receives go on.
    pub(crate) fn stop_sending<H: Host>(&mut self, fault: Fault, cx: &mut Cx<'_, '_, H>) {
        mark!(SqeEntered);
        self.state = QpState::Sqe;
        self.req.flush(fault, &self.link, cx);
        // The rest of the message is never sent: the next one follows its last packet.
        self.req.assign_psn = self.req.next_psn;
    }
}
