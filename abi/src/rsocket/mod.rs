//! rsockets: the calls of sockets over RDMA (`rdma/rsocket.h`), compatible on the wire with the distributions' library.
//!
//! Exported by `build.rs` like the functions in `verbs`. The preload library that comes with librdmacm
//! (`librspreload.so`) puts them in place of the C library's, so nothing here may call those for sockets of its own:
//! `sys` makes system calls by number.

#[cfg(test)]
mod alone;
pub(crate) mod calls;
mod datagram;
pub(crate) mod epoll;
mod keepalive;
pub(crate) mod mapping;
pub(crate) mod options;
pub(crate) mod poll;
mod settings;
mod stream;
mod sys;
mod table;
pub(crate) mod transfer;
mod wire;

#[cfg(feature = "fuzzing")]
pub(crate) use stream::hostile;
pub(crate) use table::close_all;
