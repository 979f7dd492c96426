//! Parameters of a connection: what both sides tell each other.

use urxe_core::qp::attr::AddressVector;
use urxe_core::qp::state::QpType;
use urxe_wire::{Qkey, Qpn};

/// What ports an identifier's belong to, and with that its kind of QP. The numbers are those
/// of service ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[doc(alias = "rdma_port_space")]
pub enum PortSpace {
    /// Datagrams of IP over InfiniBand.
    #[doc(alias = "RDMA_PS_IPOIB")]
    Ipoib = 0x0002,
    /// Connections.
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp = 0x0106,
    /// Datagrams.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp = 0x0111,
    /// Any kind of QP.
    #[doc(alias = "RDMA_PS_IB")]
    Ib = 0x013f,
}

impl PortSpace {
    /// The kind of QP that identifiers of this space usually have.
    pub fn qp_type(self) -> QpType {
        match self {
            PortSpace::Tcp | PortSpace::Ib => QpType::Rc,
            PortSpace::Udp | PortSpace::Ipoib => QpType::Ud,
        }
    }
}

/// The Q_Key of datagrams between QPs that RDMA-CM brought together.
#[doc(alias = "RDMA_UDP_QKEY")]
pub const UDP_QKEY: Qkey = Qkey(0x0123_4567);

/// The terms of a connection: what one side proposes, and what the other finds in its event.
///
/// In an event resources are as the receiver sees them: `responder_resources` is what the
/// peer wants to start and this side may have to serve.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnParam {
    /// For the program at the other end: up to 56 bytes with a request (180 of datagrams), 196 with an answer
    /// (136). In an event it has the full length of the message's field, with zeros at its end.
    pub private_data: Vec<u8>,
    /// READs and atomics that this side can serve at once; [`ConnParam::MAX_DEPTH`] is as many as possible.
    pub responder_resources: u8,
    /// READs and atomics that this side may start at once; the same.
    pub initiator_depth: u8,
    /// Credits tell the sender how many receives are posted.
    pub flow_control: bool,
    /// Retries when no answer comes, 0 to 7. Only a request has it; it holds for both sides.
    pub retry_count: u8,
    /// Retries of *the peer's* sends when this side has no receive posted, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// The QP has a shared receive queue.
    pub srq: bool,
    /// In a call the QP, if the identifier has none attached (0: it has); in an event the peer's.
    pub qp_num: Qpn,
}

impl ConnParam {
    /// As many READs and atomics as the device can.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    pub const MAX_DEPTH: u8 = 0xff;
}

impl Default for ConnParam {
    fn default() -> ConnParam {
        ConnParam {
            private_data: Vec::new(),
            responder_resources: ConnParam::MAX_DEPTH,
            initiator_depth: ConnParam::MAX_DEPTH,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: Qpn::new(0),
        }
    }
}

/// Where a datagram QP is found, or a group.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "rdma_ud_param")]
pub struct UdParam {
    /// Data from the program at the other end.
    pub private_data: Vec<u8>,
    /// The way there, for an address handle.
    pub ah_attr: AddressVector,
    /// The QP there; of a group [`Qpn::MULTICAST`].
    pub qp_num: Qpn,
    /// The Q_Key to send with.
    pub qkey: Qkey,
    /// Of a group: the number that was given when it was joined.
    pub token: u64,
}
