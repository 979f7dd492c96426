//! Connections: their ends, and their attributes.

use urxe_core::SourcePorts;
use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::Mtu;
use urxe_core::table::QpIndex;
use urxe_wire::Qpn;

use crate::congestion::Steering;
use crate::envelope::flow_hash;
use crate::fabric::Fabric;
use crate::topology::HostId;

/// A QP of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpHandle {
    /// The host.
    pub host: HostId,
    /// Its place in the host's shard.
    pub index: QpIndex,
    /// Its number.
    pub qpn: Qpn,
}

/// Attributes of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Payload bytes a packet.
    pub mtu: Mtu,
    /// DSCP and ECN of its packets: decides their class.
    pub tos: u8,
    /// Local ACK timeout code: 4.096 us times 2 to its power.
    pub timeout: u8,
    /// Retries after timeouts and NAKs.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 is for ever.
    pub rnr_retry: u8,
    /// READs and atomics that may be outstanding, each way.
    pub rd_atomic: u8,
    /// How its QPs react to congestion, both of them.
    pub congestion: CongestionControl,
    /// An algorithm that takes its place; it needs [`CongestionControl::Steered`].
    pub steering: Option<Steering>,
    /// The plane that its packets stay in, both ways, if its hosts have several and that leads there.
    pub plane: Option<u8>,
    /// The plane at the other host, of [rails](crate::Topology::with_rails) that spines join; without, the same.
    pub to_plane: Option<u8>,
}

impl Default for ConnectOptions {
    /// 1024 bytes a packet in the lossless class; a timeout of 17 ms, 7 retries of each kind, 16 READs, no
    /// congestion control.
    fn default() -> Self {
        ConnectOptions {
            mtu: Mtu::Mtu1024,
            tos: crate::Qos::ROCE_TOS,
            timeout: 12,
            retry_cnt: 7,
            rnr_retry: 7,
            rd_atomic: 16,
            congestion: CongestionControl::None,
            steering: None,
            plane: None,
            to_plane: None,
        }
    }
}

/// Has the packets that one end of a connection sends stay in the planes that were asked for.
pub(super) fn pin_planes(
    fabric: &mut Fabric,
    (end, peer): (QpHandle, QpHandle),
    options: &ConnectOptions,
    is_first: bool,
) {
    let (here, there) = (options.plane, options.to_plane);
    let (leaves, arrives) = match is_first {
        true => (here, there),
        false => (there.or(here), there.and(here)),
    };
    let port = SourcePorts::PerQp.port(end.qpn, peer.qpn);
    let hash = flow_hash(end.host, peer.host, port);
    if let Some(plane) = leaves {
        fabric.set_plane(end.host, hash, plane);
    }
    if let Some(plane) = arrives {
        fabric.set_arrival_plane(end.host, hash, plane);
    }
}
