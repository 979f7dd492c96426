//! A library for `LD_PRELOAD`: what a program opens or asks for under `/sys/class/infiniband`,
//! `/sys/class/infiniband_verbs` and `/dev/infiniband` is looked for in the tree at `$URXE_ROOT`; and what it reads from the
//! drop-in library's channels are events, as from the kernel.
//!
//! Most programs ask libibverbs for everything. Some (UCX) look at these files themselves, and take no device
//! without them; only the kernel and root can make such files at the real places. Without `URXE_ROOT` in the
//! environment every call passes through as it is.
//!
//! - `hooks`: the functions of the C library that take paths; `next`: how those behind them are reached;
//! - `redirect`: which paths, and where to;
//! - `netlink`: sockets to the kernel's RDMA subsystem, by the functions in `socket_hooks`; `nldev`: what is answered there;
//! - `channels`: descriptors of the drop-in library's channels, of which events are read by the functions in `read_hooks`;
//! - `foreign`: says so when a library that looks at these paths is a libibverbs other than urxe's;
//! - `cleanup`: the tree of a process goes with the process.

mod channels;
mod cleanup;
mod foreign;
mod hooks;
mod netlink;
mod next;
mod nldev;
mod read_hooks;
mod redirect;
mod socket_hooks;
