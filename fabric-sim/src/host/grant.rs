//! Credit between hosts (RCCC): a receiver's timer, frames with credit, and what a sender does with them.

use crate::congestion::Grant;
use crate::engine::mix64;
use crate::envelope::flow_hash;
use crate::fabric::Fabric;
use crate::frame::{Frame, Payload};
use crate::host::sim::Sim;
use crate::host::timer::TimerFor;
use crate::link::FRAME_MIN;
use crate::qos::Qos;
use crate::topology::HostId;

impl Sim {
    /// Credit has come.
    pub(crate) fn on_grant(&mut self, host: HostId, qpn: u32, packets: u64) {
        let Some(transport) = &mut self.drivers.transports[host.index()] else {
            return;
        };
        let steered = transport.steered.as_mut();
        if let Some((qp, allowance)) = steered.and_then(|s| s.on_grant(qpn, packets)) {
            transport.steer(qp, allowance);
            self.serve(host);
        }
    }

    /// The host may give one of its senders credit.
    pub(crate) fn on_grant_timer(&mut self, host: HostId) {
        let now = self.fabric.now();
        let Some(transport) = &mut self.drivers.transports[host.index()] else {
            return;
        };
        let Some(steered) = &mut transport.steered else {
            return;
        };
        let (grant, next) = steered.pacer.on_timer(now);
        if let Some(at) = next {
            self.set_timer(host, at, TimerFor::Grant);
        }
        if let Some(grant) = grant {
            self.fabric.send_grant(host, grant);
        }
    }
}

impl Fabric {
    /// Sends credit to a sender, as a frame of the shortest length in the class of CNPs.
    fn send_grant(&mut self, host: HostId, grant: Grant) {
        let Grant { to, qpn, packets } = grant;
        let tos = Qos::CNP_TOS;
        let frame = Frame {
            next: None,
            len: FRAME_MIN + self.qos.tag_len(),
            src: host,
            dst: to,
            flow_hash: flow_hash(host, to, qpn as u16),
            ingress: self.port_of(host),
            priority: self.qos.priority_of(tos),
            tos,
            ttl: 64,
            rail: 0,
            is_behind: false,
            born: self.now(),
            digest: mix64(u64::from(qpn) << 32 ^ packets),
            payload: Payload::Grant { qpn, packets },
        };
        self.send(host, frame);
    }
}
