//! Congestion control of connections.

use urxe_core::congestion::CongestionControl;

use crate::error::Error;
use crate::qp::Qp;

impl Qp {
    /// Sets how this QP reacts to congestion, from its next packet on. A new QP does as its context
    /// ([`crate::ContextBuilder::congestion`]).
    ///
    /// * [`CongestionControl::Window`] and [`CongestionControl::Delay`] need nothing of the
    ///   peer.
    /// * [`CongestionControl::Dcqcn`] marks packets as ECN-capable. Set it at both ends:
    ///   the receiving one looks for marks of switches, and answers them with congestion
    ///   notifications, from then on. (So does one with ECN bits in its traffic class.)
    ///
    /// Rates are kept by the engine's clock: up to 32 KiB may leave in one go.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// use urxe::congestion::{CongestionControl, DcqcnParams, Rate};
    ///
    /// let context = urxe::Context::open("127.81.0.31".parse().unwrap())?;
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let qp = pd.qp(&cq).create()?;
    /// qp.set_congestion_control(CongestionControl::Dcqcn(DcqcnParams::at(Rate::from_gbps(10))))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::Congestion`] if the QP is not of RC or XRC, or a parameter makes
    /// no sense.
    pub fn set_congestion_control(&self, control: CongestionControl) -> Result<(), Error> {
        let engine = self.engine();
        engine.set_congestion_control(self.shared(), control)
    }

    /// How this QP reacts to congestion.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn congestion_control(&self) -> Result<CongestionControl, Error> {
        self.engine().congestion_control(self.shared())
    }
}
