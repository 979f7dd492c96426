//! The contents of requests and replies: what both sides tell each other.

use core::net::IpAddr;

use urxe_wire::cm::{PortSpace, SidrStatus};
use urxe_wire::{Psn, Qkey, Qpn};

use super::listeners::ListenerId;
use crate::qp::attr::Mtu;

/// A connection's name in messages, and in calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct CommId(pub u32);

impl CommId {
    /// Place of the connection in its agent: small numbers, given again.
    pub fn place(self, agent: &super::Agent) -> Option<usize> {
        agent.place(self)
    }
}

/// The way of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MadPath {
    /// This side's address.
    pub local: IpAddr,
    /// The other side's.
    pub remote: IpAddr,
    /// Traffic class byte.
    pub tos: u8,
}

/// Kind of connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable.
    Rc,
    /// Unreliable.
    Uc,
    /// Extended reliable.
    Xrc,
}

/// Vendors' options (enhanced connection establishment), carried unread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_ece")]
pub struct VendorOptions {
    /// The vendor, 24 bits; 0 for none.
    pub vendor_id: u32,
    /// The options.
    pub options: u32,
}

/// What one side proposes or accepts. Of a message that was received the resources are
/// crossed already: `responder_resources` is what this side may have to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// The QP.
    pub qpn: Qpn,
    /// PSN that the *receiver* of the message sends with first.
    pub starting_psn: Psn,
    /// READs and atomics to serve at once.
    pub responder_resources: u8,
    /// READs and atomics to start at once.
    pub initiator_depth: u8,
    /// The receive queue gives end-to-end credits.
    pub flow_control: bool,
    /// Retries of both sides, 0 to 7. Only a request has it.
    pub retry_count: u8,
    /// RNR retries of the receiver's QP, 0 to 7.
    pub rnr_retry_count: u8,
    /// The QP has a shared receive queue.
    pub srq: bool,
    /// Vendors' options.
    pub vendor: VendorOptions,
}

/// How long an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Exponent of the time that the other side may take, 0 to 31: 4.096 us times 2 to its power.
    pub response_timeout: u8,
    /// How often a message is sent again, 0 to 15.
    pub max_retries: u8,
    /// How often a peer without a listener is asked again, 0 to 15: after 10 ms first, then each time after twice as
    /// long.
    pub refusals: u8,
}

impl Default for Patience {
    /// Linux's: 4.3 s, 15 times; a refusal is believed at once.
    fn default() -> Patience {
        Patience {
            response_timeout: 20,
            max_retries: 15,
            refusals: 0,
        }
    }
}

/// Bytes of each message of a handshake that goes before a request: what a REQ has room for.
pub const HELLO_LEN: usize = 56;

/// A message of a handshake.
pub type HelloBytes = [u8; HELLO_LEN];

/// A connection to be made.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// The addresses of both sides.
    pub path: MadPath,
    /// Which ports they are.
    pub space: PortSpace,
    /// This side's port.
    pub local_port: u16,
    /// The listener's.
    pub remote_port: u16,
    /// What is proposed.
    pub terms: Terms,
    /// Kind of connection.
    pub transport: Transport,
    /// Payload bytes a packet.
    pub path_mtu: Mtu,
    /// Exponent of the QPs' ACK timeout.
    pub ack_timeout: u8,
    /// How long to wait.
    pub patience: Patience,
    /// For the listener: 56 bytes at most.
    pub private_data: &'a [u8],
    /// What is said before the request, if anything is.
    pub hello: Option<&'a HelloBytes>,
}

/// A datagram QP to be found.
#[derive(Clone, Copy, Debug)]
pub struct DatagramRequest<'a> {
    /// The addresses of both sides.
    pub path: MadPath,
    /// Which ports they are.
    pub space: PortSpace,
    /// This side's port.
    pub local_port: u16,
    /// The listener's.
    pub remote_port: u16,
    /// How long to wait.
    pub patience: Patience,
    /// For the listener: 180 bytes at most.
    pub private_data: &'a [u8],
}

/// How a request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// What is accepted.
    pub terms: Terms,
    /// For the other side: 196 bytes at most.
    pub private_data: &'a [u8],
}

/// How a datagram request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct DatagramAnswer<'a> {
    /// The QP.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: Qkey,
    /// Vendors' options.
    pub vendor: VendorOptions,
    /// For the other side: 136 bytes at most.
    pub private_data: &'a [u8],
}

/// A request that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The listener that it is for.
    pub listener: ListenerId,
    /// The way of the answer.
    pub path: MadPath,
    /// Which ports they are.
    pub space: PortSpace,
    /// The listener's port.
    pub local_port: u16,
    /// The other side's.
    pub remote_port: u16,
    /// What is proposed; of a datagram request without meaning.
    pub terms: Terms,
    /// Kind of connection; `None` for datagrams.
    pub transport: Option<Transport>,
    /// Payload bytes a packet.
    pub path_mtu: Mtu,
    /// Exponent of the QPs' ACK timeout: 1 to 24, whatever the other side says.
    pub ack_timeout: u8,
    /// What the other side's program sent, to the end of its field.
    pub private_data: Box<[u8]>,
}

/// The other side accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A connection.
    Connection {
        /// What it accepts.
        terms: Terms,
        /// What its program sent.
        private_data: Box<[u8]>,
    },
    /// A datagram QP.
    Datagram {
        /// Anything but [`SidrStatus::VALID`] is a refusal.
        status: SidrStatus,
        /// The QP.
        qpn: Qpn,
        /// Its Q_Key.
        qkey: Qkey,
        /// What its program sent.
        private_data: Box<[u8]>,
    },
}

/// Why a call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The connection is not in a state for that, or not there.
    #[error("the connection is in no state for this")]
    State,
    /// All connections are in use.
    #[error("all {0} connections are in use")]
    Full(usize),
    /// The service has a listener.
    #[error("the service has a listener already")]
    InUse,
    /// The private data is too long.
    #[error("{len} bytes of private data, but at most {max} fit")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
}
