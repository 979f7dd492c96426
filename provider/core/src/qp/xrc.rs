//! Extended reliable connection. The transport is that of RC; but a connection has an
//! initiator, which only sends, and a target, which only answers. Every request names
//! the shared receive queue that it is for: its receives are taken, its protection
//! domain is the one that memory is checked in, and its CQ gets the completions.

use urxe_wire::{Packet, PacketWriter, Service, XrcEth};

use crate::context::{Common, Cx, Host};
use crate::error::DropReason;
use crate::qp::Qp;
use crate::qp::requester::Requester;
use crate::qp::responder::{Incoming, Refusal};
use crate::qp::state::QpType;
use crate::work::PostError;

/// Where the opcodes of the service begin.
pub(crate) const XRC_OPCODES: u8 = 0xa0;

impl Requester {
    /// Names the peer's shared receive queue that the request at the cursor is for.
    pub(crate) fn write_xrceth(&self, writer: &mut PacketWriter<'_>) {
        let srqn = self.sq.srqn(self.cursor);
        writer.xrceth(&XrcEth {
            reserved: 0,
            srqn: srqn.expect("every request of an XRC send queue has one"),
        });
    }
}

impl Qp {
    /// Takes one packet that passed every check of identity.
    pub(crate) fn handle_xrc<H: Host>(&mut self, packet: &Packet<'_>, cx: &mut Cx<'_, '_, H>) {
        let is_target = self.init.qp_type == QpType::XrcRecv;
        if packet.info().is_response() == is_target {
            return cx.common.stats.drop_packet(DropReason::Service);
        }
        // Packets ahead and duplicates are answered without looking at the queue.
        let is_next = is_target && packet.bth().psn == self.resp.epsn;
        if is_next && !self.enter_srq(packet, cx.common) {
            let refusal = self.resp.refuse(Refusal::Queue, cx);
            self.fail_recv(refusal, Some(packet), cx);
            return self.after(cx);
        }
        self.handle_packet(packet, cx);
    }

    /// May the packet be handled now? Over XRC, in the queue that it names.
    pub(crate) fn may_enter(&mut self, packet: &Packet<'_>, common: &Common) -> bool {
        self.service != Service::Xrc || self.enter_srq(packet, common)
    }

    /// The queue that the packet names is the one to work with, if it is of the target's
    /// domain, and the same throughout a message.
    fn enter_srq(&mut self, packet: &Packet<'_>, common: &Common) -> bool {
        let named = self.init.xrcd.zip(packet.xrceth());
        let source = named.and_then(|(xrcd, eth)| common.srqs.xrc_source(xrcd, eth.srqn));
        let Some(source) = source else {
            return false;
        };
        if self.resp.incoming != Incoming::Idle && self.resp.recvs.srqn != source.srqn {
            return false;
        }
        self.link.pd = source.pd;
        self.resp.recvs = source;
        true
    }

    /// Why a request was not taken by a queue that the QP's type does not have.
    #[cold]
    pub(crate) fn post_send_error(&self, error: PostError) -> PostError {
        match self.init.qp_type {
            qp_type @ QpType::XrcRecv => PostError::NoQueue(qp_type),
            _ => error,
        }
    }
}
