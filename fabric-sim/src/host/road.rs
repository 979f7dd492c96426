//! What an algorithm of congestion control is told of the way between two hosts.

use crate::congestion::Road;
use crate::engine::Span;
use crate::envelope::IP_UDP_LEN;
use crate::fabric::frame_len;
use crate::flow::FlowSpec;
use crate::host::connect::ConnectOptions;
use crate::host::sim::Sim;
use crate::link::FRAME_GAP;
use crate::topology::HostId;

impl Sim {
    /// The way from a host to another, for full packets.
    pub(super) fn road(&self, from: HostId, to: HostId, options: &ConnectOptions) -> Road {
        let qos = &self.fabric.config().qos;
        let frame = |payload: u32| frame_len(IP_UDP_LEN + 16 + payload, qos);
        let topology = self.fabric.topology();
        let (mut base_rtt, mut hops) = (Span::ZERO, 0);
        for (a, b, len) in [(from, to, frame(options.mtu.bytes())), (to, from, frame(4))] {
            for port in self.fabric.path(&FlowSpec::new(a, b)).unwrap_or_default() {
                let link = topology.link_at(port);
                base_rtt += link.delay + self.fabric.latency_of(port) + link.occupancy(len);
                hops += 1;
            }
        }
        Road {
            base_rtt,
            rate: self.fabric.rate_of(from),
            switches: hops / 2 - 1,
            packet: frame(options.mtu.bytes()) + FRAME_GAP,
        }
    }
}
