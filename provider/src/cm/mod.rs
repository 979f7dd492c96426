//! RDMA-CM: connections and datagrams by IP address and port, compatible on the wire with
//! the kernel's ([CM.md](https://github.com/urxe/urxe/blob/main/docs/CM.md)).
//!
//! Three layers, of which a program picks one:
//!
//! * [`connect`] and [`listen`] give connections that are ready, with a QP and a completion
//!   queue each;
//! * an [`Id`] with a QP attached ([`Id::attach_qp`]): the program takes [`Event`]s from an
//!   [`EventChannel`] as with librdmacm, and the QP's state follows;
//! * an [`Id`] without one ([`Id::set_qp`]): the program brings its QP from state to state
//!   with what [`Id::init_qp_attr`] says.

#[cfg(feature = "tokio")]
mod asynchronous;
mod channel;
mod connecting;
mod connection;
mod ending;
mod error;
mod event;
mod event_kind;
mod groups;
mod id;
mod manager;
mod opening;
mod options;
mod param;
mod ports;
mod qp;
mod queue;
mod resolve;

pub use channel::EventChannel;
pub use connection::{ConnectBuilder, Connection, Listener, connect, listen};
pub use ending::finish_disconnects;
pub use error::CmError;
pub use event::Event;
pub use event_kind::{EventKind, EventParam};
pub use id::Id;
pub use manager::{Manager, Opener};
pub use options::CmOption;
pub use param::{ConnParam, PortSpace, UDP_QKEY, UdParam};
pub use qp::Follower;
pub(crate) use queue::{FailQp, FollowingQp, Mailbox, What};
pub use urxe_wire::cm::RejReason;
