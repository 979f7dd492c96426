//! A shard's state for congestion control: QPs that wait for their rate, and notifications.

use core::cmp::Reverse;

use urxe_wire::Service;

use crate::congestion::{CongestionControl, Controller, Rate};
use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::shard::Shard;
use crate::table::QpIndex;
use crate::time::Time;
use crate::transmit::TxBatch;

/// The ECN bits of a packet that a switch marked (RFC 3168).
pub(crate) const CONGESTION_EXPERIENCED: u8 = 0b11;

/// Why congestion control was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CongestionError {
    /// The QP does not exist.
    #[error("no such QP")]
    NoQp,
    /// Only services that acknowledge can be controlled.
    #[error("congestion control is for RC and XRC QPs: the others hear nothing from their peers")]
    Service,
    /// A parameter makes no sense.
    #[error("{0}")]
    Value(&'static str),
}

impl Shard {
    /// Sets how a connected QP reacts to congestion, from its next packet on.
    ///
    /// # Errors
    /// [`CongestionError`], and nothing has changed.
    pub fn set_congestion_control(
        &mut self,
        index: QpIndex,
        control: CongestionControl,
        now: Time,
    ) -> Result<(), CongestionError> {
        let qp = self.qps.at_mut(index).ok_or(CongestionError::NoQp)?;
        if !matches!(qp.service, Service::Rc | Service::Xrc) {
            return Err(CongestionError::Service);
        }
        control.check().map_err(CongestionError::Value)?;
        qp.set_congestion(control, &self.common.config, now);
        self.after_change(index);
        self.settle(index);
        Ok(())
    }

    /// Sets what a QP with [`CongestionControl::Steered`] may do from its next packet on: packets under way (0: nothing new leaves), and a rate. Of other QPs it
    /// changes nothing, and returns false.
    pub fn steer(&mut self, index: QpIndex, window: u32, rate: Option<Rate>) -> bool {
        let controller = self.controller(index);
        let steered = controller.is_some_and(|controller| controller.steer(window, rate));
        if steered && let Some(qp) = self.qps.at_mut(index) {
            qp.limit_window();
            self.settle(index);
        }
        steered
    }

    /// A QP that chooses found that its path may want a model, or none any more.
    #[cold]
    pub(crate) fn reconsider(&mut self, index: QpIndex, now: Time) {
        if let Some(qp) = self.qps.at_mut(index) {
            let rtt_min = self.destinations.rtt_min(&qp.link.dest.remote);
            if qp.choose(rtt_min, &self.common.config, now) {
                self.after_change(index);
            }
        }
    }

    /// The QP may have a controller now, or none.
    fn after_change(&mut self, index: QpIndex) {
        if let Some(qp) = self.qps.at_mut(index) {
            qp.find_way(&mut self.destinations, &self.common.config);
        }
        // From here on the list has a place for it.
        self.paced
            .reserve(self.qps.len().saturating_sub(self.paced.len()));
    }

    /// A new QP reacts to congestion as the configuration says.
    pub(crate) fn begin_congestion_control(&mut self, index: QpIndex) {
        let control = self.common.config.congestion;
        if control != CongestionControl::None
            && let Some(qp) = self.qps.at_mut(index)
            && matches!(qp.service, Service::Rc | Service::Xrc)
        {
            // The time of its start is that of the connection.
            qp.set_congestion(control, &self.common.config, Time::ZERO);
            self.after_change(index);
        }
    }

    /// How a QP reacts to congestion; `None` if there is no such QP.
    pub fn congestion_control(&self, index: QpIndex) -> Option<CongestionControl> {
        Some(self.qps.at(index)?.congestion())
    }

    /// A packet for the QP was marked on its way: its peer is told.
    #[cold]
    pub(crate) fn on_marked(&mut self, index: QpIndex, now: Time) {
        let Some(qp) = self.qps.at_mut(index) else {
            return;
        };
        let was_owed = qp.notification.is_owed();
        qp.notification.on_marked(now);
        if qp.notification.is_owed() && !was_owed {
            self.notifies.push_back(index);
        }
    }

    /// Sends the notifications that are owed. Returns false if the batch is full before.
    #[cold]
    pub(crate) fn send_notifications<M: Memory, C: CqSink>(
        &mut self,
        env: &mut Env<'_, M, C>,
        batch: &mut TxBatch,
    ) -> bool {
        while let Some(&index) = self.notifies.front() {
            if let Some(qp) = self.qps.at_mut(index)
                && !qp.send_notification(&mut Cx::new(env, &mut self.common), batch)
            {
                return false;
            }
            self.notifies.pop_front();
        }
        true
    }

    /// The QP sends nothing more before `until`.
    pub(crate) fn hold_paced(&mut self, index: QpIndex, until: Time) {
        if let Some(controller) = self.controller(index)
            && !controller.is_held
        {
            controller.is_held = true;
            self.paced.push(Reverse((until, index)));
        }
    }

    /// QPs that are due join the turns.
    pub(crate) fn release_paced(&mut self, now: Time) {
        while let Some(&Reverse((until, index))) = self.paced.peek()
            && until <= now
        {
            self.paced.pop();
            if let Some(controller) = self.controller(index) {
                controller.is_held = false;
                self.settle(index);
            }
        }
    }

    fn controller(&mut self, index: QpIndex) -> Option<&mut Controller> {
        self.qps.at_mut(index)?.req.congestion.as_deref_mut()
    }
}
