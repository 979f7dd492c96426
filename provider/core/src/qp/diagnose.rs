//! Explains why a QP fails, in words. Called once, when it does: the checks say only which
//! of them refused, and the details are put together here.

use urxe_wire::{Packet, Rkey};

use crate::detail::{ErrorDetail, Finding, local_access, remote_access, rights};
use crate::error::Fault;
use crate::mr::{Access, MrTable};
use crate::qp::Qp;
use crate::qp::responder::{Incoming, Refusal};
use crate::work::{MESSAGE_MAX, SendWqe, WrOpcode};

impl Qp {
    /// Notes why the oldest send failed.
    #[cold]
    pub(super) fn note_send_failure(
        &mut self,
        fault: Fault,
        packet: Option<&Packet<'_>>,
        mrs: &MrTable,
    ) {
        let sq = &self.req.sq;
        let wqe = (!sq.is_empty()).then(|| *sq.wqe(sq.head()));
        let (expected, found, hint) = match (fault, &wqe) {
            (Fault::AckTimeout | Fault::SequenceExhausted, _) => self.silence(fault),
            (Fault::RnrExhausted, _) => self.no_receives(),
            (Fault::PeerRefuses, _) => self.refusing(),
            (Fault::PeerGone, _) => ("an answer".into(), "a process that has ended".into(), None),
            (Fault::CqOverrun, _) => (
                "room in the completion queue".into(),
                "none".into(),
                Some("create the queue for all requests that may be outstanding at once"),
            ),
            (_, Some(wqe)) if packet.is_none() || is_local_memory(fault) => {
                self.bad_request(fault, wqe, mrs)
            }
            (_, Some(wqe)) => self.bad_answer(fault, wqe, packet),
            (_, None) => ("a request".into(), "none".into(), None),
        };
        self.last_error = Some(Box::new(ErrorDetail {
            fault,
            wr_id: wqe.map(|wqe| wqe.wr_id),
            expected,
            found,
            hint,
        }));
        self.tell_failure();
    }

    /// Notes why the peer's request was refused.
    #[cold]
    pub(super) fn note_recv_failure(
        &mut self,
        refusal: Refusal,
        packet: Option<&Packet<'_>>,
        mrs: &MrTable,
    ) {
        let (expected, found, hint) = self.refused(refusal, packet, mrs);
        let takes_receive = self.resp.fills_receive() && !self.resp.rq.is_empty();
        self.last_error = Some(Box::new(ErrorDetail {
            fault: refusal.fault(),
            wr_id: takes_receive.then(|| self.resp.rq.front_wr_id()),
            expected,
            found,
            hint,
        }));
        self.tell_failure();
    }

    fn tell_failure(&self) {
        if let Some(detail) = &self.last_error {
            let qpn = self.link.qpn.get();
            tell!(ERROR, qpn, wr_id = ?detail.wr_id, %detail, "the QP fails");
            // Without the feature there is no log.
            let _ = (detail, qpn);
        }
    }

    /// The peer does not answer, or packets are lost without end.
    fn silence(&self, fault: Fault) -> Finding {
        let psn = self.req.una;
        let (remote, qpn) = (self.link.dest.remote, self.link.dest_qpn.get());
        let retries = self.attr.retry_cnt;
        let expected = format!("an acknowledgement of PSN {psn} from QP {qpn:#x} at {remote}");
        let found = match fault {
            Fault::AckTimeout => format!(
                "none, {} times (timeout {}, retry_cnt {retries})",
                u32::from(retries) + 1,
                self.attr.timeout
            ),
            _ => format!("the same gap again after {retries} retries"),
        };
        (expected, found, None)
    }

    fn refusing(&self) -> Finding {
        let remote = self.link.dest.remote;
        (
            format!("a peer at {remote} with the security and the key file of this side"),
            "one that takes no packets of this side".into(),
            Some("compare URXE_SECURITY, and what `urxe key show-id` says of both key files"),
        )
    }

    fn no_receives(&self) -> Finding {
        let (remote, qpn) = (self.link.dest.remote, self.link.dest_qpn.get());
        (
            format!("a receive posted at QP {qpn:#x} at {remote}"),
            format!(
                "none, {} times (rnr_retry {})",
                u32::from(self.attr.rnr_retry) + 1,
                self.attr.rnr_retry
            ),
            Some("post receives before the peer sends, or set rnr_retry to 7 (for ever)"),
        )
    }

    /// A bind or an invalidation.
    fn bad_local(&self, wqe: &SendWqe, mrs: &MrTable) -> Finding {
        let rkey = wqe.rkey.0;
        if wqe.opcode == WrOpcode::LocalInv {
            let expected = "the valid rkey of a type 2 window of this QP";
            let hint = "an ordinary MR is taken back by deregistering it";
            return (expected.into(), format!("{rkey:#010x}"), Some(hint));
        }
        let found = match mrs.check_bind(self.link.accessor(), wqe.rkey, &wqe.bind_mw()) {
            Err(fault) => fault.to_string(),
            Ok(_) => "a state that has changed since".into(),
        };
        (
            format!("a window {rkey:#010x} and an MR that it can be bound to"),
            found,
            None,
        )
    }

    /// The request itself is at fault.
    fn bad_request(&self, fault: Fault, wqe: &SendWqe, mrs: &MrTable) -> Finding {
        if wqe.opcode.is_local() {
            return self.bad_local(wqe, mrs);
        }
        if fault == Fault::MessageTooLong {
            let expected = match wqe.opcode {
                WrOpcode::AtomicWrite => "8 bytes for an ATOMIC WRITE".into(),
                opcode if opcode.is_atomic() => "8 bytes for the result of an atomic".into(),
                _ => format!("at most {MESSAGE_MAX} bytes"),
            };
            return (expected, format!("{} bytes", wqe.length), None);
        }
        let need = if wqe.opcode.returns_data() {
            Access::LOCAL_WRITE
        } else {
            Access::NONE
        };
        let sges = self.req.sq.sges(self.req.sq.head());
        local_access(mrs, sges, self.link.pd, need)
    }

    /// The peer's answer is a refusal, or none that could be.
    fn bad_answer(&self, fault: Fault, wqe: &SendWqe, packet: Option<&Packet<'_>>) -> Finding {
        let answer = packet.map_or_else(|| "nothing".into(), |packet| packet.to_string());
        let request = describe(wqe);
        let expected = match (fault, wqe.opcode) {
            (Fault::UnexpectedResponse, WrOpcode::RdmaRead) => "READ responses to",
            (Fault::UnexpectedResponse, opcode) if opcode.is_atomic() => {
                "an atomic acknowledgement of"
            }
            (Fault::UnexpectedResponse, opcode) if opcode.is_placement() => {
                "an empty READ response to"
            }
            (Fault::ReadResponseLength, _) => "READ responses of the length asked for by",
            _ => "an answer to",
        };
        let hint = match fault {
            Fault::ReadResponseLength => Some("both sides must use the same path MTU"),
            Fault::NakInvalidRequest => Some(why_invalid(wqe.opcode)),
            Fault::NakRemoteAccess => {
                Some("is that the rkey and the range of an MR in the remote QP's PD?")
            }
            _ => None,
        };
        (format!("{expected} {request}"), answer, hint)
    }

    /// The peer's request.
    fn refused(&self, refusal: Refusal, packet: Option<&Packet<'_>>, mrs: &MrTable) -> Finding {
        match (refusal, packet) {
            (Refusal::Local(_), _) => {
                let sges = self.resp.rq.front_sges();
                local_access(mrs, sges, self.resp.recvs.pd, Access::LOCAL_WRITE)
            }
            (Refusal::TooLong, Some(packet)) => {
                let before = match self.resp.incoming {
                    Incoming::Send { received } => received,
                    _ => 0,
                };
                let total = before + packet.payload().len() as u64;
                (
                    format!("a message of at most {} bytes", self.resp.rq.front_length()),
                    format!("one of {total} bytes or more"),
                    Some("post longer receives, or agree on a message size"),
                )
            }
            (Refusal::Memory(need), Some(packet)) => {
                let (rkey, va, len) = self.target(packet);
                remote_access(mrs, rkey, self.link.pd, (va, len), need)
            }
            (refusal, Some(packet)) => self.invalid_request(refusal, packet),
            (_, None) => (
                "the MR that an accepted READ names, until its last response".into(),
                "none".into(),
                Some("the region was deregistered while it was being read"),
            ),
        }
    }

    fn invalid_request(&self, refusal: Refusal, packet: &Packet<'_>) -> Finding {
        let mut found = packet.to_string();
        let (expected, hint) = match (refusal, self.resp.incoming) {
            (Refusal::Sequence, Incoming::Idle) => ("the start of a message".into(), None),
            (Refusal::Sequence, Incoming::Send { .. }) => {
                ("the rest of a Send message".into(), None)
            }
            (Refusal::Sequence, Incoming::Write { .. }) => {
                ("the rest of a Write message".into(), None)
            }
            (Refusal::Queue, incoming) => {
                let srqn = packet.xrceth().map_or(0, |eth| eth.srqn.get());
                found = format!("number {srqn:#x}");
                let expected = match incoming {
                    Incoming::Idle => {
                        "the number of a shared receive queue of this target's XRC domain"
                    }
                    _ => "the shared receive queue that the message began with",
                };
                let hint = "exchange the numbers of the queues when connecting";
                (expected.into(), Some(hint))
            }
            (Refusal::Right(need), _) => {
                found = format!("one that needs {}", rights(need));
                let allowed = rights(self.link.access);
                let expected = format!("an operation that qp_access_flags allow ({allowed})");
                (expected, Some("give this QP the right in INIT or RTR"))
            }
            (Refusal::TooMany, _) => {
                found = "one more".into();
                let max = self.attr.max_dest_rd_atomic;
                let expected =
                    format!("at most {max} READs and atomics outstanding (max_dest_rd_atomic)");
                (
                    expected,
                    Some("the peer's max_rd_atomic must not be larger"),
                )
            }
            (Refusal::Misaligned, _) => {
                found = format!("{:#x}", self.target(packet).1);
                ("an address that is a multiple of 8".into(), None)
            }
            (Refusal::Invalidate, _) => ("an rkey that may be invalidated from afar".into(), None),
            _ => {
                let mtu = self.link.mtu;
                let expected =
                    format!("packets of a path MTU of {mtu} bytes, and as many as announced");
                (expected, Some("both sides must use the same path MTU"))
            }
        };
        (expected, found, hint)
    }

    /// The memory that a request names, or the next packet of a WRITE.
    fn target(&self, packet: &Packet<'_>) -> (Rkey, u64, u64) {
        let here = packet.payload().len() as u64;
        match (packet.reth(), packet.atomic_eth(), self.resp.incoming) {
            (Some(eth), ..) => (eth.rkey, eth.va, eth.dma_len.into()),
            (_, Some(eth), _) => (eth.rkey, eth.va, 8),
            (
                ..,
                Incoming::Write {
                    va, rkey, received, ..
                },
            ) => (rkey, va + u64::from(received), here),
            _ => (Rkey(0), 0, here),
        }
    }
}

/// The fault lies in this side's scatter/gather list.
fn is_local_memory(fault: Fault) -> bool {
    use Fault::*;
    matches!(
        fault,
        LocalKey | LocalPd | LocalBounds | LocalAccess | LocalMemory
    )
}

/// What to look at when the remote QP finds a request invalid.
fn why_invalid(opcode: WrOpcode) -> &'static str {
    match opcode {
        WrOpcode::RdmaRead => {
            "does the remote QP have REMOTE_READ in its qp_access_flags, and \
             max_dest_rd_atomic not below this side's max_rd_atomic?"
        }
        opcode if opcode.is_atomic() => {
            "is the remote address a multiple of 8, and does the remote QP have \
             REMOTE_ATOMIC in its qp_access_flags?"
        }
        WrOpcode::AtomicWrite => {
            "is the remote address a multiple of 8, and does the remote QP have \
             REMOTE_WRITE in its qp_access_flags?"
        }
        WrOpcode::Flush => {
            "does the remote QP have FLUSH_GLOBAL or FLUSH_PERSISTENT, whichever is \
             asked for, in its qp_access_flags?"
        }
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => {
            "does the remote QP have REMOTE_WRITE in its qp_access_flags?"
        }
        _ => "is the receive at the other side as long as this message?",
    }
}

fn describe(wqe: &SendWqe) -> String {
    use WrOpcode::{Send, SendWithImm, SendWithInv};
    let head = format!("{:?} of {} bytes", wqe.opcode, wqe.length);
    match wqe.opcode {
        Send | SendWithImm | SendWithInv => head,
        _ => format!(
            "{head} at {:#x} under rkey {:#010x}",
            wqe.remote_addr, wqe.rkey.0
        ),
    }
}
