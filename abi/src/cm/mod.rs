//! The functions of `librdmacm.so.1`, one file a family: the handshake itself is `urxe::cm`.
//!
//! Exported by `build.rs` like those in `verbs`. An id that is made without a channel waits inside its functions
//! (`wait.rs`); all others tell what happened through events.

use core::ffi::c_int;

pub(crate) mod address;
pub(crate) mod addrinfo;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod devices;
pub(crate) mod ece;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod id;
pub(crate) mod manager;
pub(crate) mod multicast;
pub(crate) mod option;
pub(crate) mod own_events;
pub(crate) mod param;
pub(crate) mod qp;
pub(crate) mod resolve;
pub(crate) mod srq;
pub(crate) mod strings;
mod wait;

/// `enum rdma_port_space`
const PS_IPOIB: c_int = 0x0002;
const PS_TCP: c_int = 0x0106;
const PS_UDP: c_int = 0x0111;
const PS_IB: c_int = 0x013f;
