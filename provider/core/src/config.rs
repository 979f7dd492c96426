//! Settings of a shard, and limits of its objects.

use urxe_wire::IcrcPolicy;

use crate::congestion::CongestionControl;
use crate::qp::attr::Mtu;
use crate::transmit::SourcePorts;

/// What a shard is told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// Makes QPNs unpredictable; different for every shard and run.
    pub secret: u64,
    /// Bytes of payload that a QP may have under way. More than the receiver's
    /// socket buffer holds is lost.
    pub window_bytes: u32,
    /// Bytes that all QPs together may have under way to one address, but for a packet that each may have; `u32::MAX`: they are not
    /// looked at together.
    pub destination_bytes: u32,
    /// As many while small messages go to that address beside streams, to be before the packets that wait there.
    pub destination_bytes_beside: u32,
    /// Packets that a QP may have under way.
    pub window_packets: u32,
    /// Packets to which losses narrow the window at most, at least 4; with as many as the widest window has, losses do not
    /// narrow it.
    pub window_packets_min: u32,
    /// Packets that the window begins with, at least `window_packets_min`. Less than the widest window has: it doubles with each round trip, until
    /// the first loss.
    pub window_packets_start: u32,
    /// Bytes that one READ request asks for; longer READs are cut.
    pub read_chunk_bytes: u32,
    /// The port's active MTU.
    pub mtu_max: Mtu,
    /// How ICRCs are verified.
    pub icrc: IcrcPolicy,
    /// Which UDP source port connections use.
    pub source_ports: SourcePorts,
    /// The space of QPNs is shared with others: only numbers of chunks that were
    /// granted are given out.
    pub shares_qpns: bool,
    /// How new QPs of services that acknowledge react to congestion.
    pub congestion: CongestionControl,
    /// Packets that are built without an ICRC ([`crate::transmit::TxDest::in_memory`]) can be lost: on purpose, or because they are sealed and
    /// pass a network.
    pub memory_loses: bool,
    /// Every message asks for an acknowledgement, also those that could do without: where something looks at which requests are under way.
    pub all_ask: bool,
    /// What is done about packets that are lost.
    pub recovery: Recovery,
    /// Bytes that all QPs together keep of packets ahead of gaps; what is beyond is dropped.
    pub keep_bytes: usize,
    /// Bytes that a QP under congestion control may send in one go, ahead of the time that
    /// its rate gives them: some packets where a wake-up for each would cost too much, 0 in
    /// virtual time.
    pub pace_burst_bytes: u32,
}

impl ShardConfig {
    /// READs and atomics that a QP may have outstanding, either way.
    pub const RD_ATOMIC_MAX: u8 = 128;
}

impl Default for ShardConfig {
    fn default() -> Self {
        ShardConfig {
            secret: 0,
            window_bytes: 256 << 10,
            destination_bytes: u32::MAX,
            destination_bytes_beside: u32::MAX,
            window_packets: 1024,
            window_packets_min: 4,
            window_packets_start: u32::MAX,
            read_chunk_bytes: 64 << 10,
            mtu_max: Mtu::Mtu4096,
            icrc: IcrcPolicy::SolveIdent,
            source_ports: SourcePorts::Roce,
            shares_qpns: false,
            congestion: CongestionControl::None,
            memory_loses: false,
            all_ask: false,
            recovery: Recovery::default(),
            keep_bytes: 64 << 20,
            pace_burst_bytes: 32 << 10,
        }
    }
}

/// What a shard does about packets that are lost. Each is RoCEv2, and any two understand each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// As adapters do: a responder drops what is ahead of a gap, and everything is sent again.
    GoBackN,
    /// A responder keeps what is ahead of a gap until it is filled. A peer that sends it again nevertheless loses nothing.
    Keep,
    /// The same; and with a peer that does it too, the responder says which packets are here, and the requester sends the others. They know it of
    /// each other by [`crate::Shard::set_selective_peer`], or learn it from what the other one does about losses.
    #[default]
    Selective,
}

/// Largest queues and lists that a QP can be created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLimits;

impl QpLimits {
    /// Work requests in a queue.
    pub const WR_MAX: u32 = 1 << 15;
    /// Scatter/gather entries in a request.
    pub const SGE_MAX: u32 = 32;
    /// Inline bytes in a request.
    pub const INLINE_MAX: u32 = 1024;
}
