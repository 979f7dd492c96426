//! Work completions.

use core::fmt;

use urxe_core::cq::{Cqe, TmInfo, WcOpcode};
use urxe_core::error::{Fault, WcStatus};
use urxe_wire::{Qpn, Rkey};

use crate::error::{Error, ErrorKind};

/// One completion, as [`crate::Cq::poll`] returns it.
///
/// With an error status only `wr_id`, `status`, `vendor_err` and `qp_num` mean
/// anything; [`Wc::fault`] says which side found what wrong.
///
/// ```
/// use urxe::{Fault, Wc, WcStatus};
///
/// let mut wc = Wc { wr_id: 7, ..Wc::default() };
/// assert!(wc.ok().is_ok());
///
/// wc.vendor_err = Fault::NakRemoteAccess as u32;
/// wc.status = WcStatus::RemAccessErr;
/// assert!(wc.ok().is_err());
/// assert!(wc.to_string().contains("wrong or stale rkey"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_wc")]
pub struct Wc {
    /// The id that the work request was posted with.
    pub wr_id: u64,
    /// The status: success, or the kind of failure.
    pub status: WcStatus,
    /// The operation that completed.
    pub opcode: WcOpcode,
    /// Number of the [`Fault`], 0 on success.
    pub vendor_err: u32,
    /// Bytes received, for receives and READs.
    pub byte_len: u32,
    /// Immediate data, if the message had it, in host order.
    pub imm_data: Option<u32>,
    /// The local rkey that the peer's SEND with invalidate took back.
    pub invalidated_rkey: Option<Rkey>,
    /// The local QP.
    pub qp_num: Qpn,
    /// The QP at the other end.
    pub src_qp: Qpn,
    /// The receive begins with 40 bytes that say where the datagram came from (UD):
    /// [`crate::Context::init_ah_from_wc`] reads them.
    #[doc(alias = "IBV_WC_GRH")]
    pub grh: bool,
    /// The datagram came over IPv4: its header is in the last 20 of the 40 bytes (IBTA A17.4.5.1).
    pub ipv4: bool,
    /// The sender asked for an event.
    pub solicited: bool,
    /// Of a queue with tag matching ([`crate::Pd::create_tm_srq`]): which tag, and what happened to it.
    #[doc(alias = "ibv_wc_read_tm_info")]
    pub tm: TmInfo,
}

impl Wc {
    /// Why it failed: the check that refused, and on which side.
    pub fn fault(&self) -> Fault {
        Fault::from_vendor_err(self.vendor_err).unwrap_or(Fault::None)
    }

    /// True if the operation completed.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.status == WcStatus::Success
    }

    /// The completion itself if the operation succeeded.
    ///
    /// # Errors
    /// An [`Error`] that says what [`Wc::fault`] says.
    pub fn ok(&self) -> Result<&Wc, Error> {
        if self.is_success() {
            return Ok(self);
        }
        let (status, fault, wr_id) = (self.status, self.fault(), self.wr_id);
        Err(ErrorKind::Completion {
            wr_id,
            status,
            fault,
        }
        .into())
    }
}

impl Default for Wc {
    /// A success of nothing, to make arrays for [`crate::Cq::poll`].
    fn default() -> Wc {
        Wc {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            vendor_err: 0,
            byte_len: 0,
            imm_data: None,
            invalidated_rkey: None,
            qp_num: Qpn::new(0),
            src_qp: Qpn::new(0),
            grh: false,
            ipv4: false,
            solicited: false,
            tm: TmInfo::default(),
        }
    }
}

impl From<Cqe> for Wc {
    #[inline]
    fn from(cqe: Cqe) -> Wc {
        Wc {
            wr_id: cqe.wr_id,
            status: cqe.status,
            opcode: cqe.opcode,
            vendor_err: cqe.fault as u32,
            byte_len: cqe.byte_len,
            imm_data: cqe.imm.map(u32::from_be_bytes),
            invalidated_rkey: cqe.invalidated,
            qp_num: cqe.qpn,
            src_qp: cqe.src_qp,
            grh: cqe.grh,
            ipv4: cqe.ipv4,
            solicited: cqe.solicited,
            tm: cqe.tm,
        }
    }
}

impl fmt::Display for Wc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_success() {
            write!(
                f,
                "work request {}: {:?}, {} bytes",
                self.wr_id, self.opcode, self.byte_len
            )
        } else {
            write!(
                f,
                "work request {}: {} ({})",
                self.wr_id,
                self.status,
                self.fault()
            )
        }
    }
}
