//! What events say.

use core::fmt;

use super::param::{ConnParam, UdParam};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What happened, with the numbers and names of `enum rdma_cm_event_type`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[doc(alias = "rdma_cm_event_type")]
        pub enum EventKind { $($(#[$doc])* $name = $number,)* }

        impl EventKind {
            /// Every kind, in order of its number.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),*];

            /// Its name in C.
            #[doc(alias = "rdma_event_str")]
            pub fn name(self) -> &'static str {
                match self { $(EventKind::$name => concat!("RDMA_CM_EVENT_", $text),)* }
            }
        }
    };
}

kinds! {
    /// [`Id::resolve_addr`](super::Id::resolve_addr): the device is known.
    AddrResolved = 0, "ADDR_RESOLVED";
    /// The address was not resolved.
    AddrError = 1, "ADDR_ERROR";
    /// [`Id::resolve_route`](super::Id::resolve_route): the path is known.
    RouteResolved = 2, "ROUTE_RESOLVED";
    /// The route was not resolved.
    RouteError = 3, "ROUTE_ERROR";
    /// A peer wants to connect: accept or reject its new identifier.
    ConnectRequest = 4, "CONNECT_REQUEST";
    /// The peer accepted; as no QP is attached, bring it to RTS and then [`Id::establish`](super::Id::establish).
    ConnectResponse = 5, "CONNECT_RESPONSE";
    /// The connection could not be made.
    ConnectError = 6, "CONNECT_ERROR";
    /// The peer does not answer; of datagrams, or has no such service.
    Unreachable = 7, "UNREACHABLE";
    /// The peer refused; [`Event::status`](super::Event::status) is the reason, as REJ has it.
    Rejected = 8, "REJECTED";
    /// The connection is there.
    Established = 9, "ESTABLISHED";
    /// The connection ended, or the peer asks to end it.
    Disconnected = 10, "DISCONNECTED";
    /// The interface of the device was removed: destroy the identifier.
    DeviceRemoval = 11, "DEVICE_REMOVAL";
    /// The group was joined.
    MulticastJoin = 12, "MULTICAST_JOIN";
    /// The group was not joined, or was lost.
    MulticastError = 13, "MULTICAST_ERROR";
    /// The interface has another address on its link (MAC).
    AddrChange = 14, "ADDR_CHANGE";
    /// Packets of the old connection can be under way no longer; the QP may be used again.
    TimewaitExit = 15, "TIMEWAIT_EXIT";
    /// The program asked for addresses by a name, and has them ([`Id::write_event`](super::Id::write_event)).
    AddrInfoResolved = 16, "ADDRINFO_RESOLVED";
    /// There are none of that name.
    AddrInfoError = 17, "ADDRINFO_ERROR";
    /// An event of the program's own ([`Id::write_event`](super::Id::write_event)).
    User = 18, "USER";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parameters of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EventParam {
    /// Nothing.
    None,
    /// Parameters of a connection.
    Conn(ConnParam),
    /// Parameters of a datagram service or group.
    Ud(UdParam),
    /// What the program gave with an event of its own.
    User(u64),
}
