//! Which requests a send queue takes: what the service can carry.

use urxe_wire::Qpn;

use crate::mr::PdId;
use crate::qp::state::QpType;
use crate::work::{PostError, SendWr, WrOpcode};

/// What a send queue checks every request against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRules {
    /// The service of the queue's QP.
    pub qp_type: QpType,
    /// Its protection domain, to which address handles must belong.
    pub pd: PdId,
    /// Bytes of a datagram at most: the port's MTU.
    pub datagram_max: u32,
    /// The QP takes its receives from a queue with tag matching, and READs for it.
    pub has_tags: bool,
}

impl SendRules {
    /// Everything that a reliable connection carries.
    pub const RC: SendRules = SendRules {
        qp_type: QpType::Rc,
        pd: PdId(0),
        datagram_max: 0,
        has_tags: false,
    };

    /// Checks a request of `length` bytes that is not for a reliable connection.
    pub(crate) fn check(&self, wr: &SendWr<'_>, length: u32) -> Result<(), PostError> {
        use WrOpcode::{RdmaWrite, RdmaWriteWithImm, Send, SendWithImm};
        let (qp_type, opcode) = (self.qp_type, wr.opcode);
        let carries = match qp_type {
            QpType::Rc => true,
            QpType::Uc => {
                let data = matches!(opcode, Send | SendWithImm | RdmaWrite | RdmaWriteWithImm);
                data || opcode.is_local()
            }
            QpType::Ud => matches!(opcode, Send | SendWithImm),
            QpType::XrcSend => !opcode.is_placement(),
            QpType::XrcRecv => false,
        };
        if !carries {
            return Err(PostError::NotCarried { opcode, qp_type });
        }
        if qp_type == QpType::XrcSend && wr.srqn.is_none() && !opcode.is_local() {
            return Err(PostError::NoSrqn);
        }
        if qp_type != QpType::Ud {
            return Ok(());
        }
        let Some(to) = wr.ud else {
            return Err(PostError::NoAddress);
        };
        if to.ah.pd() != self.pd {
            return Err(PostError::ForeignAddress);
        }
        if to.qpn == Qpn::new(0) {
            return Err(PostError::NoDestination);
        }
        // Adapters differ: IBTA C10-93.1.1 has the request complete although nothing is
        // sent, drivers refuse it here. A refusal is what the caller can act upon.
        if length > self.datagram_max {
            return Err(PostError::DatagramTooLong {
                given: length,
                max: self.datagram_max,
            });
        }
        Ok(())
    }
}
